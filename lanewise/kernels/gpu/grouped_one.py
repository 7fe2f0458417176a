"""A row and its experts, pair by pair, in formats whose 256 columns have one float scale: decode of a mixture of experts on NVIDIA.

The products are those of `quant_one.py`. A warp quantizes the blocks of x that it multiplies, which are 8 numbers a lane, so nothing has to run in
front of it, nor to be waited for. The definition is that of `act_quant.py`, bit for bit.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.kernels.gpu.act_quant import _INF_BITS, _NAN_BITS, _ROUND, _ROUND_BITS, _ZERO_BELOW_BITS
from lanewise.kernels.gpu.lanes import _finish
from lanewise.kernels.gpu.quant_one import _gathered, _held_w, _tile
from lanewise.kernels.gpu.quant_threads import tree, word


@triton.jit
def grouped_one(x, w, ids, weights, y, n, panels, blocks, experts, top, x_row, ids_row, ids_col, weights_row, weights_col,
                CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
                SHIFT: tl.constexpr, RECORD: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, STRANDS: tl.constexpr, AHEAD: tl.constexpr,
                TILES: tl.constexpr, WHOLE: tl.constexpr, OWN: tl.constexpr, WEIGHTED: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
                EARLY: tl.constexpr):  # fmt: skip
    """Panel program_id(1) of the expert of pair program_id(0). EARLY: ids lie there from the start."""
    unit, panel = tl.program_id(0), tl.program_id(1)
    thread = tl.arange(0, 32 * W)
    lane, side = thread % 32, thread // 32
    g, c = lane // 4, lane % 4
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    expert = tl.load(ids + (unit // top).to(tl.int64) * ids_row + (unit % top).to(tl.int64) * ids_col)
    known = (expert >= 0) & (expert < experts)
    row = unit if OWN else unit // top
    REST: tl.constexpr = VECTORS * 128 + SCALES * 32
    w_at = w + ((tl.where(known, expert, 0).to(tl.int64) * panels + panel) * blocks + side) * RECORD
    w_at = (w_at + lane * 4, w_at + (VECTORS * 128 + g * 4 + c // 2), w_at + (REST + (g * 2 + c % 2 if TAIL == 16 else g)))
    x_at = x + row.to(tl.int64) * x_row + (side * 256 + c * 4)
    if GROUP == 16:  # groups g and 8 + g
        x_at = x_at + g * 16
    else:  # both halves of group g
        x_at = x_at + g * 32
    held, numbers = (), ()
    for i in tl.static_range(AHEAD):
        held = held + _held_w(w_at, i * W, side, blocks, c, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
    if PDL and EARLY:
        gdc_wait()
    for i in tl.static_range(AHEAD):
        numbers = numbers + _numbers(x_at, i * W, side, blocks, GROUP, WHOLE)
    totals = ()
    for _ in tl.static_range(STRANDS):
        totals = totals + (tl.zeros((32 * W,), tl.float32),)
    OF_W: tl.constexpr = 4 * VECTORS + 2 * SCALES + 1
    for i in tl.static_range(TILES):
        if i + AHEAD < TILES:
            held = held + _held_w(w_at, (i + AHEAD) * W, side, blocks, c, RECORD, VECTORS, SCALES, TAIL, WHOLE, DOT)
            numbers = numbers + _numbers(x_at, (i + AHEAD) * W, side, blocks, GROUP, WHOLE)
        tile, mine, more = (), (), ()
        for v in tl.static_range(OF_W):
            tile = tile + (held[i * OF_W + v],)
        for v in tl.static_range(8):
            mine = mine + (numbers[i * 8 + v],)
        tile = tile + _quantized(mine, lane, GROUP, SCALE, W)
        for s in tl.static_range(STRANDS):
            if s == i % STRANDS:
                more = more + (_tile(totals[s], tile, lane, VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, W, DOT),)
            else:
                more = more + (totals[s],)
        totals = more
    y_rows = tl.where(known, _gathered(tree(totals, 0, 1, STRANDS), W, GATED), float("nan"))
    weight = 1.0
    if WEIGHTED:
        weight = tl.load(weights + (unit // top).to(tl.int64) * weights_row + (unit % top).to(tl.int64) * weights_col).to(tl.float32)
    pair = tl.full((1, 1), 0, tl.int64) + unit
    _finish(y_rows, pair, tl.full((1, 1), True, tl.int1), panel, y, y, y, n, 0, 0, 0, 0, 1, 16, False, False, GATED, weight, WEIGHTED)


@triton.jit
def _numbers(at, BLOCK: tl.constexpr, side, blocks, GROUP: tl.constexpr, WHOLE: tl.constexpr):
    """A lane's eight numbers of a block: four of each of its two words."""
    inside, held = BLOCK + side < blocks, ()
    for p in tl.static_range(2):
        for j in tl.static_range(4):
            held = held + (word(at + (BLOCK * 256 + p * (128 if GROUP == 16 else 16) + j), inside, WHOLE).to(tl.float32),)
    return held


