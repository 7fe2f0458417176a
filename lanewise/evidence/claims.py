"""What a manifest claims beside its samples: that the arms differ, ran what they say, on this problem and machine, and what follows."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lanewise import arch, dispatch
from lanewise.bench.around import RULE
from lanewise.bench.cpu_call import kernels_of
from lanewise.bench.figures import residency
from lanewise.bench.kernel import SHORTEST
from lanewise.bench.limits import probe_bytes
from lanewise.bench.problem import Call, phase_of
from lanewise.bench.rounds import BOOTSTRAP, most_rounds
from lanewise.bench.stats import FEWEST_PAIRS, NO_DIFFERENCE, products
from lanewise.errors import LanewiseError
from lanewise.evidence.gpu import arm_of, check_device, check_gpu, check_gpu_arm, check_gpu_plan, is_gpu
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.probes import CHUNK_BYTES

__all__ = ["call_of", "check_claims", "check_verdict", "operand_bytes"]

_REFERENCE = "lanewise/backends/reference/ops.py"


def check_claims(found: Mapping[str, Any]) -> list[Reason]:
    """Every reason that lies in what the manifest claims; the verdict is `check_verdict`."""
    reasons = [*_commit(found), *_plan(found["plan"], on_gpu=is_gpu(found)), *_arms(found), *_machine(found)]
    if found["kind"] == "command":
        reasons += check_device(found)
    if is_gpu(found) and found["kind"] == "kernel":
        reasons += check_gpu(found, operand_bytes(found["problem"]))
    if found["kind"] == "kernel":
        reasons += [*_problem(found["problem"]), *_residency(found), *_inputs(found)]
        reasons += [reason for name in ("a", "b") for reason in _ran(name, found)]
    return reasons


def call_of(problem: Mapping[str, Any]) -> Call:
    """The call that a manifest's problem describes. Raises LanewiseError where there is none."""
    sizes = {name: problem[name] for name in ("heads", "kv_heads", "dtype", "experts", "top") if name in problem}
    return Call(problem["op"], problem["m"], problem["n"], problem["k"], problem.get("format"), **sizes)


def check_verdict(said: str, follows: Mapping[str, Any]) -> list[Reason]:
    """Whether a verdict is that of the figures that follow, with the reason in words: too few pairs, an interval round 1, or a control
    as wide as the effect."""
    if said == follows["verdict"]:
        return []
    ratio, spread = follows["ratio"], follows["control"]["spread"]
    where = "figures.verdict"
    if follows["verdict"] != NO_DIFFERENCE or follows["pairs"] < FEWEST_PAIRS or ratio["median"] is None:
        return [Reason("verdict", where, f"{follows['verdict']!r}, of {follows['pairs']} pairs ({FEWEST_PAIRS} are needed)", shown(said))]
    interval = f"an interval of {ratio['low']:.4f} to {ratio['high']:.4f}"
    if ratio["low"] <= 1 <= ratio["high"]:
        return [Reason("verdict", where, f"{NO_DIFFERENCE!r}, as {interval} holds 1", shown(said))]
    effect = max(ratio["median"], 1 / ratio["median"]) - 1
    return [Reason("control-wide", where, f"{NO_DIFFERENCE!r}: an effect of {effect:.4f} beyond a control of {spread:.4f}", shown(said))]


def _commit(found: Mapping[str, Any]) -> Iterator[Reason]:
    if found["commit"] is None:
        yield Reason("commit", "commit", "the commit that was measured", "null")
        return
    if not re.fullmatch(r"[0-9a-f]{40}", found["commit"]["id"]):
        yield Reason("commit", "commit.id", "40 hexadecimal digits", shown(found["commit"]["id"]))
    if found["commit"]["dirty"]:
        yield Reason("dirty", "commit.dirty", "a clean tree", "changes")
    if not found["sources"]:
        yield Reason("source", "sources", "the hash of every source file of the package", "none")


