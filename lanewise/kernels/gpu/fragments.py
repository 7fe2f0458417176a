"""The third body of the skinny kernel, for NVIDIA: w goes from memory to the matrix unit without a step between.

A lane loads 16 bytes of a row, 8 elements that are neighbours in k. `mma.sync` m16n8k16 wants two neighbours here and two there of each lane; but
which columns of k stand where is free, as long as x has the same order. So what a lane has loaded is its operand: of rows g and g + 8, and of
token g, four lanes have 32 columns, in two multiplications (PTX ISA, matrix fragments for mma.m16n8k16).

Tensors are [8, warps, 16] int32, two elements each. That a lane holds 4 neighbours of a row is the compiler's choice, and the assembly relies
on it: `laid_out.py` says whether it was made.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.kernels.gpu.lanes import _finish


@triton.jit
def _w_pairs(w, group, lane_row, columns, n, end, W_ROW: tl.constexpr, LOWER: tl.constexpr, WHOLE: tl.constexpr, GATED: tl.constexpr):
    """8 of a group's 16 rows of w, [8, warps, 16] pairs, zero outside. The lower 8 of gated rows are what the upper are the gates of."""
    if GATED:
        row = group * 8 + lane_row
        exists = row < n
        w_at = w + row.to(tl.int64) * W_ROW
        if LOWER:
            w_at += tl.cast(n, tl.int64) * W_ROW
    else:
        row = group * 16 + 8 * LOWER + lane_row
        exists = row < n
        w_at = w + row.to(tl.int64) * W_ROW
    if WHOLE:
        tile = tl.load(w_at + columns)
    else:
        tile = tl.load(w_at + columns, mask=exists & (columns < end), other=0)
    return tile


@triton.jit
def _x_pairs(x, token, columns, m, end, X_ROW: tl.constexpr):
    """x of 8 tokens, [8, warps, 16] pairs, zero outside."""
    return tl.load(x + token.to(tl.int64) * X_ROW + columns, mask=(token < m) & (columns < end), other=0)


@triton.jit
def _multiplied(total, top, bottom, x_tile, KIND: tl.constexpr):
    """total[8, warps, 16] + the products of rows g (top) and g + 8 (bottom) with each token, where the matrix unit puts them."""
    if KIND == "bf16":
        total = tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$8,$5,$9}, {$12,$13}, {$16,$17,$18,$19};\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$6,$10,$7,$11}, {$14,$15}, {$0,$1,$2,$3};",
            "=&f,=&f,=&f,=&f,r,r,r,r,r,r,r,r,r,r,r,r,f,f,f,f", [top, bottom, x_tile, total], tl.float32, True, 4)  # fmt: skip
    elif KIND == "f16":
        total = tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$8,$5,$9}, {$12,$13}, {$16,$17,$18,$19};\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$6,$10,$7,$11}, {$14,$15}, {$0,$1,$2,$3};",
            "=&f,=&f,=&f,=&f,r,r,r,r,r,r,r,r,r,r,r,r,f,f,f,f", [top, bottom, x_tile, total], tl.float32, True, 4)  # fmt: skip
    else:  # the interpreter: the same sums in the same places
        total = total + tl.join(_products(top, x_tile, KIND), _products(bottom, x_tile, KIND))
    return total


@triton.jit
def _products(rows, x_tile, KIND: tl.constexpr):
    """[8 rows, 8 tokens], summed over warps and pairs."""
    low = _element(rows, 0, KIND)[:, None, :, :] * _element(x_tile, 0, KIND)[None, :, :, :]
    high = _element(rows, 16, KIND)[:, None, :, :] * _element(x_tile, 16, KIND)[None, :, :, :]
    return tl.sum(tl.sum(low + high, 3), 2)


@triton.jit
def _element(pair, shift: tl.constexpr, KIND: tl.constexpr):
    """The lower (shift 0) or upper (16) element of a pair, in float32."""
    bits = ((pair >> shift) & 0xFFFF).to(tl.int16)
    return (bits.to(tl.float16, bitcast=True) if KIND == "plain f16" else bits.to(tl.bfloat16, bitcast=True)).to(tl.float32)


