"""From a packed tile's words to signed bytes and scales: what both bodies of the quantized kernels begin with.

Tensors are [32 lanes, warps, 4 words]: of a tile (`quant_layout.py`) word e = 2h + p of lane 4g + c has row 8h + g. Everything here is elementwise,
so that it happens in the registers that a tile was loaded into.
"""

import triton
import triton.language as tl

# IQ4's sixteen values (ggml-common.h, kvalues_iq4nl) as bytes, four a word, and as two of 64 bits.
_T0 = tl.constexpr(int.from_bytes(bytes(v & 255 for v in (-127, -104, -83, -65)), "little", signed=True))
_T1 = tl.constexpr(int.from_bytes(bytes(v & 255 for v in (-49, -35, -22, -10)), "little", signed=True))
_T2 = tl.constexpr(int.from_bytes(bytes((1, 13, 25, 38)), "little", signed=True))
_T3 = tl.constexpr(int.from_bytes(bytes((53, 69, 89, 113)), "little", signed=True))
_LOWER = tl.constexpr(int.from_bytes(bytes(v & 255 for v in (-127, -104, -83, -65, -49, -35, -22, -10)), "little", signed=True))
_UPPER = tl.constexpr(int.from_bytes(bytes((1, 13, 25, 38, 53, 69, 89, 113)), "little", signed=True))


