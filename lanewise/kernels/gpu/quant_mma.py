"""8 tokens of a packed tile by the int8 matrix unit (mma.sync m16n8k32 and m16n8k16: PTX ISA, sm_80 and later).

A tile is packed so that a lane's words are its operands: of lane 4g + c the words of rows g and g + 8, and of token g the words that four lanes
share. What comes back has word 2h + t: row 8h + g, token 2c + t. Sums over the columns of one scale are exact int32, and of formats whose
256 columns have one float scale so is everything up to it.

In the interpreter (DOT "plain") the same sums in the same places come from plain arithmetic.
"""

import triton
import triton.language as tl

from lanewise.kernels.gpu.quant_codes import by_unit, byte_of, codes, half_of, of_columns, of_rows, pair_of, scale_word

_ZERO = "{0,0,0,0}"
_K32 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
_K16 = "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"
# Outputs first, then the words of two units of w, then of x. A lane's words go by row and half; the unit wants both rows of a half side by side.
_PAIR = tl.constexpr(
    f"{_K32} {{$0,$1,$2,$3}}, {{$8,$10,$9,$11}}, {{$16,$17}}, {_ZERO};\n{_K32} {{$4,$5,$6,$7}}, {{$12,$14,$13,$15}}, {{$18,$19}}, {_ZERO};"
)
_PAIR_REGISTERS = tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 12))
_QUAD = tl.constexpr(
    "\n".join(
        f"{_K16} {{${4 * i},${4 * i + 1},${4 * i + 2},${4 * i + 3}}}, {{${16 + i // 2 * 4 + i % 2},${18 + i // 2 * 4 + i % 2}}},"
        f" {{${24 + i}}}, {_ZERO};"
        for i in range(4)
    )
)
_QUAD_REGISTERS = tl.constexpr(",".join(["=&r"] * 16 + ["r"] * 12))


def _dp2a(row: int, token: int) -> str:
    """Eight bytes of a row times a token's eight int16, added up."""
    y, least, sums = f"${2 * row + token}", (4 + 2 * row, 5 + 2 * row), 8 + 4 * token
    steps = [("lo", sums, least[0]), ("hi", sums + 1, least[0]), ("lo", sums + 2, least[1]), ("hi", sums + 3, least[1])]
    return "".join(f"dp2a.{half}.s32.u32 {y}, ${a}, ${b}, {y if i else 0};\n" for i, (half, a, b) in enumerate(steps))


_MINIMA = tl.constexpr("".join(_dp2a(row, token) for row in (0, 1) for token in (0, 1)))
_MINIMA_REGISTERS = tl.constexpr(",".join(["=&r"] * 4 + ["r"] * 12))

_LOAD = tl.constexpr("ld.global.v4.b32 {$0,$1,$2,$3}, [$4];")
_LOAD2 = tl.constexpr("ld.global.v2.b32 {$0,$1}, [$4];\nmov.b32 $2, $0;\nmov.b32 $3, $1;")
_LOAD_REGISTERS = tl.constexpr("=r,=r,=r,=r,l,l,l,l")
_ASK = "{ .reg .pred p;\nsetp.ne.s32 p, $8, 0;\nmov.b32 $0, 0;\nmov.b32 $1, 0;\n"
_LOAD_IF = tl.constexpr(_ASK + "mov.b32 $2, 0;\nmov.b32 $3, 0;\n@p ld.global.v4.b32 {$0,$1,$2,$3}, [$4]; }")
_LOAD2_IF = tl.constexpr(_ASK + "@p ld.global.v2.b32 {$0,$1}, [$4];\nmov.b32 $2, $0;\nmov.b32 $3, $1; }")
_LOAD_IF_REGISTERS = tl.constexpr("=&r,=&r,=&r,=&r,l,l,l,l,r,r,r,r")


