"""Read a bundle without trusting it: a directory or .zip with manifest.json, or one record file of `lanewise bench model`.

Sizes, names and kinds of files are checked before anything is read; whatever is wrong ends as one line (EvidenceError).
"""

import math
import os
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lanewise.bench import manifest as schema
from lanewise.bench import model
from lanewise.bench.seal import SEAL, seal_text
from lanewise.errors import EvidenceError, ModelFileError
from lanewise.evidence.record import require_record
from lanewise.files.json_file import parse_object

__all__ = ["Bundle", "open_bundle"]

# A run of a hundred pairs with its surroundings takes 1 MB.
_MOST_BYTES: Final = 16 << 20
_MOST_ZIP: Final = 8 << 20
_MOST_SEAL: Final = 1 << 10
_MOST_ENTRIES: Final = 1000
_MOST_INTEGER: Final = 2**63
_ACCEPTED: Final = "a bundle is a directory or .zip with manifest.json, or a record file of lanewise bench model"
# What the schema says of a round whose samples are not those of its order: the bundle can be read, and that is a reason to refuse it.
_OF_SAMPLES: Final = re.compile(r"rounds\[\d+\](\.samples|\.control|\.order)? is (no list of|in order) ")


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle: its ID (the name of its directory, .zip or record, without the ending), where it lies, and what it says.

    seal is what lies beside the manifest, sealed what should; faults: rounds that hold other samples than their order names, in words.
    """

    id: str
    path: Path
    manifest: dict[str, Any]
    seal: str | None
    sealed: str
    faults: tuple[str, ...] = ()

    @property
    def is_record(self) -> bool:
        """Whether it is a record of `lanewise bench model`: rates of one thing, where an evidence bundle compares two."""
        return bool(self.manifest["schema"] == model.SCHEMA)

    @property
    def figures(self) -> dict[str, Any]:
        return dict(self.manifest["figures"])


def open_bundle(path: Path) -> Bundle:
    """The bundle at a path. Raises EvidenceError when it cannot be read, is hostile, or its fields are not those of the schema."""
    raw, seal = _raw(path)
    try:
        found = parse_object(path, "the manifest", raw)
    except ModelFileError as error:
        raise EvidenceError(f"{path}: {error.field} is {error.value}; {error.allowed}") from None
    _require_finite(path, found)
    faults: list[str] = []
    if found.get("schema") == model.SCHEMA:
        require_record(path, found)
    else:
        wrong = schema.complaints(found)
        faults = [one for one in wrong if _OF_SAMPLES.match(one)]
        others = [one for one in wrong if not _OF_SAMPLES.match(one)]
        if others:
            more = f" ({len(others) - 1} more)" if len(others) > 1 else ""
            raise EvidenceError(f"{path}: no evidence bundle: {others[0]}{more}")
    return Bundle(_id(path), path, found, seal, seal_text(raw), tuple(faults))


def _id(path: Path) -> str:
    name = path.resolve().name
    return name if path.is_dir() else name.removesuffix(".zip").removesuffix(".json")


def _raw(path: Path) -> tuple[bytes, str | None]:
    """The manifest's bytes, and its seal where one is there."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path}: {_words(error)}; {_ACCEPTED}") from None
    if stat.S_ISDIR(mode):
        seal = _read(path / SEAL, _MOST_SEAL) if (path / SEAL).is_symlink() or (path / SEAL).exists() else None
        return _read(path / schema.NAME), _text(seal)
    if not stat.S_ISREG(mode):
        raise EvidenceError(f"{path}: neither a file nor a directory; {_ACCEPTED}")
    if path.suffix == ".json":
        return _read(path), None
    if path.suffix == ".zip":
        return _unzipped(path)
    raise EvidenceError(f"{path}: the name ends with neither .zip nor .json; {_ACCEPTED}")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _read(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The bytes of an ordinary file of at most `most`; a link is not followed, and a pipe not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise EvidenceError(f"{path}: {_words(error)}; {_ACCEPTED}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EvidenceError(f"{path}: not an ordinary file; {_ACCEPTED}")
        if status.st_size > most:
            raise EvidenceError(f"{path}: {status.st_size} bytes; at most {most} are read")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _unzipped(path: Path) -> tuple[bytes, str | None]:
    """The manifest of the archive and its seal: at its top, or in the one directory that it holds. Nothing is unpacked to the disk."""
    size = path.stat().st_size
    if size > _MOST_ZIP:
        raise EvidenceError(f"{path}: {size} bytes; at most {_MOST_ZIP} are read of a .zip")
    try:
        with zipfile.ZipFile(path) as archive:
            info = _manifest_of(path, archive.infolist())
            beside = str(PurePosixPath(info.filename).with_name(SEAL))
            seal = _member(archive, beside, _MOST_SEAL) if beside in archive.namelist() else None
            return _member(archive, info.filename, _MOST_BYTES), _text(seal)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise EvidenceError(f"{path}: not a readable .zip ({_words(error)}); {_ACCEPTED}") from None


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as file:  # what the archive says of the size need not be true
        raw = file.read(most + 1)
    if len(raw) > most:
        raise EvidenceError(f"{archive.filename}: {name} unpacks to more than {most} bytes; no more are read")
    return raw


def _manifest_of(path: Path, entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    if len(entries) > _MOST_ENTRIES:
        raise EvidenceError(f"{path}: {len(entries)} files; at most {_MOST_ENTRIES} belong to a bundle")
    names = [entry.filename for entry in entries]
    if len(set(names)) < len(names):
        raise EvidenceError(f"{path}: a name is there twice; which of the two was meant cannot be told")
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        link = stat.S_ISLNK(entry.external_attr >> 16)
        if entry.filename.startswith("/") or "\\" in entry.filename or ".." in parts or link or not parts:
            raise EvidenceError(f"{path}: the entry {entry.filename[:64]!r} points out of the bundle; names are relative and no links")
    found = [entry for entry in entries if PurePosixPath(entry.filename).name == schema.NAME and not entry.is_dir()]
    found = [entry for entry in found if len(PurePosixPath(entry.filename).parts) <= 2]
    if len(found) != 1:
        raise EvidenceError(f"{path}: {len(found)} files named {schema.NAME}; exactly one is expected")
    return found[0]


def _require_finite(path: Path, found: dict[str, Any]) -> None:
    """JSON has no NaN, and 1e999 is no number either; integers past 64 bits come from no measurement."""
    pending: list[tuple[str, Any]] = [("", found)]
    while pending:
        where, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{where}.{key}" if where else key, one) for key, one in value.items()]
        elif isinstance(value, list):
            pending += [(f"{where}[{i}]", one) for i, one in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            raise EvidenceError(f"{path}: {where[:200]} is {value}; every number is finite")
        elif isinstance(value, int) and abs(value) >= _MOST_INTEGER:
            raise EvidenceError(f"{path}: {where[:200]} is larger than 64 bits; no count or time is")


def _words(error: Exception) -> str:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(words.lower().split())[:120] or type(error).__name__
