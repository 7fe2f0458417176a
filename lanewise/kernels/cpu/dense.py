"""y[m,n] = x[m,k] @ w[n,k].T for w in F32, F16 or BF16: panels of 16 rows, one vector of them for each k, float32 sums in order."""

from lanewise.kernels.cpu.emit import I16, I32, LANES, Emitter, Value
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.matmul import MATMUL_ARGUMENTS, walk_tiles
from lanewise.kernels.cpu.pack import PACK_ARGUMENTS
from lanewise.kernels.cpu.tile import Ints, Kept

__all__ = ["DENSE", "dense_matmul", "dense_pack"]

DENSE = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of an element


def dense_matmul(fmt: str) -> CpuKernel:
    """The kernel of a dense format; `blocks` is k."""
    return CpuKernel(f"matmul_{fmt}", MATMUL_ARGUMENTS, lambda e, a, chunk, worker: _multiply(fmt, e, a, chunk, worker))


def dense_pack(fmt: str) -> CpuKernel:
    """The kernel that packs one panel a chunk; rows past n become zeros."""
    return CpuKernel(f"pack_{fmt}", PACK_ARGUMENTS, lambda e, a, chunk, worker: _pack(fmt, e, a, chunk))


def _multiply(fmt: str, e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    vector_bytes = DENSE[fmt] * LANES
    read = {"F32": e.floats, "F16": e.halves, "BF16": e.brain}[fmt]
    rows = e.add(a.x, e.b.mul(a.x_worker, worker))

    def sums(panel: Value, first: Value, panels: int, tokens: int, kept: Kept | None = None) -> Ints:
        weights = [e.add(a.quants, e.b.mul(a.quants_step, e.add(panel, r))) for r in range(panels)]
        start = e.add(rows, e.b.mul(a.x_step, first))
        acc = [[e.variable(e.all_floats(0.0)) for _ in range(tokens)] for _ in range(panels)]
        with e.loop(a.blocks) as k:
            w = [read(e.add(base, e.mul(k, vector_bytes))) for base in weights]
            w = [kept.next(v) for v in w] if kept else w
            for i in range(tokens):
                x = e.splat_float(e.add(start, e.mul(k, 4 * tokens)), 4 * i)
                for r in range(panels):
                    e.set(acc[r][i], e.fma(w[r], x, e.get(acc[r][i])))
        return [[e.get(v) for v in row] for row in acc]

    walk_tiles(e, a, chunk, worker, sums, expand=fmt != "F32")


def _pack(fmt: str, e: Emitter, a: Arguments, chunk: Value) -> None:
    size = DENSE[fmt]
    kind = I32 if size == 4 else I16
    panel, first = e.add(a.quants, e.b.mul(a.quants_step, chunk)), e.mul(chunk, LANES)
    rows = e.least(e.sub(a.n, first), LANES)
    with e.loop(LANES) as lane:
        source, place = e.add(a.raw, e.b.mul(e.add(first, lane), a.row_bytes)), e.add(panel, e.mul(lane, size))
        with e.b.if_else(e.less(lane, rows)) as (there, past):
            with there, e.loop(a.blocks) as k:
                e.store(e.load(kind, source, e.mul(k, size)), e.add(place, e.mul(k, size * LANES)))
            with past, e.loop(a.blocks) as k:
                e.store(kind(0), e.add(place, e.mul(k, size * LANES)))
