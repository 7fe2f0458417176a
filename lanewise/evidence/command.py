"""The command line and the question of a bundle: both must be those of what it measured."""

from collections.abc import Iterator, Mapping
from typing import Any

from lanewise.bench.ab import WARMUP
from lanewise.bench.problem import question
from lanewise.contract import dtype
from lanewise.errors import LanewiseError
from lanewise.evidence.claims import call_of, operand_bytes
from lanewise.evidence.ran import has_processes
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown

__all__ = ["check_command"]

_FREE = frozenset(("--record", "--plot"))  # options that name nothing that a manifest holds as such
_FLAGS = frozenset(("--cold", "--json", "--lower-is-better", "--higher-is-better"))
_EXACT = frozenset(("--a", "--b", "--metric", "--output", "--device"))  # texts of commands: another case is another text
_SOMETIMES = frozenset(("--seed", "--threads", "--copies"))  # written only where they were given


def check_command(found: Mapping[str, Any]) -> list[Reason]:
    """A reason for each word that names another size, plan or arm than the manifest, and for a question that is not the one it answers."""
    words = [str(word) for word in found["command"]]
    return [*(_kernel(words, found) if found["kind"] == "kernel" else _commands(words, found)), *_question(found)]


def _kernel(words: list[str], found: Mapping[str, Any]) -> Iterator[Reason]:
    problem, plan, arms = found["problem"], found["plan"], found["arms"]
    sizes = ("m", "n", "k", "heads", "kv_heads", "experts", "top", "format", "dtype")
    truth = {f"--{name.replace('_', '-')}": problem[name] for name in sizes if name in problem}
    truth |= {"--pairs": plan["pairs"], "--seed": plan["seed"], "--threads": plan["threads"], "--sample-ms": f"{plan['min_seconds'] * 1e3:g}"}
    truth |= {"--ab": f"{arms['a']['label']},{arms['b']['label']}", "--device": arms["a"]["spec"].get("device")}
    truth["--copies"] = plan["buffers_bytes"] // (operand_bytes(problem) or 1)
    yield from _options(words, ["lanewise", "bench", "kernel", problem["op"]], truth)
    if "--cold" in words and plan["residency"] != "cold":
        yield Reason("command", "command", "no --cold, as the run was warm", "--cold")


def _commands(words: list[str], found: Mapping[str, Any]) -> Iterator[Reason]:
    plan, arms = found["plan"], found["arms"]
    if plan["warmup"] != WARMUP:
        yield Reason("plan", "plan.warmup", f"{WARMUP} run of each command before the first round", str(plan["warmup"]))
    truth = {"--pairs": plan["pairs"], "--metric": plan["metric"], "--seed": plan["seed"], "--timeout": f"{plan['timeout']:g}"}
    truth |= {f"--{name}": arms[name]["spec"].get("shell") for name in ("a", "b")}
    truth |= {f"--{name}": plan[name] for name in ("output", "device") if plan.get(name) is not None}
    declared = found["inputs"]["declared"] if has_processes(found) else []
    given = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--file"]
    if given != declared:
        yield Reason("command", "command", f"--file {', '.join(declared) or 'nowhere'}, as the manifest has it"[:200], shown(", ".join(given)))
    several = {"--file": None} | {f"--{name}-{what}": None for name in ("a", "b") for what in ("commit", "env")}  # the label has them
    yield from _options(words, ["lanewise", "ab"], truth, several)
    if f"--{plan['better']}-is-better" not in words:
        yield Reason("command", "command", f"--{plan['better']}-is-better, as the manifest has it", "another way, or none")
    for name in ("a", "b"):
        yield from _label(name, arms[name])


def _options(words: list[str], start: list[str], truth: Mapping[str, Any], unchecked: Mapping[str, Any] | None = None) -> Iterator[Reason]:
    """The command's own words, then options with their values, each known and each as the manifest has it."""
    if words[: len(start)] != start:
        yield Reason("command", "command", " ".join(start), shown(" ".join(words[: len(start)])) if words else "none")
        return
    rest, given = words[len(start) :], set()
    while rest:
        option, *rest = rest
        if option in _FLAGS:
            continue
        value, rest = (rest[0], rest[1:]) if rest else ("", [])
        given.add(option)
        same = value == str(truth.get(option)) if start[1] == "ab" and option in _EXACT else _same(value, truth.get(option))
        if option in truth and not same:
            yield Reason("command", "command", f"{option} {truth[option]}, as the manifest has it", shown(f"{option} {value}"))
        elif option not in truth and option not in _FREE and option not in (unchecked or {}):
            yield Reason("command", "command", f"{', '.join(truth)}, and no other option", shown(option))
    for option in truth.keys() - given - _SOMETIMES:
        yield Reason("command", "command", f"{option} {truth[option]}, as the manifest has it", f"no {option}")


def _same(word: str, value: Any) -> bool:
    try:
        return float(word) == float(value)
    except (TypeError, ValueError):
        return word.lower() == str(value).lower() or _dtype(word.lower()) == value


def _dtype(word: str) -> str | None:
    try:
        return dtype(word).name
    except LanewiseError:
        return None


def _label(name: str, arm: Mapping[str, Any]) -> Iterator[Reason]:
    """A command is called after its variables, its text and its commit."""
    spec = arm["spec"]
    variables = spec.get("env") or {}
    words = [f"{key}={value}" for key, value in variables.items()] if isinstance(variables, dict) else []
    label = " ".join([*words, str(spec.get("shell")), *([f"at {str(spec['commit'])[:12]}"] if spec.get("commit") else [])])
    if arm["label"] != label:
        yield Reason("witness", f"arms.{name}.label", shown(label), shown(arm["label"]))
    if spec.get("commit") is None and arm["artifact"] is not None:
        yield Reason("artifact", f"arms.{name}.artifact", "null, as it is the hash of a commit's files", shown(arm["artifact"]))


def _question(found: Mapping[str, Any]) -> Iterator[Reason]:
    plan = found["plan"]
    a, b = (found["arms"][name]["label"] for name in ("a", "b"))
    if found["kind"] == "command":
        asked = f"Which gives the {plan['better']} {plan['metric']}: {a} or {b}?"
    else:
        try:
            call = call_of(found["problem"])
        except LanewiseError:
            return  # the problem is refused already
        device = str(found["arms"]["a"]["spec"].get("device"))
        asked = question((a, b), call, device, plan["residency"], plan["threads"])
    if found["question"] != asked:
        yield Reason("question", "question", shown(asked), shown(found["question"]))
