"""One token by the int8 matrix unit, for formats whose 256 columns have one float scale: the decode kernel of K quants on NVIDIA.

The unit multiplies by eight tokens, and one alone leaves seven of its columns empty. So they take the token's groups: operand t holds group t of
the token and zeros elsewhere, and what comes back in column t is the dot of group t with each row, all of them in the same registers. A lane then
scales two sums of a row where it would scale eight, and four lanes add up what they have, in int32. From there on the arithmetic, and the order of
the strands, are those of `quant_gemv.py` and `quant_mma.py`: the bits are the same.

A tensor has one element for each thread, and lane 4g + c has rows g and 8 + g.

In the interpreter (DOT "plain") the same sums in the same places come from plain arithmetic on plain loads.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.kernels.gpu.lanes import _finish
from lanewise.kernels.gpu.quant_codes import byte_of, half_of
from lanewise.kernels.gpu.quant_threads import codes_of, four, over_warps, plain_dot, tree, upper, word

_ADDED = tl.constexpr("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$6,$5,$7}, {$8,$9}, {$10,$11,$12,$13};")
_ADDED_REGISTERS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 10))


@triton.jit
def one(xq, xd, xs, w, y, bias, residual, part, n, blocks, bias_row, bias_col, residual_row, residual_col,
        CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
        SHIFT: tl.constexpr, RECORD: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, STRANDS: tl.constexpr, AHEAD: tl.constexpr,
        TILES: tl.constexpr, WHOLE: tl.constexpr, SPLITS: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
        PDL: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """All blocks, of a split its share, of panel program_id(0) for token 0; of a split as part[split, row]."""
    panel, split = tl.program_id(0), tl.program_id(1)
    thread = tl.arange(0, 32 * W)
    lane, side = thread % 32, thread // 32 * SPLITS + split
    STEP: tl.constexpr = W * SPLITS
    g, c = lane // 4, lane % 4
    REST: tl.constexpr = VECTORS * 128 + SCALES * 32
    w_at = w + (tl.cast(panel, tl.int64) * blocks + side) * RECORD
    w_at = (w_at + lane * 4, w_at + (VECTORS * 128 + g * 4 + c // 2), w_at + (REST + (g * 2 + c % 2 if TAIL == 16 else g)))
    if GROUP == 16:  # groups g and 8 + g
        x_at = xq + (side * 512 + g // 4 * 128 + c * 4 + g % 4)
    else:  # both halves of group g
        x_at = xq + (side * 512 + g // 2 * 128 + c * 4 + g % 2 * 2)
    x_at = (x_at, xd + side * 8, xs + (side * 96 + c))
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    held, x = (), ()
    for i in tl.static_range(AHEAD):
        held = held + _held_w(w_at, i * STEP, side, blocks, c, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
    if PDL and EARLY:
        gdc_wait()
    for i in tl.static_range(AHEAD):
        x = x + _held_x(x_at, i * STEP, side, blocks, GROUP, SCALE, WHOLE)
    totals = ()
    for _ in tl.static_range(STRANDS):
        totals = totals + (tl.zeros((32 * W,), tl.float32),)
    OF_W: tl.constexpr = 4 * VECTORS + 2 * SCALES + 1
    OF_X: tl.constexpr = 3 + (SCALE == "bytes+min") + 2 * (SCALE == "nibbles+min")
    for i in tl.static_range(TILES):
        if i + AHEAD < TILES:
            held = held + _held_w(w_at, (i + AHEAD) * STEP, side, blocks, c, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
            x = x + _held_x(x_at, (i + AHEAD) * STEP, side, blocks, GROUP, SCALE, WHOLE)
        tile, more = (), ()
        for v in tl.static_range(OF_W):
            tile = tile + (held[i * OF_W + v],)
        for v in tl.static_range(OF_X):
            tile = tile + (x[i * OF_X + v],)
        for s in tl.static_range(STRANDS):
            if s == i % STRANDS:
                more = more + (_tile(totals[s], tile, lane, VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, W, DOT),)
            else:
                more = more + (totals[s],)
        totals = more
    y_rows = _gathered(tree(totals, 0, 1, STRANDS), W, GATED)
    if SPLITS > 1:
        rows = panel.to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
        tl.store(part + (split * tl.cast(tl.num_programs(0), tl.int64) * 16 + rows), y_rows)
    else:
        _finish(y_rows, tl.full((1, 1), 0, tl.int64), tl.full((1, 1), True, tl.int1), panel, y, bias, residual, n, bias_row, bias_col,
                residual_row, residual_col, 1, 16, BIAS, RESIDUAL, GATED)  # fmt: skip


@triton.jit
def _held_w(at, BLOCK: tl.constexpr, side, blocks, c, RECORD: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr,
            WHOLE: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """What a lane needs of a tile: four words of each vector, of each scale vector a word for both rows, which has its groups, and the tail of the
    row that it will have."""
    inside, held = BLOCK + side < blocks, ()
    for v in tl.static_range(VECTORS):
        held = held + four(at[0] + (BLOCK * RECORD + v * 128), inside, WHOLE, False, DOT)
    for v in tl.static_range(SCALES):
        for h in tl.static_range(2):
            held = held + (word(at[1] + (BLOCK * RECORD + v * 32 + 2 * h), inside, WHOLE),)
    tail = word(at[2] + BLOCK * RECORD, inside, WHOLE)
    if TAIL == 8:
        tail = tail >> (c % 2 * 16)
    return held + (tail,)


@triton.jit
def _held_x(at, BLOCK: tl.constexpr, side, blocks, GROUP: tl.constexpr, SCALE: tl.constexpr, WHOLE: tl.constexpr):
    """What it needs of token 0's block: two words, the scale, and of formats with minima the sums of its groups."""
    inside, held = BLOCK + side < blocks, ()
    for p in tl.static_range(2):
        held = held + (word(at[0] + (BLOCK * 512 + p * (256 if GROUP == 16 else 1)), inside, WHOLE),)
    held = held + (word(at[1] + BLOCK * 8, inside, WHOLE),)
    if SCALE == "bytes+min":
        held = held + (word(at[2] + BLOCK * 96, inside, WHOLE),)
    elif SCALE == "nibbles+min":
        for i in tl.static_range(1, 3):
            held = held + (word(at[2] + (BLOCK * 96 + 32 * i), inside, WHOLE),)
    return held


