"""x[m,k] = w[token[m],k]: the rows that tokens name, read from the file's own bytes, as float32.

Bit for bit what `Format.dequantize` gives, every rounding in the same place. A NaN is a NaN, of whatever bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from lanewise.formats import FORMATS
from lanewise.formats.bits import Plane
from lanewise.formats.iq4 import VALUES
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.dots import lookup16
from lanewise.kernels.cpu.emit import I8, I16, I32, LANES, Emitter, Value
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.pack import scale_bytes_6bit, scale_bytes_iq4_xs

__all__ = ["EMBED_ARGUMENTS", "embed_kernel"]

# raw: GGUF rows, row_bytes each, `blocks` blocks in each; tokens: int32[m], all of them rows that exist; x: float32 rows, x_step bytes
# each, of which what lies behind the k-th value stays as it is; m rows, per_chunk of them in a chunk
EMBED_ARGUMENTS = ("raw", "row_bytes", "blocks", "tokens", "x", "x_step", "m", "per_chunk")

Small = Callable[[Emitter, Value], list[Value]]


@dataclass(frozen=True, slots=True)
class _Codes:
    """planes: where the bits of a code lie; half: what is subtracted from it, where it is no index into IQ4's `table`.

    small: emits a block's small scales, and behind them its minima if it has any, as int8
    """

    planes: tuple[Plane, ...]
    half: int = 0
    small: Small | None = None
    table: bool = False


def embed_kernel(fmt: str) -> CpuKernel:
    """The kernel of a format."""
    return CpuKernel(f"embed_{fmt}", EMBED_ARGUMENTS, lambda e, a, chunk, worker: _body(fmt, e, a, chunk))


def _body(fmt: str, e: Emitter, a: Arguments, chunk: Value) -> None:
    start = e.b.mul(chunk, a.per_chunk)
    with e.loop(e.sub(e.least(e.add(start, a.per_chunk), a.m), start)) as i:
        row = e.add(start, i)
        token = e.b.sext(e.load(I32, a.tokens, e.mul(row, 4)), row.type)
        source, x = e.add(a.raw, e.b.mul(a.row_bytes, token)), e.add(a.x, e.b.mul(a.x_step, row))
        (_dense if fmt in DENSE else _blocks)(fmt, e, source, a.blocks, x)


def _dense(fmt: str, e: Emitter, source: Value, k: Value, x: Value) -> None:
    """Whole vectors, then one value at a time: behind the last row the file may end."""
    size = DENSE[fmt]
    read = {"F32": e.ints, "F16": e.halves, "BF16": e.brain}[fmt]
    whole = e.div(k, LANES)
    with e.loop(whole) as i:
        e.store(read(e.add(source, e.mul(i, LANES * size))), e.add(x, e.mul(i, LANES * 4)))
    with e.loop(e.rem(k, LANES)) as rest:
        i = e.add(e.mul(whole, LANES), rest)
        one = e.load(I32 if size == 4 else I16, source, e.mul(i, size))
        if fmt == "F16":
            one = e.b.extract_element(e.widen(e.splat(one)), ir.Constant(I32, 0))
        elif fmt == "BF16":
            one = e.b.shl(e.b.zext(one, I32), ir.Constant(I32, 16))
        e.store(one, e.add(x, e.mul(i, 4)))


def _blocks(fmt: str, e: Emitter, source: Value, count: Value, x: Value) -> None:
    size = FORMATS[fmt].block
    with e.loop(count) as i:
        block, place = e.add(source, e.mul(i, FORMATS[fmt].nbytes)), e.add(x, e.mul(i, 4 * size))
        steps = _steps(fmt, e, block)
        for w in range(0, size, LANES):
            scale, least = steps[w * len(steps) // size]
            v = e.b.fmul(scale, e.to_float(_values(fmt, e, block, w)))
            e.store(e.b.fadd(v, least) if least is not None else v, place, 4 * w)


def _values(fmt: str, e: Emitter, block: Value, w: int) -> Value:
    """Weights w to w + 15 of a block as int32, before the scale."""
    codes, v = _CODES[fmt], None
    for plane in codes.planes:
        part = _bits(fmt, plane, e, block, w)
        v = part if v is None else e.or_(v, e.shl(part, plane.at))
    if codes.table:
        v = e.shl(lookup16(e, [int(value) & 255 for value in VALUES], v), 24)
        return e.b.ashr(v, e.all_ints(24))
    return e.b.sub(v, e.all_ints(codes.half))


def _bits(fmt: str, plane: Plane, e: Emitter, block: Value, w: int) -> Value:
    """A plane's bits of the codes w to w + 15. `formats.bits` says how they lie."""
    at, run = _offset(fmt, plane.field), FORMATS[fmt].layout[plane.field].itemsize // plane.groups
    if plane.bits == 8:
        return e.bytes_signed(block, at + w)
    if run < LANES:  # a bit each, in order: 16 of them are two bytes
        v = e.b.lshr(e.splat(e.b.zext(e.load(I16, block, at + w // 8), I32)), e.lane_numbers())
    else:
        group, within = divmod(w, run * 8 // plane.bits)
        shift, byte = divmod(within, run)
        v = e.shr(e.bytes_unsigned(block, at + group * run + byte), plane.bits * shift)
    return e.b.and_(v, e.all_ints((1 << plane.bits) - 1))


def _steps(fmt: str, e: Emitter, block: Value) -> list[tuple[Value, Value | None]]:
    """(scale, what is added) of each part of a block that has its own, in all lanes."""

    def half(field: str) -> Value:
        return e.widen(e.splat(e.load(I16, block, _offset(fmt, field))))

    d, small = half("d"), _CODES[fmt].small
    fields = FORMATS[fmt].layout.names or ()
    if small is None:
        return [(d, half("m") if "m" in fields else None)]
    numbers = [e.to_float(e.splat(e.b.sext(value, I32))) for value in small(e, block)]
    if "dmin" not in fields:
        return [(e.b.fmul(d, n), None) for n in numbers]
    least, count = half("dmin"), len(numbers) // 2
    return [(e.b.fmul(d, n), e.b.fneg(e.b.fmul(least, m))) for n, m in zip(numbers[:count], numbers[count:], strict=True)]


def _offset(fmt: str, field: str) -> int:
    return int(FORMATS[fmt].layout.fields[field][1])  # type: ignore[index]


def _bytes_of(start: int) -> Small:
    return lambda e, block: [e.load(I8, block, start + i) for i in range(16)]


def _q2_k(e: Emitter, block: Value) -> list[Value]:
    both = _bytes_of(0)(e, block)
    return [e.b.and_(b, ir.Constant(I8, 15)) for b in both] + [e.b.lshr(b, ir.Constant(I8, 4)) for b in both]


def _q3_k(e: Emitter, block: Value) -> list[Value]:
    """16 scales of 6 bits less 32: low 4 in the nibbles of 8 bytes, all low ones first, high 2 in 4 bytes more (llama.cpp's block_q3_K)."""
    at = _offset("Q3_K", "scales")

    def bits(byte: int, shift: int, mask: int) -> Value:
        return e.b.and_(e.b.lshr(e.load(I8, block, at + byte), ir.Constant(I8, shift)), ir.Constant(I8, mask))

    scales = [e.b.or_(bits(i % 8, i // 8 * 4, 15), e.b.shl(bits(8 + i % 4, i // 4 * 2, 3), ir.Constant(I8, 4))) for i in range(16)]
    return [e.b.sub(scale, ir.Constant(I8, 32)) for scale in scales]


_FIVE = (Plane("qs", 1, 4), Plane("qh", 4, 1, at=4))
_CODES = {
    "Q4_0": _Codes((Plane("qs", 1, 4),), half=8),
    "Q4_1": _Codes((Plane("qs", 1, 4),)),
    "Q5_0": _Codes(_FIVE, half=16),
    "Q5_1": _Codes(_FIVE),
    "Q8_0": _Codes((Plane("qs", 1, 8),)),
    "IQ4_NL": _Codes((Plane("qs", 1, 4),), table=True),
    "Q2_K": _Codes((Plane("qs", 2, 2),), small=_q2_k),
    "Q3_K": _Codes((Plane("qs", 2, 2), Plane("hmask", 1, 1, at=2)), half=4, small=_q3_k),
    "Q4_K": _Codes((Plane("qs", 4, 4),), small=scale_bytes_6bit),
    "Q5_K": _Codes((Plane("qs", 4, 4), Plane("qh", 1, 1, at=4)), small=scale_bytes_6bit),
    "Q6_K": _Codes((Plane("ql", 2, 4), Plane("qh", 2, 2, at=4)), half=32, small=_bytes_of(192)),
    "IQ4_XS": _Codes((Plane("qs", 8, 4),), small=scale_bytes_iq4_xs, table=True),
}
