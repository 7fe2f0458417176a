"""An A/B run of one op: two arms in turns on the same inputs, with the machine's limits beside them, as a manifest."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lanewise import settings
from lanewise.backends import Progress, backend_for
from lanewise.backends.memory import require
from lanewise.bench import stats
from lanewise.bench.arms import Arm, Named, accepted, arm_for, artifact, named
from lanewise.bench.around import RULE
from lanewise.bench.figures import residency
from lanewise.bench.limits import Limits, Probe, probe_bytes
from lanewise.bench.lock import held
from lanewise.bench.machine import last_level_cache
from lanewise.bench.manifest import digest, stamped
from lanewise.bench.problem import Call, question
from lanewise.bench.rounds import BOOTSTRAP, measure, most_rounds
from lanewise.errors import DeviceError, EvidenceError, SettingError
from lanewise.kernels.cpu.isa import selected
from lanewise.kernels.cpu.threads import ThreadPool, physical_cores

__all__ = ["SHORTEST", "Device", "KernelPlan", "bench_kernel", "command_of", "probed"]

SHORTEST = 200e-6  # seconds of a sample: below, the clock and the waking of threads show
_LONGEST = 60.0
_WARMUP = 10  # calls of each arm before the first round
_CALIBRATION = 3  # calls that the number of repeats is derived from
_MARGIN = 1.5  # a sample is made this much longer than it has to be, so that hardly any has to be made again
_ROTATION = 4  # last-level caches
_LEAST = {"cpu": 0.02, "cuda": 0.002}  # seconds of a sample when nobody says: a GPU's clock ticks more evenly


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """What to measure. copies: of the operands that rotate; when None as many as make the run cold, where memory allows it.

    device: cpu, or cuda, or cuda:1; cold: refuse a run that a cache could help; seconds: the least of a sample, the device's usual one when None;
    seed: of inputs and order, a fresh one when None.

    Raises EvidenceError for a plan that would prove nothing.
    """

    call: Call
    arms: tuple[str, str]
    device: str = "cpu"
    pairs: int = 30
    threads: int | None = None
    copies: int | None = None
    cold: bool = False
    seconds: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not stats.FEWEST_PAIRS <= self.pairs <= stats.MOST_PAIRS:
            raise EvidenceError(f"{self.pairs} pairs were asked for; a run has {stats.FEWEST_PAIRS} to {stats.MOST_PAIRS}")
        if self.copies is not None and self.copies < 1:
            raise EvidenceError(f"{self.copies} copies were asked for; there is at least 1")
        if not SHORTEST <= self.least <= _LONGEST:
            raise EvidenceError(f"samples of {self.least * 1e6:.0f} us were asked for; they last {SHORTEST * 1e6:.0f} us to {_LONGEST:.0f} s")
        if self.threads is not None and self.threads < 1:
            raise SettingError(f"threads is {self.threads}; it takes a positive number")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise EvidenceError(f"the seed is {self.seed}; it is a number from 0 on")

    @property
    def least(self) -> float:
        """Seconds of a sample."""
        return _LEAST.get(self.device.partition(":")[0], _LEAST["cpu"]) if self.seconds is None else self.seconds


def command_of(plan: KernelPlan) -> list[str]:
    """The words that make a run of that plan."""
    call = plan.call
    words = ["lanewise", "bench", "kernel", call.op, "--m", str(call.m), "--n", str(call.n), "--k", str(call.k)]
    words += ["--format", call.fmt] if call.fmt else []
    words += ["--dtype", call.dtype] if not call.fmt or call.dtype != "f32" else []
    words += ["--ab", ",".join(plan.arms)]
    words += ["--device", plan.device, "--pairs", str(plan.pairs)]
    words += ["--heads", str(call.heads), "--kv-heads", str(call.kv_heads)] if call.op == "attention" else []
    words += ["--experts", str(call.experts), "--top", str(call.top)] if call.experts else []
    for name, value in (("--threads", plan.threads), ("--copies", plan.copies), ("--seed", plan.seed)):
        words += [name, str(value)] if value is not None else []
    return [*words, "--sample-ms", f"{1e3 * plan.least:g}", *(["--cold"] if plan.cold else [])]


class Device(Protocol):
    """Where arms run, with a clock and probes of its own. threads: that compute; most: copies of what rotates; rule: see around.RULE."""

    threads: int
    most: int | None
    rule: dict[str, Any]

    @property
    def cache(self) -> int | None:
        """Bytes of its last-level cache."""
        ...

    def check(self, plan: KernelPlan) -> tuple[Named, Named]:
        """The arms by name. Raises EvidenceError for two that are one, before anything is measured."""
        ...

    def arm(self, name: Named, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> Arm: ...

    def probes(self) -> dict[str, Any]: ...

    @property
    def look(self) -> Callable[[], dict[str, Any]] | None:
        """What is around now, where that is more than of a CPU."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the manifest's `machine` and `versions` say, where that is more than of a CPU."""
        ...

    def close(self) -> None: ...


