"""y[m,n] = act(x[m,k] @ w[n,k].T + bias) + residual of packed weights and quantized activations: decode, and short prompts.

A program takes 16 rows of w, which are one panel of tiles, and all of its tokens. The blocks of 256 columns are dealt out to STRANDS strands, block b
to strand b % STRANDS; a strand adds up in order, and the strands are added as a tree. Warps and splits of k only say who keeps which strands:
a row's bits do not depend on them, nor on the other tokens.

On NVIDIA a kernel may start before the one in front of it has ended: with `constant_w` the first tiles are on their way before that wait.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.arch import Arch
from lanewise.kernels.gpu.act_quant import Activations
from lanewise.kernels.gpu.laid_out import checked
from lanewise.kernels.gpu.lanes import _finish
from lanewise.kernels.gpu.quant_codes import held_tile
from lanewise.kernels.gpu.quant_config import STRANDS, QuantConfig, as_written, straight
from lanewise.kernels.gpu.quant_dots import dots_tile, load_no_earlier
from lanewise.kernels.gpu.quant_layout import ROWS
from lanewise.kernels.gpu.quant_mma import mma_tile
from lanewise.kernels.gpu.quant_octets import octets
from lanewise.kernels.gpu.quant_one import one
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.kernels.gpu.quant_threads import THREADS, tree

__all__ = ["quant_gemv"]

_LANES = "sizePerThread = [1, 1, 4], threadsPerWarp = [32, 1, 1], warpsPerCTA = [1, \\d+, 1], order = [2, 0, 1]"
_WAITING_WAVE = 64  # where a dot's result must not be read at once (LLVM's hazard recognizer, gfx90a and later); harmless on the others
_UNROLLED = 32  # tiles times tokens of a program, in eights or by ones, that are written out: compilers then need fewer registers than in a loop
_COMBINED = 64  # rows of w that a program of `_combine` adds up


def quant_gemv(
    a: Activations,
    w: QuantWeight,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    out: torch.dtype,
    constant_w: bool,
    config: QuantConfig,
    arch: Arch,
) -> torch.Tensor:
    """y[m,n] of activations [m,k] and packed w[n,k]; bias [n] or [m,n] (of gated w 2n), residual [m,n]; `ops.quant_linear` checks them."""
    m, layout = a.m, w.layout
    y = _new((m, w.n), out, w.tiles.device)
    if m == 0 or w.n == 0:
        return y
    panels, blocks = w.tiles.shape[-3], w.tiles.shape[-2]
    interpreted = bool(triton.knobs.runtime.interpret)
    mma = config.body == "tiles"
    dot = "plain" if interpreted else "mma" if mma else _dot(arch)
    wide, tokens = config.warps, config.tokens
    while config.splits * wide > STRANDS:
        wide //= 2
    if mma:  # whose tiles are all written out: more warps, or fewer tokens, where they would be too many
        while config.splits * wide < STRANDS and -(-blocks // (wide * config.splits)) * tokens // 8 > _UNROLLED:
            wide *= 2
        while tokens > 8 and -(-blocks // (wide * config.splits)) * tokens // 8 > _UNROLLED:
            tokens //= 2
    tiles = -(-blocks // (wide * config.splits))
    strands = STRANDS // (wide * config.splits)
    ahead = min(config.ahead, tiles)
    unrolled = mma or tiles * tokens <= min(_UNROLLED, straight(arch, tokens))
    if not unrolled:  # a multiple of the strands, so that a held tile always belongs to the same
        ahead = max(1, ahead // strands) * strands
    whole = blocks % (wide * config.splits) == 0
    part = _new((config.splits, m, panels * ROWS), torch.float32, y.device) if config.splits > 1 else y
    pdl = arch.pdl and not interpreted
    fused: dict[str, Any] = {"BIAS": bias is not None, "RESIDUAL": residual is not None, "GATED": w.gated, "PDL": pdl}
    strides = (*_strides(bias), *_strides(residual))
    late = {**as_written(arch), **({"launch_pdl": True} if pdl else {})}
    shape = {"CODE": layout.code, "VECTORS": layout.quants + layout.high, "SCALES": layout.scales, "TAIL": layout.tail, "SCALE": layout.scale,
             "GROUP": layout.group, "SHIFT": layout.shift, "RECORD": layout.record, "DOT": dot, "W": wide, "STRANDS": strands,
             "SPLITS": config.splits, "EARLY": pdl and constant_w}  # fmt: skip
    operands = (a.q, a.d, a.sums, w.tiles, y, _or(bias, y), _or(residual, y), part)
    few: dict[str, Any] = {"maxnreg": config.registers} if dot == "mma" and config.registers else {}
    threads = {"AHEAD": ahead, "TILES": tiles, "WHOLE": whole, "num_warps": wide if not interpreted else 1, **shape, **fused, **late, **few}
    if mma and m == 1 and not layout.scale.startswith("half"):
        compiled = one[panels, config.splits](*operands, w.n, blocks, *strides, **threads)
    elif mma:
        compiled = octets[panels * -(-m // tokens), config.splits](*operands, m, w.n, blocks, *strides, PARTS=tokens // 8, **threads)
    else:
        _tiles[panels * -(-m // tokens), config.splits](
            *operands, m, w.n, blocks, *strides, AHEAD=ahead, TILES=tiles if unrolled else 0, BLOCKS=blocks if whole else 0, TOKENS=tokens,
            num_warps=max(1, wide * 32 // arch.wave) if not interpreted else 1, **shape, **fused, **late,
        )  # fmt: skip
    if dot == "mma":
        checked(compiled, THREADS)
    if config.splits > 1:
        _combine[m, triton.cdiv(panels * ROWS, _COMBINED)](
            part, y, _or(bias, y), _or(residual, y), m, w.n, panels * ROWS, *strides, SPLITS=config.splits, WIDTH=_COMBINED, num_warps=1,
            **fused, **late,
        )  # fmt: skip
    return y


@triton.jit
def _tiles(xq, xd, xs, w, y, bias, residual, part, m, n, blocks, bias_row, bias_col, residual_row, residual_col,
           CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
           SHIFT: tl.constexpr, RECORD: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, STRANDS: tl.constexpr,
           AHEAD: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, TOKENS: tl.constexpr,
           SPLITS: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """All blocks, of a split its share, of panel program_id(0) for TOKENS tokens; of a split as part[split, token, row]."""
    # tokens side by side: their panel is in the cache
    across, split = tl.cdiv(m, TOKENS), tl.program_id(1)
    panel, first_token = tl.program_id(0) // across, tl.program_id(0) % across * TOKENS
    lane, element = tl.arange(0, 32)[:, None, None], tl.arange(0, 4)[None, None, :]
    side = tl.arange(0, W)[None, :, None] * SPLITS + split  # which of the blocks that are taken at a time
    STEP: tl.constexpr = W * SPLITS
    WHOLE: tl.constexpr = BLOCKS > 0
    if BLOCKS:
        blocks = BLOCKS
    w_at = w + tl.cast(panel, tl.int64) * blocks * RECORD
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    held = ()
    for i in tl.static_range(AHEAD):
        block = i * STEP + side
        held = held + held_tile(w_at + block * RECORD, lane, element, block < blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE)
    if PDL and EARLY:
        gdc_wait()
    EACH: tl.constexpr = VECTORS + SCALES + (TAIL > 0)
    totals = ()
    for _ in tl.static_range(STRANDS * TOKENS):
        totals = totals + (tl.zeros((32, W, 4), tl.float32),)
    if TILES:  # one after the other, each with the load of the one that comes AHEAD later
        for i in tl.static_range(TILES):
            if i + AHEAD < TILES:
                block = (i + AHEAD) * STEP + side
                held = held + held_tile(w_at + block * RECORD, lane, element, block < blocks, RECORD, VECTORS, SCALES, TAIL, WHOLE)
            totals = _strand(totals, held, i, w_at, i * STEP + side, blocks, first_token, m, xq, xd, xs, lane, element,
                             VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, RECORD, W, WHOLE, False, DOT, STRANDS, TOKENS, EACH)  # fmt: skip
    else:
        for start in tl.range(0, blocks, AHEAD * STEP, num_stages=1):
            more, rest = totals, ()
            for i in tl.static_range(AHEAD):
                block = start + i * STEP + side
                later = block + AHEAD * STEP
                rest = rest + held_tile(w_at + later * RECORD, lane, element, later < blocks, RECORD, VECTORS, SCALES, TAIL, False)
                more = _strand(more, held, i, w_at, block, blocks, first_token, m, xq, xd, xs, lane, element,
                               VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, RECORD, W, False, False, DOT, STRANDS, TOKENS, EACH)  # fmt: skip
            held, totals = rest, more
    for t in tl.static_range(TOKENS):
        total = tree(totals, t, TOKENS, STRANDS)
        token = tl.cast(first_token, tl.int64) + (t + tl.arange(0, 1)[:, None])
        y_rows = _gathered(total, W, GATED, False)
        if SPLITS > 1:
            rows = panel.to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
            tl.store(part + (split * tl.cast(m, tl.int64) + token) * (tl.num_programs(0) // across * 16) + rows, y_rows, mask=token < m)
        else:
            _finish(y_rows, token, token < m, panel, y, bias, residual, n, bias_row, bias_col, residual_row, residual_col,
                    1, 16, BIAS, RESIDUAL, GATED)  # fmt: skip


@triton.jit
def _strand(totals, held, AT: tl.constexpr, w_at, block, blocks, first_token, m, xq, xd, xs, lane, element,
            VECTORS: tl.constexpr, SCALES: tl.constexpr, CODE: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr,
            RECORD: tl.constexpr, W: tl.constexpr, WHOLE: tl.constexpr, MMA: tl.constexpr, DOT: tl.constexpr,
            STRANDS: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr):  # fmt: skip
    """The totals, to those of whose strand tile AT of the held ones is added."""
    tile = ()
    for v in tl.static_range(EACH):
        tile = tile + (held[AT * EACH + v],)
    more = ()
    for s in tl.static_range(STRANDS):
        for t in tl.static_range(PARTS):
            total = totals[s * PARTS + t]
            if s == AT % STRANDS:
                if MMA:
                    total = mma_tile(total, tile, block, blocks, first_token + 8 * t, m, xq, xd, xs, lane, element,
                                     VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, W, WHOLE, DOT)  # fmt: skip
                else:
                    total = dots_tile(total, tile, w_at + block * RECORD, block, blocks, first_token + t, m, xq, xd, xs, lane, element,
                                      VECTORS, SCALES, CODE, SCALE, GROUP, SHIFT, W, WHOLE, DOT)  # fmt: skip
                    if PARTS > 1:
                        total = load_no_earlier(total, DOT)
            more = more + (total,)
    return more


@triton.jit
def _gathered(total, W: tl.constexpr, GATED: tl.constexpr, MMA: tl.constexpr):
    """[tokens, 16 rows] of total[32, W, 4]; gated rows come in pairs of a gate and its up."""
    # two warps at a time: what order a reduction of more takes is up to the layout that the compiler finds
    if W == 8:
        total = tl.sum(tl.reshape(total, (32, 2, 4, 4)), 1)
    if W >= 4:
        total = tl.sum(tl.reshape(total, (32, 2, 2, 4)), 1)
    if W >= 2:
        total = tl.sum(tl.reshape(total, (32, 2, 1, 4)), 1)
    parts = tl.reshape(total, (8, 4, 2, 2))
    if MMA:
        if GATED:
            rows = tl.reshape(tl.permute(parts, (1, 3, 0, 2)), (8, 16))
        else:
            rows = tl.reshape(tl.permute(parts, (1, 3, 2, 0)), (8, 16))
    else:
        summed = tl.sum(tl.sum(parts, 3), 1)
        if GATED:
            rows = tl.reshape(summed, (1, 16))
        else:
            rows = tl.reshape(tl.permute(summed, (1, 0)), (1, 16))
    return rows


@triton.jit
def _combine(part, y, bias, residual, m, n, width, bias_row, bias_col, residual_row, residual_col,
             SPLITS: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
             PDL: tl.constexpr):  # fmt: skip
    """The splits of a token's rows, part[split, token, width], as the tree of strands goes on; and what comes behind."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    token, first = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part + token * width + (first.to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :])
    inside = first * WIDTH + tl.arange(0, WIDTH)[None, :] < width
    apart = tl.cast(m, tl.int64) * width
    parts = ()
    for s in tl.static_range(SPLITS):
        parts = parts + (tl.load(at + s * apart, mask=inside, other=0.0),)
    total = tree(parts, 0, 1, SPLITS)
    _finish(total, tl.full((1, 1), 0, tl.int64) + token, tl.full((1, 1), True, tl.int1), first, y, bias, residual, n, bias_row, bias_col,
            residual_row, residual_col, 1, WIDTH, BIAS, RESIDUAL, GATED)  # fmt: skip


def _dot(arch: Arch) -> str:
    """How lanes of a target multiply four bytes."""
    if arch.dot4 is None:
        return "plain"
    if arch.dot4.endswith("_iu8"):
        return "iu8"
    return "dp4a" if arch.vendor == "nvidia" else "i8 and wait" if arch.wave == _WAITING_WAVE else "i8"


def _new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a result; a test puts its own in the place of this, with bands around it."""
    return torch.empty(shape, dtype=dtype, device=device)


def _or(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """An operand, or in place of one that is not there a pointer that nothing reads."""
    return other if tensor is None else tensor


def _strides(tensor: torch.Tensor | None) -> tuple[int, int]:
    """(of a token, of a column); a vector is the same for every token."""
    if tensor is None:
        return 0, 1
    return (0, tensor.stride(0)) if tensor.dim() == 1 else (tensor.stride(0), tensor.stride(1))
