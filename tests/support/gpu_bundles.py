"""A good evidence bundle of a GPU, made up and consistent: nothing is measured, every figure follows from its samples."""

from typing import Any, NamedTuple

from lanewise import arch
from lanewise.bench.around import GPU_RULE, left_out
from lanewise.bench.gpu_code import EXPANDER, blas_artifact
from lanewise.bench.limits import FLOAT_SIZE, FLOAT_TURNS, READ_TURNS, gpu_probe_bytes
from lanewise.bench.manifest import digest
from lanewise.bench.problem import Call, question
from lanewise.bench.stats import figures, rounds_for
from support import bundles
from support.bundles import PAIRS, SEED

EXPANDING = digest(b"expands")
NAME, DRIVER, ROW = "NVIDIA H200", "580.159.04", arch.parse("sm_90")
CALL = Call("linear", 1, 64, 128, dtype="bf16")
SECONDS = {"a": 4e-6, "b": 6e-6}
COPIES, CALLS, REPEATS = 16, 48, 48 * 120
CACHE = COPIES * 64 * 128 * 2 // 4  # beside weights as small as these every rotation is cold
COMPILED = [
    {
        "function": "lanewise.kernels.gpu.lanes:_lanes",
        "signature": {"x": "*bf16", "w": "*bf16", "y": "*bf16", "M": "constexpr", "K": "constexpr", "SPLIT": "constexpr", "GATED": "constexpr"},
        "constants": [[[3], 1], [[4], 128], [[5], False], [[6], False]],
        "attributes": [[[0], [["tt.divisibility", 16]]]], "options": {"num_warps": 4, "launch_pdl": True},
    }
]  # fmt: skip


class Made(NamedTuple):
    """An arm: what it is called, which kernel runs in which body with which switch, and what that was compiled from."""

    label: str
    kernel: str
    body: str
    switch: str
    compiled: list[dict[str, Any]] | None = None


MADE = (Made("skinny", "skinny", "gpu", "1", COMPILED), Made("blas", "blas", "blas", "0"))


def good_gpu(
    busy: tuple[int, ...] = (),
    neighbour: tuple[int, ...] = (),
    slow: tuple[int, ...] = (),
    call: Call = CALL,
    made: tuple[Made, Made] = MADE,
) -> dict[str, Any]:
    """busy, neighbour, slow: rounds in which the host was busy, which counts, and rounds in which the GPU was shared or held down, which do not."""
    numbers = range(rounds_for(PAIRS) + len({*neighbour, *slow}))
    rounds = [_round(number, busy, neighbour, slow) for number in numbers]
    size = call.read_bytes
    sizes = [f"--{name}" if i == 0 else str(getattr(call, name)) for name in ("m", "n", "k") for i in range(2)]
    types = (["--format", call.fmt] if call.fmt else []) + ["--dtype", call.dtype]
    labels = (made[0].label, made[1].label)
    command = ["lanewise", "bench", "kernel", call.op, *sizes, *types, "--ab", ",".join(labels)]
    command += ["--experts", str(call.experts), "--top", str(call.top)] if call.experts else []
    command += ["--device", "cuda", "--pairs", str(PAIRS), "--seed", str(SEED), "--sample-ms", "2"]
    plan = bundles._plan() | {"rule": dict(GPU_RULE), "min_seconds": 0.002, "buffers_bytes": COPIES * size, "residency": "cold", "threads": 1}
    inputs = {"seed": SEED, "sha256": {name: digest(array.tobytes()) for name, array in call.inputs(SEED).items()}}
    versions = {"torch": "2.11.0+cu130", "triton": "3.6.0", "cuda": "13.0", "cublas": "13.1.0"}
    asked = question(labels, call, "cuda", "cold", 1)
    arms = {key: _arm(key, rounds, versions, one, call) for key, one in zip("ab", made, strict=True)}
    found = bundles._whole("kernel", asked, command, plan, call.facts(), inputs, arms, rounds)
    cache = COPIES * size // 4
    found["machine"] |= {"last_level_cache": cache, "gpu": _card(cache)}
    found["versions"] |= versions
    found["sources"] = found["sources"] | {EXPANDER: EXPANDING}
    found["settings"] |= {"LANEWISE_SKINNY": True}
    return {**found, "figures": figures(found)}


