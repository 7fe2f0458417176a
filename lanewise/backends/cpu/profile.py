"""Where the time of a step goes: its program, with a barrier and a look at the clock behind every op.

The step does the same work and gives the same bits. It takes longer than it does alone, since ops that would overlap now wait for each
other: compare the sum with the time of a plain step before reading much into small ops.
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from lanewise.backends.base import Batch
from lanewise.backends.cpu.program import Program, kernels_of
from lanewise.backends.cpu.runner import CpuRunner
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.attention import TASK_FIELDS
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.kernel import CpuKernel
from lanewise.kernels.cpu.probes import CLOCK_FIELDS, clock_kernel
from lanewise.kernels.cpu.threads import OP_FIELDS

__all__ = ["OpTime", "Profiler"]


@dataclass(frozen=True, slots=True)
class OpTime:
    """One op of a step. n and k are a weight's sizes, 0 for ops without one.

    nbytes: bytes of packed weights, or of keys and values, that it reads; macs: multiplications; 0 for ops that have few of either
    """

    kernel: str
    m: int
    n: int
    k: int
    seconds: float
    nbytes: int
    macs: int


class Profiler:
    """Profiles steps of one runner."""

    def __init__(self, runner: CpuRunner) -> None:
        model = runner.model
        self._runner = runner
        self._clock = clock_kernel()
        self._library = Library([self._clock], model.library.isa)
        kernels = kernels_of(model.spec, model.embedding.format.name, {weight: packed.format for weight, packed in model.packed.items()})
        self._kernels = {model.library.address(kernel.name): kernel for kernel in kernels}

    def step(self, batch: Batch) -> list[OpTime]:
        """Run the step and say how long each op took, in order."""
        runner = self._runner
        plain = runner.program(batch)
        count = len(plain.ops)
        # [op, worker, (seconds, nanoseconds)]; worker 0 passes every barrier and its clock is the one that is read
        clocks = np.zeros((count + 1, runner.pool.threads, CLOCK_FIELDS), np.int64)
        looks = [self._clock.pack(out=row.ctypes.data) for row in clocks]
        ops = np.zeros((2 * count + 1, OP_FIELDS), np.int64)
        ops[1::2] = plain.ops
        ops[1::2, 3] = 1
        ops[::2, 0] = self._library.address(self._clock.name)
        ops[::2, 1] = [look.ctypes.data for look in looks]
        runner.run(Program(ops, [looks, plain.kept]))
        nanoseconds = clocks[:, 0, 0] * 10**9 + clocks[:, 0, 1]
        return [self._op(op, float(took) * 1e-9, batch) for op, took in zip(plain.ops, np.diff(nanoseconds), strict=True)]

    def _op(self, op: "np.ndarray[tuple[int], np.dtype[np.int64]]", seconds: float, batch: Batch) -> OpTime:
        kernel = self._kernels[int(op[0])]
        a = _arguments(kernel, int(op[1]))
        if "quants_step" in a:
            k = a["blocks"] * FORMATS[kernel.name.partition("_")[2]].block
            nbytes = a["groups"] * self._runner.model.library.isa.panels * (a["quants_step"] + a["scales_step"])
            return OpTime(kernel.name, a["m"], a["n"], k, seconds, nbytes, a["m"] * a["n"] * k)
        if "window" in a:
            window = a["window"] or self._runner.spec.context
            dim = int(kernel.name.rpartition("_")[2])
            count = int(op[2]) // (a["kv_heads"] * max(a["splits"], 1))
            tasks = np.ctypeslib.as_array((ctypes.c_int64 * (TASK_FIELDS * count)).from_address(a["tasks"])).reshape(count, TASK_FIELDS)
            rows, cached = 0, dict[int, int]()
            seen = 0
            for _, many, position, table in tasks.tolist():
                rows += many
                seen += sum(min(position + i + 1, window) for i in range(many))
                cached[table] = max(cached.get(table, 0), min(position + many, window))
            nbytes = 2 * 2 * sum(cached.values()) * a["kv_heads"] * dim
            return OpTime(kernel.name, rows, 0, 0, seconds, nbytes, 2 * seen * a["heads"] * dim)
        return OpTime(kernel.name, a.get("m", len(batch.tokens)), 0, 0, seconds, 0, 0)


def _arguments(kernel: CpuKernel, address: int) -> dict[str, int]:
    """An argument table as it lies in memory."""
    return dict(zip(kernel.arguments, (ctypes.c_int64 * len(kernel.arguments)).from_address(address), strict=True))
