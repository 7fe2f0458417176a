"""How each quantized format's blocks lie in a panel and how they are multiplied.

A panel is 16 rows of w, a lane each. A block of a panel is a run of 64-byte vectors in the quant plane (4 weights of each
of the 16 rows) and a run of 16-lane vectors in the scale plane. `multiply` emits one block for a tile of tokens x panels;
whatever the tile, an output element sees the same operations in the same order, so its bits do not depend on the tile.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lanewise.kernels.cpu.emit import VI, Emitter, Value
from lanewise.kernels.cpu.tile import Ints, Tile

__all__ = ["BLOCKS", "BlockFormat"]

Multiply = Callable[[Tile], None]
SIXTEENTH = 1 / 16  # a high nibble is left where it is, 16 times too large


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """quants, scales: bytes of one block of a panel in each plane; activation: the record that x is quantized to."""

    name: str
    activation: str
    quants: int
    scales: int
    multiply: Multiply


# formats of 32 weights: one scale a block, activations scaled per 32


def _finish32(t: Tile, dots: Ints, *, minimum: bool = False) -> None:
    """acc += dots * (w.d * x.d) (+ w.m * x.d * x.sum)"""
    e = t.e
    for r in range(t.panels):
        d = t.once(t.scale_half(r, 0))
        least = t.once(t.scale_half(r, 32)) if minimum else None
        for i in range(t.tokens):
            t.acc[r][i] = e.fma(e.to_float(dots[r][i]), e.b.fmul(d, t.x_float(i, "d")), t.acc[r][i])
            if least is not None:
                t.acc[r][i] = e.fma(least, t.x_float(i, "ds"), t.acc[r][i])


def _q8_0(t: Tile) -> None:
    dots = t.start("c128") if t.e.isa.unsigned else t.zeros()
    for g in range(8):
        t.dot(dots, [t.quants(r, 64 * g) for r in range(t.panels)], 4 * g, wide=True)
    _finish32(t, dots)


def _nibbles(t: Tile, dots: Ints, change: Callable[[Value], Value], *, high_bits: bool = False, wide: bool = False) -> None:
    """32 weights: the low nibbles are weights 0..15, the high ones 16..31. With high_bits a fifth bit is in vector 4."""
    e = t.e
    for half in (0, 1):
        for g in range(4):
            w = []
            for r in range(t.panels):
                v = t.quants(r, 64 * g)
                v = e.and_bytes(e.shr(v, 4) if half else v, 15)
                if high_bits:
                    v = e.or_(v, e.and_bytes(e.shl(t.quants(r, 256), 4 - (4 * half + g)), 16))
                w.append(change(v))
            t.dot(dots, w, 16 * half + 4 * g, wide=wide)


def _same(v: Value) -> Value:
    return v


def _q4_0(t: Tile) -> None:
    dots = t.start("c8")
    _nibbles(t, dots, _same)
    _finish32(t, dots)


def _q4_1(t: Tile) -> None:
    dots = t.zeros()
    _nibbles(t, dots, _same)
    _finish32(t, dots, minimum=True)


def _q5_0(t: Tile) -> None:
    dots = t.start("c16")
    _nibbles(t, dots, _same, high_bits=True)
    _finish32(t, dots)


def _q5_1(t: Tile) -> None:
    dots = t.zeros()
    _nibbles(t, dots, _same, high_bits=True)
    _finish32(t, dots, minimum=True)


def _iq4_nl(t: Tile) -> None:
    dots = t.start("c128") if t.e.isa.unsigned else t.zeros()
    _nibbles(t, dots, t.iq4_values, wide=True)
    _finish32(t, dots)


# formats of 256 weights: a float scale a block, small integer scales inside; activations scaled per 256


def _finish256(t: Tile, sums: Ints, mins: Ints | None = None) -> None:
    """acc += x.d * (w.d * sums - w.dmin * mins), all of which are exact or rounded once each"""
    e = t.e
    for r in range(t.panels):
        d = t.once(t.scale_half(r, 0))
        least = t.once(t.scale_half(r, 32)) if mins is not None else None
        for i in range(t.tokens):
            v = e.b.fmul(sums[r][i], d)
            if least is not None and mins is not None:
                v = e.fma(e.b.fneg(e.to_float(mins[r][i])), least, v)
            t.acc[r][i] = e.fma(v, t.x_float(i, "d"), t.acc[r][i])


def _scaled(t: Tile, sums: Ints, dots: Ints, scales: list[Value]) -> None:
    """sums += scale * dots, in float32; a scale for each panel"""
    e = t.e
    for r, scale in enumerate(t.once(v) for v in scales):
        for i in range(t.tokens):
            e.set(sums[r][i], e.fma(e.to_float(dots[r][i]), scale, e.get(sums[r][i])))


def _mins32(t: Tile, offset: int) -> Ints:
    """The sum of min * sum32 over the 8 groups of 32; mins are bytes at `offset` of the scale plane."""
    totals = t.zeros()
    for j in range(0, 8, 2):
        for r in range(t.panels):
            t.dot_minima(totals, r, t.scale_byte(r, offset + 16 * j), t.scale_byte(r, offset + 16 * (j + 1)), "sum32", 2 * j)
    return totals


def _q45_k(t: Tile, *, fifth: bool) -> None:
    """Four pairs of groups of 32: low nibbles are group 2j, high ones 2j + 1. Q5_K: bit 2j (+ 1) of vectors 32..39 is the fifth bit."""
    e = t.e
    sums = t.float_variables()
    in_place = e.isa.unsigned and not fifth  # elsewhere a byte above 127 is negative, or its products saturate
    for j, half, group in t.steps(4, 2):
        dots = t.zeros()
        for g in range(8):
            w = []
            for r in range(t.panels):
                v = t.quants(r, 64 * g, e.mul(j, 512))
                v = e.and_bytes(v, 240 if half else 15) if in_place else e.and_bytes(e.shr(v, 4) if half else v, 15)
                if fifth:
                    bit = e.splat(e.b.trunc(e.add(e.mul(j, 2), half), VI.element))
                    v = e.or_(v, e.shl(e.and_bytes(e.b.lshr(t.quants(r, 2048 + 64 * g), bit), 1), 4))
                w.append(v)
            t.dot(dots, w, 4 * g, base=e.mul(group, 32))
        factor = SIXTEENTH if half and in_place else 1.0
        _scaled(t, sums, dots, [t.scale_byte_float(r, 64 + 16 * half, e.mul(j, 32), factor) for r in range(t.panels)])
    _finish256(t, t.values(sums), _mins32(t, 192))


def _q4_k(t: Tile) -> None:
    _q45_k(t, fifth=False)


def _q5_k(t: Tile) -> None:
    _q45_k(t, fifth=True)


def _q6_k(t: Tile) -> None:
    """Two halves of 128, each four groups of 32 in two groups of 16. Three vectors hold 4 weights of each of the four: those of the fourth
    stand two bits on top of each of the others'.
    """
    e = t.e
    sums = t.float_variables()
    for part, group, number in t.steps(4, 4):
        first = e.add(_q6_first(e, e.b.lshr(number, e.index(2))), e.mul(e.b.and_(number, e.index(3)), 32))
        dots = t.start("c32", 0, e.b.lshr(first, e.index(2)))
        for g in range(4):
            w = []
            for r in range(t.panels):
                if group < 3:
                    w.append(e.and_bytes(t.quants(r, 192 * g + 64 * group, e.mul(part, 768)), 63))
                else:
                    tops = (t.quants(r, 192 * g + 64 * i, e.mul(part, 768)) for i in range(3))
                    one, two, three = (e.and_bytes(e.shr(top, 6 - 2 * i), 3 << 2 * i) for i, top in enumerate(tops))
                    w.append(e.or_(e.or_(one, two), three))
            t.dot(dots, w, 4 * g, base=first)
        _scaled(t, sums, dots, [t.scale_signed_float(r, 32 + 32 * group, _q6_first(e, part)) for r in range(t.panels)])
    _finish256(t, t.values(sums))


def _q6_first(e: Emitter, part: Value) -> Value:
    """Where the four groups of a part, 32 apart, begin."""
    return e.add(e.mul(e.b.lshr(part, e.index(1)), 128), e.mul(e.b.and_(part, e.index(1)), 16))


def _q23_k(t: Tile, *, third: bool) -> None:
    """Two halves of 128; in each, bits 2j and 2j + 1 of 32 bytes are group j of 32. Q3_K: bit 4 half + j of vectors 16..23 is the third."""
    e = t.e
    sums = t.float_variables()
    for half, group, number in t.steps(2, 8):
        first, j, sixteen = e.mul(number, 16), group // 2, group % 2
        dots = t.start("c4", 0, e.mul(number, 4)) if third else t.zeros()
        for g in range(4):
            w = []
            for r in range(t.panels):
                v = e.and_bytes(e.shr(t.quants(r, 64 * (4 * sixteen + g), e.mul(half, 512)), 2 * j), 3)
                if third:
                    bit = e.splat(e.b.trunc(e.add(e.mul(half, 4), j), VI.element))
                    high = e.b.lshr(t.quants(r, 1024 + 64 * (4 * sixteen + g)), bit)
                    v = e.or_(v, e.shl(e.and_bytes(high, 1), 2))
                w.append(v)
            t.dot(dots, w, 4 * g, base=first)
        if third:
            _scaled(t, sums, dots, [_q3_scale(t, r, group, half) for r in range(t.panels)])
        else:
            small = [t.scale_byte(r, 64 + 16 * group, e.mul(half, 128)) for r in range(t.panels)]
            _scaled(t, sums, dots, [e.to_float(e.b.and_(both, e.all_ints(15))) for both in small])
    _finish256(t, t.values(sums), None if third else _mins16(t))


def _mins16(t: Tile) -> Ints:
    """The sum of min * sum16 over the 16 groups of Q2_K, whose minima are the high nibbles of its scale bytes."""
    totals = t.zeros()
    for group in range(0, 16, 2):
        for r in range(t.panels):
            even, odd = (t.e.shr(t.scale_byte(r, 64 + 16 * (group + i)), 4) for i in (0, 1))
            t.dot_minima(totals, r, even, odd, "sum16", 2 * group)
    return totals


def _q3_scale(t: Tile, r: int, group: int, half: Value) -> Value:
    """Scale 8 half + group of Q3_K, 6 bits less 32: low 4 in a nibble of byte `group`, high 2 in byte group % 4."""
    e = t.e
    nibble = e.b.lshr(t.scale_byte(r, 32 + 16 * group), e.splat(e.b.trunc(e.mul(half, 4), VI.element)))
    pair = e.b.lshr(t.scale_byte(r, 160 + 16 * (group % 4)), e.splat(e.b.trunc(e.add(e.mul(half, 4), 2 * (group // 4)), VI.element)))
    value = e.or_(e.b.and_(nibble, e.all_ints(15)), e.shl(e.b.and_(pair, e.all_ints(3)), 4))
    return e.to_float(e.b.sub(value, e.all_ints(32)))


def _q2_k(t: Tile) -> None:
    _q23_k(t, third=False)


def _q3_k(t: Tile) -> None:
    _q23_k(t, third=True)


def _iq4_xs(t: Tile) -> None:
    """Eight groups of 32, each four vectors: low nibbles are weights 0..15 of the group, high ones 16..31."""
    e = t.e
    sums = t.float_variables()
    for j, _, group in t.steps(8, 1):
        dots = t.start("c128", 0, e.mul(group, 4)) if e.isa.unsigned else t.zeros()
        for half in (0, 1):
            for g in range(4):
                w = []
                for r in range(t.panels):
                    v = t.quants(r, 64 * g, e.mul(j, 256))
                    w.append(t.iq4_values(e.and_bytes(e.shr(v, 4) if half else v, 15)))
                t.dot(dots, w, 16 * half + 4 * g, base=e.mul(group, 32), wide=True)
        _scaled(t, sums, dots, [t.scale_signed_float(r, 32, e.mul(j, 16)) for r in range(t.panels)])
    _finish256(t, t.values(sums))


BLOCKS: dict[str, BlockFormat] = {
    f.name: f
    for f in (
        BlockFormat("Q8_0", "q8_0", 512, 32, _q8_0),
        BlockFormat("Q4_0", "q8_0", 256, 32, _q4_0),
        BlockFormat("Q4_1", "q8_0", 256, 64, _q4_1),
        BlockFormat("Q5_0", "q8_0", 320, 32, _q5_0),
        BlockFormat("Q5_1", "q8_0", 320, 64, _q5_1),
        BlockFormat("IQ4_NL", "q8_0", 256, 32, _iq4_nl),
        BlockFormat("Q2_K", "q8_k", 1024, 64 + 256, _q2_k),
        BlockFormat("Q3_K", "q8_k", 1536, 32 + 192, _q3_k),
        BlockFormat("Q4_K", "q8_k", 2048, 64 + 256, _q4_k),
        BlockFormat("Q5_K", "q8_k", 2048 + 512, 64 + 256, _q5_k),
        BlockFormat("Q6_K", "q8_k", 3072, 32 + 256, _q6_k),
        BlockFormat("IQ4_XS", "q8_k", 2048, 32 + 128, _iq4_xs),
    )
}