def _plan(plan: Mapping[str, Any], *, on_gpu: bool) -> Iterator[Reason]:
    """A plan may be stricter than this, and not laxer."""
    rule = plan["rule"]
    for name, value in BOOTSTRAP.items():
        if plan["bootstrap"][name] != value:
            yield Reason("plan", f"plan.bootstrap.{name}", f"{value}, as for every run: none is chosen by its result", shown(plan["bootstrap"][name]))
    if plan["most_rounds"] != most_rounds(plan["pairs"]):
        yield Reason("plan", "plan.most_rounds", f"{most_rounds(plan['pairs'])}, for {plan['pairs']} pairs", str(plan["most_rounds"]))
    if plan.get("min_seconds", SHORTEST) < SHORTEST:
        yield Reason("plan", "plan.min_seconds", f"{SHORTEST:g} or more", shown(plan["min_seconds"]))
    if on_gpu:
        yield from check_gpu_plan(plan)
    elif rule["busy"] is None or rule["busy"] > RULE["busy"]:
        yield Reason("plan", "plan.rule.busy", f"at most {RULE['busy']} of a core for others", shown(rule["busy"]))
    if not rule["throttled"]:
        yield Reason("plan", "plan.rule.throttled", "rounds that were throttled are left out", shown(rule["throttled"]))


def _arms(found: Mapping[str, Any]) -> Iterator[Reason]:
    a, b = (found["arms"][name] for name in ("a", "b"))
    if a["artifact"] is not None and a["artifact"] == b["artifact"]:
        yield Reason("arms-equal", "arms.b.artifact", "other code than that of arm a", f"the same, {shown(b['artifact'][:12])}")
    if a["label"] == b["label"]:
        yield Reason("arms-equal", "arms.b.label", "another name than arm a has", shown(b["label"]))
    if a["spec"] == b["spec"]:
        yield Reason("arms-equal", "arms.b.spec", "something that differs from arm a", "nothing")
    if found["kind"] == "kernel" and a["witness"] and b["witness"]:
        ran = [{key: one["witness"][key] for key in ("kernel", "body", "isa")} for one in (a, b)]
        if ran[0] == ran[1] and not (is_gpu(found) and a["spec"].get("compiled") != b["spec"].get("compiled")):
            yield Reason("switch", "arms.b.witness", "another kernel, body or instruction set than arm a ran", ", ".join(map(str, ran[1].values())))
    if _same_bits(found) and a["output"] != b["output"]:
        words = f"{shown(a['output'])}, as arm a gives: the two have the same bits on both instruction sets"
        yield Reason("output", "arms.b.output", words, shown(b["output"]))


def _same_bits(found: Mapping[str, Any]) -> bool:
    """Whether both arms run one kernel that rounds alike: those with fused multiply-adds do, and those without; BF16 weights have
    numbers of their own where they meet a bf16 dot."""
    a, b = (found["arms"][name]["witness"] for name in ("a", "b"))
    if found["kind"] == "command" or a is None or b is None or a["kernel"] != b["kernel"] or not {a["isa"], b["isa"]} <= ISAS.keys():
        return False
    one, other = ISAS[a["isa"]], ISAS[b["isa"]]
    brain = (found["problem"] or {}).get("format") == "BF16" and one.bf16 != other.bf16
    return one.fma == other.fma and not brain


