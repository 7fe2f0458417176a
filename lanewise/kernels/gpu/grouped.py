"""y[tokens, top_k, n] = act(x @ w[expert_ids[token, slot]].T) * weight of packed experts: each pair of a token and a slot is a row of its own.

The sums are those of `quant_gemv`, strand for strand, so that a row has the bits that its expert alone would give it.

Few pairs: a program takes 16 rows of the expert of one pair. Many: the pairs are put in order by expert, and a program takes 16 rows of an
expert for eight of its pairs (`grouped_order.py`), for which the activations are quantized in that order.

An id that is no expert's reads nothing of w that is not there: its rows are NaN.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.arch import Arch
from lanewise.kernels.gpu.act_quant import Activations, act_quant
from lanewise.kernels.gpu.grouped_one import grouped_one
from lanewise.kernels.gpu.grouped_order import in_order
from lanewise.kernels.gpu.laid_out import checked
from lanewise.kernels.gpu.lanes import _finish
from lanewise.kernels.gpu.quant_codes import held_tile
from lanewise.kernels.gpu.quant_config import STRANDS, QuantConfig, as_written, straight
from lanewise.kernels.gpu.quant_gemv import _LANES, _UNROLLED, _dot, _gathered, _strand
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.kernels.gpu.quant_threads import THREADS, tree

__all__ = ["grouped"]


def grouped(
    x: torch.Tensor,
    w: QuantWeight,
    expert_ids: torch.Tensor,
    weights: torch.Tensor | None = None,
    *,
    out: torch.dtype,
    constant_w: bool,
    ids_ready: bool,
    ordered: bool,
    config: QuantConfig,
    arch: Arch,
) -> torch.Tensor:
    """y[tokens, top_k, n] of x[tokens, k] or [tokens, top_k, k], experts w and expert_ids[tokens, top_k]; `ops.grouped_linear` checks them.

    ordered: whether pairs are put in order by expert; config: "tiles" or "dots", of whose tokens one is used where they are not, and eight at most
    """
    tokens, top = expert_ids.shape
    pairs = tokens * top
    y = _new((tokens, top, w.n), out, x.device)
    if y.numel() == 0:
        return y
    if w.experts == 0:
        return y.fill_(float("nan"))
    own = x.dim() == 3
    flat = x.reshape(-1, w.k)
    if not ordered and config.body == "tiles" and not w.layout.scale.startswith("half") and -(-w.tiles.shape[-2] // config.warps) <= _UNROLLED:
        compiled = _launch_one(flat, w, expert_ids, weights, y, own=own, early=constant_w and ids_ready, config=config, arch=arch)
        if compiled is not None and not triton.knobs.runtime.interpret:
            checked(compiled, THREADS)
        return y
    if ordered:
        order = in_order(expert_ids, w.experts)
        a = act_quant(flat, w.layout.activation, rows=order.pairs if own else order.pairs // top, arch=arch)
        each = min(config.tokens, 8)
        units, ids, places = order.octets.shape[0] * (8 // each), order.octets, order.pairs
    else:
        a = act_quant(flat, w.layout.activation, arch=arch)
        each, units, ids, places = 8 if config.body == "tiles" else 1, pairs, expert_ids, expert_ids
    compiled = _launch(a, w, ids, places, weights, y, units, each, own=own, ordered=ordered, early=constant_w and ids_ready, config=config, arch=arch)
    if compiled is not None and config.body == "tiles" and not triton.knobs.runtime.interpret:
        checked(compiled, _LANES)
    return y


def _launch_one(
    x: torch.Tensor,
    w: QuantWeight,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    y: torch.Tensor,
    *,
    own: bool,
    early: bool,
    config: QuantConfig,
    arch: Arch,
) -> Any:
    layout, wide = w.layout, config.warps
    panels, blocks = w.tiles.shape[-3], w.tiles.shape[-2]
    interpreted = bool(triton.knobs.runtime.interpret)
    tiles = -(-blocks // wide)
    pdl = arch.pdl and not interpreted
    late: dict[str, Any] = {"launch_pdl": True} if pdl else {}
    return grouped_one[ids.numel(), panels](
        x, w.tiles, ids, y if weights is None else weights, y, w.n, panels, blocks, w.experts, y.shape[1], x.stride(0) if x.shape[0] > 1 else 0,
        *ids.stride(), *(weights.stride() if weights is not None else (0, 0)),
        CODE=layout.code, VECTORS=layout.quants + layout.high, SCALES=layout.scales, TAIL=layout.tail, SCALE=layout.scale, GROUP=layout.group,
        SHIFT=layout.shift, RECORD=layout.record, DOT="plain" if interpreted else "mma", W=wide, STRANDS=STRANDS // wide,
        AHEAD=min(config.ahead, tiles), TILES=tiles, WHOLE=blocks % wide == 0, OWN=own, WEIGHTED=weights is not None, GATED=w.gated, PDL=pdl,
        EARLY=pdl and early, num_warps=1 if interpreted else wide, **late,
    )  # fmt: skip


def _launch(
    a: Activations,
    w: QuantWeight,
    ids: torch.Tensor,
    places: torch.Tensor,
    weights: torch.Tensor | None,
    y: torch.Tensor,
    units: int,
    tokens: int,
    *,
    own: bool,
    ordered: bool,
    early: bool,
    config: QuantConfig,
    arch: Arch,
) -> Any:
    layout = w.layout
    panels, blocks = w.tiles.shape[-3], w.tiles.shape[-2]
    interpreted = bool(triton.knobs.runtime.interpret)
    mma, wide = config.body == "tiles", config.warps
    tiles, strands = -(-blocks // wide), STRANDS // wide
    ahead = min(config.ahead, tiles)
    unrolled = tiles * (1 if mma else tokens) <= (_UNROLLED if mma else min(_UNROLLED, straight(arch, tokens)))
    if not unrolled:  # a multiple of the strands, so that a held tile always belongs to the same
        ahead = max(1, ahead // strands) * strands
    pdl = arch.pdl and not interpreted
    late: dict[str, Any] = {**as_written(arch), **({"launch_pdl": True} if pdl else {})}
    return _grouped[units, panels](
        a.q, a.d, a.sums, w.tiles, ids, places, y if weights is None else weights, y, w.n, panels, blocks, w.experts, y.shape[1],
        *ids.stride(), *(weights.stride() if weights is not None else (0, 0)),
        CODE=layout.code, VECTORS=layout.quants + layout.high, SCALES=layout.scales, TAIL=layout.tail, SCALE=layout.scale, GROUP=layout.group,
        SHIFT=layout.shift, RECORD=layout.record, MMA=mma, DOT="plain" if interpreted else "mma" if mma else _dot(arch), W=wide, STRANDS=strands,
        AHEAD=ahead, TILES=tiles if unrolled else 0, BLOCKS=blocks if blocks % wide == 0 else 0, TOKENS=tokens,
        ORDERED=ordered, OWN=own, WEIGHTED=weights is not None, GATED=w.gated, PDL=pdl, EARLY=pdl and early and not ordered,
        num_warps=max(1, wide * 32 // arch.wave) if not interpreted else 1, **late,
    )  # fmt: skip


@triton.jit
def _grouped(xq, xd, xs, w, ids, places, weights, y, n, panels, blocks, experts, top, ids_row, ids_col, weights_row, weights_col,
             CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
             SHIFT: tl.constexpr, RECORD: tl.constexpr, MMA: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, STRANDS: tl.constexpr,
             AHEAD: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, TOKENS: tl.constexpr, ORDERED: tl.constexpr, OWN: tl.constexpr,
             WEIGHTED: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Panel program_id(1) of one expert: for pair program_id(0), or of ORDERED for TOKENS pairs of an octet. EARLY: ids lie there from the start."""
    unit, panel = tl.program_id(0), tl.program_id(1)
    WHOLE: tl.constexpr = BLOCKS > 0
    PARTS: tl.constexpr = TOKENS // 8 if MMA else TOKENS
    EACH: tl.constexpr = VECTORS + SCALES + (TAIL > 0)
    # words of an octet's block: of d, and of sums
    D: tl.constexpr = 64 if SCALE == "half" or SCALE == "half+min" else 8
    S: tl.constexpr = 64 if SCALE == "half" or SCALE == "half+min" else 96
    if BLOCKS:
        blocks = BLOCKS
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    if ORDERED:
        octet, first = unit // (8 // TOKENS), unit % (8 // TOKENS) * TOKENS
        expert, m = tl.load(ids + 2 * octet), tl.load(ids + 2 * octet + 1)
        if first >= m:
            return
    else:
        expert = tl.load(ids + (unit // top).to(tl.int64) * ids_row + (unit % top).to(tl.int64) * ids_col)
        row = unit if OWN else unit // top
        octet, m = row // 8, row % 8 + 1
        first = 0 if MMA else row % 8
    known = (expert >= 0) & (expert < experts)
    w_at = w + (tl.where(known, expert, 0).to(tl.int64) * panels + panel) * blocks * RECORD
    lane, element, side = tl.arange(0, 32)[:, None, None], tl.arange(0, 4)[None, None, :], tl.arange(0, W)[None, :, None]
    held = ()
    for i in tl.static_range(AHEAD):
        block = i * W + side
        held = held + held_tile(w_at + block * RECORD, lane, element, block < blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE)
    if PDL and EARLY:
        gdc_wait()
    before = octet.to(tl.int64) * blocks
    xq, xd, xs = xq + before * 512, xd + before * D, xs + before * S
    totals = ()
    for _ in tl.static_range(STRANDS * PARTS):
        totals = totals + (tl.zeros((32, W, 4), tl.float32),)
    if TILES:  # as in quant_gemv
        for i in tl.static_range(TILES):
            if i + AHEAD < TILES:
                block = (i + AHEAD) * W + side
                held = held + held_tile(w_at + block * RECORD, lane, element, block < blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE)
            totals = _strand(totals, held, i, w_at, i * W + side, blocks, first, m, xq, xd, xs, lane, element,
                             VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, RECORD, W, WHOLE, MMA, DOT, STRANDS, PARTS, EACH)  # fmt: skip
    else:
        for start in tl.range(0, blocks, AHEAD * W, num_stages=1):
            more, rest = totals, ()
            for i in tl.static_range(AHEAD):
                block = start + i * W + side
                later = block + AHEAD * W
                rest = rest + held_tile(w_at + later * RECORD, lane, element, later < blocks, RECORD, VECTORS, SCALES, TAIL, False)
                more = _strand(more, held, i, w_at, block, blocks, first, m, xq, xd, xs, lane, element,
                               VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, RECORD, W, False, MMA, DOT, STRANDS, PARTS, EACH)  # fmt: skip
            held, totals = rest, more
    for t in tl.static_range(PARTS):
        rows = tl.where(known, _gathered(tree(totals, t, PARTS, STRANDS), W, GATED, MMA), float("nan"))
        r = 8 * t + tl.arange(0, 8)[:, None] if MMA else t + tl.arange(0, 1)[:, None]
        if ORDERED:
            pair = tl.load(places + octet.to(tl.int64) * 8 + first + r).to(tl.int64)
            there = pair >= 0
        else:
            pair = unit.to(tl.int64) + r * 0
            there = first + r == row % 8
        weight = 1.0
        if WEIGHTED:
            weight = tl.load(weights + pair // top * weights_row + pair % top * weights_col, mask=there, other=0.0).to(tl.float32)
        _finish(rows, pair, there, panel, y, y, y, n, 0, 0, 0, 0, 8 if MMA else 1, 16, False, False, GATED, weight, WEIGHTED)


def _new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a result; a test puts its own in the place of this, with bands around it."""
    return torch.empty(shape, dtype=dtype, device=device)
