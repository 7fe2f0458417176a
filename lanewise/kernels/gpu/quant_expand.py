"""Packed weights as floating point by torch's own functions: what is left where no kernel runs, and the kernels' second opinion."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lanewise.formats import get
from lanewise.formats.iq4 import VALUES
from lanewise.kernels.gpu.quant_blocks import split_block
from lanewise.kernels.gpu.quant_layout import BLOCK, Layout
from lanewise.kernels.gpu.quant_pack import QuantWeight, unpack

__all__ = ["expand"]

_LOWER, _UPPER = (int.from_bytes(half.astype(np.int8).tobytes(), "little", signed=True) for half in (VALUES[:8], VALUES[8:]))
_PIECE = 1 << 22  # weights handled at a time: of each array of float32 there are 16 MB


def expand(w: QuantWeight, dtype: torch.dtype) -> Tensor:
    """w[rows,k] (of experts [experts,rows,k]) on w's own device, the gates of gated weights first: `Format.dequantize`'s bits, rounded to `dtype`."""
    out = torch.empty((*w.tiles.shape[:-3], w.rows, w.k), dtype=dtype, device=w.device)
    if out.numel() == 0:
        return out
    form, tiles = get(w.format), w.tiles.shape[-2]
    high = max(1, _PIECE // (tiles * BLOCK))
    for raw, part in zip(torch.split(unpack(w).flatten(0, -2), high), torch.split(out.view(-1, w.k), high), strict=True):
        whole = functional.pad(raw, (0, tiles * BLOCK // form.block * form.nbytes - raw.shape[1]))
        values = _weights(whole.reshape(len(raw), tiles, BLOCK // form.block, form.nbytes), w.layout)
        part.copy_(values.reshape(len(raw), tiles * BLOCK)[:, : w.k])
    return out


def _weights(blocks: Tensor, layout: Layout) -> Tensor:
    """float32[rows, tiles, groups, group] of the bytes of blocks[rows, tiles, blocks of a tile, bytes of a block], rounded in the file's order."""
    codes, scales, tail = split_block(blocks, layout.format)
    q = torch.unflatten(_numbers(codes, layout), -1, (-1, layout.group))
    if layout.scale == "half":
        return _halves(scales)[..., None] * q
    if layout.scale == "half+min":
        d, m = torch.split(_halves(scales), 8, -1)
        return d[..., None] * q + m[..., None]
    if layout.scale == "bytes":
        return (_halves(tail) * scales.view(torch.int8))[..., None] * q
    d, least = torch.split(_halves(tail), 1, -1)
    steps, minima = (scales & 15, scales >> 4) if layout.scale == "nibbles+min" else torch.split(scales, 8, -1)
    return (d * steps)[..., None] * q - (least * minima)[..., None]


def _numbers(codes: Tensor, layout: Layout) -> Tensor:
    """What codes stand for, float32, in front of their scale."""
    if layout.code == "iq4":  # out of two numbers: a table would have to be copied to the device, which a graph that is recorded does not take
        at = (codes & 7).long() * 8
        found = torch.where(codes < 8, torch.bitwise_right_shift(_LOWER, at), torch.bitwise_right_shift(_UPPER, at))
        return (found & 255).to(torch.uint8).view(torch.int8).float()
    if layout.code == "s8":
        return codes.view(torch.int8).float()
    return codes.float() - (1 << int(layout.code[1:]) - 1 if layout.code.startswith("s") else 0)


def _halves(strings: Tensor) -> Tensor:
    return strings.view(torch.float16).float()
