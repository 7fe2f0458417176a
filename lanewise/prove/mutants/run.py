"""Mutants put in the place of their module and run by the proof, each in a process of its own: who noticed, and in which words.

A mutant is killed by a backend when the proof says of one of its cases that it is wrong: another number, a fault, an overrun. That a mutant does
not compile kills nothing; the catalogue is then at fault.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from lanewise.prove.mutants.mutant import Mutant

__all__ = ["Fate", "fates", "matrix"]

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant: killed: of each backend that noticed, the case and the words; survived: backends that asked cases and noticed nothing;
    broken: what is wrong with the mutant itself, such as that it does not compile"""

    mutant: Mutant
    killed: dict[str, str]
    survived: tuple[str, ...]
    broken: str

    @property
    def dead(self) -> bool:
        return bool(self.killed) and not self.broken


def fates(mutants: Sequence[Mutant], targets: Sequence[str], jobs: int = 1) -> Iterator[Fate]:
    """Each mutant's, in order, in so many processes at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda one: _fate(one, targets), mutants)


def _fate(mutant: Mutant, targets: Sequence[str]) -> Fate:
    asked = json.dumps({"mutant": asdict(mutant), "targets": list(targets)})
    try:
        command = [sys.executable, "-m", "lanewise.prove.mutants.run"]
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=_SECONDS, check=False)
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Fate(mutant, {}, (), f"{_SECONDS} seconds were not enough")
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        return Fate(mutant, {}, (), f"the process ended with {done.returncode} and said: {last[0][:300]}")
    return Fate(mutant, found["killed"], tuple(found["survived"]), found["broken"])


def matrix(fates: Iterable[Fate], targets: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Rows for a table: kernel, mutant, and of each backend whether it killed, survived, or was not reached."""
    for fate in fates:
        words = ["killed" if target in fate.killed else "SURVIVED" if target in fate.survived else "-" for target in targets]
        yield (fate.mutant.kernel, fate.mutant.kind, fate.mutant.name, *words)


class _Instead(MetaPathFinder):
    """A module from another file."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(fullname, self.path) if fullname == self.name else None


def _child(asked: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: the mistake, and what the proof says of the cases that reach it."""
    mutant = Mutant(**{**asked["mutant"], "words": tuple(asked["mutant"]["words"])})
    text = (_ROOT / f"{mutant.module.replace('.', '/')}.py").read_text()
    found: dict[str, Any] = {"killed": {}, "survived": [], "broken": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{mutant.module.rpartition('.')[2]}.py"
        try:
            path.write_text(mutant.changed(text))
        except ValueError as error:
            return {**found, "broken": str(error)}
        sys.meta_path.insert(0, _Instead(f"lanewise.{mutant.module}", path))
        for target in asked["targets"]:
            words, reached = _noticed(mutant, target)
            if words.startswith("CompilationError") or "PassManager" in words:
                return {**found, "broken": words}
            if words:
                found["killed"][target] = words
            elif reached:
                found["survived"].append(target)
    return found


def _noticed(mutant: Mutant, target: str) -> tuple[str, bool]:
    """(the first case that is wrong, and how; whether any case was asked)."""
    from importlib import import_module

    import torch

    from lanewise.arch import parse
    from lanewise.prove.emulated import emulating

    where, module = torch.device("cpu"), import_module(f"lanewise.prove.{mutant.op}")
    with emulating(parse(target)):
        runs = [run for run in module.runs(where, True) if all(word in str(run) for word in mutant.words) and _cost(run)[0]]
        for run in sorted(runs, key=_cost)[: mutant.most]:
            problem = module.guarded(run, where).problem
            if problem:
                return (problem if problem.startswith("CompilationError") else f"{run}: {problem}"), True
    return "", bool(runs)


def _cost(run: Any) -> tuple[int, str]:
    case = run.case
    tokens = case.tokens if hasattr(case, "tokens") else case.m
    return tokens * case.k * getattr(case, "n", 1), str(run)


if __name__ == "__main__":
    import warnings

    warnings.filterwarnings("ignore")
    sys.stdout.write(json.dumps(_child(json.loads(sys.stdin.read()))))
