"""Queries and keys made ready for attention: per-head RMSNorm, rotation, and keys and values into the paged cache.

The cache, float16: a page is 16 positions of every layer together, so that a sequence that grows touches new memory in one place.
In it each layer has keys [kv_heads, dim, 16], so that 16 positions are 16 lanes of a score, and values [kv_heads, 16, dim]. The
rotation's cos and sin are computed once a step, [m, pairs] each.
"""

from llvmlite import ir

from lanewise.kernels.cpu.emit import F16, F32, I16, I32, LANES, VI, Emitter, Value, vector
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel

__all__ = ["ROTATE_ARGUMENTS", "rotate_kernel", "to_half"]

# qkv: float32 rows, row_step bytes each: heads, then kv_heads keys, then kv_heads values, `dim` wide; q_norm, k_norm: float32[dim]
# or 0; cos, sin: float32[m, pairs]; slots: int32[m], page * 16 + offset; keys, values: the layer's places in page 0,
# page_step bytes from page to page; m rows, per_chunk of them in a chunk: neighbours write the same cache lines of a page and
# belong to one thread
ROTATE_ARGUMENTS = (
    "qkv", "row_step", "heads", "kv_heads", "q_norm", "k_norm", "eps", "cos", "sin", "slots", "keys", "values", "page_step", "m", "per_chunk",
)  # fmt: skip


def rotate_kernel(dim: int, pairs: int, interleaved: bool) -> CpuKernel:
    """For one head size (a multiple of 16), number of rotated pairs (0 for none), and way of pairing."""
    name = f"rotate_{dim}_{pairs}_{'interleaved' if interleaved else 'half'}"
    return CpuKernel(name, ROTATE_ARGUMENTS, lambda e, a, chunk, worker: _body(dim, pairs, interleaved, e, a, chunk))


def _body(dim: int, pairs: int, interleaved: bool, e: Emitter, a: Arguments, chunk: Value) -> None:
    start = e.b.mul(chunk, a.per_chunk)
    with e.loop(e.sub(e.least(e.add(start, a.per_chunk), a.m), start)) as i:
        _row(dim, pairs, interleaved, e, a, e.add(start, i))


