"""Packed weights back to floating point, for the vendor's library behind: prompts of many tokens.

x then stays as it is, and w = scale * code - least is rounded once to x's type: another definition than that of the integer kernels, and a
nearer one to the model's own numbers.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from lanewise.arch import Arch
from lanewise.kernels.gpu.quant_codes import byte_of, codes, half_of, held_tile, of_rows, scale_word
from lanewise.kernels.gpu.quant_config import as_written
from lanewise.kernels.gpu.quant_pack import QuantWeight

__all__ = ["dequantize"]

_WARPS = 4


def dequantize(w: QuantWeight, dtype: torch.dtype, out: torch.Tensor | None = None, *, arch: Arch) -> torch.Tensor:
    """w[rows,k] of packed weights (of experts [experts,rows,k]), the gates of gated weights first; into `out` where given."""
    experts, layout = max(1, w.experts), w.layout
    panels, blocks = w.tiles.shape[-3], w.tiles.shape[-2]
    shape = (*w.tiles.shape[:-3], w.rows, w.k)
    out = _new(shape, dtype, w.tiles.device) if out is None else out
    if out.numel() == 0:
        return out
    interpreted = bool(triton.knobs.runtime.interpret)
    pdl = arch.pdl and not interpreted
    lookup = "plain" if interpreted else "mma" if arch.vendor == "nvidia" else "perm"
    wide = min(_WARPS, triton.next_power_of_2(blocks))
    _dequantize[panels * -(-blocks // wide), experts](
        w.tiles, out, w.rows, w.k, panels, blocks, CODE=layout.code, VECTORS=layout.quants + layout.high, SCALES=layout.scales, TAIL=layout.tail,
        SCALE=layout.scale, GROUP=layout.group, SHIFT=layout.shift, RECORD=layout.record, DOT=lookup, W=wide, GATED=w.gated, PDL=pdl,
        num_warps=max(1, wide * 32 // arch.wave) if not interpreted else 1, **as_written(arch),
        **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip
    return out


@triton.jit
def _dequantize(w, out, rows, k, panels, blocks,
                CODE: tl.constexpr, VECTORS: tl.constexpr, SCALES: tl.constexpr, TAIL: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
                SHIFT: tl.constexpr, RECORD: tl.constexpr, DOT: tl.constexpr, W: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """W tiles of a panel, side by side in k."""
    expert, across = tl.program_id(1).to(tl.int64), tl.cdiv(blocks, W)
    panel, first = tl.program_id(0) // across, tl.program_id(0) % across * W
    lane, element = tl.arange(0, 32)[:, None, None], tl.arange(0, 4)[None, None, :]
    block = first + tl.arange(0, W)[None, :, None]
    inside = block < blocks
    w_at = w + ((expert * panels + panel) * blocks + block) * RECORD
    if PDL:  # whoever reads `out` may still be at work, and whoever made w too
        gdc_launch_dependents()
        gdc_wait()
    held = held_tile(w_at, lane, element, inside, RECORD, VECTORS, SCALES, TAIL, False)
    g, c, h, p = lane // 4, lane % 4, element // 2, element % 2
    if GATED:
        row = h * (rows // 2) + panel * 8 + g
        there = inside & (panel * 8 + g < rows // 2)
    else:
        row = panel * 16 + 8 * h + g
        there = inside & (row < rows)
    column = block * 256 + p * 16 + c * 4
    at = out + (expert * rows + row) * k + column
    FACTOR: tl.constexpr = 1 / (1 << SHIFT)
    for i in tl.static_range(4):
        low, high = codes(held, i, CODE, DOT)
        for odd in tl.static_range(2):
            word = high if odd else low
            scale, least = _scaled(held, i, odd, p, VECTORS, SCALES, SCALE, GROUP, W)
            unit = 32 * (2 * i + odd)
            # the four bytes side by side: stores as wide as they can be
            four = tl.join(tl.join(byte_of(word, 0, True), byte_of(word, 2, True)), tl.join(byte_of(word, 1, True), byte_of(word, 3, True)))
            values = tl.reshape(four, (32, W, 4, 4)).to(tl.float32) * (scale * FACTOR)[:, :, :, None]
            if SCALE == "bytes+min" or SCALE == "half+min" or SCALE == "nibbles+min":
                values = values - least[:, :, :, None]
            further = unit + tl.arange(0, 4)[None, None, None, :]
            tl.store(at[:, :, :, None] + further, values.to(out.dtype.element_ty), mask=there[:, :, :, None] & (column[:, :, :, None] + further < k))


@triton.jit
def _scaled(held, PAIR: tl.constexpr, ODD: tl.constexpr, p, VECTORS: tl.constexpr, SCALES: tl.constexpr, SCALE: tl.constexpr, GROUP: tl.constexpr,
            W: tl.constexpr):  # fmt: skip
    """(scale, least) of unit 2 PAIR + ODD at each word, float32[32, W, 4]."""
    UNIT: tl.constexpr = 2 * PAIR + ODD
    if SCALE == "half" or SCALE == "half+min":
        scale = half_of(scale_word(held, VECTORS, PAIR, W), ODD)
        least = scale
        if SCALE == "half+min":
            least = -half_of(scale_word(held, VECTORS + 2, PAIR, W), ODD)
    else:
        tail = of_rows(held[VECTORS + SCALES], W)
        d = half_of(tail, 0)
        least = d
        if GROUP == 16:
            word = scale_word(held, VECTORS, PAIR, W) >> (8 * p)
            if SCALE == "nibbles+min":
                least = (byte_of(word, 2 * ODD, False) >> 4).to(tl.float32) * half_of(tail, 1)
                word = word & 0x0F0F0F0F
            scale = d * byte_of(word, 2 * ODD, SCALE == "bytes").to(tl.float32)
        else:
            scale = d * byte_of(scale_word(held, VECTORS, UNIT // 4, W), UNIT % 4, SCALE == "bytes").to(tl.float32)
            if SCALE == "bytes+min":
                least = half_of(tail, 1) * byte_of(scale_word(held, VECTORS + 1, UNIT // 4, W), UNIT % 4, False).to(tl.float32)
    return scale, least


def _new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a result; a test puts its own in the place of this, with bands around it."""
    return torch.empty(shape, dtype=dtype, device=device)
