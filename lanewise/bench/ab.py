"""An A/B run of two shell commands by a number that they print: each sample is a fresh process, in turns, with the same statistics.

A command may run as it is, or at a commit of the repository in the current directory, installed into an environment of its own.
"""

import re
import resource
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lanewise import settings
from lanewise.backends import Progress
from lanewise.bench import stats
from lanewise.bench.around import GPU_RULE, RULE, look
from lanewise.bench.gpu_beside import Beside
from lanewise.bench.inputs import Inputs, Place
from lanewise.bench.lock import held
from lanewise.bench.manifest import stamped
from lanewise.bench.process import NO_WITNESS, Ran, common, digest_of, output_of, ran, tokens_of, without_effect
from lanewise.bench.rounds import BOOTSTRAP, measure, most_rounds
from lanewise.bench.trees import Tree, commit_id, tree_of
from lanewise.errors import DeviceError, EvidenceError

__all__ = ["DEVICES", "WARMUP", "Command", "CommandPlan", "bench_commands"]

DEVICES = re.compile(r"cpu|cuda(:[0-9]{1,4})?")  # that a run locks and watches

WARMUP = 1  # run of each command before the first round
_CPU = "cpu"  # what is locked and watched when nobody says
_LONGEST = 86_400.0  # seconds of one run
_LEAST, _MOST = 1e-100, 1e100  # of a metric: a ratio of two is a number
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
            if name == settings.SETTINGS["WITNESS"].variable:
                raise EvidenceError(f"{name} is set for every sample; what the commands write to it is in the bundle")


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """Two commands, and a regular expression whose one group is the number that each prints; timeout: seconds of one run.

    output: a regular expression whose one group is the answer in what a command prints to stdout, of which each sample keeps the hash;
    files: what the commands read, files or folders;
    device: what is locked and watched, cpu, or cuda, or cuda:1. It chooses nothing for the commands.

    Raises EvidenceError for a plan that would prove nothing, DeviceError for a device that nobody could watch.
    """

    a: Command
    b: Command
    metric: str
    pairs: int = 30
    better: str = "lower"
    timeout: float = 600.0
    seed: int | None = None
    output: str | None = None
    files: tuple[str, ...] = ()
    device: str = _CPU

    def __post_init__(self) -> None:
        _require_group("metric", self.metric, "the number")
        if self.output is not None:
            _require_group("output", self.output, "the answer")
        if not stats.FEWEST_PAIRS <= self.pairs <= stats.MOST_PAIRS:
            raise EvidenceError(f"{self.pairs} pairs were asked for; a run has {stats.FEWEST_PAIRS} to {stats.MOST_PAIRS}")
        if not 0 < self.timeout <= _LONGEST:
            raise EvidenceError(f"the timeout is {self.timeout} seconds; it is more than 0 and at most {_LONGEST:.0f}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise EvidenceError(f"the seed is {self.seed}; it is a number from 0 on")
        if not DEVICES.fullmatch(self.device):
            raise DeviceError(f"there is no device {self.device[:64]!r} to watch; it is cpu, or cuda, or cuda:1 for the second GPU")


def bench_commands(plan: CommandPlan, command: Sequence[str] = (), progress: Progress | None = None) -> dict[str, Any]:
    """The manifest of a run. Raises EvidenceError for arms that are the same, a commit that cannot be run, a command that fails or
    takes too long, a metric that does not match once, and while another measurement is under way; DeviceError for a GPU that is not there."""
    began, here = datetime.now(UTC), Path.cwd()
    arms = {"a": plan.a, "b": plan.b}
    commits = {key: commit_id(arm.commit, here) if arm.commit else None for key, arm in arms.items()}
    if (plan.a.shell, sorted(plan.a.env), commits["a"]) == (plan.b.shell, sorted(plan.b.env), commits["b"]):
        raise EvidenceError("a and b are the same command, at the same commit, with the same variables; there is nothing to compare")
    gpu = _beside(plan.device)
    with held(f"cuda:{gpu.index}" if gpu else _CPU), gpu or nullcontext():
        trees = {key: tree_of(found, here) if found else None for key, found in commits.items()}
        _differ(plan, trees)
        argv = {key: _argv(arm, trees[key]) for key, arm in arms.items()}
        folders = {key: tree.folder if tree else here for key, tree in trees.items()}
        inputs = Inputs(plan.files, [_place(arm, folders[key], trees[key]) for key, arm in arms.items()], here)

        def sample(key: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
            done = ran(argv[key], folders[key], plan.timeout)
            found = {"arm": key, "value": _value(key, done, plan.metric, plan.timeout), "repeats": 1, "started": done.started, "memory": done.memory}
            inputs.require_same()
            processes = common(key, done.witness)
            return found | {"output": _output(key, done, plan.output), "witness": digest_of(processes)}, processes

        witnesses = {key: sample(key)[1] for key in arms}
        described = {key: _described(key, arm, trees[key], witnesses[key]) for key, arm in arms.items()}
        if idle := without_effect(described):
            raise EvidenceError(f"{idle} had no effect: both commands ran the same kernels of the same code, as their witnesses say")
        seed = secrets.randbits(32) if plan.seed is None else plan.seed
        stated = {
            "pairs": plan.pairs,
            "most_rounds": most_rounds(plan.pairs),
            "warmup": WARMUP,
            "seed": seed,
            "rule": GPU_RULE if gpu else RULE,
            "bootstrap": BOOTSTRAP,
            "metric": plan.metric,
            "better": plan.better,
            "timeout": plan.timeout,
            "output": plan.output,
            "device": plan.device,
        }

        def steady(key: str) -> dict[str, Any]:
            found, processes = sample(key)
            if processes != witnesses[key]:
                raise EvidenceError(
                    f"command {key} ran something else than in its first run, as its witness says; what was measured is not one thing"
                )
            return found

        rounds = measure(stated, steady, lambda: None, progress, lambda: _around(gpu))
        read = inputs.manifest()
    for key in arms:
        outputs = {s["output"] for r in rounds for s in (*r["samples"], *r["control"]) if s["arm"] == key}
        described[key]["output"] = outputs.pop() if len(outputs) == 1 else None
    question = f"Which gives the {plan.better} {plan.metric}: {described['a']['label']} or {described['b']['label']}?"
    parts = {**(gpu.facts() if gpu else {}), "plan": stated, "problem": None, "inputs": read, "arms": described, "rounds": rounds}
    return stamped("command", question, command, began, parts)


def _require_group(name: str, pattern: str, what: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise EvidenceError(f"the {name} {pattern!r} is no regular expression: {error}") from None
    if groups != 1:
        raise EvidenceError(f"the {name} {pattern!r} has {groups} groups; it has one, around {what}")


def _differ(plan: CommandPlan, trees: dict[str, Tree | None]) -> None:
    a, b = trees["a"], trees["b"]
    if a and b and a.files == b.files and (plan.a.shell, sorted(plan.a.env)) == (plan.b.shell, sorted(plan.b.env)):
        raise EvidenceError(f"commits {a.commit[:12]} and {b.commit[:12]} hold the same files; there is nothing to compare")


def _described(key: str, arm: Command, tree: Tree | None, processes: list[dict[str, Any]]) -> dict[str, Any]:
    """The label is what tells the arms apart; `artifact` covers a commit's files."""
    words = [*(f"{name}={text}" for name, text in arm.env), arm.shell, *([f"at {tree.commit[:12]}"] if tree else [])]
    spec: Mapping[str, Any] = {"shell": arm.shell, "commit": tree.commit if tree else None, "env": dict(arm.env)}
    return {"label": " ".join(words), "spec": spec, "witness": processes or NO_WITNESS, "artifact": tree.files if tree else None, "output": None}


def _place(arm: Command, folder: Path, tree: Tree | None) -> Place:
    return Place(arm.shell, tuple(text for _, text in arm.env), folder, of_commit=tree is not None)


def _argv(arm: Command, tree: Tree | None) -> list[str]:
    variables = [f"{name}={text}" for name, text in arm.env]
    if tree is None or tree.environment is None:
        return ["env", *variables, "sh", "-c", arm.shell]
    forgotten = [word for name in _FORGET for word in ("-u", name)]
    return ["env", *forgotten, f"VIRTUAL_ENV={tree.environment}", *variables, "sh", "-c", _ACTIVATE, str(tree.environment), arm.shell]


def _value(key: str, done: Ran, metric: str, timeout: float) -> float:
    """The metric of one run. Raises EvidenceError for a run that says nothing."""
    if done.code is None:
        raise EvidenceError(f"command {key} took more than {timeout:g} seconds")
    if done.code:
        said = (done.err.strip() or done.out.strip()).splitlines()
        raise EvidenceError(f"command {key} failed with exit code {done.code}" + (f": {said[-1]}" if said else ""))
    found = re.findall(metric, f"{done.out}\n{done.err}")
    if len(found) != 1:
        raise EvidenceError(f"the metric {metric!r} matches {len(found)} times in what command {key} prints; it is to match once")
    try:
        number = float(found[0])
    except ValueError:
        number = 0.0
    if not _LEAST <= number <= _MOST:
        raise EvidenceError(f"the metric of command {key} is {found[0][:64]!r}; it is a number above 0")
    return number


def _output(key: str, done: Ran, pattern: str | None) -> str | None:
    """The hash of the answer; where none is asked for, of the token ids that Lanewise says came out."""
    if pattern is None:
        return tokens_of(done.witness)
    if (found := output_of(done.out, pattern)) is None:
        raise EvidenceError(f"the output {pattern!r} matches nothing in what command {key} prints to stdout")
    return found


def _beside(device: str) -> Beside | None:
    """The GPU that is watched; None where it is the processor."""
    return None if device == _CPU else Beside(device)


def _around(gpu: Beside | None) -> dict[str, Any]:
    """As for a kernel, but with the memory of the commands: the most that any so far has had."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {**look(), "peak_memory": most, **({"gpu": gpu.read()} if gpu else {})}
