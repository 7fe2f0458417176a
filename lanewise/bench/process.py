"""One run of a shell command: what it printed, how much memory it had, and what a Lanewise in it says that it ran."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lanewise import settings
from lanewise.bench.machine import peak_memory
from lanewise.errors import EvidenceError
from lanewise.witness import SCHEMA as WITNESS

__all__ = ["CHOOSING", "NO_WITNESS", "Ran", "common", "digest_of", "output_of", "ran", "tokens_of", "without_effect"]

NO_WITNESS = "none: the command wrote none"
_VARIABLE = settings.SETTINGS["WITNESS"].variable
_MOST_OUTPUT = 16 << 20
_MOST_WITNESS = 1 << 20
# Settings that choose kernels. Those of a GPU are in the registry only where torch is.
CHOOSING = ("CPU_ISA", "DEVICE", "CPU_KERNELS", "SKINNY", "QUANT_GEMV", "QUANT_GEMM", "REFERENCE")
# Of a process: what two runs of one command have in common. How often a kernel is called follows the text that comes out.
_COMMON = ("lanewise", "package", "device", "isa", "threads", "code", "prompt")
_LATER = ("compiler", "compiled")  # what a commit from before them does not write


@dataclass(frozen=True, slots=True)
class Ran:
    """code: of the exit, None for a run that took too long; memory: most bytes of one of its processes, None where Linux cannot tell;
    witness: the lines that Lanewise wrote."""

    started: int
    code: int | None
    out: str
    err: str
    memory: int | None
    witness: str


def ran(argv: Sequence[str], folder: Path, seconds: float) -> Ran:
    """Run it. Nothing that the command started outlives it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryDirectory() as place:
        witness = Path(place) / "witness"
        argv = ["env", f"{_VARIABLE}={witness}", *argv]
        floor, started = peak_memory(), time.monotonic_ns()
        child = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(child.pid)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            _kill(child.pid)
            child.wait()
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        said = _tail(witness.open("rb"), _MOST_WITNESS) if witness.is_file() else ""
        # Linux counts what this process had when it started the other: only more than that is the command's own (exec in fs/exec.c).
        return Ran(started, None if late.is_set() else child.returncode, _tail(out), _tail(err), peak if peak > floor else None, said)


def output_of(text: str, pattern: str) -> str | None:
    """The SHA-256 of all that the one group of `pattern` matches in stdout, a NUL behind each; None where nothing matches."""
    found = re.findall(pattern, text)
    return hashlib.sha256("".join(f"{one}\0" for one in found).encode(errors="replace")).hexdigest() if found else None


def common(key: str, said: str) -> list[dict[str, Any]]:
    """What each model of a run was, in the order in which they ended. Raises EvidenceError for lines that Lanewise does not write."""
    try:
        lines = [json.loads(line) for line in said.splitlines()]
        if any(line["schema"] != WITNESS for line in lines):
            raise ValueError("schema")
        kernels = [{"kernels": sorted(line["kernels"]), "phases": sorted(name for name, count in line["steps"].items() if count)} for line in lines]
        shown = [{name: line[name] for name in _COMMON} | {name: line[name] for name in _LATER if line.get(name)} for line in lines]
        return [one | more for one, more in zip(shown, kernels, strict=True)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EvidenceError(f"the witness of command {key} cannot be read: {type(error).__name__} at {str(error)[:80]}") from None


def tokens_of(said: str) -> str | None:
    """One hash of the token ids that came out of every model of a run; None where none did."""
    lines = [line["tokens"] for line in map(json.loads, said.splitlines()) if line["output_tokens"]]
    return None if not lines else lines[0] if len(lines) == 1 else hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_of(processes: Sequence[Mapping[str, Any]]) -> str | None:
    """The SHA-256 of what ran, as JSON without blanks and with sorted keys; None where nothing was witnessed."""
    if not processes:
        return None
    return hashlib.sha256(json.dumps(list(processes), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def without_effect(arms: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The variables that are all that two commands differ in, when they choose kernels and both ran the same ones; None otherwise."""
    a, b = arms["a"], arms["b"]
    if a["witness"] == NO_WITNESS or a["witness"] != b["witness"]:
        return None
    if any(a["spec"][name] != b["spec"][name] for name in ("shell", "commit")):
        return None
    one, other = a["spec"]["env"], b["spec"]["env"]
    names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    chosen = {settings.SETTINGS[name].variable for name in CHOOSING}
    return " and ".join(names) if names and set(names) <= chosen else None


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _tail(file: IO[bytes], most: int = _MOST_OUTPUT) -> str:
    """The end of what was written."""
    with file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read().decode(errors="replace")
