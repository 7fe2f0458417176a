"""What kernels with one element for each thread have in common: loads, and sums over strands and warps.

A tensor of such a kernel has 32 * warps elements, 32 * warp + lane, and so one layout alone: assembly that knows its lane can rely on it. Words that
a lane holds side by side are tensors of their own.
"""

import triton
import triton.language as tl

from lanewise.kernels.gpu.quant_codes import byte_of, codes

THREADS = r"sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [\d+], order = [0]"

_STREAMED = tl.constexpr("ld.global.L1::no_allocate.v4.b32 {$0,$1,$2,$3}, [$4];")
_KEPT = tl.constexpr("ld.global.v4.b32 {$0,$1,$2,$3}, [$4];")
_ASK = "{ .reg .pred p;\nsetp.ne.s32 p, $5, 0;\nmov.b32 $0, 0;\nmov.b32 $1, 0;\nmov.b32 $2, 0;\nmov.b32 $3, 0;\n"
_STREAMED_IF = tl.constexpr(_ASK + "@p ld.global.L1::no_allocate.v4.b32 {$0,$1,$2,$3}, [$4]; }")
_KEPT_IF = tl.constexpr(_ASK + "@p ld.global.v4.b32 {$0,$1,$2,$3}, [$4]; }")


@triton.jit
def four(at, inside, WHOLE: tl.constexpr, KEPT: tl.constexpr, DOT: tl.constexpr):
    """Four words that lie together, zeros where they are not inside; KEPT: what other warps will read as well."""
    if DOT == "mma":
        if WHOLE:
            words = tl.inline_asm_elementwise(
                _KEPT if KEPT else _STREAMED, "=r,=r,=r,=r,l", [at.to(tl.int64)], (tl.int32, tl.int32, tl.int32, tl.int32), False, 1
            )
        else:
            words = tl.inline_asm_elementwise(
                _KEPT_IF if KEPT else _STREAMED_IF, "=&r,=&r,=&r,=&r,l,r", [at.to(tl.int64), inside.to(tl.int32)],
                (tl.int32, tl.int32, tl.int32, tl.int32), False, 1)  # fmt: skip
    else:
        words = ()
        for e in tl.static_range(4):
            words = words + (word(at + e, inside, WHOLE),)
    return words


@triton.jit
def word(at, inside, WHOLE: tl.constexpr):
    if WHOLE:
        value = tl.load(at)
    else:
        value = tl.load(at, mask=inside, other=0)
    return value


@triton.jit
def codes_of(held, PAIR: tl.constexpr, VECTORS: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr):
    """The signed bytes of units 2 PAIR and 2 PAIR + 1: of each a lane's four words, from those of a tile's vectors."""
    low, high = (), ()
    for e in tl.static_range(4):
        words = ()
        for v in tl.static_range(VECTORS):
            words = words + (held[4 * v + e],)
        low_word, high_word = codes(words, PAIR, CODE, DOT)
        low, high = low + (low_word,), high + (high_word,)
    return low, high


@triton.jit
def upper(words):
    """The upper halves of a word's bytes."""
    return (words >> 4) & 0x0F0F0F0F


@triton.jit
def tree(totals, FIRST: tl.constexpr, APART: tl.constexpr, STRANDS: tl.constexpr):
    """The sums of a program's strands, totals[FIRST + APART * strand]: those that are furthest apart first, on which `over_warps` goes on."""
    if STRANDS == 8:
        a, b = totals[FIRST] + totals[FIRST + 4 * APART], totals[FIRST + 2 * APART] + totals[FIRST + 6 * APART]
        c, d = totals[FIRST + APART] + totals[FIRST + 5 * APART], totals[FIRST + 3 * APART] + totals[FIRST + 7 * APART]
        total = (a + b) + (c + d)
    elif STRANDS == 4:
        total = (totals[FIRST] + totals[FIRST + 2 * APART]) + (totals[FIRST + APART] + totals[FIRST + 3 * APART])
    elif STRANDS == 2:
        total = totals[FIRST] + totals[FIRST + APART]
    else:
        total = totals[FIRST]
    return total


@triton.jit
def over_warps(total, W: tl.constexpr):
    """The sum over the first axis, two at a time: what order a reduction of more takes is up to the layout that the compiler finds."""
    REST: tl.constexpr = total.numel // W
    if W == 8:
        total = tl.sum(tl.reshape(total, (2, 4 * REST)), 0)
    if W >= 4:
        total = tl.sum(tl.reshape(total, (2, 2 * REST)), 0)
    if W >= 2:
        total = tl.sum(tl.reshape(total, (2, REST)), 0)
    return tl.reshape(total, (REST,))


@triton.jit
def plain_dot(a, other_a, x, other_x, T: tl.constexpr, W: tl.constexpr):
    """The dot of row g's 32 columns with operand 2c + T, as the matrix unit hands it out: the first 16 columns are in a and x, in a lane's words."""
    dots = tl.zeros((W, 8, 4), tl.int32)
    for p in tl.static_range(2):
        rows = tl.reshape(a if p == 0 else other_a, (W, 8, 4))[:, :, None, :]
        columns = tl.reshape(x if p == 0 else other_x, (W, 4, 2, 4))  # operand 2c + t has the words of lanes 4 (2c + t) to 4 (2c + t) + 3
        mine = tl.sum(tl.where(tl.arange(0, 2)[None, None, :, None] == T, columns, 0), 2)[:, None, :, :]
        for j in tl.static_range(4):
            dots += tl.sum(byte_of(rows, j, True) * byte_of(mine, j, True), 3)
    return tl.reshape(dots, (32 * W,))