class _Cpu:
    most: int | None = None
    rule = RULE
    look: Callable[[], dict[str, Any]] | None = None

    def __init__(self, plan: KernelPlan) -> None:
        self.threads = plan.threads or settings.get("THREADS") or physical_cores()
        self._isa = selected()
        self._pool = ThreadPool(self._isa, self.threads)
        self._limits: Limits | None = None
        self._products = stats.products(plan.call.facts())

    @property
    def cache(self) -> int | None:
        return last_level_cache()

    def facts(self) -> dict[str, Any]:
        return {}

    def check(self, plan: KernelPlan) -> tuple[Named, Named]:
        if plan.call.experts:
            raise EvidenceError(f"{plan.call} on {plan.device}; experts are measured on GPUs, with --device cuda")
        a, b = map(named, plan.arms)
        for name in (a, b):
            accepted(name, plan.call)
        if (a.body, a.isa) == (b.body, b.isa):
            raise EvidenceError(f"{a.label} and {b.label} are the same arm, {a.what}; an A/B run compares two, and measures A/A beside them")
        if a.isa and b.isa and artifact(plan.call, a.isa) == artifact(plan.call, b.isa):
            raise EvidenceError(f"{a.label} and {b.label} give the same machine code for {plan.call}; there is nothing to compare")
        return a, b

    def arm(self, name: Named, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> Arm:
        return arm_for(name, call, inputs, self._pool, copies)

    def probes(self) -> dict[str, Any]:
        if self._limits is None:
            self._limits = Limits(self._pool, self._isa, probe_bytes(self.cache))
        if self._products == "int8":
            return probed(read=self._limits.read(), int8=self._limits.int8())
        return probed(read=self._limits.read(), float=self._limits.float())

    def close(self) -> None:
        self._pool.close()


def probed(**probes: Probe) -> dict[str, Any]:
    """A round's `probes`."""
    return {name: {"bytes" if name == "read" else "macs": one.amount, "seconds": list(one.seconds)} for name, one in probes.items()}


def _cuda(plan: KernelPlan) -> Device:
    try:
        from lanewise.bench.cuda import Cuda  # loads PyTorch and Triton
    except ImportError as error:
        raise DeviceError(f"kernels on {plan.device} need PyTorch and Triton: {error}; pip install 'lanewise[gpu]' brings them") from None
    return Cuda(plan)


_DEVICES: dict[str, Callable[[KernelPlan], Device]] = {"cpu": _Cpu, "cuda": _cuda}


def bench_kernel(plan: KernelPlan, command: Sequence[str] = (), progress: Progress | None = None) -> dict[str, Any]:
    """The manifest of a run. Raises EvidenceError for arms that are the same, for a `cold` that would be false and while another run
    is under way, NoKernelError, with every reason, for a call that an arm does not take, and DeviceError for what is not there."""
    kind = plan.device.partition(":")[0]
    if kind not in _DEVICES or (kind == "cpu") != (plan.device == "cpu"):
        backend_for(plan.device)  # has the words for one that does not exist
        raise DeviceError(f"kernels are measured on {', '.join(_DEVICES)}, not on {plan.device}; the reference is an arm of the cpu")
    with held("cuda:0" if plan.device == "cuda" else plan.device):
        device = _DEVICES[kind](plan)
        try:
            return _measured(plan, device, command, progress)
        finally:
            device.close()


def _measured(plan: KernelPlan, device: Device, command: Sequence[str], progress: Progress | None) -> dict[str, Any]:
    began = datetime.now(UTC)
    names, facts = dict(zip("ab", device.check(plan), strict=True)), plan.call.facts()
    require(facts["bytes"] + plan.call.idle_bytes, f"the operands of {plan.call}")
    seed = secrets.randbits(32) if plan.seed is None else plan.seed
    inputs = plan.call.inputs(seed)
    arms, rotated = _arms(device, plan, names, inputs)
    repeats = {key: _repeats(arm, plan.least) for key, arm in arms.items()}
    device.probes()  # what is made and touched for the first time is not part of a round
    stated: dict[str, Any] = {
        "pairs": plan.pairs,
        "most_rounds": most_rounds(plan.pairs),
        "warmup": _WARMUP,
        "min_seconds": plan.least,
        "seed": seed,
        "buffers_bytes": rotated,
        "residency": _label(rotated, device.cache),
        "threads": device.threads,
        "rule": device.rule,
        "bootstrap": BOOTSTRAP,
    }
    rounds = measure(stated, lambda key: _sample(key, arms[key], repeats, plan.least), device.probes, progress, device.look)
    parts = {
        "plan": stated,
        "problem": facts,
        "inputs": {"seed": seed, "sha256": {name: digest(array.tobytes()) for name, array in inputs.items()}},
        "arms": {key: _described(names[key], arm) for key, arm in arms.items()},
        "rounds": rounds,
    }
    asked = question(plan.arms, plan.call, plan.device, stated["residency"], device.threads)
    return stamped("kernel", asked, command, began, {**device.facts(), **parts})


def _arms(device: Device, plan: KernelPlan, names: dict[str, Named], inputs: dict[str, NDArray[Any]]) -> tuple[dict[str, Arm], int]:
    """Both arms, and the bytes that one rotation of either reads at least."""
    size, cache = plan.call.read_bytes, device.cache
    copies = plan.copies or (ceil(_ROTATION * cache / size) if cache else 1)
    copies = min(copies, device.most or copies)
    if plan.cold and _label(copies * size, cache) != "cold":
        beside = f"beside a last-level cache of {cache} bytes" if cache else "as nobody knows how large the last-level cache is"
        raise EvidenceError(f"a rotation of {copies * size} bytes ({copies} x {size}) cannot be called cold {beside}; leave --cold out")
    try:
        arms = {key: device.arm(name, plan.call, inputs, copies) for key, name in names.items()}
    except DeviceError:  # too little memory: the copies that nobody asked for are left out, and the label says so
        if plan.cold or plan.copies:
            raise
        copies = 1
        arms = {key: device.arm(name, plan.call, inputs, copies) for key, name in names.items()}
    return arms, copies * min(size, *(arm.nbytes for arm in arms.values()))


def _label(rotated: int, cache: int | None) -> str:
    """Cold where a rotation is 4 last-level caches or more; everything else is called warm."""
    return "cold" if residency(rotated, cache) == "cold" else "warm"


def _repeats(arm: Arm, least: float) -> int:
    """Repeats that a sample of `least` seconds needs, by the fastest of a few."""
    arm.seconds(_WARMUP)
    return max(1, ceil(_MARGIN * least / min(arm.seconds(1)[1] for _ in range(_CALIBRATION))))


def _sample(key: str, arm: Arm, repeats: dict[str, int], least: float) -> dict[str, Any]:
    """One sample, made again with more repeats when it was too short to count."""
    while True:
        started, seconds = arm.seconds(repeats[key])
        if seconds >= least:
            return {"arm": key, "seconds": seconds, "repeats": arm.calls * repeats[key], "started": started}
        repeats[key] = ceil(_MARGIN * repeats[key])


def _described(name: Named, arm: Arm) -> dict[str, Any]:
    output = np.ascontiguousarray(arm.output(), np.float32).tobytes()
    return {"label": name.label, "spec": arm.spec, "witness": arm.witness(), "artifact": arm.artifact, "output": digest(output)}
