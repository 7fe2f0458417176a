"""y[m,n] = x[m,k] @ w[n,k].T for w in F32, F16 or BF16: panels of 16 rows, one vector of them for each k, float32 sums in order.

A bf16 dot takes BF16 as it is, and x as the sum of two bfloat16 (`records.py`): off by at most 2^-16, which the bound of a float32 sum
allows from 256 terms on. A single one would be off by 2^-8, allowed from 65536 on; a third would cost more than the dot saves. There
are two sums, over the upper parts of x and over the lower.
"""

from collections.abc import Callable

from llvmlite import ir

from lanewise.kernels.cpu.dots import dot2_brain
from lanewise.kernels.cpu.emit import I16, I32, LANES, VI, Emitter, Value, vector
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.matmul import MATMUL_ARGUMENTS, walk_tiles
from lanewise.kernels.cpu.pack import PACK_ARGUMENTS
from lanewise.kernels.cpu.tile import AHEAD, Ints, Kept

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
    brain = fmt == "BF16" and e.isa.bf16

    def sums(panel: Value, first: Value, panels: int, tokens: int, kept: Kept | None = None) -> Ints:
        weights = [e.add(a.quants, e.b.mul(a.quants_step, e.add(panel, r))) for r in range(panels)]
        start = e.add(rows, e.b.mul(a.x_step, first))
        if brain:
            return _brain_sums(e, a.blocks, weights, tokens, lambda token, word: e.splat_int(e.add(start, e.mul(word, 4 * tokens)), 4 * token))
        acc = [[e.variable(e.all_floats(0.0)) for _ in range(tokens)] for _ in range(panels)]
        with e.loop(a.blocks) as k:
            places = [e.add(base, e.mul(k, vector_bytes)) for base in weights]
            if tokens == 1:
                e.prefetch(places[0], AHEAD["quants"])
            w = [read(place) for place in places]
            w = [kept.next(v) for v in w] if kept else w
            for i in range(tokens):
                x = e.splat_float(e.add(start, e.mul(k, 4 * tokens)), 4 * i)
                for r in range(panels):
                    e.set(acc[r][i], e.fma(w[r], x, e.get(acc[r][i])))
        return [[e.get(v) for v in row] for row in acc]

    walk_tiles(e, a, chunk, worker, sums, expand=fmt != "F32" and not brain)


def _brain_sums(e: Emitter, k: Value, weights: list[Value], tokens: int, x: Callable[[int, Value], Value]) -> Ints:
    """Two k at a time; x(token, number of a word of its row) is in all lanes. The last of an odd k is multiplied together with a zero."""
    acc = [[[e.variable(e.all_floats(0.0)) for _ in range(2)] for _ in range(tokens)] for _ in weights]

    def add(pair: Value, read: Callable[[Value], Value]) -> None:
        places = [e.add(base, e.mul(pair, 4 * LANES)) for base in weights]
        if tokens == 1:
            e.prefetch(places[0], AHEAD["quants"])
        w = [read(place) for place in places]
        for i in range(tokens):
            for part in range(2):
                words = x(i, e.add(e.mul(pair, 2), part))
                for r, of_panel in enumerate(w):
                    e.set(acc[r][i][part], dot2_brain(e, e.get(acc[r][i][part]), of_panel, words))

    pairs = e.div(k, 2)
    with e.loop(pairs) as pair:
        add(pair, lambda address: _interleaved(e, address))
    with e.when(e.equal(e.rem(k, 2), 1)):
        add(pairs, lambda address: e.b.zext(e.load(vector(I16), address), VI))
    return [[e.b.fadd(*map(e.get, parts)) for parts in row] for row in acc]


def _interleaved(e: Emitter, address: Value) -> Value:
    """2 x 16 int16 as 16 pairs, an int32 each."""
    both = e.load(vector(I16, 2 * LANES), address)
    order = ir.Constant(vector(I32, 2 * LANES), [i // 2 + LANES * (i % 2) for i in range(2 * LANES)])
    return e.b.bitcast(e.b.shuffle_vector(both, both, order), VI)


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
