"""GGUF blocks to panels: each 4 bytes of a row go to the row's lane of a 64-byte vector, scales to bytes of a lane each.

The layout of each format is a short list of moves; one compiled kernel a format carries them out, and `unpack` runs the same
list backwards in numpy: nothing is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from lanewise.formats import FORMATS
from lanewise.kernels.cpu.blocks import BLOCKS
from lanewise.kernels.cpu.emit import I8, I16, I32, LANES, Emitter, Value
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel

__all__ = ["PACK_ARGUMENTS", "pack_kernel", "scale_bytes_6bit", "scale_bytes_iq4_xs"]

# raw: GGUF rows, row_bytes each, n of them; quants, scales: the planes, with their panel steps; a chunk is one panel
PACK_ARGUMENTS = ("raw", "row_bytes", "n", "blocks", "quants", "quants_step", "scales", "scales_step")


@dataclass(frozen=True, slots=True)
class Layout:
    """words: where in a block the 4 bytes of each quant vector are; wide: 8-bit weights, moved by 128 where they are unsigned.

    halves: where float16 scales are, 32 bytes of the scale plane each. bytes: emits the small scales of one row's block as
    values of 8 bits, 16 bytes of the plane each. change: moves bits between the words, where the file's order is slow to multiply.
    """

    words: tuple[int, ...]
    halves: tuple[int, ...]
    bytes: Callable[[Emitter, Value], list[Value]] | None = None
    wide: bool = False
    change: Callable[[Emitter, list[Value]], list[Value]] | None = None


def _words(start: int, count: int) -> tuple[int, ...]:
    return tuple(range(start, start + 4 * count, 4))


def _plain_bytes(start: int, count: int) -> Callable[[Emitter, Value], list[Value]]:
    return lambda e, block: [e.load(I8, block, start + i) for i in range(count)]


def scale_bytes_6bit(e: Emitter, block: Value) -> list[Value]:
    """Q4_K and Q5_K: 8 scales, then 8 minima, of 6 bits each from 12 bytes at offset 4 (llama.cpp's block_q4_K)."""
    b = [e.load(I8, block, 4 + i) for i in range(12)]

    def bits(v: Value, mask: int) -> Value:
        return e.b.and_(v, ir.Constant(I8, mask))

    def high(v: Value) -> Value:
        return e.b.shl(e.b.lshr(v, ir.Constant(I8, 6)), ir.Constant(I8, 4))

    scales = [bits(b[i], 63) for i in range(4)] + [e.b.or_(bits(b[8 + i], 15), high(b[i])) for i in range(4)]
    minima = [bits(b[4 + i], 63) for i in range(4)] + [e.b.or_(e.b.lshr(b[8 + i], ir.Constant(I8, 4)), high(b[4 + i])) for i in range(4)]
    return scales + minima


def scale_bytes_iq4_xs(e: Emitter, block: Value) -> list[Value]:
    """8 scales of 6 bits less 32: low 4 in nibbles from offset 4, high 2 in the 16 bits at offset 2."""
    high = e.load(I16, block, 2)
    found = []
    for i in range(8):
        low = e.b.and_(e.b.lshr(e.load(I8, block, 4 + i // 2), ir.Constant(I8, 4 * (i % 2))), ir.Constant(I8, 15))
        two = e.b.and_(e.b.trunc(e.b.lshr(high, ir.Constant(I16, 2 * i)), I8), ir.Constant(I8, 3))
        found.append(e.b.sub(e.b.or_(low, e.b.shl(two, ir.Constant(I8, 4))), ir.Constant(I8, 32)))
    return found


def _q6_words() -> tuple[int, ...]:
    found = []
    for half in (0, 1):
        for sixteen in (0, 1):
            for g in range(4):
                at = 16 * sixteen + 4 * g
                found += [64 * half + at, 64 * half + 32 + at, 128 + 32 * half + at]
    return tuple(found)


def _fifth_bits(e: Emitter, words: list[Value]) -> list[Value]:
    """Q5_0 and Q5_1: bit 4g + j of the last word to bit g of its byte j, an 8 x 4 bit matrix transposed."""
    result = ir.Constant(I32, 0)
    for bit in range(32):
        g, j = divmod(bit, 4)
        one = e.b.and_(e.b.lshr(words[-1], ir.Constant(I32, bit)), ir.Constant(I32, 1))
        result = e.b.or_(result, e.b.shl(one, ir.Constant(I32, 8 * j + g)))
    return [*words[:-1], result]


def _four_in_three(e: Emitter, words: list[Value]) -> list[Value]:
    """Q6_K: of (low, low, high) three weights whole, with two bits of the fourth on top of each: one mask reads each of the three."""

    def bits(v: Value, byte: int, left: int) -> Value:
        """The bits of `byte` in each byte, moved to the left."""
        masked = e.b.and_(v, ir.Constant(I32, int.from_bytes(bytes([byte] * 4), "little")))
        return e.b.shl(masked, ir.Constant(I32, left)) if left >= 0 else e.b.lshr(masked, ir.Constant(I32, -left))

    found = []
    for low0, low1, high in zip(words[::3], words[1::3], words[2::3], strict=True):
        first = e.b.or_(bits(low0, 0x0F, 0), bits(high, 0x03, 4))
        second = e.b.or_(bits(low1, 0x0F, 0), bits(high, 0x0C, 2))
        third = e.b.or_(bits(low0, 0xF0, -4), bits(high, 0x30, 0))
        fourth = e.b.or_(bits(low1, 0xF0, -4), bits(high, 0xC0, -2))
        found += [e.b.or_(v, bits(fourth, 3 << 2 * i, 6 - 2 * i)) for i, v in enumerate((first, second, third))]
    return found


LAYOUTS: dict[str, Layout] = {
    "Q8_0": Layout(_words(2, 8), (0,), wide=True),
    "Q4_0": Layout(_words(2, 4), (0,)),
    "Q4_1": Layout(_words(4, 4), (0, 2)),
    "Q5_0": Layout((*_words(6, 4), 2), (0,), change=_fifth_bits),
    "Q5_1": Layout((*_words(8, 4), 4), (0, 2), change=_fifth_bits),
    "IQ4_NL": Layout(_words(2, 4), (0,)),
    "Q2_K": Layout(_words(16, 16), (80, 82), _plain_bytes(0, 16)),
    "Q3_K": Layout((*_words(32, 16), *_words(0, 8)), (108,), _plain_bytes(96, 12)),
    "Q4_K": Layout(_words(16, 32), (0, 2), scale_bytes_6bit),
    "Q5_K": Layout((*_words(48, 32), *_words(16, 8)), (0, 2), scale_bytes_6bit),
    "Q6_K": Layout(_q6_words(), (208,), _plain_bytes(192, 16), change=_four_in_three),
    "IQ4_XS": Layout(_words(8, 32), (0,), scale_bytes_iq4_xs),
}


def pack_kernel(fmt: str) -> CpuKernel:
    """The kernel that packs one panel a chunk. Rows past n become zero blocks."""
    return CpuKernel(f"pack_{fmt}", PACK_ARGUMENTS, lambda e, a, chunk, worker: _body(fmt, e, a, chunk))


def _body(fmt: str, e: Emitter, a: Arguments, chunk: Value) -> None:
    layout, block_bytes, plane = LAYOUTS[fmt], FORMATS[fmt].nbytes, BLOCKS[fmt]
    quants, scales = (e.add(base, e.b.mul(step, chunk)) for base, step in ((a.quants, a.quants_step), (a.scales, a.scales_step)))
    first = e.mul(chunk, LANES)
    rows = e.least(e.sub(a.n, first), LANES)
    with e.loop(a.blocks) as i:
        q, s = e.add(quants, e.mul(i, plane.quants)), e.add(scales, e.mul(i, plane.scales))
        for place, size in ((q, plane.quants), (s, plane.scales)):
            with e.when(e.less(rows, LANES)), e.loop(size // 32) as part:
                e.store(ir.Constant(ir.VectorType(I8, 32), [0] * 32), e.add(place, e.mul(part, 32)))
        with e.loop(rows) as lane:
            block = e.add(e.add(a.raw, e.b.mul(e.add(first, lane), a.row_bytes)), e.mul(i, block_bytes))
            _row(layout, e, block, e.add(q, e.mul(lane, 4)), e.add(s, e.mul(lane, 2)), e.add(s, lane))


def _row(layout: Layout, e: Emitter, block: Value, quants: Value, halves: Value, small: Value) -> None:
    words = [e.load(I32, block, offset) for offset in layout.words]
    if layout.wide and e.isa.unsigned:
        words = [e.b.xor(word, ir.Constant(I32, -0x7F7F7F80)) for word in words]  # 0x80 in each byte
    for v, word in enumerate(layout.change(e, words) if layout.change else words):
        e.store(word, quants, 64 * v)
    for h, offset in enumerate(layout.halves):
        e.store(e.load(I16, block, offset), halves, 32 * h)
    if layout.bytes:
        for i, value in enumerate(layout.bytes(e, block)):
            e.store(value, small, 32 * len(layout.halves) + 16 * i)
