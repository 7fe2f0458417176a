"""A good evidence bundle, made up and consistent: nothing is measured, every figure follows from its samples."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lanewise.bench.around import RULE, left_out
from lanewise.bench.cpu_call import kernels_of
from lanewise.bench.manifest import NAME, SCHEMA, SCHEMA_VERSION, digest
from lanewise.bench.problem import Call
from lanewise.bench.process import NO_WITNESS, digest_of
from lanewise.bench.rounds import BOOTSTRAP, most_rounds
from lanewise.bench.seal import SEAL, seal_text
from lanewise.bench.stats import figures, rounds_for, schedule
from lanewise.witness import package_digest

CALL = Call("quant_linear", 1, 64, 128, "Q8_0")
PAIRS, SEED, THREADS = 16, 7, 2
CACHE = 1 << 15
SECONDS = {"a": 100e-6, "b": 140e-6}  # of a call
REPEATS = 200
READ_BYTES = 1 << 20  # what a probe of a cache as small as that reads: one chunk
BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)
FLAGS = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
ARMS = {"a": "x86-64-v4+vnni", "b": "x86-64-v3"}
COMPILERS = {"llvmlite": "0.50.0", "llvm": "22.1.0"}
SOURCES = {"lanewise/__init__.py": digest(b"0"), "lanewise/kernels/cpu/emit.py": digest(b"1")}
PROCESS = {
    name: {
        "lanewise": "0.1.0", "package": package_digest(SOURCES), "device": "cpu", "isa": isa, "threads": 2,
        "code": digest(f"code of {name}".encode()), "prompt": digest(b"prompt"), "kernels": ["matmul_Q8_0"], "phases": ["decode", "prefill"],
        "compiler": dict(COMPILERS),
    }
    for name, isa in ARMS.items()
}  # fmt: skip
# Of a process that called ops on a GPU.
OPS = {
    "device": "NVIDIA H200", "isa": "sm_90", "threads": None, "code": digest(b"ptx"), "prompt": None, "kernels": ["skinny"], "phases": [],
    "compiler": {"triton": "3.6.0"}, "compiled": [{"function": "lanewise.kernels.gpu.lanes:_skinny"}],
}  # fmt: skip
SHELL = {"a": "echo 1.0 s", "b": "echo 1.4 s"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def good(seconds: dict[str, float] | None = None, noise: float = 0.01, busy: tuple[int, ...] = ()) -> dict[str, Any]:
    """The manifest of a kernel's A/B run. seconds: of a call of each arm; noise: how far samples lie apart, as a share; busy: rounds in
    which another process ran, which the rule leaves out."""
    numbers = range(rounds_for(PAIRS) + len(busy))
    rounds = [_round(number, _kernel_sample(seconds or SECONDS, noise), _probes(number), busy) for number in numbers]
    size = CALL.facts()["bytes"] - 4 * (CALL.k + CALL.n)
    command = ["lanewise", "bench", "kernel", "quant_linear", "--m", "1", "--n", "64", "--k", "128", "--format", "Q8_0"]
    command += ["--ab", ",".join(ARMS.values()), "--device", "cpu", "--pairs", str(PAIRS), "--seed", str(SEED), "--sample-ms", "10"]
    plan = _plan() | {"min_seconds": 0.01, "buffers_bytes": 16 * size, "residency": "cold", "threads": THREADS}
    question = f"Is {ARMS['a']} or {ARMS['b']} faster at {CALL} on cpu, cold, 2 threads?"
    inputs = {"seed": SEED, "sha256": {name: digest(array.tobytes()) for name, array in CALL.inputs(SEED).items()}}
    arms = {name: _arm(name, rounds) for name in ARMS}
    return _whole("kernel", question, command, plan, CALL.facts(), inputs, arms, rounds)


def good_command() -> dict[str, Any]:
    """The manifest of an A/B run of two shell commands."""
    rounds = [command_round(number) for number in range(rounds_for(PAIRS))]
    command = [
        "lanewise",
        "ab",
        "--a",
        SHELL["a"],
        "--b",
        SHELL["b"],
        "--metric",
        r"([\d.]+) s",
        "--lower-is-better",
        "--pairs",
        str(PAIRS),
        "--device",
        "cpu",
        "--timeout",
        "600",
    ]
    plan = _plan() | {"warmup": 1, "metric": r"([\d.]+) s", "better": "lower", "timeout": 600.0, "output": None, "device": "cpu"}
    command += ["--file", "prompt.txt"]
    inputs = {"declared": ["prompt.txt"], "files": {"prompt.txt": {"bytes": 9, "sha256": digest(b"?"), "after": digest(b"?")}}}
    question = f"Which gives the lower {plan['metric']}: {SHELL['a']} or {SHELL['b']}?"
    arms = {
        name: {"label": text, "spec": {"shell": text, "commit": None, "env": {}}, "witness": [PROCESS[name]], "artifact": None}
        | {"output": digest(b"tokens")}
        for name, text in SHELL.items()
    }
    return _whole("command", question, command, plan, None, inputs, arms, rounds)


def command_round(number: int) -> dict[str, Any]:
    """A round of two commands."""

    def sample(arm: str, index: int) -> dict[str, Any]:
        made = {"arm": arm, "value": SECONDS[arm] * 1e4 * (1 + 0.01 * _away(index)), "repeats": 1}
        return made | {"memory": (1 << 28) + index, "output": digest(b"tokens"), "witness": digest_of([PROCESS[arm]])}

    return _round(number, sample, None)


def witnessed_again(manifest: dict[str, Any]) -> None:
    """Every sample has the hash of what its arm now says that ran."""
    for one in manifest["rounds"]:
        for sample in (*one["samples"], *one["control"]):
            witness = manifest["arms"][sample["arm"]]["witness"]
            sample["witness"] = None if witness == NO_WITNESS else digest_of(witness)


def one_process(manifest: dict[str, Any], arm: str, **fields: Any) -> None:
    """The one process of an arm with other fields, and the hash of it in every sample."""
    manifest["arms"][arm]["witness"] = [{**PROCESS[arm], **fields}]
    witnessed_again(manifest)


def sampled(manifest: dict[str, Any], arms: str = "ab") -> list[dict[str, Any]]:
    """Every sample and control of those arms."""
    return [s for one in manifest["rounds"] for s in (*one["samples"], *one["control"]) if s["arm"] in arms]


def without_witness(manifest: dict[str, Any]) -> dict[str, Any]:
    """A copy of a command's bundle in which no command wrote a witness, and so no token ids."""
    made = copy.deepcopy(manifest)
    for arm in made["arms"].values():
        arm |= {"witness": NO_WITNESS, "output": None}
    for one in made["rounds"]:
        for sample in (*one["samples"], *one["control"]):
            sample["output"] = None
    witnessed_again(made)
    return made