@triton.jit
def _tile(total, held, lane, VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
          SHIFT: tl.constexpr, W: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """total of row 8 (c % 2) + g + the products of a tile with a token."""
    g, c = lane // 4, lane % 4
    ROWS: tl.constexpr = 4 * VECTORS  # where the words of scales begin, a row's and then the other's
    X: tl.constexpr = ROWS + 2 * SCALES + 1
    zero = lane * 0
    first, second = (zero, zero, zero, zero), (zero, zero, zero, zero)
    for i in tl.static_range(4):
        low, high = codes_of(held, i, VECTORS, CODE, DOT)
        if GROUP == 16:
            mine = held[X + i // 2]
            if i < 2:
                first = _added(first, low, tl.where(g == 4 * i % 8, mine, 0), tl.where(g == 4 * i % 8 + 1, mine, 0), W, DOT)
                first = _added(first, high, tl.where(g == 4 * i % 8 + 2, mine, 0), tl.where(g == 4 * i % 8 + 3, mine, 0), W, DOT)
            else:
                second = _added(second, low, tl.where(g == 4 * i % 8, mine, 0), tl.where(g == 4 * i % 8 + 1, mine, 0), W, DOT)
                second = _added(second, high, tl.where(g == 4 * i % 8 + 2, mine, 0), tl.where(g == 4 * i % 8 + 3, mine, 0), W, DOT)
        else:
            first = _added(first, low, tl.where(g == 2 * i, held[X], 0), tl.where(g == 2 * i, held[X + 1], 0), W, DOT)
            second = _added(second, high, tl.where(g == 2 * i + 1, held[X], 0), tl.where(g == 2 * i + 1, held[X + 1], 0), W, DOT)
    if GROUP == 16:
        exact = (
            _scaled(first, 0, held[ROWS], c, SCALE, DOT) + _scaled(second, 0, held[ROWS + 2], c, SCALE, DOT),
            _scaled(first, 1, held[ROWS + 1], c, SCALE, DOT) + _scaled(second, 1, held[ROWS + 3], c, SCALE, DOT),
        )
    else:  # where one has a unit the other has zeros
        both = (first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3])
        exact = (_scaled(both, 0, held[ROWS], c, SCALE, DOT), _scaled(both, 1, held[ROWS + 1], c, SCALE, DOT))
    tail, d = held[ROWS + 2 * SCALES], held[X + 2]
    total += _across(exact, c, W, DOT).to(tl.float32) * (half_of(tail, 0) * (1 / (1 << SHIFT)) * d)
    if SCALE == "bytes+min":
        least = (_minima(held[ROWS + 2], held[X + 3], c, DOT), _minima(held[ROWS + 3], held[X + 3], c, DOT))
        total -= _across(least, c, W, DOT).to(tl.float32) * (half_of(tail, 1) * d)
    elif SCALE == "nibbles+min":
        least = (
            _minima(upper(held[ROWS]), held[X + 3], c, DOT) + _minima(upper(held[ROWS + 2]), held[X + 4], c, DOT),
            _minima(upper(held[ROWS + 1]), held[X + 3], c, DOT) + _minima(upper(held[ROWS + 3]), held[X + 4], c, DOT),
        )
        total -= _across(least, c, W, DOT).to(tl.float32) * (half_of(tail, 1) * d)
    return total


@triton.jit
def _added(totals, a, x, other_x, W: tl.constexpr, DOT: tl.constexpr):
    """Four sums + the dots of a unit's 32 columns of both rows with operands 2c and 2c + 1: x has their first 16, other_x the rest."""
    if DOT == "mma":
        totals = tl.inline_asm_elementwise(
            _ADDED, _ADDED_REGISTERS, [a[0], a[1], a[2], a[3], x, other_x, totals[0], totals[1], totals[2], totals[3]],
            (tl.int32, tl.int32, tl.int32, tl.int32), True, 1)  # fmt: skip
    else:
        totals = (
            totals[0] + plain_dot(a[0], a[1], x, other_x, 0, W), totals[1] + plain_dot(a[0], a[1], x, other_x, 1, W),
            totals[2] + plain_dot(a[2], a[3], x, other_x, 0, W), totals[3] + plain_dot(a[2], a[3], x, other_x, 1, W),
        )  # fmt: skip
    return totals


@triton.jit
def _scaled(sums, ROW: tl.constexpr, word, c, SCALE: tl.constexpr, DOT: tl.constexpr):
    """A lane's two sums of a row, each times its scale, a signed byte of the row's word."""
    if SCALE == "nibbles+min":
        word = word & 0x0F0F0F0F
    if DOT == "mma":  # by PTX's prmt, with the sign in the upper three bytes
        choose = c % 2 * 0x2222 + 0x8880
        first = tl.inline_asm_elementwise("prmt.b32 $0, $1, 0, $2;", "=r,r,r", [word, choose], tl.int32, True, 1)
        second = tl.inline_asm_elementwise("prmt.b32 $0, $1, 0, $2;", "=r,r,r", [word, choose + 0x1111], tl.int32, True, 1)
    else:
        mine = word >> (c % 2 * 16)
        first, second = byte_of(mine, 0, True), byte_of(mine, 1, True)
    return sums[2 * ROW] * first + sums[2 * ROW + 1] * second


@triton.jit
def _minima(word, sums, c, DOT: tl.constexpr):
    """The lane's two minima of a row, bytes of its word, times the two int16 of `sums`."""
    mine = word >> (c % 2 * 16)
    if DOT == "mma":
        added = tl.inline_asm_elementwise("dp2a.lo.s32.u32 $0, $1, $2, 0;", "=r,r,r", [sums, mine], tl.int32, True, 1)
    else:
        added = byte_of(mine, 0, False) * ((sums << 16) >> 16) + byte_of(mine, 1, False) * (sums >> 16)
    return added


@triton.jit
def _across(rows, c, W: tl.constexpr, DOT: tl.constexpr):
    """The sum over the four lanes of a row, of row c % 2 of the two."""
    if DOT == "mma":
        mine, other = tl.where(c % 2 == 0, rows[0], rows[1]), tl.where(c % 2 == 0, rows[1], rows[0])
        mine += tl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "=r,r", [other], tl.int32, False, 1)
        mine += tl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 2, 31, -1;", "=r,r", [mine], tl.int32, False, 1)
    else:
        mine = tl.where(c % 2 == 0, _summed(rows[0], W), _summed(rows[1], W))
    return mine


@triton.jit
def _summed(value, W: tl.constexpr):
    """In each of a row's four lanes their sum."""
    total = tl.sum(tl.reshape(value, (W, 8, 4)), 2)[:, :, None]
    return tl.reshape(tl.broadcast_to(total, (W, 8, 4)), (32 * W,))


@triton.jit
def _gathered(total, W: tl.constexpr, GATED: tl.constexpr):
    """[1, 16 rows]: lane 4g + c has row 8 (c % 2) + g; gated rows come in pairs of a gate and its up."""
    total = over_warps(total, W)
    both, _ = tl.split(tl.permute(tl.reshape(total, (8, 2, 2)), (0, 2, 1)))
    if GATED:
        rows = tl.reshape(both, (1, 16))
    else:
        rows = tl.reshape(tl.permute(both, (1, 0)), (1, 16))
    return rows
