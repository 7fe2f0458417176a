"""Files that two commands read, by their hashes before and after a run: those that were declared, and those that the commands name.

A word of a command, or a value of a variable, that is a file is found without being declared; what `>` writes to is not looked at.
"""

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lanewise.errors import EvidenceError

__all__ = ["Inputs", "Place", "named_in"]

_MOST_FILES = 10_000
_STAT = ("st_dev", "st_ino", "st_size", "st_mtime_ns")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: its text, its variables' values, its folder, and whether that is a commit, whose files have their own hash."""

    shell: str
    values: tuple[str, ...]
    folder: Path
    of_commit: bool


class Inputs:
    """The files of a run. Raises EvidenceError for one that was declared and cannot be read."""

    def __init__(self, declared: Sequence[str], places: Sequence[Place], here: Path) -> None:
        if len(set(declared)) < len(declared):
            raise EvidenceError("a file is declared twice; --file takes each once")
        self._declared = {name: path for word in declared for name, path in _under(word, here)}
        paths = self._declared | {name: path for place in places for name, path in _found(place) if name not in self._declared}
        self._words, self._paths = list(declared), paths
        self._before = {name: (path.stat().st_size, _digest(name, path)) for name, path in paths.items()}
        self._looks = {name: _look(path) for name, path in self._declared.items()}

    def require_same(self) -> None:
        """Raises EvidenceError when a declared file is no longer the one that was hashed, as far as the file system says."""
        for name, path in self._declared.items():
            if _look(path) != self._looks[name]:
                raise EvidenceError(f"{name} changed while the run went on; which of the two was measured cannot be told")

    def manifest(self) -> dict[str, Any]:
        """The manifest's `inputs`, with every file hashed again. Raises EvidenceError when a declared one changed."""
        self.require_same()
        files = {}
        for name, (size, before) in self._before.items():
            path = self._paths[name]
            files[name] = {"bytes": size, "sha256": before, "after": _digest(name, path) if path.is_file() else None}
            if name in self._declared and files[name]["after"] != before:
                raise EvidenceError(f"{name} changed while the run went on; which of the two was measured cannot be told")
        return {"declared": self._words, "files": files}


def named_in(shell: str) -> Iterator[str]:
    """The words of a command that can name a file, and what stands behind a `=` in them; not those that `>` writes to.

    >>> list(named_in("LIMIT=2 ./run --model=m.gguf 'a b' > out; cat < in"))
    ['LIMIT=2', '2', './run', '--model=m.gguf', 'm.gguf', 'a b', ';', 'cat', '<', 'in']
    """
    words = shlex.shlex(shell, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    writes = False
    try:
        for word in words:
            if not writes and set(word) != {">"}:
                yield word
                if "=" in word:
                    yield word.partition("=")[2]
            writes = bool(word) and set(word) <= set(">&|") and ">" in word
    except ValueError:  # a quote that only the shell can close, as in a here-document
        return


def _found(place: Place) -> Iterator[tuple[str, Path]]:
    for word in (*named_in(place.shell), *place.values):
        path = place.folder / os.path.expanduser(word)
        try:
            there = path.is_file() and not (place.of_commit and path.resolve().is_relative_to(place.folder.resolve()))
        except (OSError, ValueError):  # a sentence is too long for a name
            continue
        if there and os.access(path, os.R_OK):
            yield word, path


def _under(word: str, here: Path) -> Iterator[tuple[str, Path]]:
    """A declared file, or every file of a declared folder, by the name that it was given."""
    path = here / os.path.expanduser(word)
    if path.is_file():
        yield word, path
        return
    if not path.is_dir():
        raise EvidenceError(f"{word[:200]!r} is neither a file nor a folder; --file takes what the commands read")
    files = sorted(one for one in path.rglob("*") if one.is_file())
    if not files or len(files) > _MOST_FILES:
        raise EvidenceError(f"{word[:200]!r} holds {len(files)} files; a folder has 1 to {_MOST_FILES}")
    yield from ((f"{word.rstrip('/')}/{one.relative_to(path).as_posix()}", one) for one in files)


def _digest(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EvidenceError(f"{name} cannot be read: {error.strerror}") from None


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return tuple(int(getattr(found, name)) for name in _STAT)


def same_after(files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every file was the same before and after."""
    return all(one["sha256"] == one["after"] for one in files.values())