@triton.jit
def _gathered(total, GATED: tl.constexpr, KIND: tl.constexpr):
    """[8 tokens, 16 rows] of a group. A lane of g and c has tokens 2c and 2c + 1 of row g, then of row g + 8."""
    if KIND == "bf16" or KIND == "f16":
        parts = tl.reshape(tl.sum(total, 1), (8, 4, 2, 2))
        if GATED:
            parts = tl.permute(parts, (1, 3, 0, 2))
        else:
            parts = tl.permute(parts, (1, 3, 2, 0))
    elif GATED:
        parts = tl.permute(total, (1, 0, 2))
    else:
        parts = tl.permute(total, (1, 2, 0))
    return tl.reshape(parts, (8, 16))


@triton.jit
def _fragments(x, w, y, bias, residual, part, m, n, k, bias_row, bias_col, residual_row, residual_col, share,
               HALVES: tl.constexpr, WARPS: tl.constexpr, AHEAD: tl.constexpr, STAGES: tl.constexpr, LOOP: tl.constexpr,
               SPLIT: tl.constexpr, WHOLE: tl.constexpr, W_ROW: tl.constexpr, X_ROW: tl.constexpr,
               BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr, EARLY: tl.constexpr,
               GROUPS: tl.constexpr, KIND: tl.constexpr):  # fmt: skip
    """m <= 8 HALVES tokens of GROUPS times 16 rows of w; of a split its share of k, as part[split, token, row]. k and share count pairs."""
    first, split = tl.program_id(0) * GROUPS, tl.program_id(1)
    STEP: tl.constexpr = 16 * WARPS
    offset = tl.arange(0, WARPS)[None, :, None] * 16 + tl.arange(0, 16)[None, None, :]
    lane_row = tl.arange(0, 8)[:, None, None]
    begin, end = 0, k
    if SPLIT:
        begin = split * share
        end = tl.minimum(k, begin + share)
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    held = ()
    for g in tl.static_range(GROUPS):
        for t in tl.static_range(AHEAD):
            for lower in tl.static_range(2):
                tile = _w_pairs(w, first + g, lane_row, begin + t * STEP + offset, n, end, W_ROW, lower, WHOLE, GATED)
                held = held + (tile,)
    if PDL and EARLY:
        gdc_wait()
    totals = ()
    for h in tl.static_range(HALVES):
        x_tiles = ()
        for t in tl.static_range(AHEAD):
            x_tiles = x_tiles + (_x_pairs(x, lane_row + 8 * h, begin + t * STEP + offset, m, end, X_ROW),)
        for g in tl.static_range(GROUPS):
            if KIND == "bf16" or KIND == "f16":
                total = tl.zeros((8, WARPS, 16), tl.float32)
            else:
                total = tl.zeros((8, 8, 2), tl.float32)
            for t in tl.static_range(AHEAD):
                total = _multiplied(total, held[2 * (g * AHEAD + t)], held[2 * (g * AHEAD + t) + 1], x_tiles[t], KIND)
            totals = totals + (total,)
    if LOOP:  # of one group
        for start in tl.range(begin + AHEAD * STEP, end, STEP, num_stages=STAGES):
            top = _w_pairs(w, first, lane_row, start + offset, n, end, W_ROW, 0, WHOLE, GATED)
            bottom = _w_pairs(w, first, lane_row, start + offset, n, end, W_ROW, 1, WHOLE, GATED)
            more = ()
            for h in tl.static_range(HALVES):
                x_tile = _x_pairs(x, lane_row + 8 * h, start + offset, m, end, X_ROW)
                more = more + (_multiplied(totals[h], top, bottom, x_tile, KIND),)
            totals = more
    for h in tl.static_range(HALVES):
        tokens = tl.arange(0, 8)[:, None].to(tl.int64) + 8 * h
        for g in tl.static_range(GROUPS):
            total = _gathered(totals[h * GROUPS + g], GATED, KIND)
            if SPLIT:
                across = tl.cast(tl.num_programs(0) * (GROUPS * 16), tl.int64)
                tl.store(part + (split * m + tokens) * across + (first + g) * 16 + tl.arange(0, 16)[None, :], total, mask=tokens < m)
            else:
                _finish(total, tokens, tokens < m, first + g, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
                        8, 16, BIAS, RESIDUAL, GATED)  # fmt: skip