@triton.jit
def _quantized(numbers, lane, GROUP: tl.constexpr, SCALE: tl.constexpr, W: tl.constexpr):
    """Two words, the block's scale, and of formats with minima the sums of a lane's groups, as `act_quant` has them."""
    most = numbers[0].to(tl.int32, bitcast=True) & 0x7FFFFFFF
    for v in tl.static_range(1, 8):
        most = tl.maximum(most, numbers[v].to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    most = tl.max(tl.reshape(most, (W, 32)), 1)[:, None]
    most = tl.reshape(tl.broadcast_to(most, (W, 32)), (32 * W,))
    broken = most >= _INF_BITS
    none = broken | (most < _ZERO_BELOW_BITS)
    amax = most.to(tl.float32, bitcast=True)
    inverse = tl.div_rn(127.0, amax)
    first, first_sum = _word_of((numbers[0], numbers[1], numbers[2], numbers[3]), inverse, none)
    second, second_sum = _word_of((numbers[4], numbers[5], numbers[6], numbers[7]), inverse, none)
    scale = tl.div_rn(amax, 127.0).to(tl.int32, bitcast=True)
    scale = tl.where(broken, _NAN_BITS, tl.where(none, 0, scale)).to(tl.float32, bitcast=True)
    made = (first, second, scale)
    if SCALE == "bytes+min":
        made = made + (_pair_of_sums(first_sum + second_sum, lane, W),)
    elif SCALE == "nibbles+min":
        made = made + (_pair_of_sums(first_sum, lane, W), _pair_of_sums(second_sum, lane, W))
    return made


@triton.jit
def _word_of(numbers, inverse, none):
    """Four codes as bytes of a word, and their sum."""
    packed, total = none.to(tl.int32) * 0, none.to(tl.int32) * 0
    for j in tl.static_range(4):
        # the minimum changes no code: it keeps the product from being fused with the sum that rounds it (act_quant.py)
        product = tl.minimum(numbers[j] * inverse, 127.0)
        code = (product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS
        packed, total = packed | (code & 0xFF) << (8 * j), total + code
    return tl.where(none, 0, packed), tl.where(none, 0, total)


@triton.jit
def _pair_of_sums(value, lane, W: tl.constexpr):
    """The sums over the four lanes of groups 2c and 2c + 1, two int16 in a word."""
    group = tl.broadcast_to(tl.sum(tl.reshape(value, (W, 8, 4)), 2)[:, :, None], (W, 8, 4))
    g, c = tl.arange(0, 8)[None, :, None], tl.arange(0, 4)[None, None, :]
    mine = tl.where(g == 2 * c, group & 0xFFFF, tl.where(g == 2 * c + 1, group << 16, 0))
    return tl.reshape(tl.broadcast_to(tl.sum(mine, 1)[:, None, :], (W, 8, 4)), (32 * W,))