def _machine(found: Mapping[str, Any]) -> Iterator[Reason]:
    machine, plan = found["machine"], found["plan"]
    row, flags = machine.get("row"), str(machine.get("flags") or "")
    if not isinstance(row, str) or row not in arch.TARGETS:
        yield Reason("machine", "machine.row", "a row of `lanewise targets`", shown(row))
        return
    if arch.TARGETS[row].vendor == "x86" and arch.x86_level(frozenset(flags.split())) != row:
        yield Reason("machine", "machine.row", f"{arch.x86_level(frozenset(flags.split()))}, by its flags", shown(row))
    cores = machine.get("usable_cores"), machine.get("logical_cores")
    if not all(isinstance(one, int) and one > 0 for one in cores) or cores[0] > cores[1]:
        yield Reason("machine", "machine.usable_cores", "between 1 and the logical cores", f"{shown(cores[0])} of {shown(cores[1])}")
    elif plan.get("threads", 1) > cores[0]:
        yield Reason("machine", "plan.threads", f"at most {cores[0]}, the cores that can be used", shown(plan["threads"]))
    rows = list(ISAS)
    for name in ("a", "b"):
        isa = (found["arms"][name]["witness"] or {}).get("isa") if found["kind"] == "kernel" else None
        if isa in ISAS and row in ISAS and (ISAS[isa].arch.vendor != arch.TARGETS[row].vendor or rows.index(isa) < rows.index(row)):
            yield Reason("machine", f"arms.{name}.witness.isa", f"an instruction set that {row} runs", isa)


def _problem(problem: Mapping[str, Any]) -> Iterator[Reason]:
    try:
        facts = call_of(problem).facts()
    except LanewiseError as error:
        yield Reason("problem", "problem", "a call that can be measured", str(error))
        return
    for name in {**facts, **problem}:
        if facts.get(name) != problem.get(name):
            code = "phase" if name == "phase" else "problem"
            yield Reason(code, f"problem.{name}", f"{facts.get(name)}, by the other sizes", shown(problem.get(name)))


