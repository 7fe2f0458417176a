"""One call of an op by the compiled kernels, as a program for the thread pool: one for each copy of the memory that rotates.

The ops are laid out as a step of a model lays them out (`backends/cpu/program.py`): x is quantized where the format asks for it, a
single row by every thread for itself, and few queries spread their splits.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.cpu.buffers import padded
from lanewise.backends.cpu.program import groups_in_chunk
from lanewise.backends.cpu.weights import Arena, PackedWeight, activation_of, aligned, kernels_for, pack_weight
from lanewise.backends.memory import require
from lanewise.bench.problem import Call
from lanewise.files import Tensor
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.attention import SPLIT, TASK_ROWS, attend_kernel, combine_kernel, scratch_bytes, state_floats
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import CpuKernel, float_bits
from lanewise.kernels.cpu.matmul import unpacked_bytes
from lanewise.kernels.cpu.quantize import prepare
from lanewise.kernels.cpu.records import MANY, record_bytes
from lanewise.kernels.cpu.threads import OP_FIELDS, ThreadPool

__all__ = ["CpuCall", "cpu_call", "kernels_of"]

_SPREAD_ROWS = 16  # as in a step: more rows keep all threads busy anyway


@dataclass(frozen=True, slots=True)
class CpuCall:
    """programs: int64[copies, ops, 4]; y: what they write; nbytes: of one copy; kept: everything that their addresses point into."""

    programs: NDArray[np.int64]
    y: NDArray[np.float32]
    nbytes: int
    kept: tuple[Any, ...]


def kernels_of(call: Call) -> tuple[CpuKernel, ...]:
    """The kernels that run in a call, in order."""
    if call.op != "attention":
        return prepare("plain", activation_of(call.weights)), kernels_for(call.weights)[1]
    return (attend_kernel(call.k), combine_kernel(call.k)) if _splits(call) else (attend_kernel(call.k),)


def cpu_call(call: Call, inputs: dict[str, NDArray[Any]], isa: Isa, pool: ThreadPool, copies: int) -> CpuCall:
    """The call on an instruction set. Raises DeviceError when there is no memory for so many copies."""
    return (_attention if call.op == "attention" else _product)(call, inputs, isa, pool, copies)


def _product(call: Call, inputs: dict[str, NDArray[Any]], isa: Isa, pool: ThreadPool, copies: int) -> CpuCall:
    fmt, m, n, k = call.weights, call.m, call.n, call.k
    kind, width, alone = activation_of(fmt), padded(k), m == 1
    ready, (pack, multiply) = prepare("plain", kind), kernels_for(fmt)
    library, arena = Library([ready, pack, multiply], isa), Arena()
    first = pack_weight(Tensor("w", FORMATS[fmt], (n, k), inputs["w"]), library, pool, arena)
    require((copies - 1) * first.nbytes, f"{copies} copies of the weights")
    weights = [first, *(_copy(first, isa, arena) for _ in range(copies - 1))]
    x = aligned(4 * m * width).view(np.float32).reshape(m, width)
    x[:, :k] = inputs["x"]
    record = record_bytes(kind, width)
    own = -(-record // 128) * 128 + 128 if alone else 0  # workers' copies lie in cache lines of their own
    records = aligned(pool.threads * own if alone else m * record)
    y = aligned(4 * m * n).view(np.float32).reshape(m, n)
    scratch = aligned(pool.threads * unpacked_bytes(fmt, k, isa)).reshape(pool.threads, -1)
    per_chunk = isa.tokens if m >= MANY else 1
    prepared = ready.pack(
        x=x.ctypes.data, x_step=x.strides[0], rows=0, other=0, eps=0, out=records.ctypes.data, out_step=record, out_worker=own, k=k,
        padded=width, m=m, each=0 if alone else 1, per_chunk=per_chunk,
    )  # fmt: skip
    prepare_op = (library.address(ready.name), prepared.ctypes.data, 0 if alone else -(-m // per_chunk), 0 if alone else 1)
    groups = first.panels // isa.panels
    per_chunk = 1 if m >= MANY else groups_in_chunk(groups, pool.threads)
    tables = [
        multiply.pack(
            **w.arguments, x=records.ctypes.data, x_step=record, x_worker=own, y=y.ctypes.data, y_step=y.strides[0], m=m, groups=groups,
            per_chunk=per_chunk, bias=0, add=0, scratch=scratch.ctypes.data, scratch_step=scratch.strides[0],
        )
        for w in weights
    ]  # fmt: skip
    address, chunks = library.address(multiply.name), -(-groups // per_chunk)
    programs = np.array([[prepare_op, (address, table.ctypes.data, chunks, 1)] for table in tables], np.int64)
    return CpuCall(programs, y, first.nbytes, (library, weights, x, records, scratch, prepared, tables))


def _copy(weight: PackedWeight, isa: Isa, arena: Arena) -> PackedWeight:
    made = PackedWeight.make(weight.format, weight.n, weight.k, isa.panels, arena)
    made.quants[:], made.scales[:] = weight.quants, weight.scales
    return made


def _splits(call: Call) -> int:
    """Splits that are spread over the threads; 0 where one thread walks all of a query's."""
    splits = -(-call.n // SPLIT)
    return splits if splits > 1 and call.m <= _SPREAD_ROWS else 0


def _attention(call: Call, inputs: dict[str, NDArray[Any]], isa: Isa, pool: ThreadPool, copies: int) -> CpuCall:
    m, dim, heads, kv_heads = call.m, call.k, call.heads, call.kv_heads
    kernels = kernels_of(call)
    library = Library(kernels, isa)
    # The cache of one layer: in a page its keys [kv_heads, dim, 16], then its values [kv_heads, 16, dim].
    pages = np.stack([inputs["keys"].transpose(0, 2, 3, 1).reshape(-1, kv_heads * dim * LANES),
                      inputs["values"].transpose(0, 2, 1, 3).reshape(-1, kv_heads * dim * LANES)], axis=1)  # fmt: skip
    page, half = pages[0].nbytes, pages[0, 0].nbytes
    require(copies * pages.nbytes, f"{copies} copies of keys and values")
    memory = aligned(copies * pages.nbytes).reshape(copies, -1)
    memory[:] = pages.reshape(-1).view(np.uint8)
    table = np.arange(len(pages), dtype=np.int32)
    tasks = np.array([(row, min(TASK_ROWS, m - row), call.n - (m - row), table.ctypes.data) for row in range(0, m, TASK_ROWS)], np.int64)
    q = aligned(4 * m * heads * dim).view(np.float32).reshape(m, heads, dim)
    q[:] = inputs["q"]
    y = aligned(q.nbytes).view(np.float32).reshape(q.shape)
    splits, step, shared = _splits(call), scratch_bytes(dim), len(tasks) * kv_heads
    scratch = aligned(pool.threads * step)
    partial = aligned(4 * len(tasks) * heads * splits * TASK_ROWS * state_floats(dim))
    same = {"tasks": tasks.ctypes.data, "y": y.ctypes.data, "y_step": y.strides[0], "heads": heads, "kv_heads": kv_heads}
    same |= {"splits": splits, "partial": partial.ctypes.data if splits else 0}
    tables = [
        kernels[0].pack(
            **same, q=q.ctypes.data, q_step=q.strides[0], keys=one.ctypes.data, values=one.ctypes.data + half, page_step=page,
            scale=float_bits(1 / sqrt(dim)), window=0, scratch=scratch.ctypes.data, scratch_step=step,
        )
        for one in memory
    ]  # fmt: skip
    combined = kernels[1].pack(**same) if splits else None
    last = [] if combined is None else [(library.address(kernels[1].name), combined.ctypes.data, shared, 1)]
    attend = library.address(kernels[0].name)
    programs = np.array([[(attend, one.ctypes.data, shared * max(splits, 1), 1), *last] for one in tables], np.int64)
    return CpuCall(programs.reshape(copies, -1, OP_FIELDS), y, pages.nbytes, (library, memory, table, tasks, q, scratch, partial, tables, combined))