@triton.jit
def mma_tile(total, held, block, blocks, first_token, m, xq, xd, xs, lane, element,
             VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
             W: tl.constexpr, WHOLE: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """total[32, W, 4] + the products of a tile with 8 tokens from first_token on, blocks side by side over W."""
    c = lane % 4
    at, inside = first_token // 8 * blocks + block, block < blocks
    # what stands in the place of a token that does not exist reaches its own results alone, which nobody stores
    there = first_token + lane // 4 < m
    if not WHOLE:
        there = there & inside
    x_at = xq + (at * 512 + lane * 4 + element)
    exact = tl.zeros((32, W, 4), tl.int32)
    for i in tl.static_range(4):
        low, high = codes(held, i, CODE, DOT)
        x = _words(x_at + 128 * i, there, False, DOT)
        if GROUP == 16:
            first, second, third, fourth = _quad(low, high, x, W, DOT)
            scales = scale_word(held, VECTORS, i, W)
            if SCALE == "nibbles+min":
                scales = scales & 0x0F0F0F0F
            exact += byte_of(scales, 0, SCALE == "bytes") * first
            exact += byte_of(scales, 1, SCALE == "bytes") * second
            exact += byte_of(scales, 2, SCALE == "bytes") * third
            exact += byte_of(scales, 3, SCALE == "bytes") * fourth
        elif SCALE == "bytes" or SCALE == "bytes+min":
            first, second = _pair(low, high, x, W, DOT)
            scales = scale_word(held, VECTORS, i // 2, W)
            exact += byte_of(scales, i % 2 * 2, SCALE == "bytes") * first
            exact += byte_of(scales, i % 2 * 2 + 1, SCALE == "bytes") * second
        else:
            first, second = _pair(low, high, x, W, DOT)
            scales = scale_word(held, VECTORS, i, W)
            d_at = at * 64 + i * 16 + c * 4 + element
            d_even, d_odd = pair_of(_words(xd.to(tl.pointer_type(tl.int32)) + d_at, inside, WHOLE, DOT).to(tl.float32, bitcast=True), W)
            total += first.to(tl.float32) * (half_of(scales, 0) * (1 / (1 << SHIFT)) * of_columns(d_even, W))
            total += second.to(tl.float32) * (half_of(scales, 1) * (1 / (1 << SHIFT)) * of_columns(d_odd, W))
            if SCALE == "half+min":
                s_even, s_odd = pair_of(_words(xs.to(tl.pointer_type(tl.int32)) + d_at, inside, WHOLE, DOT).to(tl.float32, bitcast=True), W)
                least = scale_word(held, VECTORS + 2, i, W)
                total += half_of(least, 0) * of_columns(s_even, W)
                total += half_of(least, 1) * of_columns(s_odd, W)
    if GROUP == 16 or SCALE == "bytes" or SCALE == "bytes+min":
        # the octet's eight, of which a lane has two
        d = _two(xd.to(tl.pointer_type(tl.int32)) + (at * 8 + 2 * c + element % 2), inside, WHOLE, DOT).to(tl.float32, bitcast=True)
        tail = of_rows(held[VECTORS + SCALES], W)
        total += exact.to(tl.float32) * (half_of(tail, 0) * (1 / (1 << SHIFT)) * d)
        if SCALE == "bytes+min" or SCALE == "nibbles+min":
            s_at = xs + (at * 96 + c * 8 + element)
            if SCALE == "bytes+min":
                least = _minima(held[VECTORS + 1], s_at, inside, W, WHOLE, DOT)
            else:
                least = _minima((held[VECTORS] >> 4) & 0x0F0F0F0F, s_at + 32, inside, W, WHOLE, DOT)
                least += _minima((held[VECTORS + 1] >> 4) & 0x0F0F0F0F, s_at + 64, inside, W, WHOLE, DOT)
            total -= least.to(tl.float32) * (half_of(tail, 1) * d)
    return total


@triton.jit
def _words(at, there, ALWAYS: tl.constexpr, DOT: tl.constexpr):
    """Four words of activations. By assembly, which Triton's pipeliner leaves where it is: it would take them through shared memory as it does w."""
    if DOT == "mma":
        if ALWAYS:
            words = tl.inline_asm_elementwise(_LOAD, _LOAD_REGISTERS, [at.to(tl.int64)], tl.int32, False, 4)
        else:
            words = tl.inline_asm_elementwise(_LOAD_IF, _LOAD_IF_REGISTERS, [at.to(tl.int64), there.to(tl.int32)], tl.int32, False, 4)
    else:
        words = tl.load(at, mask=there, other=0)
    return words


@triton.jit
def _two(at, there, ALWAYS: tl.constexpr, DOT: tl.constexpr):
    """Two words of activations, twice."""
    if DOT == "mma":
        if ALWAYS:
            words = tl.inline_asm_elementwise(_LOAD2, _LOAD_REGISTERS, [at.to(tl.int64)], tl.int32, False, 4)
        else:
            words = tl.inline_asm_elementwise(_LOAD2_IF, _LOAD_IF_REGISTERS, [at.to(tl.int64), there.to(tl.int32)], tl.int32, False, 4)
    else:
        words = tl.load(at, mask=there, other=0)
    return words


@triton.jit
def _pair(low, high, x, W: tl.constexpr, DOT: tl.constexpr):
    """The dots of two units' 32 columns."""
    if DOT == "mma":
        first, second = tl.inline_asm_elementwise(_PAIR, _PAIR_REGISTERS, [low, high, x], (tl.int32, tl.int32), True, 4)
    else:
        even, odd = by_unit(x, W)
        first = plain_dots(low, even, 0, W) + plain_dots(low, even, 1, W)
        second = plain_dots(high, odd, 0, W) + plain_dots(high, odd, 1, W)
    return first, second


@triton.jit
def _quad(low, high, x, W: tl.constexpr, DOT: tl.constexpr):
    """The dots of two units' halves of 16 columns."""
    if DOT == "mma":
        first, second, third, fourth = tl.inline_asm_elementwise(
            _QUAD, _QUAD_REGISTERS, [low, high, x], (tl.int32, tl.int32, tl.int32, tl.int32), True, 4
        )
    else:
        even, odd = by_unit(x, W)
        first, second = plain_dots(low, even, 0, W), plain_dots(low, even, 1, W)
        third, fourth = plain_dots(high, odd, 0, W), plain_dots(high, odd, 1, W)
    return first, second, third, fourth


@triton.jit
def _minima(least, s_at, inside, W: tl.constexpr, WHOLE: tl.constexpr, DOT: tl.constexpr):
    """Sum of eight minima of a row, bytes in two words, times the int16 sums of a token's activations in their groups."""
    first, second = _words(s_at, inside, WHOLE, DOT), _words(s_at + 4, inside, WHOLE, DOT)
    if DOT == "mma":
        added = tl.inline_asm_elementwise(_MINIMA, _MINIMA_REGISTERS, [least, first, second], tl.int32, True, 4)
    else:
        word = tl.arange(0, 2)[None, None, None, :]
        rows = tl.reshape(least, (32, W, 2, 2))
        added = tl.zeros((32, W, 4), tl.int32)
        for i in tl.static_range(8):
            # byte i of a row, and the i-th sum of each token, both as [32, W, 2]
            byte = tl.sum(tl.where(word == i // 4, (rows >> (i % 4 * 8)) & 255, 0), 3)
            mine = tl.arange(0, 4)[None, None, :] == i // 2
            sums = tl.join(
                tl.sum(tl.where(mine, (first << (16 - i % 2 * 16)) >> 16, 0), 2), tl.sum(tl.where(mine, (second << (16 - i % 2 * 16)) >> 16, 0), 2)
            )
            added += of_rows(byte, W) * of_columns(sums, W)
    return added


@triton.jit
def plain_dots(a, x, HALF: tl.constexpr, W: tl.constexpr):
    """One half's 16 columns of a[32, W, 4], as the matrix unit adds them up, with x[32, W, 2]."""
    half = tl.arange(0, 2)
    rows = tl.sum(tl.where(half[None, None, None, None, :] == HALF, tl.reshape(a, (8, 4, W, 2, 2)), 0), 4)
    tokens = tl.sum(tl.where(half[None, None, None, :] == HALF, tl.reshape(x, (8, 4, W, 2)), 0), 3)
    dots = tl.zeros((8, 8, W, 2), tl.int32)  # row, token, warp, half of the rows
    for j in tl.static_range(4):
        one, other = byte_of(rows, j, True)[:, None, :, :, :], byte_of(tokens, j, True)[None, :, :, :, None]
        dots += tl.sum(one * other, 2)
    placed = tl.permute(tl.reshape(dots, (8, 4, 2, W, 2)), (0, 1, 3, 4, 2))
    return tl.reshape(placed, (32, W, 4))
