"""Tokens by eight, by the int8 matrix unit (mma.sync m16n8k32 and m16n8k16: PTX ISA, sm_80 and later): decode in batches, and short prompts.

A tile is packed so that a lane's words are the unit's operands: of lane 4g + c the words of rows g and g + 8, and of token g the words that four
lanes share. What comes back are tokens 2c and 2c + 1 of both rows. Sums over the columns of one scale are exact int32, and of formats whose 256
columns have one float scale so is everything up to it.

A tensor has one element for each thread. In the interpreter (DOT "plain") the same sums in the same places come from plain arithmetic.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.kernels.gpu.lanes import _finish
from lanewise.kernels.gpu.quant_codes import byte_of, half_of
from lanewise.kernels.gpu.quant_threads import codes_of, four, over_warps, plain_dot, tree, upper, word

_K32 = tl.constexpr("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$6,$5,$7}, {$8,$9}, {0,0,0,0};")
_K32_REGISTERS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 6))
_K16 = tl.constexpr("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$5}, {$6}, {0,0,0,0};")
_K16_REGISTERS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 3))
_DP2A = tl.constexpr(
    "dp2a.lo.s32.u32 $0, $3, $1, 0;\ndp2a.hi.s32.u32 $0, $4, $1, $0;\ndp2a.lo.s32.u32 $0, $5, $2, $0;\ndp2a.hi.s32.u32 $0, $6, $2, $0;"
)


@triton.jit
def octets(xq, xd, xs, w, y, bias, residual, part, m, n, blocks, bias_row, bias_col, residual_row, residual_col,
           CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
           SHIFT: tl.constexpr, RECORD: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, STRANDS: tl.constexpr, AHEAD: tl.constexpr,
           TILES: tl.constexpr, WHOLE: tl.constexpr, PARTS: tl.constexpr, SPLITS: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
           GATED: tl.constexpr, PDL: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """All blocks, of a split its share, of panel program_id(0) // across for 8 * PARTS tokens; of a split as part[split, token, row]."""
    across, split = tl.cdiv(m, 8 * PARTS), tl.program_id(1)  # tokens side by side: their panel is in the cache
    panel, first_token = tl.program_id(0) // across, tl.program_id(0) % across * (8 * PARTS)
    thread = tl.arange(0, 32 * W)
    lane, side = thread % 32, thread // 32 * SPLITS + split
    STEP: tl.constexpr = W * SPLITS
    g = lane // 4
    w_at = w + (tl.cast(panel, tl.int64) * blocks + side) * RECORD
    w_at = (w_at + lane * 4, w_at + (VECTORS * 128 + g * 4), w_at + (VECTORS * 128 + SCALES * 32 + g * (TAIL // 8)))
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    held = ()
    for i in tl.static_range(AHEAD):
        held = held + _held_w(w_at, i * STEP, side, blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
    if PDL and EARLY:
        gdc_wait()
    x = _held_x(xq, xd, xs, side, blocks, first_token, m, lane, SCALE, WHOLE, DOT)
    totals = ()
    for _ in tl.static_range(STRANDS * PARTS * 4):
        totals = totals + (tl.zeros((32 * W,), tl.float32),)
    OF_W: tl.constexpr = 4 * VECTORS + 4 * SCALES + TAIL // 8
    for i in tl.static_range(TILES):
        if i + AHEAD < TILES:
            held = held + _held_w(w_at, (i + AHEAD) * STEP, side, blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
        tile = ()
        for v in tl.static_range(OF_W):
            tile = tile + (held[i * OF_W + v],)
        for t in tl.static_range(PARTS):
            later = x
            if t + 1 < PARTS:  # on its way while this one is multiplied
                later = _held_x(xq, xd, xs, i * STEP + side, blocks, first_token + 8 * (t + 1), m, lane, SCALE, WHOLE, DOT)
            elif i + 1 < TILES:
                later = _held_x(xq, xd, xs, (i + 1) * STEP + side, blocks, first_token, m, lane, SCALE, WHOLE, DOT)
            totals = _strand(totals, (i % STRANDS * PARTS + t) * 4, STRANDS * PARTS * 4, tile, x, VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT,
                             TAIL, W, DOT)  # fmt: skip
            x = later
    for t in tl.static_range(PARTS):
        token = tl.cast(first_token, tl.int64) + (8 * t + tl.arange(0, 8)[:, None])
        y_rows = _gathered(totals, t, PARTS, STRANDS, W, GATED)
        if SPLITS > 1:
            rows = panel.to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
            tl.store(part + (split * tl.cast(m, tl.int64) + token) * (tl.num_programs(0) // across * 16) + rows, y_rows, mask=token < m)
        else:
            _finish(y_rows, token, token < m, panel, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
                    8, 16, BIAS, RESIDUAL, GATED)  # fmt: skip


@triton.jit
def _strand(totals, FIRST: tl.constexpr, ALL: tl.constexpr, held, x, VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr,
            SCALE: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr, TAIL: tl.constexpr, W: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """All totals, to four of which a tile is added."""
    mine = (totals[FIRST], totals[FIRST + 1], totals[FIRST + 2], totals[FIRST + 3])
    mine = _tile(mine, held, x, VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, TAIL, W, DOT)
    more = ()
    for v in tl.static_range(ALL):
        more = more + (mine[v - FIRST] if v >= FIRST and v < FIRST + 4 else totals[v],)
    return more


@triton.jit
def _held_w(at, BLOCK: tl.constexpr, side, blocks, RECORD: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr,
            WHOLE: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """A tile's words of a lane: four of each vector, four of each scale vector, which are its two rows', and their tails."""
    inside, held = BLOCK + side < blocks, ()
    for v in tl.static_range(VECTORS):
        held = held + four(at[0] + (BLOCK * RECORD + v * 128), inside, WHOLE, False, DOT)
    for v in tl.static_range(SCALES):
        held = held + four(at[1] + (BLOCK * RECORD + v * 32), inside, WHOLE, False, DOT)
    for v in tl.static_range(TAIL // 8):
        held = held + (word(at[2] + (BLOCK * RECORD + v), inside, WHOLE),)
    return held


@triton.jit
def _held_x(xq, xd, xs, block, blocks, first_token, m, lane, SCALE: tl.constexpr, WHOLE: tl.constexpr, DOT: tl.constexpr):
    """What a lane needs of 8 tokens' activations for a block: the words of token g, and scales and sums of tokens 2c and 2c + 1."""
    c = lane % 4
    at, inside = first_token // 8 * blocks + block, block < blocks
    # what stands in the place of a token that does not exist reaches its own results alone, which nobody stores
    there, held = inside & (first_token + lane // 4 < m), ()
    for i in tl.static_range(4):
        held = held + four(xq + (at * 512 + i * 128 + lane * 4), there, False, True, DOT)
    if SCALE == "half" or SCALE == "half+min":
        for i in tl.static_range(4):
            held = held + four(xd.to(tl.pointer_type(tl.int32)) + (at * 64 + i * 16 + c * 4), inside, WHOLE, True, DOT)
        if SCALE == "half+min":
            for i in tl.static_range(4):
                held = held + four(xs.to(tl.pointer_type(tl.int32)) + (at * 64 + i * 16 + c * 4), inside, WHOLE, True, DOT)
    else:
        for t in tl.static_range(2):
            held = held + (word(xd + (at * 8 + 2 * c + t), inside, WHOLE),)
        if SCALE == "bytes+min":
            held = held + four(xs + (at * 96 + c * 8), inside, WHOLE, True, DOT) + four(xs + (at * 96 + c * 8 + 4), inside, WHOLE, True, DOT)
        elif SCALE == "nibbles+min":
            for i in tl.static_range(1, 3):
                for t in tl.static_range(2):
                    held = held + four(xs + (at * 96 + 32 * i + c * 8 + 4 * t), inside, WHOLE, True, DOT)
    return held


@triton.jit
def _tile(totals, held, x, VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
          SHIFT: tl.constexpr, TAIL: tl.constexpr, W: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """Four totals, of rows g and 8 + g and in each of tokens 2c and 2c + 1, + the products of a tile with eight tokens."""
    WORDS: tl.constexpr = 4 * VECTORS  # where scales begin
    FLOAT: tl.constexpr = SCALE == "half" or SCALE == "half+min"
    zero = x[0] * 0
    exact = (zero, zero, zero, zero)
    for i in tl.static_range(4):
        low, high = codes_of(held, i, VECTORS, CODE, DOT)
        if GROUP == 16:
            dots = (_sixteen(low[0], low[2], x[4 * i], W, DOT), _sixteen(low[1], low[3], x[4 * i + 1], W, DOT),
                    _sixteen(high[0], high[2], x[4 * i + 2], W, DOT), _sixteen(high[1], high[3], x[4 * i + 3], W, DOT))  # fmt: skip
            for j in tl.static_range(4):
                more = ()
                for e in tl.static_range(4):
                    scales = held[WORDS + i // 2 * 4 + e // 2 * 2 + i % 2]
                    if SCALE == "nibbles+min":
                        scales = scales & 0x0F0F0F0F
                    more = more + (exact[e] + byte_of(scales, j, SCALE == "bytes") * dots[j][e],)
                exact = more
        else:
            dots = (_thirty_two(low, x[4 * i], x[4 * i + 1], W, DOT), _thirty_two(high, x[4 * i + 2], x[4 * i + 3], W, DOT))
            for j in tl.static_range(2):
                more = ()
                for e in tl.static_range(4):
                    if FLOAT:
                        scale = half_of(held[WORDS + i // 2 * 4 + e // 2 * 2 + i % 2], j) * (1 / (1 << SHIFT))
                        d = x[16 + 4 * i + e % 2 * 2 + j].to(tl.float32, bitcast=True)
                        more = more + (totals[e] + dots[j][e].to(tl.float32) * (scale * d),)
                    else:
                        scale = byte_of(held[WORDS + e // 2 * 2 + i // 2], i % 2 * 2 + j, SCALE == "bytes")
                        more = more + (exact[e] + scale * dots[j][e],)
                if FLOAT:
                    totals = more
                else:
                    exact = more
            if SCALE == "half+min":
                for j in tl.static_range(2):
                    more = ()
                    for e in tl.static_range(4):
                        least = half_of(held[WORDS + 8 + i // 2 * 4 + e // 2 * 2 + i % 2], j)
                        more = more + (totals[e] + least * x[32 + 4 * i + e % 2 * 2 + j].to(tl.float32, bitcast=True),)
                    totals = more
    if not FLOAT:
        more = ()
        for e in tl.static_range(4):
            more = more + (_scaled(totals[e], exact[e], e, held, x, WORDS, SCALES, SCALE, SHIFT, TAIL, DOT),)
        totals = more
    return totals


@triton.jit
def _scaled(total, exact, E: tl.constexpr, held, x, WORDS: tl.constexpr, SCALES: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr,
            TAIL: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """total + what a tile's one float scale of a row, and its scale of minima, make of its integers."""
    ROW: tl.constexpr = E // 2
    S: tl.constexpr = 18 + E % 2 * 4
    V: tl.constexpr = WORDS + ROW * 2
    if TAIL == 16:
        tail = held[WORDS + 4 * SCALES + ROW]
    else:
        tail = held[WORDS + 4 * SCALES] >> (ROW * 16)
    d = x[16 + E % 2]
    total += exact.to(tl.float32) * (half_of(tail, 0) * (1 / (1 << SHIFT)) * d)
    if SCALE == "bytes+min":
        least = _minima(held[V + 4], held[V + 5], x[S], x[S + 1], x[S + 2], x[S + 3], DOT)
        total -= least.to(tl.float32) * (half_of(tail, 1) * d)
    elif SCALE == "nibbles+min":
        least = _minima(upper(held[V]), upper(held[V + 1]), x[S], x[S + 1], x[S + 2], x[S + 3], DOT)
        least += _minima(upper(held[V + 4]), upper(held[V + 5]), x[S + 8], x[S + 9], x[S + 10], x[S + 11], DOT)
        total -= least.to(tl.float32) * (half_of(tail, 1) * d)
    return total


@triton.jit
def _thirty_two(a, x, other_x, W: tl.constexpr, DOT: tl.constexpr):
    """The dots of a unit's 32 columns."""
    if DOT == "mma":
        dots = tl.inline_asm_elementwise(
            _K32, _K32_REGISTERS, [a[0], a[1], a[2], a[3], x, other_x], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
        )
    else:
        dots = (plain_dot(a[0], a[1], x, other_x, 0, W), plain_dot(a[0], a[1], x, other_x, 1, W),
                plain_dot(a[2], a[3], x, other_x, 0, W), plain_dot(a[2], a[3], x, other_x, 1, W))  # fmt: skip
    return dots


@triton.jit
def _sixteen(a, other_row, x, W: tl.constexpr, DOT: tl.constexpr):
    """The dots of a unit's half of 16 columns."""
    if DOT == "mma":
        dots = tl.inline_asm_elementwise(_K16, _K16_REGISTERS, [a, other_row, x], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1)
    else:
        dots = (plain_dot(a, a * 0, x, x, 0, W), plain_dot(a, a * 0, x, x, 1, W),
                plain_dot(other_row, a * 0, x, x, 0, W), plain_dot(other_row, a * 0, x, x, 1, W))  # fmt: skip
    return dots


@triton.jit
def _minima(least, next_least, first, second, third, fourth, DOT: tl.constexpr):
    """Eight minima of a row, the bytes of two words, times eight int16 sums of a token, two in a word."""
    if DOT == "mma":
        added = tl.inline_asm_elementwise(_DP2A, "=&r,r,r,r,r,r,r", [least, next_least, first, second, third, fourth], tl.int32, True, 1)
    else:
        sums = (first, second, third, fourth)
        added = first * 0
        for i in tl.static_range(4):
            words = least if i < 2 else next_least
            added += byte_of(words, i % 2 * 2, False) * ((sums[i] << 16) >> 16) + byte_of(words, i % 2 * 2 + 1, False) * (sums[i] >> 16)
    return added


@triton.jit
def _gathered(totals, PART: tl.constexpr, PARTS: tl.constexpr, STRANDS: tl.constexpr, W: tl.constexpr, GATED: tl.constexpr):
    """[8 tokens, 16 rows]; gated rows come in pairs of a gate and its up."""
    APART: tl.constexpr = PARTS * 4
    row = tl.join(tree(totals, 4 * PART, APART, STRANDS), tree(totals, 4 * PART + 1, APART, STRANDS))
    other = tl.join(tree(totals, 4 * PART + 2, APART, STRANDS), tree(totals, 4 * PART + 3, APART, STRANDS))
    total = tl.reshape(over_warps(tl.join(row, other), W), (8, 4, 2, 2))  # g, c, token, row
    if GATED:
        rows = tl.permute(total, (1, 2, 0, 3))
    else:
        rows = tl.permute(total, (1, 2, 3, 0))
    return tl.reshape(rows, (8, 16))
