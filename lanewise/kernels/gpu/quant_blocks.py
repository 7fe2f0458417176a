"""The three things that a GGUF block holds, each a run of bytes: codes, one a byte; a row's scales, a byte or two each; and what `tail` is.

In torch what `formats` has in numpy, for a device packs its own weights. Everything is [..., blocks of a tile, bytes of a block] on one side and
[..., bytes] of a tile's row on the other, and each step stands beside its inverse.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lanewise.formats import get
from lanewise.formats.bits import Plane

__all__ = ["join_block", "split_block"]


def split_block(blocks: torch.Tensor, fmt: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(codes uint8[..., 256], scales[..., 8 * vectors], tail[...]) of uint8 blocks[..., blocks of a tile, bytes of a block]."""
    file = _FILES[fmt]
    return _codes(blocks, fmt, file.codes), file.split(_fields(blocks, fmt, file.scales)), _fields(blocks, fmt, file.tail)


def join_block(codes: torch.Tensor, scales: torch.Tensor, tail: torch.Tensor, fmt: str) -> torch.Tensor:
    """The inverse of `split_block`."""
    file, form = _FILES[fmt], get(fmt)
    blocks = codes.new_empty((*codes.shape[:-1], codes.shape[-1] // form.block, form.nbytes))
    _put_codes(codes, blocks, fmt, file.codes)
    _put_fields(file.join(scales), blocks, fmt, file.scales)
    _put_fields(tail, blocks, fmt, file.tail)
    return blocks


def _field(blocks: torch.Tensor, fmt: str, name: str) -> torch.Tensor:
    fields = get(fmt).layout.fields
    assert fields is not None
    kind, offset = fields[name][:2]
    return blocks[..., offset : offset + kind.itemsize]


def _fields(blocks: torch.Tensor, fmt: str, names: tuple[str, ...]) -> torch.Tensor:
    """One field of all blocks, then the next."""
    none = blocks.new_empty((*blocks.shape[:-2], 0))
    return torch.cat([none, *(_field(blocks, fmt, name).flatten(-2) for name in names)], -1)


def _put_fields(strings: torch.Tensor, blocks: torch.Tensor, fmt: str, names: tuple[str, ...]) -> None:
    start = 0
    for name in names:
        field = _field(blocks, fmt, name)
        size = field.shape[-2] * field.shape[-1]
        field.copy_(strings[..., start : start + size].reshape(field.shape))
        start += size


def _codes(blocks: torch.Tensor, fmt: str, planes: tuple[Plane, ...]) -> torch.Tensor:
    """The bits of all planes put together (`formats.bits`)."""
    found: torch.Tensor | None = None
    for plane in planes:
        runs = torch.unflatten(_field(blocks, fmt, plane.field), -1, (plane.groups, -1))
        part = torch.stack([_bits(runs, shift, plane.bits) << plane.at for shift in range(0, 8, plane.bits)], -2).flatten(-4)
        found = part if found is None else found.bitwise_or_(part)
    assert found is not None
    return found


def _put_codes(codes: torch.Tensor, blocks: torch.Tensor, fmt: str, planes: tuple[Plane, ...]) -> None:
    codes = torch.unflatten(codes, -1, (blocks.shape[-2], -1))
    for plane in planes:
        runs = torch.unflatten(codes, -1, (plane.groups, 8 // plane.bits, -1))
        field = torch.zeros_like(runs[..., 0, :])
        for i in range(8 // plane.bits):
            field |= _bits(runs[..., i, :], plane.at, plane.bits) << plane.bits * i
        _field(blocks, fmt, plane.field).copy_(field.flatten(-2))


def _bits(codes: torch.Tensor, at: int, bits: int) -> torch.Tensor:
    return codes >> at & (1 << bits) - 1


# Scales of six bits, which files pack tightly, as a byte each.


def _split_4k(packed: torch.Tensor) -> torch.Tensor:
    """12 bytes to 8 scales and 8 minima, as `formats.kquants.split_scales_4k` says."""
    low, rest = packed[..., :8], packed[..., 8:]
    top = low >> 6 << 4
    return torch.cat([low[..., :4] & 63, rest & 15 | top[..., :4], low[..., 4:] & 63, rest >> 4 | top[..., 4:]], -1)


def _join_4k(scales: torch.Tensor) -> torch.Tensor:
    first, second, third, fourth = torch.split(scales, 4, -1)
    return torch.cat([first | second >> 4 << 6, third | fourth >> 4 << 6, second & 15 | fourth << 4], -1)


def _split_3k(packed: torch.Tensor) -> torch.Tensor:
    """12 bytes to 16 signed scales, as `formats.kquants.split_scales_3k` says."""
    low, rest = packed[..., :8], packed[..., 8:]
    top = torch.cat([_bits(rest, shift, 2) for shift in (0, 2, 4, 6)], -1)
    return (torch.cat([low & 15, low >> 4], -1) | top << 4) - 32


def _join_3k(scales: torch.Tensor) -> torch.Tensor:
    stored = scales + 32
    return torch.cat([stored[..., :8] & 15 | stored[..., 8:] << 4, _four(torch.unflatten(stored >> 4, -1, (4, 4)))], -1)


def _split_4xs(packed: torch.Tensor) -> torch.Tensor:
    """2 bytes of high bits and 4 of low ones to 8 signed scales, as `formats.iq4.split_scales_4xs` says."""
    high, low = packed[..., :2], packed[..., 2:]
    top = torch.stack([_bits(high, shift, 2) for shift in (0, 2, 4, 6)], -1).flatten(-2)
    return (torch.stack([low & 15, low >> 4], -1).flatten(-2) | top << 4) - 32


def _join_4xs(scales: torch.Tensor) -> torch.Tensor:
    stored = scales + 32
    high = _four(torch.unflatten(stored >> 4, -1, (2, 4)).transpose(-1, -2))
    return torch.cat([high, stored[..., 0::2] & 15 | stored[..., 1::2] << 4], -1)


def _four(pairs: torch.Tensor) -> torch.Tensor:
    """Bytes of four pairs of bits, pairs[..., 4, bytes], lowest first."""
    return pairs[..., 0, :] | pairs[..., 1, :] << 2 | pairs[..., 2, :] << 4 | pairs[..., 3, :] << 6


def _same(scales: torch.Tensor) -> torch.Tensor:
    return scales


@dataclass(frozen=True, slots=True)
class _File:
    """The fields of a block that hold its codes, its scales and its tail; and how scales of six bits become bytes, and are joined again."""

    codes: tuple[Plane, ...]
    scales: tuple[str, ...]
    tail: tuple[str, ...] = ()
    split: Callable[[torch.Tensor], torch.Tensor] = _same
    join: Callable[[torch.Tensor], torch.Tensor] = _same


_FOUR, _FIFTH = Plane("qs", 1, 4), Plane("qh", 4, 1, 4)
_TWO_K, _FOUR_K = Plane("qs", 2, 2), Plane("qs", 4, 4)
_FILES: dict[str, _File] = {
    "Q8_0": _File((Plane("qs", 1, 8),), ("d",)),
    "Q4_0": _File((_FOUR,), ("d",)),
    "Q4_1": _File((_FOUR,), ("d", "m")),
    "Q5_0": _File((_FOUR, _FIFTH), ("d",)),
    "Q5_1": _File((_FOUR, _FIFTH), ("d", "m")),
    "IQ4_NL": _File((_FOUR,), ("d",)),
    "Q2_K": _File((_TWO_K,), ("scales",), ("d", "dmin")),
    "Q3_K": _File((_TWO_K, Plane("hmask", 1, 1, 2)), ("scales",), ("d",), _split_3k, _join_3k),
    "Q4_K": _File((_FOUR_K,), ("scales",), ("d", "dmin"), _split_4k, _join_4k),
    "Q5_K": _File((_FOUR_K, Plane("qh", 1, 1, 4)), ("scales",), ("d", "dmin"), _split_4k, _join_4k),
    "Q6_K": _File((Plane("ql", 2, 4), Plane("qh", 2, 2, 4)), ("scales",), ("d",)),
    "IQ4_XS": _File((Plane("qs", 8, 4),), ("scales_h", "scales_l"), ("d",), _split_4xs, _join_4xs),
}