def _row(dim: int, pairs: int, interleaved: bool, e: Emitter, a: Arguments, row: Value) -> None:
    base = e.add(a.qkv, e.b.mul(a.row_step, row))
    slot = e.b.sext(e.load(I32, a.slots, e.mul(row, 4)), row.type)
    with e.b.goto_entry_block():
        place = e.b.alloca(vector(I16), size=ir.Constant(I32, dim // LANES))
    stack = e.b.ptrtoint(place, row.type)
    page, offset = e.b.lshr(slot, e.index(4)), e.b.and_(slot, e.index(LANES - 1))
    turn = (e.add(a.cos, e.mul(row, 4 * pairs)), e.add(a.sin, e.mul(row, 4 * pairs)))
    with e.loop(a.heads) as h:
        place = e.add(base, e.mul(h, 4 * dim))
        _head(dim, pairs, interleaved, e, place, a.q_norm, a.real("eps"), turn)
    after = e.add(base, e.b.mul(a.heads, e.index(4 * dim)))
    with e.loop(a.kv_heads) as h:
        key = e.add(after, e.mul(h, 4 * dim))
        _head(dim, pairs, interleaved, e, key, a.k_norm, a.real("eps"), turn)
        value = e.add(key, e.b.mul(a.kv_heads, e.index(4 * dim)))
        head = e.add(e.b.mul(page, a.page_step), e.mul(h, 2 * dim * LANES))
        keys, values = e.add(e.add(a.keys, head), e.mul(offset, 2)), e.add(e.add(a.values, head), e.mul(offset, 2 * dim))
        for j in range(0, dim, LANES):
            e.store(to_half(e, e.floats(key, 4 * j)), stack, 2 * j)
            e.store(to_half(e, e.floats(value, 4 * j)), values, 2 * j)
        with e.loop(dim) as i:  # by way of memory: taking a vector apart lane by lane costs several times as much
            e.store(e.load(I16, stack, e.mul(i, 2)), keys, e.mul(i, 2 * LANES))


def to_half(e: Emitter, x: Value) -> Value:
    """16 float32 as the bits of 16 float16, rounded to nearest even; too large becomes infinite."""
    if e.isa.f16:
        return e.b.bitcast(e.b.fptrunc(x, vector(F16)), vector(I16))
    # Without the instruction. Normal results: add half an ulp less one, and the bit that decides ties. Subnormal ones: a
    # float32 addition of 0.5 puts the wanted bits, rounded, at the low end.
    bits = e.b.bitcast(x, vector(I32))
    sign = e.shr(e.b.and_(bits, e.all_ints(-0x80000000)), 16)
    size = e.b.and_(bits, e.all_ints(0x7FFFFFFF))
    odd = e.b.and_(e.shr(size, 13), e.all_ints(1))
    normal = e.shr(e.b.add(e.b.add(size, e.all_ints(0xFFF - (112 << 23))), odd), 13)
    small = e.b.sub(e.b.bitcast(e.b.fadd(e.b.bitcast(size, x.type), e.all_floats(0.5)), size.type), e.all_ints(0x3F000000))
    result = e.b.select(e.b.icmp_signed("<", size, e.all_ints(113 << 23)), small, normal)
    result = e.b.select(e.b.icmp_signed(">=", size, e.all_ints(0x477FF000)), e.all_ints(0x7C00), result)
    result = e.b.select(e.b.icmp_signed(">", size, e.all_ints(0x7F800000)), e.all_ints(0x7E00), result)
    return e.b.trunc(e.b.or_(result, sign), vector(I16))


def _head(dim: int, pairs: int, interleaved: bool, e: Emitter, place: Value, norm: Value, eps: Value, turn: tuple[Value, Value]) -> None:
    """One head of one row, in place."""
    with e.when(e.b.icmp_signed("!=", norm, e.index(0))):
        total = e.all_floats(0.0)
        for j in range(0, dim, LANES):
            v = e.floats(place, 4 * j)
            total = e.fma(v, v, total)
        mean = e.b.fdiv(e.reduce(total, e.b.fadd), e.real(float(dim)))
        scale = e.splat(e.b.fdiv(e.real(1.0), e.sqrt(e.b.fadd(mean, eps))))
        for j in range(0, dim, LANES):
            e.store(e.b.fmul(e.b.fmul(e.floats(place, 4 * j), scale), e.floats(norm, 4 * j)), place, 4 * j)
    cos, sin = turn
    if pairs % LANES == 0:
        for j in range(0, pairs, LANES):
            if interleaved:
                _turn_neighbours(e, place, 8 * j, e.floats(cos, 4 * j), e.floats(sin, 4 * j))
            else:
                _turn(e, place, 4 * j, 4 * (pairs + j), e.floats(cos, 4 * j), e.floats(sin, 4 * j), e.floats)
        return
    with e.loop(pairs) as i:
        first = e.add(place, e.mul(i, 8 if interleaved else 4))
        c, s = (e.load(F32, table, e.mul(i, 4)) for table in (cos, sin))
        _turn(e, first, 0, 4 if interleaved else 4 * pairs, c, s, lambda address, offset: e.load(F32, address, offset))


def _turn(e: Emitter, place: Value, one: int, two: int, cos: Value, sin: Value, load: object) -> None:
    assert callable(load)
    for value, offset in zip(_turned(e, load(place, one), load(place, two), cos, sin), (one, two), strict=True):
        e.store(value, place, offset)


def _turn_neighbours(e: Emitter, place: Value, offset: int, cos: Value, sin: Value) -> None:
    """16 pairs that lie side by side."""
    both = [e.floats(place, offset), e.floats(place, offset + 64)]
    apart = [[i + odd for i in range(0, 2 * LANES, 2)] for odd in (0, 1)]
    x, y = (e.b.shuffle_vector(*both, ir.Constant(VI, places)) for places in apart)
    turned = _turned(e, x, y, cos, sin)
    for part in (0, 1):
        together = [start + i for i in range(8 * part, 8 * part + 8) for start in (0, LANES)]
        e.store(e.b.shuffle_vector(*turned, ir.Constant(VI, together)), place, offset + 64 * part)


def _turned(e: Emitter, x: Value, y: Value, cos: Value, sin: Value) -> tuple[Value, Value]:
    return e.fma(x, cos, e.b.fneg(e.b.fmul(y, sin))), e.fma(y, cos, e.b.fmul(x, sin))
