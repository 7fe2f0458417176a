"""Two bodies of the skinny kernel and what all share: y[m,n] = act(rms_norm(x[m,k]) @ w[n,k].T + bias) + residual, sums in float32.

`_lanes` holds a part of some rows of w in registers, multiplies and adds in every lane, and reduces once at the end. `_matrix` gives the same
tiles to the matrix unit, m padded to 16. Both can split k over programs; `_combine` then adds the parts in order, so that all results are the
same bits in every run. What is fused rounds where the chain of single ops would.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _w_rows(w, first, n, w_row, ROWS: tl.constexpr, GATED: tl.constexpr, FAR: tl.constexpr):
    """(where the rows of w of this program begin, whether they exist), [ROWS, 1]. A gate stands beside its up, which lies n rows further down.

    Within a program offsets are int32, unless the rows are far apart.
    """
    lane = tl.arange(0, ROWS)[:, None]
    OUT: tl.constexpr = ROWS // 2 if GATED else ROWS
    step = lane // 2 if GATED else lane
    exist = first * OUT + step < n
    w_at = w + tl.cast(first, tl.int64) * OUT * w_row + (step.to(tl.int64) if FAR else step) * w_row
    if GATED:
        w_at += (lane % 2).to(tl.int64) * n * w_row
    return w_at, exist


@triton.jit
def _w_tile(w_at, w_in, start, end, TILE: tl.constexpr, WHOLE: tl.constexpr):
    """w[rows, start : start + TILE], zero outside."""
    columns = start + tl.arange(0, TILE)[None, :]
    if WHOLE:
        tile = tl.load(w_at + columns)
    else:
        tile = tl.load(w_at + columns, mask=w_in & (columns < end), other=0.0)
    return tile


@triton.jit
def _x_tile(x_at, x_in, norm_at, scale, start, end, TILE: tl.constexpr, WHOLE: tl.constexpr, NORM: tl.constexpr):
    """x[tokens, start : start + TILE], zero outside; normalised, and rounded as a norm of its own would leave it."""
    columns = start + tl.arange(0, TILE)[None, :]
    if WHOLE:
        tile = tl.load(x_at + columns)
    else:
        tile = tl.load(x_at + columns, mask=x_in & (columns < end), other=0.0)
    if NORM:
        weight = tl.load(norm_at + columns, mask=columns < end, other=0.0).to(tl.float32)
        normed = (tile.to(tl.float32) * scale * weight).to(tile.dtype)
        # outside x is zero, and times an infinite scale it would be NaN
        tile = normed if WHOLE else tl.where(columns < end, normed, tile)
    return tile


@triton.jit
def _half(pair, shift: tl.constexpr):
    """The lower (shift 0) or upper (16) fp16 of an int32, in float32."""
    return ((pair >> shift) & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _dot2(total, w_pair, x_pair, PAIRS: tl.constexpr):
    """total + the two products of each pair of fp16, element by element, with AMD's 2-way dot.

    Its products are exact, and float32 subnormals, which it may flush, do not occur: every sum is a multiple of 2^-48. Behind inline
    assembly the compiler cannot see a dot, so that what has to be waited for before its result is read is part of the text.
    """
    if PAIRS == "plain":
        total += _half(w_pair, 0) * _half(x_pair, 0) + _half(w_pair, 16) * _half(x_pair, 16)
    elif PAIRS == "dot2":
        w_pair, x_pair = tl.broadcast(w_pair, x_pair)
        total = tl.inline_asm_elementwise("v_dot2_f32_f16 $0, $1, $2, $3", "=v,v,v,v", [w_pair, x_pair, total], tl.float32, True, 1)
    else:
        w_pair, x_pair = tl.broadcast(w_pair, x_pair)
        total = tl.inline_asm_elementwise(
            "v_dot2_f32_f16 $0, $4, $8, $12\nv_dot2_f32_f16 $1, $5, $9, $13\nv_dot2_f32_f16 $2, $6, $10, $14\n"
            "v_dot2_f32_f16 $3, $7, $11, $15\ns_nop 2",
            "=&v,=&v,=&v,=&v,v,v,v,v,v,v,v,v,v,v,v,v", [w_pair, x_pair, total], tl.float32, True, 4)  # fmt: skip
    return total


@triton.jit
def _add_products(total, w_tile, x_tile, PAIRS: tl.constexpr):
    """total[rows, columns] + w_tile[rows, columns] * x_tile[1 or rows, columns] in float32."""
    if PAIRS != "":
        total = _dot2(total, w_tile, x_tile, PAIRS)
    else:
        total += w_tile.to(tl.float32) * x_tile.to(tl.float32)
    return total


@triton.jit
def _mma(total, top, bottom, x_tile, PAIRS: tl.constexpr):
    """total + products of two rows' pairs with x's, by the matrix unit: what of it is right, `_diagonal` picks.

    Each lane gives its 8 neighbours in k of one row, of another, and of x. For mma.sync m16n8k16 that is 8 + 8 rows of which four lanes have 32
    columns, and 8 tokens of which they have the same; so row g of the product belongs to token g alone (PTX ISA, matrix fragments).
    """
    top, x_tile = tl.broadcast(top, x_tile)
    if PAIRS == "mma bf16":
        total = tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$8,$5,$9}, {$12,$13}, {$16,$17,$18,$19};\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$6,$10,$7,$11}, {$14,$15}, {$0,$1,$2,$3};",
            "=&f,=&f,=&f,=&f,r,r,r,r,r,r,r,r,r,r,r,r,f,f,f,f", [top, bottom, x_tile, total], tl.float32, True, 4)  # fmt: skip
    else:
        total = tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$8,$5,$9}, {$12,$13}, {$16,$17,$18,$19};\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$6,$10,$7,$11}, {$14,$15}, {$0,$1,$2,$3};",
            "=&f,=&f,=&f,=&f,r,r,r,r,r,r,r,r,r,r,r,r,f,f,f,f", [top, bottom, x_tile, total], tl.float32, True, 4)  # fmt: skip
    return total


@triton.jit
def _diagonal(total, LOWER: tl.constexpr, TILE: tl.constexpr):
    """[rows], the sums of the first or second row of `_mma`: of lane 4g + c the element where its token 2c or 2c + 1 is g."""
    place = tl.arange(0, TILE)[None, :]
    lane, element = (place // 4) % 32, place % 4
    wanted = 2 * (lane % 4) + element - 2 * LOWER == lane // 4
    return tl.sum(tl.where(wanted & (element // 2 == LOWER), total, 0.0), 1)


@triton.jit
def _norm_scale(x_at, x_in, k, eps, TOKENS: tl.constexpr, TILE: tl.constexpr):
    """1 / sqrt(mean(x[token, :]^2) + eps), [TOKENS, 1]."""
    total = tl.zeros((TOKENS, TILE), tl.float32)
    for start in tl.range(0, k, TILE):
        columns = start + tl.arange(0, TILE)[None, :]
        value = tl.load(x_at + columns, mask=x_in & (columns < k), other=0.0).to(tl.float32)
        total += value * value
    return tl.rsqrt(tl.sum(total, 1) / k + eps)[:, None]


@triton.jit
def _finish(total, tokens, token_in, first, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
            TOKENS: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
            weight=None, WEIGHTED: tl.constexpr = False):  # fmt: skip
    """What comes behind the sums, float32[TOKENS, ROWS]: bias, rounding, gate, weight[TOKENS, 1], residual, store."""
    out: tl.constexpr = y.dtype.element_ty
    OUT: tl.constexpr = ROWS // 2 if GATED else ROWS
    lane = tl.arange(0, OUT)[None, :]
    columns = first * OUT + lane
    inside = token_in & (columns < n)
    if GATED:
        value, up = tl.split(tl.reshape(total, (TOKENS, OUT, 2)))
        if BIAS:
            at = bias + tokens * bias_row + columns.to(tl.int64) * bias_col
            value += tl.load(at, mask=inside, other=0.0).to(tl.float32)
            up += tl.load(at + tl.cast(n, tl.int64) * bias_col, mask=inside, other=0.0).to(tl.float32)
        value, up = value.to(out).to(tl.float32), up.to(out).to(tl.float32)
        silu = (value / (1 + tl.exp(-value))).to(out).to(tl.float32)
        value = (silu * up).to(out)
    else:
        if BIAS:
            total += tl.load(bias + tokens * bias_row + columns.to(tl.int64) * bias_col, mask=inside, other=0.0).to(tl.float32)
        value = total.to(out)
    if WEIGHTED:
        value = (value.to(tl.float32) * weight).to(out)
    if RESIDUAL:
        more = tl.load(residual + tokens * residual_row + columns.to(tl.int64) * residual_col, mask=inside, other=0.0)
        if GATED:
            # the chain rounds the gate's product, which without something in between is fused with this sum: in float32, and as fma.rn.bf16
            value = tl.where(inside, value, more.to(out))
        value = (value.to(tl.float32) + more.to(tl.float32)).to(out)
    tl.store(y + (tokens * n + tl.cast(first, tl.int64) * OUT) + lane, value, mask=inside)


@triton.jit
def _lanes(x, w, y, bias, residual, norm, part, m, n, k, x_row, w_row, bias_row, bias_col, residual_row, residual_col, eps, share,
           M: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, STAGES: tl.constexpr, LOOP: tl.constexpr,
           SPREAD: tl.constexpr, SPLIT: tl.constexpr, WHOLE: tl.constexpr, FAR: tl.constexpr, K: tl.constexpr, W_ROW: tl.constexpr,
           X_ROW: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
           EARLY: tl.constexpr, GROUPS: tl.constexpr, PAIRS: tl.constexpr):  # fmt: skip
    """All m = M tokens of this program's GROUPS times ROWS rows of w; of a split its share of k, as part[split, token, row].

    Of PAIRS x and w come as int32, two fp16 each, and every number of columns is one of pairs.
    """
    first, split = tl.program_id(0) * GROUPS, tl.program_id(1)
    MMA: tl.constexpr = PAIRS == "mma bf16" or PAIRS == "mma f16"
    if K:
        k = K
    if W_ROW >= 0:
        w_row = W_ROW
    if MMA:
        x_row = X_ROW
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
        w_at, w_in = _w_rows(w, first + g, n, w_row, ROWS, GATED, FAR)
        for t in tl.static_range(AHEAD):
            held = held + (_w_tile(w_at, w_in, begin + t * TILE, end, TILE, WHOLE),)
    if PDL and EARLY:
        gdc_wait()
    # Where warps lie side by side in k, x is loaded once; where each has rows of its own, by each, which spares a trip through shared memory.
    X_ROWS: tl.constexpr = ROWS if SPREAD else 1
    always = tl.full((1, 1), True, tl.int1)
    token = tl.zeros((X_ROWS, 1), tl.int64)
    norm_at = norm + token
    sums, scales = (), ()
    for i in tl.static_range(M):
        x_at = x + (token + i) * x_row
        scale = 1.0
        if NORM:
            scale = _norm_scale(x_at, always, k, eps, X_ROWS, TILE)
        x_tiles = ()
        for t in tl.static_range(AHEAD):
            x_tiles = x_tiles + (_x_tile(x_at, always, norm_at, scale, begin + t * TILE, end, TILE, WHOLE, NORM),)
        if MMA:
            for g in tl.static_range(0, GROUPS, 2):
                total = tl.zeros((ROWS, TILE), tl.float32)
                for t in tl.static_range(AHEAD):
                    total = _mma(total, held[g * AHEAD + t], held[(g + 1) * AHEAD + t], x_tiles[t], PAIRS)
                if LOOP:
                    sums = sums + (total,)
                else:
                    sums = sums + (_diagonal(total, 0, TILE), _diagonal(total, 1, TILE))
        else:
            for g in tl.static_range(GROUPS):
                if AHEAD == 0 or PAIRS != "":
                    total = tl.zeros((ROWS, TILE), tl.float32)
                for t in tl.static_range(AHEAD):
                    if t == 0 and PAIRS == "":  # not added to zero: the reduction can fuse the products into its sums
                        total = held[g * AHEAD].to(tl.float32) * x_tiles[0].to(tl.float32)
                    else:
                        total = _add_products(total, held[g * AHEAD + t], x_tiles[t], PAIRS)
                if LOOP:
                    sums = sums + (total,)
                else:
                    sums = sums + (tl.sum(total, 1),)
        scales = scales + (scale,)
    if LOOP:  # of one group, or two of MMA
        for start in tl.range(begin + AHEAD * TILE, end, TILE, num_stages=STAGES):
            w_at, w_in = _w_rows(w, first, n, w_row, ROWS, GATED, FAR)
            tile = _w_tile(w_at, w_in, start, end, TILE, WHOLE)
            if MMA:
                w_at, w_in = _w_rows(w, first + 1, n, w_row, ROWS, GATED, FAR)
                second = _w_tile(w_at, w_in, start, end, TILE, WHOLE)
            more = ()
            for i in tl.static_range(M):
                x_tile = _x_tile(x + (token + i) * x_row, always, norm_at, scales[i], start, end, TILE, WHOLE, NORM)
                if MMA:
                    more = more + (_mma(sums[i], tile, second, x_tile, PAIRS),)
                else:
                    more = more + (_add_products(sums[i], tile, x_tile, PAIRS),)
            sums = more
        done = ()
        for i in tl.static_range(M):
            if MMA:
                done = done + (_diagonal(sums[i], 0, TILE), _diagonal(sums[i], 1, TILE))
            else:
                done = done + (tl.sum(sums[i], 1),)
        sums = done
    for i in tl.static_range(M):
        for g in tl.static_range(GROUPS):
            total = sums[i * GROUPS + g][None, :]
            if SPLIT:
                across = tl.cast(tl.num_programs(0) * (GROUPS * ROWS), tl.int64)
                tl.store(part + (split * M + i) * across + (first + g) * ROWS + tl.arange(0, ROWS)[None, :], total)
            else:
                _finish(total, tl.full((1, 1), i, tl.int64), always, first + g, y, bias, residual, n, bias_row, bias_col,
                        residual_row, residual_col, 1, ROWS, BIAS, RESIDUAL, GATED)  # fmt: skip


@triton.jit
def _matrix(x, w, y, bias, residual, norm, part, m, n, k, x_row, w_row, bias_row, bias_col, residual_row, residual_col, eps, share,
            M: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, STAGES: tl.constexpr, LOOP: tl.constexpr,
            SPREAD: tl.constexpr, SPLIT: tl.constexpr, WHOLE: tl.constexpr, FAR: tl.constexpr, K: tl.constexpr, W_ROW: tl.constexpr,
            X_ROW: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
            EARLY: tl.constexpr, GROUPS: tl.constexpr, PAIRS: tl.constexpr):  # fmt: skip
    """The same for m <= M tokens, of one group, with the matrix unit: x[M, TILE] @ w[ROWS, TILE].T, tile by tile; rows of x from m on are zero."""
    first, split = tl.program_id(0), tl.program_id(1)
    if K:
        k = K
    if W_ROW >= 0:
        w_row = W_ROW
    w_at, w_in = _w_rows(w, first, n, w_row, ROWS, GATED, FAR)
    begin, end = 0, k
    if SPLIT:
        begin = split * share
        end = tl.minimum(k, begin + share)
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    held = ()
    for t in tl.static_range(AHEAD):
        held = held + (_w_tile(w_at, w_in, begin + t * TILE, end, TILE, WHOLE),)
    if PDL and EARLY:
        gdc_wait()
    tokens = tl.arange(0, M)[:, None].to(tl.int64)
    x_at, x_in, norm_at = x + tokens * x_row, tokens < m, norm + tl.zeros((1, 1), tl.int64)
    scale = 1.0
    if NORM:
        scale = _norm_scale(x_at, x_in, k, eps, M, TILE)
    total = tl.zeros((M, ROWS), tl.float32)
    for t in tl.static_range(AHEAD):
        total = tl.dot(_x_tile(x_at, x_in, norm_at, scale, begin + t * TILE, end, TILE, False, NORM), tl.trans(held[t]), total)
    if LOOP:
        for start in tl.range(begin + AHEAD * TILE, end, TILE, num_stages=STAGES):
            tile = _w_tile(w_at, w_in, start, end, TILE, WHOLE)
            total = tl.dot(_x_tile(x_at, x_in, norm_at, scale, start, end, TILE, False, NORM), tl.trans(tile), total)
    if SPLIT:
        across = tl.cast(tl.num_programs(0) * ROWS, tl.int64)
        tl.store(part + (split * m + tokens) * across + first * ROWS + tl.arange(0, ROWS)[None, :], total, mask=x_in)
    else:
        _finish(total, tokens, x_in, first, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
                M, ROWS, BIAS, RESIDUAL, GATED)  # fmt: skip


@triton.jit
def _combine(part, y, bias, residual, m, n, across, splits, bias_row, bias_col, residual_row, residual_col,
             ROWS: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """y[token, columns of this program] from part[splits, m, across], added in the order of k."""
    first, token = tl.program_id(0), tl.program_id(1)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    at = first * ROWS + tl.arange(0, ROWS)[None, :].to(tl.int64)
    inside = at < across
    total = tl.zeros((1, ROWS), tl.float32)
    for split in tl.range(0, splits):
        total += tl.load(part + (split * m + token) * tl.cast(across, tl.int64) + at, mask=inside, other=0.0)
    always = tl.full((1, 1), True, tl.int1)
    _finish(total, tl.full((1, 1), token, tl.int64), always, first, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
            1, ROWS, BIAS, RESIDUAL, GATED)  # fmt: skip