@triton.jit
def held_tile(w_at, lane, element, inside, RECORD: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr,
              WHOLE: tl.constexpr):  # fmt: skip
    """A tile's vectors, [32, warps, 4] each, its scale vectors, the same for the four lanes of a row, and its tail, [32, warps, 2 h]."""
    half = tl.arange(0, 2)[None, None, :]
    held = ()
    for v in tl.static_range(VECTORS):
        at = w_at + (v * 128 + lane * 4 + element)
        if WHOLE:
            held = held + (tl.load(at),)
        else:
            held = held + (tl.load(at, mask=inside, other=0),)
    for v in tl.static_range(SCALES):
        at = w_at + (VECTORS * 128 + v * 32 + lane // 4 * 4 + element)
        if WHOLE:
            held = held + (tl.load(at),)
        else:
            held = held + (tl.load(at, mask=inside, other=0),)
    REST: tl.constexpr = VECTORS * 128 + SCALES * 32
    if TAIL == 16:
        at = w_at + (REST + lane // 4 * 2 + half)
        if WHOLE:
            held = held + (tl.load(at),)
        else:
            held = held + (tl.load(at, mask=inside, other=0),)
    if TAIL == 8:
        at = (w_at + REST).to(tl.pointer_type(tl.int16)) + (lane // 4 * 2 + half)
        if WHOLE:
            held = held + (tl.load(at).to(tl.int32),)
        else:
            held = held + (tl.load(at, mask=inside, other=0).to(tl.int32),)
    return held


@triton.jit
def codes(held, PAIR: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr):
    """The signed bytes of units 2 PAIR and 2 PAIR + 1; `quant_layout.py` says how many times too large they are."""
    if CODE == "s8":
        low, high = held[2 * PAIR], held[2 * PAIR + 1]
    elif CODE == "iq4":
        low, high = _looked_up(held[PAIR], DOT)
    elif CODE == "u2":
        low = (held[PAIR // 2] >> (4 * (PAIR % 2))) & 0x03030303
        high = (held[PAIR // 2] >> (4 * (PAIR % 2) + 2)) & 0x03030303
    elif CODE == "s3":
        low = _moved(held[PAIR // 2], 5 - 4 * (PAIR % 2)) & 0x60606060 | (held[2] << (7 - 2 * PAIR)) & -0x7F7F7F80
        high = _moved(held[PAIR // 2], 3 - 4 * (PAIR % 2)) & 0x60606060 | (held[2] << (6 - 2 * PAIR)) & -0x7F7F7F80
    elif CODE == "s4":
        low, high = (held[PAIR] << 4) & -0x0F0F0F10, held[PAIR] & -0x0F0F0F10
    elif CODE == "s5":
        low = (held[PAIR] << 3) & 0x78787878 | (held[4] << (7 - 2 * PAIR)) & -0x7F7F7F80
        high = (held[PAIR] >> 1) & 0x78787878 | (held[4] << (6 - 2 * PAIR)) & -0x7F7F7F80
    elif CODE == "s6":
        low = (held[PAIR] << 2) & 0x3C3C3C3C | (held[4 + PAIR // 2] << (6 - 4 * (PAIR % 2))) & -0x3F3F3F40
        high = (held[PAIR] >> 2) & 0x3C3C3C3C | (held[4 + PAIR // 2] << (4 - 4 * (PAIR % 2))) & -0x3F3F3F40
    else:
        low, high = held[PAIR] & 0x0F0F0F0F, (held[PAIR] >> 4) & 0x0F0F0F0F
        if CODE == "u5":
            low = low | _moved(held[4], 4 - 2 * PAIR) & 0x10101010
            high = high | _moved(held[4], 3 - 2 * PAIR) & 0x10101010
    return low, high


@triton.jit
def _moved(word, LEFT: tl.constexpr):
    """Shifted to the left, or where that is negative to the right."""
    if LEFT >= 0:
        moved = word << LEFT
    else:
        moved = word >> -LEFT
    return moved


@triton.jit
def _looked_up(word, DOT: tl.constexpr):
    """The values of a word's eight nibbles, four a word."""
    if DOT == "mma" or DOT == "dp4a":
        low = _permuted_nibbles(word)
        high = _permuted_nibbles(word >> 16)
    elif DOT == "plain":
        low, high = _picked(word), _picked(word >> 16)
    else:
        low, high = _permuted_bytes(word), _permuted_bytes(word >> 16)
    return low, high


@triton.jit
def _permuted_nibbles(word):
    """By PTX's prmt: a nibble's lower three bits choose in either half of the table, its fourth chooses the half."""
    return tl.inline_asm_elementwise(
        "{ .reg .b32 s, l, h;\nand.b32 s, $1, 0x7777;\nprmt.b32 l, $2, $3, s;\nprmt.b32 h, $4, $5, s;\n"
        "and.b32 s, $1, 0x8888;\nshr.u32 s, s, 1;\nor.b32 s, s, 0x3210;\nprmt.b32 $0, l, h, s; }",
        "=r,r,r,r,r,r", [word, _T0, _T1, _T2, _T3], tl.int32, True, 1)  # fmt: skip


@triton.jit
def _permuted_bytes(word):
    """By AMD's v_perm_b32, which takes a byte for each choice: bytes 0 to 3 of its second operand, 4 to 7 are the first's."""
    spread = (word & 0xFFFF | word << 8) & 0x00FF00FF
    spread = (spread | spread << 4) & 0x0F0F0F0F
    index = spread & 0x07070707
    low, high = _perm(_T1, _T0, index), _perm(_T3, _T2, index)
    return _perm(high, low, (spread & 0x08080808) >> 1 | 0x03020100)


@triton.jit
def _perm(first, second, choice):
    return tl.inline_asm_elementwise("v_perm_b32 $0, $1, $2, $3", "=v,v,v,v", [first, second, choice], tl.int32, True, 1)


@triton.jit
def _picked(word):
    """The same where there is no such instruction."""
    values = word & 0
    for j in tl.static_range(4):
        index = (word >> (4 * j)) & 15
        table = tl.where(index < 8, index.to(tl.int64) * 0 + _LOWER, index.to(tl.int64) * 0 + _UPPER)
        values = values | ((table >> (8 * (index & 7)).to(tl.int64)) & 255).to(tl.int32) << (8 * j)
    return values


@triton.jit
def of_rows(words, W: tl.constexpr):
    """[32, W, 2 h] to [32, W, 4]: a row's word for both elements of the row."""
    return tl.reshape(tl.broadcast_to(words[:, :, :, None], (32, W, 2, 2)), (32, W, 4))


@triton.jit
def of_columns(words, W: tl.constexpr):
    """[32, W, 2] to [32, W, 4]: the same two for both rows."""
    return tl.reshape(tl.broadcast_to(words[:, :, None, :], (32, W, 2, 2)), (32, W, 4))


@triton.jit
def pair_of(words, W: tl.constexpr):
    """[32, W, 2 x 2] to its even and its odd words."""
    return tl.split(tl.reshape(words, (32, W, 2, 2)))


@triton.jit
def by_unit(x, W: tl.constexpr):
    """x[32, W, 2 units x 2 halves] to the two units', [32, W, 2]."""
    return tl.split(tl.permute(tl.reshape(x, (32, W, 2, 2)), (0, 1, 3, 2)))


@triton.jit
def scale_word(held, FIRST: tl.constexpr, NUMBER: tl.constexpr, W: tl.constexpr):
    """Word NUMBER of a row's scales, which begin in scale vector held[FIRST]: two of each vector are a row's."""
    even, odd = pair_of(held[FIRST + NUMBER // 2], W)
    if NUMBER % 2:
        word = of_rows(odd, W)
    else:
        word = of_rows(even, W)
    return word


@triton.jit
def byte_of(word, NUMBER: tl.constexpr, SIGNED: tl.constexpr):
    """One of a word's bytes, as int32."""
    if SIGNED:
        value = (word << (24 - 8 * NUMBER)) >> 24
    else:
        value = (word >> (8 * NUMBER)) & 255
    return value


@triton.jit
def half_of(word, UPPER: tl.constexpr):
    """The lower or upper fp16 of a word, in float32."""
    if UPPER:
        word = word >> 16
    return (word & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