def good_gpu_command(neighbour: tuple[int, ...] = (), slow: tuple[int, ...] = ()) -> dict[str, Any]:
    """An A/B run of two shell commands beside a GPU that is watched."""
    found = bundles.good_command()
    found["command"][found["command"].index("cpu")] = "cuda:0"
    found["plan"] |= {"rule": dict(GPU_RULE), "device": "cuda:0"}
    found["machine"] |= {"last_level_cache": CACHE, "gpu": _card()}
    while len(found["rounds"]) < rounds_for(PAIRS) + len({*neighbour, *slow}):
        found["rounds"].append(bundles.command_round(len(found["rounds"])))
    for one in found["rounds"]:
        _watched(one, neighbour, slow)
    found["ended"] = found["ended"].replace(":00:", ":01:")
    return {**found, "figures": figures(found)}


def _card(cache: int = CACHE) -> dict[str, Any]:
    return {"name": NAME, "row": ROW.name, "capability": [9, 0], "multiprocessors": 132, "memory": 150 << 30, "l2": cache, "driver": DRIVER}


def _round(number: int, busy: tuple[int, ...], neighbour: tuple[int, ...], slow: tuple[int, ...]) -> dict[str, Any]:
    def sample(arm: str, index: int) -> dict[str, Any]:
        return {"arm": arm, "seconds": SECONDS[arm] * REPEATS * (1 + 0.01 * bundles._away(index)), "repeats": REPEATS}

    away = 1 + 0.001 * (number % 3)
    probes = {
        "read": {"bytes": READ_TURNS * gpu_probe_bytes(CACHE), "seconds": [5e-4 * away, 5.1e-4, 5.2e-4]},
        "float": {"macs": FLOAT_TURNS * FLOAT_SIZE**3, "seconds": [8e-4 * away, 8.1e-4, 8.2e-4]},
    }
    return _watched(bundles._round(number, sample, probes, busy), neighbour, slow)


def _watched(one: dict[str, Any], neighbour: tuple[int, ...], slow: tuple[int, ...]) -> dict[str, Any]:
    """The round with readings of the GPU, left out by them or not."""
    number = one["number"]
    for side in ("before", "after"):
        late = side == "after"
        one[side]["gpu"] = {
            "clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature": 40, "power": 120.5,
            "throttle": ["power cap"] if number in slow and late else ["idle"],
            "processes": [{"pid": 77, "memory": 1 << 30}] if number in neighbour and late else [],
        }  # fmt: skip
    one["left_out"] = left_out(GPU_RULE, one["before"], one["after"])
    return one


def _arm(name: str, rounds: list[dict[str, Any]], versions: dict[str, str], made: Made, call: Call) -> dict[str, Any]:
    samples = [s for one in rounds for s in (*one["samples"], *one["control"]) if s["arm"] == name]
    spec = {"device": "cuda", "body": made.body, "isa": ROW.name, "kernels": [made.kernel], "calls": CALLS, "switch": made.switch}
    expander = EXPANDING if made.label == "expand" else None
    return {
        "label": made.label,
        "spec": spec | ({"compiled": made.compiled} if made.compiled else {}),
        "witness": {
            "kernel": made.kernel, "body": made.body, "isa": ROW.name, "calls": sum(s["repeats"] + CALLS for s in samples), "m": call.m,
        },
        "artifact": digest(made.label.encode()) if made.body == "gpu" else blas_artifact(versions, expander),
        "output": digest(made.label.encode()),
    }  # fmt: skip
