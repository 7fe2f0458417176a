"""What a bundle that was measured on a GPU claims: its card, its arms, what they were captured as, and the readings of every round."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lanewise import arch
from lanewise.bench.ab import DEVICES
from lanewise.bench.around import GPU_RULE
from lanewise.bench.gpu_code import ARMS, EXPANDER, GpuArm, blas_artifact
from lanewise.bench.limits import FLOAT_SIZE, FLOAT_TURNS, READ_TURNS, gpu_probe_bytes
from lanewise.evidence.gpu_kernels import FUSED, STORED, described_kernels
from lanewise.evidence.gpu_quant import check_grouped, check_quantized
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown

__all__ = ["arm_of", "check_gpu", "check_gpu_arm", "check_gpu_plan", "is_gpu"]

_COMBINE = "_combine"
_FACTS = {"multiprocessors": int, "memory": int, "l2": int}


def is_gpu(found: Mapping[str, Any]) -> bool:
    """Whether a manifest says that a GPU was measured."""
    return "gpu" in found["machine"]


def check_gpu(found: Mapping[str, Any], size: int) -> Iterator[Reason]:
    """The card, the rotation (of copies of `size` bytes), the probes and the readings."""
    gpu = found["machine"]["gpu"]
    if not isinstance(gpu, dict):
        yield Reason("machine", "machine.gpu", "what the driver says of the GPU", shown(gpu))
        return
    yield from _card(gpu, found["machine"].get("last_level_cache"))
    if found["plan"]["threads"] != 1:
        yield Reason("machine", "plan.threads", "1, as nothing else computes for a GPU", shown(found["plan"]["threads"]))
    rotated, memory = found["plan"]["buffers_bytes"], gpu.get("memory")
    if isinstance(memory, int) and rotated > memory:
        yield Reason("residency", "plan.buffers_bytes", f"at most {memory}, the memory of the GPU", str(rotated))
    first, cache = found["rounds"][0]["probes"], gpu.get("l2")
    amounts = {"read.bytes": READ_TURNS * gpu_probe_bytes(cache if isinstance(cache, int) else None), "float.macs": FLOAT_TURNS * FLOAT_SIZE**3}
    for where, right in amounts.items():
        probe, amount = where.split(".")
        if first.get(probe, {}).get(amount) != right:
            yield Reason("probe", f"rounds[0].probes.{where}", f"{right}, for a cache of {cache}", shown(first.get(probe, {}).get(amount)))
    yield from _all_readings(found["rounds"])
    for name in ("a", "b"):
        yield from _whole(name, found, size)


def check_device(found: Mapping[str, Any]) -> Iterator[Reason]:
    """What a run of commands locked and watched is the device of its plan: a GPU with its card and readings, or none anywhere."""
    device, machine, rounds = found["plan"].get("device", "cpu"), found["machine"], found["rounds"]
    if not DEVICES.fullmatch(device):
        yield Reason("plan", "plan.device", "cpu, or cuda, or cuda:1", shown(device))
    elif device == "cpu":
        watched = [f"rounds[{i}].{side}.gpu" for i, one in enumerate(rounds) for side in ("before", "after") if "gpu" in one[side]]
        for where in [*(["machine.gpu"] if is_gpu(found) else []), *watched]:
            yield Reason("machine", where, "nothing of a GPU, as the plan's device is cpu", "a GPU")
    elif not isinstance(machine.get("gpu"), dict):
        yield Reason("machine", "machine.gpu", f"what the driver says of {device}, the plan's device", shown(machine.get("gpu")))
    else:
        yield from _card(machine["gpu"], machine.get("last_level_cache"))
        yield from _all_readings(rounds)


def check_gpu_plan(plan: Mapping[str, Any]) -> Iterator[Reason]:
    """Who else computes on the GPU leaves a round out; a busy host does not, as nothing that is timed waits for it."""
    if plan["rule"].get("alone") is not True:
        yield Reason("plan", "plan.rule.alone", f"{GPU_RULE['alone']}: a round with another process on the GPU is left out", "no such rule")


def arm_of(label: Any, problem: Any) -> GpuArm | None:
    """What a label means beside the op of a problem; None where there is no such arm."""
    arms = ARMS.get(str((problem or {}).get("op")), {})
    return arms.get(label) if isinstance(label, str) else None


def check_gpu_arm(name: str, found: Mapping[str, Any]) -> Iterator[Reason]:
    """What an arm was made of, beside its label, its switch, the card and the versions."""
    arm, card = found["arms"][name], found["machine"]["gpu"]
    spec, witness, where = arm["spec"], arm["witness"], f"arms.{name}"
    row = card.get("row") if isinstance(card, dict) else None
    if witness["isa"] != row:
        yield Reason("witness", f"{where}.witness.isa", f"{shown(row)}, the row of the GPU", shown(witness["isa"]))
    meant = arm_of(arm["label"], found["problem"])
    if meant is None:
        there = ARMS.get(str((found["problem"] or {}).get("op")), {})
        yield Reason("witness", f"{where}.label", " or ".join(there) or "no arm: this op is not measured there", shown(arm["label"]))
        return
    body, switch = meant.body, meant.switch
    if witness["body"] != body:
        yield Reason("witness", f"{where}.label", f"body {body}, as it is called", shown(witness["body"]))
    if spec.get("switch") != switch:
        yield Reason("witness", f"{where}.spec.switch", f"{switch!r}, which makes this arm", shown(spec.get("switch")))
    if spec.get("kernels") != [witness["kernel"]]:
        yield Reason("witness", f"{where}.spec.kernels", shown([witness["kernel"]]), shown(spec.get("kernels")))
    if spec.keys() - {"device", "body", "isa", "kernels", "calls", "switch", "compiled"}:
        yield Reason("witness", f"{where}.spec", "what an arm of a GPU is made of", ", ".join(map(str, spec))[:100])
    if body == "gpu" and not (isinstance(spec.get("compiled"), list) and spec["compiled"]):
        yield Reason("witness", f"{where}.spec.compiled", "the kernels that were launched", shown(spec.get("compiled")))
    elif body == "gpu":
        check = {"linear": _computed, "grouped_linear": check_grouped}.get(meant.op, check_quantized)
        yield from check(f"{where}.spec.compiled", spec["compiled"], found["problem"], arm)
    if body == "blas":
        if "compiled" in spec:
            yield Reason("witness", f"{where}.spec.compiled", "nothing: the vendor's library is not compiled here", shown(spec["compiled"]))
        expander = found["sources"].get(EXPANDER, "not there") if meant.expands else None
        if arm["artifact"] != (right := blas_artifact(found["versions"], expander)):
            yield Reason("artifact", f"{where}.artifact", f"{right}, of the versions of the library", arm["artifact"])


def _computed(where: str, compiled: list[Any], problem: Mapping[str, Any], arm: Mapping[str, Any]) -> Iterator[Reason]:
    """One kernel multiplies what the problem says, in its types and with nothing fused; of a product in parts another adds them up."""
    try:
        kernels = described_kernels(compiled)
    except ValueError as error:
        yield Reason("witness", where, "descriptions of kernels", str(error)[:100])
        return
    products = [(signature, constants) for name, signature, constants in kernels if name != _COMBINE]
    if len(products) != 1:
        yield Reason("witness", where, "one kernel that multiplies", ", ".join(name for name, _, _ in kernels)[:100])
        return
    (signature, constants), stored = products[0], f"*{STORED.get(str(problem.get('dtype')))}"
    for name, right in (("x", (stored, "*i32")), ("w", (stored, "*i32")), ("y", (stored,))):
        if signature.get(name) not in right:
            yield Reason("witness", where, f"{name} of type {' or '.join(right)}, as the problem says", shown(signature.get(name)))
    for _, _, given in kernels:
        if fused := [name for name in FUSED if given.get(name)]:
            yield Reason("witness", where, "a product with nothing fused, as the problem says", ", ".join(fused))
    if (len(kernels) == 2) != bool(constants.get("SPLIT")) or len(kernels) > 2:
        yield Reason("witness", where, f"{_COMBINE} where k is split, and only there", ", ".join(name for name, _, _ in kernels)[:100])
    m, k, most = problem.get("m"), problem.get("k"), constants.get("M", constants.get("HALVES", 0) and 8 * constants["HALVES"])
    if most and isinstance(m, int) and (not isinstance(most, int) or most < m):
        yield Reason("witness", where, f"a kernel of {m} tokens or more", shown(most))
    if (columns := constants.get("K")) and isinstance(k, int) and columns not in (k, k / 2):
        yield Reason("witness", where, f"a kernel of k {k}", shown(columns))


def _card(gpu: Mapping[str, Any], cache: Any) -> Iterator[Reason]:
    row = arch.TARGETS.get(gpu["row"]) if isinstance(gpu.get("row"), str) else None
    if row is None or not row.is_gpu:
        yield Reason("machine", "machine.gpu.row", "the row of a GPU in `lanewise targets`", shown(gpu.get("row")))
        return
    capability = gpu.get("capability")
    digits = "".join(map(str, capability)) if isinstance(capability, list) and len(capability) == 2 else ""
    if not digits or not (row.name.endswith(f"_{digits}") if row.vendor == "nvidia" else row.name[3:].startswith(digits)):
        yield Reason("machine", "machine.gpu.capability", f"that of {row.name}", shown(capability))
    name = gpu.get("name")
    if not isinstance(name, str) or not name or (row.vendor == "amd") == ("nvidia" in name.lower()):
        yield Reason("machine", "machine.gpu.name", f"a GPU of the vendor {row.vendor}", shown(name))
    for key, kind in _FACTS.items():
        if not isinstance(gpu.get(key), kind) or gpu[key] <= 0:
            yield Reason("machine", f"machine.gpu.{key}", "a number above 0", shown(gpu.get(key)))
    if gpu.get("l2") != cache:
        yield Reason("machine", "machine.gpu.l2", f"{shown(cache)}, the last-level cache that the run was planned for", shown(gpu.get("l2")))
    if not (gpu.get("driver") is None or isinstance(gpu["driver"], str)):
        yield Reason("machine", "machine.gpu.driver", "a version, or null", shown(gpu["driver"]))


def _all_readings(rounds: Sequence[Mapping[str, Any]]) -> Iterator[Reason]:
    for i, one in enumerate(rounds):
        for side in ("before", "after"):
            yield from _readings(f"rounds[{i}].{side}.gpu", one[side], rounds[0]["before"])


def _readings(where: str, side: Mapping[str, Any], first: Mapping[str, Any]) -> Iterator[Reason]:
    """Every round has the readings that the first has: what a driver says once, it says always."""
    said, right = ({name for name, value in (one.get("gpu") or {}).items() if value is not None} for one in (side, first))
    if "gpu" not in side:
        yield Reason("machine", where, "readings of the GPU, or a null for each that nobody says", "none")
    elif said != right:
        yield Reason("machine", where, f"{', '.join(sorted(right)) or 'nothing'}, as the first reading has", ", ".join(sorted(said)) or "nothing")


def _whole(name: str, found: Mapping[str, Any], size: int) -> Iterator[Reason]:
    """A graph holds whole rotations, and a sample and a witness whole graphs."""
    arm, where = found["arms"][name], f"arms.{name}.spec.calls"
    calls = arm["spec"].get("calls")
    if type(calls) is not int or calls < 1:
        yield Reason("witness", where, "how many calls a graph holds", shown(calls))
        return
    copies = found["plan"]["buffers_bytes"] // size if size else 1
    if copies and calls % copies:
        yield Reason("residency", where, f"a multiple of {copies}, so that every copy is read as often", str(calls))
    samples = [(i, s) for i, one in enumerate(found["rounds"]) for s in (*one["samples"], *one["control"]) if s["arm"] == name]
    for i, sample in samples:
        if sample["repeats"] % calls:
            yield Reason("repeats", f"rounds[{i}]", f"multiples of {calls}, the calls of a graph", f"{sample['repeats']} calls of arm {name}")
    witnessed = arm["witness"]["calls"]
    least = sum(s["repeats"] + calls for _, s in samples)  # each sample follows a replay that is not counted
    if witnessed % calls or witnessed < least:
        yield Reason("witness", f"arms.{name}.witness.calls", f"{least} or more, in multiples of {calls}", str(witnessed))