def written(folder: Path, manifest: dict[str, Any], *, sealed: bool = True) -> Path:
    """The bundle in a folder that may be there already. `sealed` writes the seal that fits; else one from before stays."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(manifest, indent=1).encode()
    (folder / NAME).write_bytes(raw)
    if sealed:
        (folder / SEAL).write_text(seal_text(raw))
    return folder


def refigured(manifest: dict[str, Any]) -> dict[str, Any]:
    """As a careful forger leaves it: the figures follow from whatever the samples now are."""
    return {**manifest, "figures": figures(manifest)}


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one leaf replaced; `path` as in a reason, see `steps`."""
    found: dict[str, Any] = _replaced(manifest, steps(path), value)
    return found


def _replaced(place: Any, way: list[str | int], value: Any) -> Any:
    """Only what lies on the way is copied."""
    if not way:
        return value
    made = copy.copy(place)
    made[way[0]] = _replaced(place[way[0]], way[1:], value)
    return made


def steps(path: str) -> list[str | int]:
    """`a.b[0].c` as keys and indices; inside a key `/` stands for a dot, and `|` for a slash."""
    found: list[str | int] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        found += [name.replace("/", ".").replace("|", "/"), *map(int, indices)]
    return found


def _plan() -> dict[str, Any]:
    return {"pairs": PAIRS, "most_rounds": most_rounds(PAIRS), "warmup": 10, "seed": SEED, "rule": dict(RULE), "bootstrap": dict(BOOTSTRAP)}


