"""The manifest of an evidence bundle: what it must hold, how it is read and written. docs/evidence.md says what each field means.

A bundle is a directory, or a .zip of one, with `manifest.json`: strict JSON whose keys are exactly those below.
"""

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lanewise.bench import stats
from lanewise.bench.machine import commit, machine, settings_now, versions
from lanewise.bench.process import NO_WITNESS
from lanewise.bench.seal import seal
from lanewise.errors import EvidenceError
from lanewise.witness import sources

__all__ = ["NAME", "SCHEMA", "SCHEMA_VERSION", "complaints", "digest", "parse", "read", "sources", "stamped", "text_of", "write"]

SCHEMA, SCHEMA_VERSION = "lanewise.evidence", 2
_VERSIONS = (1, 2)  # of commands 1 had neither files, witnesses, outputs nor memory; of kernels both are the same
NAME = "manifest.json"
_MOST_BYTES = 256 << 20
_MOST_ROUNDS = 15_000
_MOST = 1e100  # of any number, so that no ratio of two overflows
Check = Callable[[Any, str], Iterator[str]]


def stamped(kind: str, question: str, command: Sequence[str], began: datetime, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run that ends now. parts: plan, problem, inputs, arms and rounds, in that order."""
    manifest = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "question": question,
        "command": list(command),
        "began": began.isoformat(),
        "ended": datetime.now(UTC).isoformat(),
        "commit": commit(),
        "sources": sources(),
        "versions": versions(),
        "settings": settings_now(),
        "machine": machine(),
        **parts,
    }
    return {**manifest, "figures": stats.figures(manifest)}


def write(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Write a bundle and its seal into a new or empty directory. Raises EvidenceError for one that holds something, or that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise EvidenceError(f"{folder} is not empty; a bundle is written to a new directory")
        path = folder / NAME
        with path.open("x", encoding="utf-8") as file:
            file.write(text_of(manifest))
        seal(path)
    except OSError as error:
        raise EvidenceError(f"{folder} cannot be written: {error.strerror}") from None
    return path


def text_of(manifest: Mapping[str, Any]) -> str:
    """The JSON of a manifest, the same bytes for the same values. Raises ValueError for a number that is not finite."""
    return json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read(bundle: Path) -> dict[str, Any]:
    """The manifest of a directory, a .zip, or a manifest.json itself, its structure checked. Raises EvidenceError with what is wrong."""
    manifest = parse(_bytes_of(bundle), str(bundle))
    wrong = complaints(manifest)
    if wrong:
        more = f" ({len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise EvidenceError(f"{bundle} is no evidence bundle: {wrong[0]}{more}")
    return manifest


def parse(raw: bytes, what: str) -> dict[str, Any]:
    """Strict JSON: UTF-8, an object, no key twice, no NaN. Raises EvidenceError, naming `what`."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON number")

    try:
        found = json.loads(raw.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{what}: {NAME} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise EvidenceError(f"{what}: {NAME} holds no object")
    return found


def complaints(manifest: Mapping[str, Any]) -> list[str]:
    """Where a manifest is not built as this version builds one; empty for one that is. Says nothing of what its numbers mean."""
    if manifest.get("schema") != SCHEMA or manifest.get("schema_version") not in _VERSIONS:
        known = f"{SCHEMA} {' and '.join(map(str, _VERSIONS))}"
        return [f"schema is {str(manifest.get('schema'))[:64]!r} {str(manifest.get('schema_version'))[:16]}; this version reads {known}"]
    if not isinstance(manifest.get("kind"), str) or manifest["kind"] not in _KINDS:
        return [f"kind is {str(manifest.get('kind'))[:64]!r}; it is {' or '.join(_KINDS)}"]
    first = manifest["schema_version"] == 1 and manifest["kind"] == "command"
    return list((_FIRST_COMMAND if first else _KINDS[manifest["kind"]])(manifest, ""))


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal, as the manifest has it everywhere."""
    return hashlib.sha256(data).hexdigest()


def _bytes_of(bundle: Path) -> bytes:
    try:
        if bundle.suffix == ".zip" and bundle.is_file():
            return _from_zip(bundle)
        path = bundle / NAME if bundle.is_dir() else bundle
        if path.stat().st_size > _MOST_BYTES:
            raise EvidenceError(f"{path} has {path.stat().st_size} bytes; a manifest has at most {_MOST_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"{bundle} cannot be read: {error.strerror}") from None


def _from_zip(bundle: Path) -> bytes:
    """The one manifest of an archive, at its top or in its only folder. Nothing is unpacked to disk."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            found = [info for info in archive.infolist() if info.filename.split("/")[-1] == NAME and info.filename.count("/") <= 1]
            if len(found) != 1:
                raise EvidenceError(f"{bundle} holds {len(found)} files named {NAME}; a bundle has one")
            with archive.open(found[0]) as file:  # what the archive says of the size need not be true
                raw = file.read(_MOST_BYTES + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error) as error:
        raise EvidenceError(f"{bundle} is no readable .zip: {error}") from None
    if len(raw) > _MOST_BYTES:
        raise EvidenceError(f"{bundle}: {NAME} has more than {_MOST_BYTES} bytes")
    return raw


def _one(kind: type | tuple[type, ...], words: str, holds: Callable[[Any], bool] = lambda _: True) -> Check:
    def check(value: Any, at: str) -> Iterator[str]:
        # a bool is an int to Python, and no number to anyone else
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not holds(value):
            yield f"{at} is {str(value)[:64]!r}; it is {words}"

    return check


def _among(*values: str) -> Check:
    return _one(str, " or ".join(values), lambda value: value in values)


def _maybe(check: Check) -> Check:
    return lambda value, at: iter(()) if value is None else check(value, at)


def _each(check: Check, least: int = 0, most: int | None = None) -> Check:
    def of(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, list) or len(value) < least or (most is not None and len(value) > most):
            yield f"{at} is no list of {least if least == most else f'{least} or more'} things"
        else:
            for i, one in enumerate(value):
                yield from check(one, f"{at}[{i}]")

    return of


def _mapping(check: Check) -> Check:
    def of(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at} is no object"
        else:
            for key, one in value.items():
                yield from check(one, f"{at}.{key[:64]}")

    return of


def _object(fields: Mapping[str, Check], optional: Sequence[str] = ()) -> Check:
    def of(value: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at or 'the manifest'} is no object"
            return
        yield from (f"{at}.{key}".lstrip(".") + " is missing" for key in fields if key not in value and key not in optional)
        yield from (f"{at}.{key[:64]}".lstrip(".") + " is unknown" for key in value if key not in fields)
        for key, check in fields.items():
            if key in value:
                yield from check(value[key], f"{at}.{key}".lstrip("."))

    return of


_ANY: Check = lambda value, at: iter(())  # noqa: E731
_TEXT = _one(str, "a text")
_FLAG = _one(bool, "true or false")
_NUMBER = _one((int, float), "a number", lambda v: abs(v) <= _MOST)
_POSITIVE = _one((int, float), "a number above 0", lambda v: 1 / _MOST <= v <= _MOST)
_COUNT = _one(int, "a whole number of 0 or more", lambda v: 0 <= v < 2**63)
_WHOLE = _one(int, "a whole number of 1 or more", lambda v: 1 <= v < 2**63)
_SHARE = _one((int, float), "a number between 0 and 1", lambda v: 0 < v < 1)
_LEVEL = _one((int, float), "between 0.5 and 0.999", lambda v: 0.5 <= v <= 0.999)
_SHA256 = _one(str, "64 hexadecimal digits", lambda v: re.fullmatch("[0-9a-f]{64}", v) is not None)
_ARM = _among("a", "b")
_RESAMPLES = _one(int, "between 100 and 20000", lambda v: 100 <= v <= 20_000)

_NEIGHBOUR = _object({"pid": _WHOLE, "parent": _COUNT, "name": _TEXT, "cpu_seconds": _NUMBER})
_GPU = _object(
    {
        "clock_mhz": _maybe(_NUMBER), "memory_clock_mhz": _maybe(_NUMBER), "temperature": _maybe(_NUMBER), "power": _maybe(_NUMBER),
        "throttle": _maybe(_each(_TEXT)), "processes": _maybe(_each(_object({"pid": _COUNT, "memory": _maybe(_COUNT)}))),
    }
)  # fmt: skip
_AROUND = _object(
    {
        "time": _NUMBER, "load": _maybe(_each(_NUMBER, 3, 3)), "ticks": _maybe(_mapping(_COUNT)), "clock_mhz": _maybe(_NUMBER),
        "temperature": _maybe(_NUMBER), "power": _maybe(_NUMBER), "throttle": _maybe(_mapping(_COUNT)), "neighbours": _maybe(_each(_NEIGHBOUR)),
        "memory_available": _maybe(_COUNT), "peak_memory": _maybe(_COUNT), "gpu": _GPU,
    },
    optional=("gpu",),
)  # fmt: skip
_RULE = _object({"busy": _maybe(_POSITIVE), "throttled": _FLAG, "clock": _maybe(_SHARE), "alone": _FLAG}, optional=("alone",))
_BOOTSTRAP = _object({"resamples": _RESAMPLES, "seed": _COUNT, "level": _LEVEL})
_PLAN: dict[str, Check] = {
    "pairs": _one(int, "between 15 and 10000", lambda v: 15 <= v <= 10_000), "most_rounds": _WHOLE, "warmup": _COUNT,
    "seed": _COUNT, "rule": _RULE, "bootstrap": _BOOTSTRAP,
}  # fmt: skip
_KERNEL_PLAN = _PLAN | {"min_seconds": _POSITIVE, "buffers_bytes": _COUNT, "residency": _among("cold", "warm"), "threads": _WHOLE}
_COMMAND_PLAN = _PLAN | {"metric": _TEXT, "better": _among("lower", "higher"), "timeout": _POSITIVE}
_SECOND_PLAN = _COMMAND_PLAN | {"output": _maybe(_TEXT), "device": _TEXT}
_PROBLEM = _object(
    {
        "op": _TEXT, "m": _WHOLE, "n": _WHOLE, "k": _WHOLE, "format": _TEXT, "dtype": _TEXT, "heads": _WHOLE, "kv_heads": _WHOLE,
        "experts": _WHOLE, "top": _WHOLE, "active": _WHOLE,
        "phase": _among("decode", "prefill"), "bytes": _WHOLE, "operations": _WHOLE,
    },
    optional=("format", "dtype", "heads", "kv_heads", "experts", "top", "active"),
)  # fmt: skip
_WITNESS = _object({"kernel": _TEXT, "body": _TEXT, "isa": _TEXT, "calls": _WHOLE, "m": _WHOLE})
_PROCESS = _object(
    {
        "lanewise": _TEXT, "package": _SHA256, "device": _TEXT, "isa": _maybe(_TEXT), "threads": _maybe(_WHOLE), "code": _maybe(_SHA256),
        "prompt": _maybe(_SHA256), "kernels": _each(_TEXT), "phases": _each(_among("decode", "prefill")), "compiler": _mapping(_TEXT),
        "compiled": _each(_mapping(_ANY), 1),
    },
    optional=("compiler", "compiled"),
)  # fmt: skip
_PROCESSES: Check = lambda value, at: (_among(NO_WITNESS) if isinstance(value, str) else _each(_PROCESS, 1))(value, at)  # noqa: E731
_FILE = _object({"bytes": _COUNT, "sha256": _SHA256, "after": _maybe(_SHA256)})
_FILES = _object({"declared": _each(_TEXT), "files": _mapping(_FILE)})
_INPUTS = _object({"seed": _COUNT, "sha256": _mapping(_SHA256)})


def _arm(witness: Check, hashed: Check) -> Check:
    return _object({"label": _TEXT, "spec": _mapping(_ANY), "witness": witness, "artifact": hashed, "output": hashed})


def _round(sample: Check, probes: Check) -> Check:
    fields = _object(
        {
            "number": _COUNT, "order": _each(_ARM, 4, 4), "samples": _each(sample, 4, 4), "control": _each(sample, 2, 2), "probes": probes,
            "before": _AROUND, "after": _AROUND, "left_out": _maybe(_TEXT),
        }
    )  # fmt: skip

    def check(value: Any, at: str) -> Iterator[str]:
        wrong = list(fields(value, at))
        yield from wrong
        if not wrong:  # what every figure takes for granted
            arms, control = [s["arm"] for s in value["samples"]], [s["arm"] for s in value["control"]]
            if value["order"] not in (list("abba"), list("baab")) or arms != value["order"] or control[0] != control[1]:
                yield f"{at} is in order {value['order']}, its samples in {arms}, its control in {control}; a round is abba or baab, then aa or bb"

    return check


_PASSES = _each(_POSITIVE, 1)
_MACS = _object({"macs": _WHOLE, "seconds": _PASSES})
_READ = _object({"bytes": _WHOLE, "seconds": _PASSES})
_OF_CPU, _OF_GPU = _object({"read": _READ, "int8": _MACS}), _object({"read": _READ, "float": _MACS})
_PROBES: Check = lambda value, at: (_OF_GPU if isinstance(value, dict) and "float" in value else _OF_CPU)(value, at)  # noqa: E731
_KERNEL_SAMPLE = _object({"arm": _ARM, "seconds": _POSITIVE, "repeats": _WHOLE, "started": _COUNT})
_VALUE = {"arm": _ARM, "value": _POSITIVE, "repeats": _WHOLE, "started": _COUNT}
_COMMAND_SAMPLE = _object(_VALUE)
_SECOND_SAMPLE = _object(_VALUE | {"memory": _maybe(_WHOLE), "output": _maybe(_SHA256), "witness": _maybe(_SHA256)})
_RATIO: dict[str, Check] = dict.fromkeys(("median", "low", "high"), _maybe(_POSITIVE))
_RATE_NAMES = ("seconds", "bytes_per_second", "operations_per_second", "of_read", "of_int8", "of_float")
_RATES = _object(dict.fromkeys(_RATE_NAMES, _maybe(_POSITIVE)), optional=("of_float",))
_OUTPUT = _object({"a": _maybe(_COUNT), "b": _maybe(_COUNT), "verdict": _TEXT})


def _kind(plan: Mapping[str, Check], problem: Check, inputs: Check, arm: Check, rounds: Check, figure: Check, *, output: bool = False) -> Check:
    arms = _object({"a": arm, "b": arm})
    figures = _object(
        {
            "ratio": _object(_RATIO), "control": _object({**_RATIO, "spread": _maybe(_NUMBER)}), "a": figure, "b": figure, "verdict": _TEXT,
            "pairs": _COUNT, "left_out": _COUNT, **({"output": _OUTPUT} if output else {}),
        }
    )  # fmt: skip
    return _object(
        {
            "schema": _TEXT, "schema_version": _WHOLE, "kind": _TEXT, "question": _TEXT, "command": _each(_TEXT), "began": _TEXT, "ended": _TEXT,
            "commit": _maybe(_object({"id": _TEXT, "dirty": _FLAG})), "sources": _mapping(_SHA256), "versions": _mapping(_TEXT),
            "settings": _mapping(_ANY), "machine": _mapping(_ANY), "plan": _object(plan, optional=("device",)), "problem": problem, "inputs": inputs,
            "arms": arms, "rounds": _each(rounds, 1, _MOST_ROUNDS), "figures": figures,
        }
    )  # fmt: skip


_FIRST_COMMAND = _kind(
    _COMMAND_PLAN, _maybe(_PROBLEM), _maybe(_INPUTS), _arm(_maybe(_WITNESS), _maybe(_SHA256)), _round(_COMMAND_SAMPLE, _maybe(_PROBES)),
    _object({"value": _maybe(_POSITIVE)}),
)  # fmt: skip
_KINDS: dict[str, Check] = {
    "kernel": _kind(_KERNEL_PLAN, _PROBLEM, _INPUTS, _arm(_WITNESS, _SHA256), _round(_KERNEL_SAMPLE, _PROBES), _RATES),
    "command": _kind(
        _SECOND_PLAN, _maybe(_PROBLEM), _FILES, _arm(_PROCESSES, _maybe(_SHA256)), _round(_SECOND_SAMPLE, _maybe(_PROBES)),
        _object({"value": _maybe(_POSITIVE), "memory": _maybe(_WHOLE)}), output=True,
    ),
}  # fmt: skip
