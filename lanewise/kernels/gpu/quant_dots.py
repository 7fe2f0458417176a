"""One token of a packed tile by 4-way dots of lanes: dp4a of NVIDIA, v_dot4 of AMD, or plain arithmetic where there is neither.

Word 2h + p of lane 4g + c stays what it is in the tile: a part of row 8h + g, which the lanes of a row add up at the very end.
"""

import triton
import triton.language as tl

from lanewise.kernels.gpu.quant_codes import by_unit, byte_of, codes, half_of, of_columns, of_rows, pair_of, scale_word


@triton.jit
def dots_tile(total, held, w_at, block, blocks, token, m, xq, xd, xs, lane, element,
              VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
              W: tl.constexpr, WHOLE: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """total[32, W, 4] + the products of a tile with a token, blocks side by side over W. Minima of eight units go to the eight words of a row."""
    c, p = lane % 4, element % 2
    # in the place of a token that does not exist stands the last one, whose second result nobody stores
    token = tl.minimum(token, m - 1)
    inside = block < blocks
    at, mine = token // 8 * blocks + block, token % 8
    x_at = xq + (at * 512 + mine * 16 + c * 4 + element)
    exact = tl.zeros((32, W, 4), tl.int32)
    FLOAT: tl.constexpr = SCALE == "half" or SCALE == "half+min"
    d_at = at * (64 if FLOAT else 8) + mine * (2 if FLOAT else 1)
    for i in tl.static_range(4):
        low, high = codes(held, i, CODE, DOT)
        even, odd = by_unit(_loaded(x_at + 128 * i, inside, WHOLE), W)
        first, second = _dot4(low, of_columns(even, W), DOT), _dot4(high, of_columns(odd, W), DOT)
        if GROUP == 16:
            scales = scale_word(held, VECTORS, i, W)
            if SCALE == "nibbles+min":
                scales = scales & 0x0F0F0F0F
            # of a word's four bytes the lower two are those of the first unit's halves
            exact += byte_of(scales >> (8 * p), 0, SCALE == "bytes") * first
            exact += byte_of(scales >> (8 * p), 2, SCALE == "bytes") * second
        elif not FLOAT:
            scales = scale_word(held, VECTORS, i // 2, W)
            exact += byte_of(scales, i % 2 * 2, SCALE == "bytes") * first
            exact += byte_of(scales, i % 2 * 2 + 1, SCALE == "bytes") * second
        else:
            scales = scale_word(held, VECTORS, i, W)
            d_of = xd + (d_at + 16 * i)
            total += first.to(tl.float32) * (half_of(scales, 0) * (1 / (1 << SHIFT)) * _loaded(d_of, inside, WHOLE))
            total += second.to(tl.float32) * (half_of(scales, 1) * (1 / (1 << SHIFT)) * _loaded(d_of + 1, inside, WHOLE))
    if SCALE == "half+min":
        # word c of a row's four
        even, odd = pair_of(tl.where(c < 2, held[VECTORS + 2], held[VECTORS + 3]), W)
        least = half_of(of_rows(tl.where(c % 2 == 0, even, odd), W) >> (16 * p), 0)
        total += least * _loaded(xs + (d_at + c * 16 + p), inside, WHOLE)
    if not FLOAT:
        d = _loaded(xd + d_at, inside, WHOLE)
        tail = of_rows(held[VECTORS + SCALES], W)
        total += exact.to(tl.float32) * (half_of(tail, 0) * (1 / (1 << SHIFT)) * d)
        sums_at = xs + (at * 96 + mine * 4)
        if SCALE == "bytes+min":
            even, odd = pair_of(held[VECTORS + 1], W)
            least = byte_of(of_rows(tl.where(c < 2, even, odd), W) >> (c % 2 * 16 + p * 8), 0, False)
            added = least * _int16(_loaded(sums_at + c, inside, WHOLE) >> (16 * p))
            total -= added.to(tl.float32) * (half_of(tail, 1) * d)
        if SCALE == "nibbles+min":
            even, odd = pair_of(tl.where(c < 2, held[VECTORS], held[VECTORS + 1]), W)
            least = of_rows(tl.where(c % 2 == 0, even, odd), W) >> (16 * p + 4)
            sums = _loaded(sums_at + (32 + c // 2 * 32 + c % 2 * 2 + p), inside, WHOLE)
            added = (least & 15) * _int16(sums) + ((least >> 8) & 15) * (sums >> 16)
            total -= added.to(tl.float32) * (half_of(tail, 1) * d)
    return total


@triton.jit
def load_no_earlier(total, DOT: tl.constexpr):
    """The same. What is loaded behind this stays there: LLVM would load all of it first, and not have the registers."""
    if DOT == "iu8" or DOT == "i8" or DOT == "i8 and wait":
        total = tl.inline_asm_elementwise("; $0", "=v,0", [total], tl.float32, False, 1)
    return total


@triton.jit
def _loaded(at, inside, WHOLE: tl.constexpr):
    if WHOLE:
        words = tl.load(at)
    else:
        words = tl.load(at, mask=inside, other=0)
    return words


@triton.jit
def _int16(word):
    """The lower half of a word."""
    return (word << 16) >> 16


@triton.jit
def _dot4(a, x, DOT: tl.constexpr):
    """The four products of the signed bytes of two words, added up.

    gfx11 and later have the iu8 form alone, whose operands are unsigned unless neg_lo says otherwise. Behind inline assembly the compiler cannot see
    a dot, so that what has to be waited for on wave64 targets before its result is read is part of the text.
    """
    a, x = tl.broadcast(a, x)
    if DOT == "dp4a":
        dots = tl.inline_asm_elementwise("dp4a.s32.s32 $0, $1, $2, 0;", "=r,r,r", [a, x], tl.int32, True, 1)
    elif DOT == "iu8":
        dots = tl.inline_asm_elementwise("v_dot4_i32_iu8 $0, $1, $2, 0 neg_lo:[1,1,0]", "=v,v,v", [a, x], tl.int32, True, 1)
    elif DOT == "i8":
        dots = tl.inline_asm_elementwise("v_dot4_i32_i8 $0, $1, $2, 0", "=v,v,v", [a, x], tl.int32, True, 1)
    elif DOT == "i8 and wait":
        dots = tl.inline_asm_elementwise(
            "v_dot4_i32_i8 $0, $4, $8, 0\nv_dot4_i32_i8 $1, $5, $9, 0\nv_dot4_i32_i8 $2, $6, $10, 0\nv_dot4_i32_i8 $3, $7, $11, 0\ns_nop 2",
            "=&v,=&v,=&v,=&v,v,v,v,v,v,v,v,v", [a, x], tl.int32, True, 4)  # fmt: skip
    else:
        dots = byte_of(a, 0, True) * byte_of(x, 0, True)
        for j in tl.static_range(1, 4):
            dots += byte_of(a, j, True) * byte_of(x, j, True)
    if DOT != "dp4a":
        dots = (dots << 8) >> 8  # no change, by which LLVM knows that it fits into 24 bits, and multiplies it four times as fast
    return dots
