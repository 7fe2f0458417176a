"""A/B runs that nobody measured: manifests with samples of one's choice, whole in structure."""

from collections.abc import Sequence
from typing import Any

from lanewise.bench import stats
from lanewise.bench.around import RULE
from lanewise.bench.problem import Call
from lanewise.bench.rounds import BOOTSTRAP, most_rounds

SEED = 5
QUIET: dict[str, Any] = {
    "time": 0.0, "load": [0.0, 0.0, 0.0], "ticks": {"user": 0, "steal": 0}, "clock_mhz": None, "temperature": None, "power": None,
    "throttle": {"core": 0}, "neighbours": [], "memory_available": 1 << 30, "peak_memory": 1 << 20,
}  # fmt: skip
CALL = Call("quant_linear", 1, 4096, 4096, "Q4_K")


def round_of(number: int, samples: Sequence[float], control: Sequence[float] = (1.0, 1.0), left_out: str | None = None) -> dict[str, Any]:
    """A round of a kernel: seconds of two repeats of each sample, in the order of the schedule."""
    order, arm = stats.schedule(SEED, number)
    started = number * 10**9
    rows = [{"arm": a, "seconds": 2 * s, "repeats": 2, "started": started + i} for i, (a, s) in enumerate(zip(order, samples, strict=True))]
    twice = [{"arm": arm, "seconds": 2 * s, "repeats": 2, "started": started + 4 + i} for i, s in enumerate(control)]
    return {
        "number": number, "order": list(order), "samples": rows, "control": twice,
        "probes": {"read": {"bytes": 10**9, "seconds": [0.2, 0.1]}, "int8": {"macs": 10**9, "seconds": [0.01, 0.02]}},
        "before": dict(QUIET), "after": {**QUIET, "time": 1.0}, "left_out": left_out,
    }  # fmt: skip


def rounds_of(times: Sequence[tuple[float, float]], control: Sequence[float] = (1.0, 1.0)) -> list[dict[str, Any]]:
    """For each (a, b) a round in which the arms take those seconds."""
    found = []
    for number, (a, b) in enumerate(times):
        order, _ = stats.schedule(SEED, number)
        found.append(round_of(number, [{"a": a, "b": b}[arm] for arm in order], control))
    return found


def manifest_of(rounds: Sequence[dict[str, Any]], kind: str = "kernel", better: str = "lower", pairs: int = 15) -> dict[str, Any]:
    """A manifest around rounds of a kernel; of a command each sample's value is the seconds of one repeat."""
    digest = "0" * 64
    plan = {"pairs": pairs, "most_rounds": most_rounds(pairs), "warmup": 1, "seed": SEED, "rule": dict(RULE), "bootstrap": dict(BOOTSTRAP)}
    spec = {"device": "cpu"}
    arms = {
        key: {
            "label": key, "spec": spec, "witness": {"kernel": "k", "body": "cpu", "isa": key, "calls": 9, "m": 1},
            "artifact": str(number) * 64, "output": digest,
        }
        for number, key in enumerate("ab")
    }  # fmt: skip
    if kind == "command":
        rounds = [{**r, "probes": None, "samples": _valued(r["samples"]), "control": _valued(r["control"])} for r in rounds]
        plan |= {"metric": "(.*)", "better": better, "timeout": 600.0}
        arms = {key: {**arm, "witness": None, "artifact": None, "output": None} for key, arm in arms.items()}
    else:
        plan |= {"min_seconds": 2e-4, "buffers_bytes": 1 << 30, "residency": "cold", "threads": 2}
    manifest = {
        "schema": "lanewise.evidence", "schema_version": 1, "kind": kind, "question": "Which?", "command": ["lanewise"], "began": "", "ended": "",
        "commit": {"id": "0" * 40, "dirty": False}, "sources": {"lanewise/__init__.py": digest}, "versions": {"lanewise": "0"}, "settings": {},
        "machine": {"cpu": "none"}, "plan": plan, "problem": CALL.facts() if kind == "kernel" else None,
        "inputs": {"seed": SEED, "sha256": {"x": digest}} if kind == "kernel" else None, "arms": arms, "rounds": list(rounds),
    }  # fmt: skip
    return {**manifest, "figures": stats.figures(manifest)}


def _valued(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"arm": s["arm"], "value": s["seconds"] / s["repeats"], "repeats": 1, "started": s["started"]} for s in samples]