def _residency(found: Mapping[str, Any]) -> Iterator[Reason]:
    """Cold only where one rotation is at least 4 times the last-level cache; all else is warm."""
    plan, cache = found["plan"], found["machine"].get("last_level_cache")
    if not (cache is None or (isinstance(cache, int) and cache > 0)):
        yield Reason("machine", "machine.last_level_cache", "bytes, or null", shown(cache))
        return
    label = "cold" if residency(plan["buffers_bytes"], cache) == "cold" else "warm"
    if plan["residency"] != label:
        where = f"{plan['buffers_bytes']} bytes and a cache of {cache}"
        yield Reason("residency", "plan.residency", f"{label}, of {where}", plan["residency"])
    size = operand_bytes(found["problem"])
    if size and (plan["buffers_bytes"] < size or plan["buffers_bytes"] % size):
        yield Reason("residency", "plan.buffers_bytes", f"copies of the {size} bytes that a call reads", str(plan["buffers_bytes"]))
    if is_gpu(found):
        return  # memory and probes of its own
    peak = found["rounds"][-1]["after"]["peak_memory"]
    if peak is not None and peak < plan["buffers_bytes"]:
        yield Reason("residency", "plan.buffers_bytes", f"at most {peak}, the most memory that the process had", str(plan["buffers_bytes"]))
    read, probes = -(-probe_bytes(cache) // CHUNK_BYTES) * CHUNK_BYTES, found["rounds"][0]["probes"]
    if probes["read"]["bytes"] != read:
        yield Reason("probe", "rounds[0].probes.read.bytes", f"{read}, for a cache of {cache}", str(probes["read"]["bytes"]))
    if products(found["problem"]) not in probes:
        yield Reason("probe", "rounds[0].probes", f"{products(found['problem'])}, whose products are those of the problem", ", ".join(probes))


def operand_bytes(problem: Mapping[str, Any]) -> int:
    """Bytes of what rotates: the weights as a file has them, those of experts with rows, or the pages of a cache. 0 where the problem is none."""
    try:
        return call_of(problem).read_bytes
    except LanewiseError:
        return 0


def _inputs(found: Mapping[str, Any]) -> Iterator[Reason]:
    if found["inputs"]["seed"] != found["plan"]["seed"]:
        yield Reason("inputs", "inputs.seed", f"{found['plan']['seed']}, the plan's", str(found["inputs"]["seed"]))
    op = found["problem"]["op"]
    expected = ("q", "keys", "values") if op == "attention" else ("x", "w", "ids") if op == "grouped_linear" else ("x", "w")
    if set(found["inputs"]["sha256"]) != set(expected):
        yield Reason("inputs", "inputs.sha256", ", ".join(expected), ", ".join(found["inputs"]["sha256"])[:100] or "none")


def _ran(name: str, found: Mapping[str, Any]) -> Iterator[Reason]:
    """The witness of an arm against its spec, its label, the problem and the samples."""
    arm, problem = found["arms"][name], found["problem"]
    spec, witness, where = arm["spec"], arm["witness"], f"arms.{name}.witness"
    for key in ("body", "isa"):
        if spec.get(key) != witness[key]:
            yield Reason("witness", f"{where}.{key}", f"{shown(spec.get(key))}, as its spec says", shown(witness[key]))
    where_run = _gpu_name(found) if is_gpu(found) else "cpu"
    if spec.get("device") != where_run:
        yield Reason("witness", f"arms.{name}.spec.device", f"{where_run!r}, where these kernels run", shown(spec.get("device")))
    yield from check_gpu_arm(name, found) if is_gpu(found) else _named(name, arm)
    meant = arm_of(arm["label"], problem) if is_gpu(found) else None
    op = meant.op if meant else problem["op"]
    kernels = [kernel.name for kernel in dispatch.kernels() if kernel.op == op and kernel.body == witness["body"]]
    if witness["kernel"] not in kernels:
        yield Reason(
            "witness",
            f"{where}.kernel",
            f"a {witness['body']} kernel of {op}: {', '.join(kernels) or 'none'}"[:200],
            shown(witness["kernel"]),
        )
    if phase_of(witness["m"]) != problem["phase"]:
        yield Reason("phase", f"{where}.m", f"{problem['phase']}, as the problem says", f"{phase_of(witness['m'])} of m {witness['m']}")
    elif witness["m"] != problem["m"]:
        yield Reason("witness", f"{where}.m", f"{problem['m']}, as the problem says", str(witness["m"]))
    samples = [s for one in found["rounds"] for s in (*one["samples"], *one["control"]) if s["arm"] == name]
    least = sum(s["repeats"] + 1 for s in samples)  # each sample follows a call that is not counted
    if witness["calls"] < least:
        yield Reason("witness", f"{where}.calls", f"{least} or more, for its samples", str(witness["calls"]))
    if not is_gpu(found):
        yield from _made_of(name, arm, found)


def _gpu_name(found: Mapping[str, Any]) -> str:
    """The device as both arms have it: cuda, or cuda:1."""
    device = str(found["arms"]["a"]["spec"].get("device"))
    return device if re.fullmatch(r"cuda(:\d+)?", device) else "cuda"


def _named(name: str, arm: Mapping[str, Any]) -> Iterator[Reason]:
    label, witness = arm["label"], arm["witness"]
    expected = {"reference": ("reference", "numpy"), "cpu": ("cpu", witness["isa"])}.get(label, ("cpu", label))
    if (witness["body"], witness["isa"]) != expected:
        yield Reason(
            "witness", f"arms.{name}.label", f"{expected[0]} on {expected[1]}, as it is called", f"{witness['body']} on {witness['isa']}"[:100]
        )


def _made_of(name: str, arm: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    """The kernels that the spec lists, and of a body of numpy the source that it is."""
    spec, where = arm["spec"], f"arms.{name}"
    if spec.get("body") == "reference":
        if arm["artifact"] != found["sources"].get(_REFERENCE):
            yield Reason("artifact", f"{where}.artifact", f"the hash of {_REFERENCE}", arm["artifact"])
        expected = [arm["witness"]["kernel"]]
    else:
        try:
            expected = [kernel.name for kernel in kernels_of(call_of(found["problem"]))]
        except (LanewiseError, KeyError):
            return  # the problem is refused already
    if spec.get("kernels") != expected:
        yield Reason("witness", f"{where}.spec.kernels", ", ".join(expected), shown(spec.get("kernels")))