def _kernel_sample(seconds: dict[str, float], noise: float):
    def sample(arm: str, index: int) -> dict[str, Any]:
        return {"arm": arm, "seconds": seconds[arm] * REPEATS * (1 + noise * _away(index)), "repeats": REPEATS}

    return sample


def _away(index: int) -> float:
    """Between -1 and 1, as from a die."""
    return int(digest(str(index).encode())[:4], 16) / 0x7FFF - 1


def _round(number: int, sample: Any, probes: dict[str, Any] | None, busy: tuple[int, ...] = ()) -> dict[str, Any]:
    """A round of two seconds: probes, then a sample every 50 ms."""
    begin = 1000 + 2 * number
    order, control = schedule(SEED, number)
    made = []
    for i, arm in enumerate((*order, control, control)):
        made.append({**sample(arm, 100 * number + i), "started": int((begin + 0.5 + 0.05 * i) * 1e9)})
    before = _around(begin, 0.5 * sum(one < number for one in busy))
    after = _around(begin + 1, 0.5 * sum(one <= number for one in busy))
    return {
        "number": number,
        "order": list(order),
        "samples": made[:4],
        "control": made[4:],
        "probes": probes,
        "before": before,
        "after": after,
        "left_out": left_out(RULE, before, after),
    }


def _around(seconds: int, others: float) -> dict[str, Any]:
    ticks = {"user": 100 * seconds, "nice": 0, "system": 10 * seconds, "idle": 90 * seconds, "iowait": 5, "irq": 0, "softirq": 7, "steal": 3}
    daemon = {"pid": 1, "parent": 0, "name": "init", "cpu_seconds": seconds / 100 + others}
    return {
        "time": float(seconds), "load": [0.5, 0.4, 0.3], "ticks": ticks, "clock_mhz": 3000.0, "temperature": 50.0, "power": None,
        "throttle": {"core": 3}, "neighbours": [daemon], "memory_available": 8 << 30, "peak_memory": 1 << 30,
    }  # fmt: skip


def _probes(number: int) -> dict[str, Any]:
    away = 1 + 0.001 * (number % 3)
    return {
        "read": {"bytes": READ_BYTES, "seconds": [1e-4 * away, 1.1e-4, 1.2e-4]},
        "int8": {"macs": 10**9, "seconds": [0.02 * away, 0.021, 0.022]},
    }


def _arm(name: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    samples = [s for one in rounds for s in (*one["samples"], *one["control"]) if s["arm"] == name]
    calls = sum(s["repeats"] + 1 for s in samples)
    return {
        "label": ARMS[name],
        "spec": {"device": "cpu", "body": "cpu", "isa": ARMS[name], "kernels": [kernel.name for kernel in kernels_of(CALL)]},
        "witness": {"kernel": "cpu_quant_linear", "body": "cpu", "isa": ARMS[name], "calls": calls, "m": 1},
        "artifact": digest(f"code of {name}".encode()),
        "output": digest(b"y"),
    }


def _whole(kind: str, question: str, command: list[str], plan: Any, problem: Any, inputs: Any, arms: Any, rounds: Any) -> dict[str, Any]:
    manifest = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "question": question,
        "command": command,
        "began": BEGAN.isoformat(),
        "ended": (BEGAN + timedelta(seconds=2 * len(rounds) + 3)).isoformat(),
        "commit": {"id": COMMIT, "dirty": False},
        "sources": SOURCES,
        "versions": {"lanewise": "0.1.0", "python": "3.11.7", "numpy": "2.3.5", **COMPILERS},
        "settings": {"LANEWISE_CPU_ISA": None, "LANEWISE_THREADS": None},
        "machine": {
            "cpu": "A processor", "flags": FLAGS, "row": "x86-64-v4+vnni", "logical_cores": 2, "usable_cores": 2, "last_level_cache": CACHE,
            "memory": 16 << 30, "system": "Linux 6.1",
        },
        "plan": plan,
        "problem": problem,
        "inputs": inputs,
        "arms": arms,
        "rounds": rounds,
    }  # fmt: skip
    return {**manifest, "figures": figures(manifest)}
