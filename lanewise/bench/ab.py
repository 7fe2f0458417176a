"""An A/B run of two shell commands by a number that they print: each sample is a fresh process, in turns, with the same statistics.

A command may run as it is, or at a commit of the repository in the current directory, installed into an environment of its own.
"""

import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from lanewise.backends import Progress
from lanewise.bench import stats
from lanewise.bench.around import RULE, look
from lanewise.bench.lock import held
from lanewise.bench.manifest import stamped
from lanewise.bench.rounds import BOOTSTRAP, measure, most_rounds
from lanewise.bench.trees import Tree, commit_id, tree_of
from lanewise.errors import EvidenceError

__all__ = ["Command", "CommandPlan", "bench_commands"]

_WARMUP = 1  # run of each command before the first round
_DEVICE = "cpu"  # whatever else a command uses, it uses that
_LONGEST = 86_400.0  # seconds of one run
_LEAST, _MOST = 1e-100, 1e100  # of a metric: a ratio of two is a number
_MOST_OUTPUT = 16 << 20
# The commit's own environment goes in front, and nothing leads to code that is not the commit's.
_ACTIVATE = 'PATH="$0/bin:$PATH"; export PATH; exec sh -c "$1"'
_FORGET = ("PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class Command:
    """One arm: what the shell runs, a revision to run it at or None, and variables that are set for it."""

    shell: str
    commit: str | None = None
    env: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.shell.strip() or "\0" in self.shell:
            raise EvidenceError("a command is a text that the shell can run")
        for name, text in self.env:
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or "\0" in text:
                raise EvidenceError(f"{name[:64]!r} is no name of a variable")


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """Two commands, and a regular expression whose one group is the number that each prints; timeout: seconds of one run.

    Raises EvidenceError for a plan that would prove nothing.
    """

    a: Command
    b: Command
    metric: str
    pairs: int = 30
    better: str = "lower"
    timeout: float = 600.0
    seed: int | None = None

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.metric).groups
        except re.error as error:
            raise EvidenceError(f"the metric {self.metric!r} is no regular expression: {error}") from None
        if groups != 1:
            raise EvidenceError(f"the metric {self.metric!r} has {groups} groups; it has one, around the number")
        if not stats.FEWEST_PAIRS <= self.pairs <= stats.MOST_PAIRS:
            raise EvidenceError(f"{self.pairs} pairs were asked for; a run has {stats.FEWEST_PAIRS} to {stats.MOST_PAIRS}")
        if not 0 < self.timeout <= _LONGEST:
            raise EvidenceError(f"the timeout is {self.timeout} seconds; it is more than 0 and at most {_LONGEST:.0f}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise EvidenceError(f"the seed is {self.seed}; it is a number from 0 on")


def bench_commands(plan: CommandPlan, command: Sequence[str] = (), progress: Progress | None = None) -> dict[str, Any]:
    """The manifest of a run. Raises EvidenceError for arms that are the same, a commit that cannot be run, a command that fails or
    takes too long, a metric that does not match once, and while another measurement is under way."""
    began, here = datetime.now(UTC), Path.cwd()
    arms = {"a": plan.a, "b": plan.b}
    commits = {key: commit_id(arm.commit, here) if arm.commit else None for key, arm in arms.items()}
    if (plan.a.shell, sorted(plan.a.env), commits["a"]) == (plan.b.shell, sorted(plan.b.env), commits["b"]):
        raise EvidenceError("a and b are the same command, at the same commit, with the same variables; there is nothing to compare")
    with held(_DEVICE):
        trees = {key: tree_of(found, here) if found else None for key, found in commits.items()}
        _differ(plan, trees)
        argv = {key: _argv(arm, trees[key]) for key, arm in arms.items()}

        def value(key: str) -> tuple[int, float]:
            tree = trees[key]
            return _value(key, argv[key], tree.folder if tree else here, plan)

        for key in arms:
            value(key)
        seed = secrets.randbits(32) if plan.seed is None else plan.seed
        stated = {
            "pairs": plan.pairs,
            "most_rounds": most_rounds(plan.pairs),
            "warmup": _WARMUP,
            "seed": seed,
            "rule": RULE,
            "bootstrap": BOOTSTRAP,
            "metric": plan.metric,
            "better": plan.better,
            "timeout": plan.timeout,
        }

        def sample(key: str) -> dict[str, Any]:
            started, found = value(key)
            return {"arm": key, "value": found, "repeats": 1, "started": started}

        rounds = measure(stated, sample, lambda: None, progress, _around)
    described = {key: _described(key, arm, trees[key]) for key, arm in arms.items()}
    question = f"Which gives the {plan.better} {plan.metric}: {described['a']['label']} or {described['b']['label']}?"
    parts = {"plan": stated, "problem": None, "inputs": None, "arms": described, "rounds": rounds}
    return stamped("command", question, command, began, parts)


def _differ(plan: CommandPlan, trees: dict[str, Tree | None]) -> None:
    a, b = trees["a"], trees["b"]
    if a and b and a.files == b.files and (plan.a.shell, sorted(plan.a.env)) == (plan.b.shell, sorted(plan.b.env)):
        raise EvidenceError(f"commits {a.commit[:12]} and {b.commit[:12]} hold the same files; there is nothing to compare")


def _described(key: str, arm: Command, tree: Tree | None) -> dict[str, Any]:
    """The label is what tells the arms apart; `artifact` covers a commit's files."""
    words = [*(f"{name}={text}" for name, text in arm.env), arm.shell, *([f"at {tree.commit[:12]}"] if tree else [])]
    spec = {"shell": arm.shell, "commit": tree.commit if tree else None, "env": dict(arm.env)}
    return {"label": " ".join(words), "spec": spec, "witness": None, "artifact": tree.files if tree else None, "output": None}


def _argv(arm: Command, tree: Tree | None) -> list[str]:
    variables = [f"{name}={text}" for name, text in arm.env]
    if tree is None or tree.environment is None:
        return ["env", *variables, "sh", "-c", arm.shell]
    forgotten = [word for name in _FORGET for word in ("-u", name)]
    return ["env", *forgotten, f"VIRTUAL_ENV={tree.environment}", *variables, "sh", "-c", _ACTIVATE, str(tree.environment), arm.shell]


def _value(key: str, argv: Sequence[str], folder: Path, plan: CommandPlan) -> tuple[int, float]:
    """(monotonic ns of the start, the metric) of one run. Raises EvidenceError for a run that says nothing."""
    started = time.monotonic_ns()
    code, out, err = _ran(argv, folder, plan.timeout)
    if code is None:
        raise EvidenceError(f"command {key} took more than {plan.timeout:g} seconds")
    if code:
        said = (err.strip() or out.strip()).splitlines()
        raise EvidenceError(f"command {key} failed with exit code {code}" + (f": {said[-1]}" if said else ""))
    found = re.findall(plan.metric, f"{out}\n{err}")
    if len(found) != 1:
        raise EvidenceError(f"the metric {plan.metric!r} matches {len(found)} times in what command {key} prints; it is to match once")
    try:
        number = float(found[0])
    except ValueError:
        number = 0.0
    if not _LEAST <= number <= _MOST:
        raise EvidenceError(f"the metric of command {key} is {found[0][:64]!r}; it is a number above 0")
    return started, number


def _ran(argv: Sequence[str], folder: Path, seconds: float) -> tuple[int | None, str, str]:
    """(exit code or None after so many seconds, stdout, stderr). Nothing that the command started outlives it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return code, _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    """The end of what was written."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OUTPUT))
    return file.read().decode(errors="replace")


def _around() -> dict[str, Any]:
    """As for a kernel, but with the memory of the commands: the most that any so far has had."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {**look(), "peak_memory": most}
