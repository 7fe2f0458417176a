"""One token of a packed tile by 4-way dots of lanes: dp4a of NVIDIA, v_dot4 of AMD, or plain arithmetic where there is neither.

Word 2h + p of lane 4g + c stays what it is in the tile: a part of row 8h + g, which the lanes of a row add up at the very end.
"""

import triton
import triton.language as tl

from lanewise.kernels.gpu.quant_codes import byte_of, codes, half_of, of_rows, scale_word


@triton.jit
def dots_tile(total, held, w_at, block, blocks, token, m, xq, xd, xs, lane, element,
              VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
              W: tl.constexpr, WHOLE: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """total[32, W, 4] + the products of a tile with a token, blocks side by side over W. Minima of eight units go to the eight words of a row."""
    c, p = lane % 4, element % 2
    there = token < m
    if not WHOLE:
        there = there & (block < blocks)
    at, mine = token // 8 * blocks + block, token % 8
    x_at = xq + (at * 512 + mine * 16 + c * 4 + p)
    exact = tl.zeros((32, W, 4), tl.int32)
    FLOAT: tl.constexpr = SCALE == "half" or SCALE == "half+min"
    d_at = at * (64 if FLOAT else 8) + mine * (2 if FLOAT else 1)
    for i in tl.static_range(4):
        low, high = codes(held, i, CODE, DOT)
        first = _dot4(low, tl.load(x_at + 128 * i, mask=there, other=0), DOT)
        second = _dot4(high, tl.load(x_at + (128 * i + 2), mask=there, other=0), DOT)
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
            total += first.to(tl.float32) * (half_of(scales, 0) * (1 / (1 << SHIFT)) * tl.load(d_of, mask=there, other=0.0))
            total += second.to(tl.float32) * (half_of(scales, 1) * (1 / (1 << SHIFT)) * tl.load(d_of + 1, mask=there, other=0.0))
    row = lane // 4 * 16 + element // 2 * 8
    if SCALE == "half+min":
        least_at = (w_at + (VECTORS * 128 + 64 + c // 2 * 32)).to(tl.pointer_type(tl.int16)) + (lane // 4 * 8 + element // 2 * 4 + c % 2 * 2 + p)
        least = half_of(tl.load(least_at, mask=there, other=0).to(tl.int32), 0)
        total += least * tl.load(xs + (d_at + (c * 16 + p)), mask=there, other=0.0)
    if not FLOAT:
        d = tl.load(xd + d_at, mask=there, other=0.0)
        tail = of_rows(held[VECTORS + SCALES], W)
        total += exact.to(tl.float32) * (half_of(tail, 0) * (1 / (1 << SHIFT)) * d)
        sums = xs.to(tl.pointer_type(tl.int16)) + (at * 192 + mine * 8)
        bytes_at = (w_at + VECTORS * 128).to(tl.pointer_type(tl.int8))
        if SCALE == "bytes+min":
            least = tl.load(bytes_at + (128 + row + c * 2 + p), mask=there, other=0).to(tl.int32) & 255
            added = least * tl.load(sums + (c * 2 + p), mask=there, other=0).to(tl.int32)
            total -= added.to(tl.float32) * (half_of(tail, 1) * d)
        if SCALE == "nibbles+min":
            added = tl.zeros((32, W, 4), tl.int32)
            for half in tl.static_range(2):
                group = c * 4 + p * 2 + half
                least = tl.load(bytes_at + (group // 8 * 128 + row + group % 8), mask=there, other=0).to(tl.int32) >> 4 & 15
                added += least * tl.load(sums + (64 + group // 8 * 64 + group % 8), mask=there, other=0).to(tl.int32)
            total -= added.to(tl.float32) * (half_of(tail, 1) * d)
    return total


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
    return dots
