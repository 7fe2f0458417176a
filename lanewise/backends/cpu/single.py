"""One op on its own, outside a model's step: arrays in, an array out. For conformance and for trying a kernel; it packs every time."""

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.cpu.buffers import padded
from lanewise.backends.cpu.sampling import CpuDistribution, Passes
from lanewise.backends.cpu.weights import Arena, activation_of, aligned, kernels_for, pack_weight, padded_vector
from lanewise.errors import ShapeError
from lanewise.files import Tensor
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.attention import TASK_ROWS, attend_kernel, scratch_bytes
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.embed import embed_kernel
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import selected
from lanewise.kernels.cpu.kernel import CpuKernel, float_bits
from lanewise.kernels.cpu.matmul import unpacked_bytes
from lanewise.kernels.cpu.quantize import prepare
from lanewise.kernels.cpu.records import record_bytes
from lanewise.kernels.cpu.sample import SAMPLE_KERNELS
from lanewise.kernels.cpu.threads import ThreadPool

__all__ = ["attention", "embedding", "product", "sample"]

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


def product(x: F32, raw: NDArray[np.uint8], fmt: str, bias: F32 | None = None) -> F32:
    """y[m,n] = x[m,k] @ dequantize(raw)[n,k].T (+ bias[n]); raw is uint8[n, row bytes], x is quantized as the format asks."""
    (m, k), n = x.shape, len(raw)
    if FORMATS[fmt].row_bytes(k) != raw.shape[-1]:
        raise ShapeError(f"x has k={k} columns, which are {FORMATS[fmt].row_bytes(k)} bytes of {fmt}; a row of w has {raw.shape[-1]}")
    kind = activation_of(fmt)
    ready, (pack, multiply) = prepare("plain", kind), kernels_for(fmt)
    library, pool = Library([ready, pack, multiply], selected()), ThreadPool(selected(), 1)
    w = pack_weight(Tensor("w", FORMATS[fmt], (n, k), np.ascontiguousarray(raw)), library, pool, Arena())
    width = padded(k)
    rows = aligned(4 * max(m, 1) * width).view(np.float32).reshape(-1, width)
    rows[:m, :k] = x
    records = aligned(max(m, 1) * record_bytes(kind, width))
    y = np.zeros((m, n), np.float32)
    added = None if bias is None else padded_vector(bias)
    scratch = aligned(unpacked_bytes(fmt, k, library.isa))
    _run(
        library, pool, ready, m, x=rows.ctypes.data, x_step=rows.strides[0], rows=0, other=0, eps=0, out=records.ctypes.data,
        out_step=record_bytes(kind, width), out_worker=0, k=k, padded=width, m=m, each=1, per_chunk=1,
    )  # fmt: skip
    groups = w.panels // library.isa.panels
    _run(
        library, pool, multiply, groups, **w.arguments, x=records.ctypes.data, x_step=record_bytes(kind, width), x_worker=0, y=y.ctypes.data,
        y_step=4 * n, m=m, groups=groups, per_chunk=1, bias=0 if added is None else added.ctypes.data, add=0,
        scratch=scratch.ctypes.data, scratch_step=0,
    )  # fmt: skip
    pool.close()
    return y


def attention(q: F32, keys: F32, values: F32, page_table: Ints, query_start: Ints, context: Ints, scale: float, window: int | None = None) -> F32:
    """`reference.ops.attention` by the compiled kernel; keys and values, [pages, page, kv_heads, dim], are rounded to float16."""
    heads, dim = q.shape[1:]
    page, kv_heads = keys.shape[1:3]
    y = aligned(max(q.nbytes, 4)).view(np.float32)[: q.size].reshape(q.shape)
    k16: list[NDArray[np.float16]] = []
    v16: list[NDArray[np.float16]] = []
    tables: list[NDArray[np.int32]] = []
    tasks: list[tuple[int, int, int, int]] = []
    used = 0
    for j, total in enumerate(int(c) for c in context):
        places = np.arange(total)
        rows = page_table[j, places // page] * page + places % page
        pages = -(-total // LANES)
        for source, into, axes in ((keys, k16, (0, 2, 3, 1)), (values, v16, (0, 2, 1, 3))):
            mine = np.zeros((pages * LANES, kv_heads, dim), np.float16)
            mine[:total] = source.reshape(-1, kv_heads, dim)[rows]
            into.append(mine.reshape(pages, LANES, kv_heads, dim).transpose(axes).reshape(-1))
        tables.append(np.arange(used, used + pages, dtype=np.int32))
        used += pages
        first, end = int(query_start[j]), int(query_start[j + 1])
        tasks += [(r, min(TASK_ROWS, end - r), total - (end - r), tables[-1].ctypes.data) for r in range(first, end, TASK_ROWS)]
    if not tasks:
        return np.array(y)
    table, cache = np.array(tasks, np.int64), (np.concatenate(k16), np.concatenate(v16))
    kernel = attend_kernel(dim)
    library, pool = Library([kernel], selected()), ThreadPool(selected(), 1)
    scratch = aligned(scratch_bytes(dim))
    queries = np.ascontiguousarray(q, np.float32)
    _run(
        library, pool, kernel, len(tasks) * kv_heads, q=queries.ctypes.data, q_step=4 * heads * dim, keys=cache[0].ctypes.data,
        values=cache[1].ctypes.data, page_step=2 * LANES * kv_heads * dim,
        tasks=table.ctypes.data, y=y.ctypes.data, y_step=4 * heads * dim, heads=heads, kv_heads=kv_heads,
        scale=float_bits(scale), window=window or 0, scratch=scratch.ctypes.data, scratch_step=scratch.nbytes, splits=0, partial=0,
    )  # fmt: skip
    pool.close()
    return np.array(y)


def embedding(w: F32, tokens: Ints) -> F32:
    """y[m,k] = w[tokens[m],k]. Raises ShapeError for a token outside the vocabulary."""
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < len(w):
        raise ShapeError(f"token ids run from {tokens.min()} to {tokens.max()}; the vocabulary has 0 to {len(w) - 1}")
    kernel = embed_kernel("F32")
    library, pool = Library([kernel], selected()), ThreadPool(selected(), 1)
    table, ids = np.ascontiguousarray(w, np.float32), np.ascontiguousarray(tokens, np.int32)
    m, k = len(ids), table.shape[1]
    y = np.zeros((m, k), np.float32)
    _run(
        library, pool, kernel, m, raw=table.ctypes.data, row_bytes=4 * k, blocks=k, tokens=ids.ctypes.data, x=y.ctypes.data, x_step=4 * k,
        m=m, per_chunk=1,
    )  # fmt: skip
    pool.close()
    return y


def sample(logits: F32, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """`backends.sample.sample` by the compiled passes."""
    passes = Passes(Library(SAMPLE_KERNELS, selected()), len(logits))
    return CpuDistribution(passes, logits).sample(u, temperature, top_k, top_p, min_p)


def _run(library: Library, pool: ThreadPool, kernel: CpuKernel, chunks: int, **arguments: int) -> None:
    if chunks:
        table = kernel.pack(**arguments)
        pool.run(np.array([[library.address(kernel.name), table.ctypes.data, chunks, 0]], np.int64))
