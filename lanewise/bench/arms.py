"""The arms of an A/B run on the cpu device: an instruction set, or a body, ready to be called again and again on rotating memory.

Everything that a model does once (packing, compiling, finding a kernel) is done here before a clock runs. All compiled arms and the
probes share one pool of threads: idle threads of another would spin for the same cores.
"""

import time
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lanewise import dispatch
from lanewise.arch import host
from lanewise.backends.memory import require
from lanewise.backends.reference import kernels, ops
from lanewise.bench.cpu_call import CpuCall, cpu_call, kernels_of
from lanewise.bench.manifest import digest
from lanewise.bench.problem import Call
from lanewise.errors import EvidenceError
from lanewise.kernels.cpu.compile import loaded_object
from lanewise.kernels.cpu.isa import ISAS, Isa, runnable, selected
from lanewise.kernels.cpu.threads import OP_FIELDS, ThreadPool

__all__ = ["BODIES", "ROTATING", "Arm", "Named", "accepted", "arm_for", "artifact", "named"]

BODIES = ("cpu", "reference")
ROTATING = ("w", "keys", "values")  # inputs that a model has more of than a cache holds; the others were just computed


@dataclass(frozen=True, slots=True)
class Named:
    """What an arm's name means. label: as it was given; isa: of a body compiled for the CPU, else None."""

    label: str
    body: str
    isa: Isa | None

    @property
    def what(self) -> str:
        return f"{self.body} ({self.isa.name})" if self.isa else self.body


class Arm(Protocol):
    """One arm. `nbytes` is what one call reads of the memory that rotates, `calls` how many a repeat holds."""

    spec: dict[str, Any]
    artifact: str
    nbytes: int
    calls: int

    def seconds(self, repeats: int) -> tuple[int, float]:
        """(monotonic ns of the start, seconds) of so many repeats, each call on the next copy, behind one that is not counted."""
        ...

    def output(self) -> NDArray[np.float32]:
        """What the last call gave."""
        ...

    def witness(self) -> dict[str, Any]:
        """Which kernel ran, in which body, on which instruction set, how often and for how many tokens."""
        ...


def named(name: str) -> Named:
    """What an arm is called: an instruction set that this processor runs, `cpu` for the one it would choose, or `reference`.

    Raises EvidenceError, listing them, for any other.
    """
    rows = {isa.name: isa for isa in runnable()}
    if name in rows:
        return Named(name, "cpu", rows[name])
    if name == "cpu":
        return Named(name, "cpu", selected())
    if name == "reference":
        return Named(name, "reference", None)
    there = f"arms here are {', '.join((*rows, *BODIES))}"
    if name in ISAS:
        raise EvidenceError(f"this processor does not run {name}; {there}")
    raise EvidenceError(f"there is no arm {name[:64]!r}; {there}")


def artifact(call: Call, isa: Isa) -> str:
    """The hash of the machine code that a compiled arm runs: the objects of its kernels, one behind the other."""
    return digest(b"".join(loaded_object(kernel, isa) for kernel in kernels_of(call)))


def accepted(name: Named, call: Call) -> str:
    """The registered kernel that an arm is. Raises NoKernelError, with every reason, where none accepts the call."""
    return dispatch.select(call.problem(name.isa.arch if name.isa else host()), name.body).kernel.name


def arm_for(name: Named, call: Call, inputs: dict[str, NDArray[Any]], pool: ThreadPool, copies: int) -> Arm:
    """The arm, its weights (or keys and values) in so many copies. Raises DeviceError when there is no memory for them."""
    kernel = accepted(name, call)
    if name.isa is None:
        return _Reference(call, inputs, copies)
    return _Compiled(call, name.isa, kernel, cpu_call(call, inputs, name.isa, pool, copies), pool)


class _Compiled:
    """Samples are walked by the threads in one piece, as a step of a model is."""

    calls = 1

    def __init__(self, call: Call, isa: Isa, kernel: str, made: CpuCall, pool: ThreadPool) -> None:
        self.spec = {"device": "cpu", "body": "cpu", "isa": isa.name, "kernels": [k.name for k in kernels_of(call)]}
        self.artifact, self.nbytes = artifact(call, isa), made.nbytes
        self._call, self._isa, self._kernel, self._made, self._pool = call, isa, kernel, made, pool
        self._next = self._calls = 0

    def seconds(self, repeats: int) -> tuple[int, float]:
        self._walk(self._program(1))
        program = self._program(repeats)
        started = time.monotonic_ns()
        self._walk(program)
        return started, (time.monotonic_ns() - started) / 1e9

    def output(self) -> NDArray[np.float32]:
        return self._made.y.copy()

    def witness(self) -> dict[str, Any]:
        return {"kernel": self._kernel, "body": "cpu", "isa": self._isa.name, "calls": self._calls, "m": self._call.m}

    def _walk(self, program: NDArray[np.int64]) -> None:
        self._pool.run(program)
        self._calls += len(program) // self._made.programs.shape[1]

    def _program(self, repeats: int) -> NDArray[np.int64]:
        programs = self._made.programs
        chosen = (self._next + np.arange(repeats)) % len(programs)
        self._next = (self._next + repeats) % len(programs)
        return np.ascontiguousarray(programs[chosen].reshape(-1, OP_FIELDS))


class _Reference:
    """The reference body: numpy, on numpy's threads. Its inputs rotate too."""

    calls = 1

    def __init__(self, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> None:
        problem = call.problem(host())
        self._run, self._kernel, self._call = dispatch.bind(problem, "reference"), dispatch.select(problem, "reference").kernel, call
        wider = 2 if call.op == "attention" else 1  # keys and values become float32
        self.nbytes = wider * sum(a.nbytes for name, a in inputs.items() if name in ROTATING)
        require(copies * self.nbytes, f"{copies} copies of what the reference reads")
        self._arguments = [_arguments(call, inputs) for _ in range(copies)]
        self.spec = {"device": "cpu", "body": "reference", "isa": "numpy", "kernels": [self._kernel.name]}
        self.artifact = _source()
        self._next = self._calls = 0
        self._y: NDArray[np.float32] = np.empty(0, np.float32)

    def seconds(self, repeats: int) -> tuple[int, float]:
        with dispatch.witness() as ran:
            self._one()
            started = time.monotonic_ns()
            for _ in range(repeats):
                self._one()
            seconds = (time.monotonic_ns() - started) / 1e9
        self._calls += ran[self._kernel.name]
        return started, seconds

    def output(self) -> NDArray[np.float32]:
        return self._y

    def witness(self) -> dict[str, Any]:
        return {"kernel": self._kernel.name, "body": "reference", "isa": "numpy", "calls": self._calls, "m": self._call.m}

    def _one(self) -> None:
        self._y = self._run(*self._arguments[self._next])
        self._next = (self._next + 1) % len(self._arguments)


def _arguments(call: Call, inputs: dict[str, NDArray[Any]]) -> tuple[Any, ...]:
    """Operands of the reference body, those that rotate copied."""
    if call.op == "quant_linear":
        return inputs["x"], inputs["w"].copy(), call.fmt
    if call.op == "linear":
        return inputs["x"], inputs["w"].view(np.float32).copy()
    keys, values = (inputs[name].astype(np.float32) for name in ("keys", "values"))
    pages = np.arange(len(keys), dtype=np.int32)[None]
    return inputs["q"], keys, values, pages, np.array([0, call.m], np.int32), np.array([call.n], np.int32), 1 / sqrt(call.k), None


def _source() -> str:
    """The hash of what the reference body is made of."""
    return digest(b"".join(Path(str(module.__file__)).read_bytes() for module in (kernels, ops)))
