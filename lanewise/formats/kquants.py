"""Q2_K, Q3_K, Q4_K, Q5_K and Q6_K: blocks of 256 weights whose sub-blocks have small integer scales under one fp16 scale.

    Q2_K                 w = d*scale * q - dmin*min    16 sub-blocks of 16, q in 0..3, 4-bit scales and mins
    Q4_K, Q5_K           w = d*scale * q - dmin*min    8 sub-blocks of 32, q in 0..15 or 0..31, 6-bit scales and mins
    Q3_K                 w = d*scale * q               16 sub-blocks of 16, q in -4..3, 6-bit signed scales (stored + 32)
    Q6_K                 w = d*scale * q               16 sub-blocks of 16, q in -32..31, 8-bit signed scales

Layouts: block_q2_K ... block_q6_K in ggml-common.h. How the 6-bit numbers are packed is said at `split_scales_4k` and `split_scales_3k`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.bits import Blocks, Plane, join, split
from lanewise.formats.format import HALF_MAX, Format
from lanewise.formats.search import fit_affine, fit_signed

__all__ = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "split_scales_3k", "split_scales_4k"]

_Decode = Callable[[Blocks, NDArray[np.float32]], None]
_Encode = Callable[[NDArray[np.float32], Blocks], None]
_U8 = NDArray[np.uint8]

_NIBBLE, _FOUR = np.uint8(15), np.uint8(4)
_TWO_LOW = Plane("qs", groups=2, bits=2)
_FOUR_LOW = Plane("qs", groups=4, bits=4)
_PLANES_2 = (_TWO_LOW,)
_PLANES_3 = (_TWO_LOW, Plane("hmask", groups=1, bits=1, at=2))
_PLANES_4 = (_FOUR_LOW,)
_PLANES_5 = (_FOUR_LOW, Plane("qh", groups=1, bits=1, at=4))
_PLANES_6 = (Plane("ql", groups=2, bits=4), Plane("qh", groups=2, bits=2, at=4))


def split_scales_4k(packed: _U8) -> tuple[_U8, _U8]:
    """(scales[n, 8], mins[n, 8]) of 6 bits from packed[n, 12].

    Bytes 0..3 hold scales 0..3 and bytes 4..7 mins 0..3 in their low six bits; bytes 8..11 hold the low nibbles of scales 4..7 (below) and
    mins 4..7 (above), whose two high bits are the top bits of bytes 0..3 and 4..7.
    """
    scales, mins, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    high_scales = (rest & 15) | (scales >> 6 << 4)
    high_mins = (rest >> 4) | (mins >> 6 << 4)
    return np.concatenate([scales & 63, high_scales], axis=1), np.concatenate([mins & 63, high_mins], axis=1)


def _join_scales_4k(scales: _U8, mins: _U8) -> _U8:
    low = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    middle = mins[:, :4] | (mins[:, 4:] >> 4 << 6)
    return np.concatenate([low, middle, (scales[:, 4:] & 15) | (mins[:, 4:] << 4)], axis=1)


def split_scales_3k(packed: _U8) -> NDArray[np.int8]:
    """scales[n, 16] in -32..31 from packed[n, 12].

    Byte i of the first 8 holds the low nibbles of scales i (below) and i + 8 (above); byte 8 + i holds the two high bits of scales i, i + 4,
    i + 8 and i + 12, lowest first.
    """
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = (packed[:, None, 8:] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3).reshape(-1, 16)
    scales: NDArray[np.int8] = (low | high << 4).view(np.int8) - np.int8(32)
    return scales


def _join_scales_3k(scales: NDArray[np.int8]) -> _U8:
    stored = (scales + np.int8(32)).view(np.uint8)
    high = (stored >> 4).reshape(-1, 4, 4) << np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return np.concatenate([(stored[:, :8] & 15) | (stored[:, 8:] << 4), np.bitwise_or.reduce(high, axis=1)], axis=1)


def _split_scales_2k(packed: _U8) -> tuple[_U8, _U8]:
    return packed & _NIBBLE, packed >> _FOUR


def _join_scales_2k(scales: _U8, mins: _U8) -> _U8:
    return scales | mins << _FOUR


def _times(blocks: Blocks, name: str, integers: NDArray[np.uint8] | NDArray[np.int8]) -> NDArray[np.float32]:
    """The fp16 field times each sub-block's integer, as a column for its weights."""
    product: NDArray[np.float32] = blocks[name].astype(np.float32)[:, None] * integers.astype(np.float32)
    return product[:, :, None]


def _decode_affine(planes: tuple[Plane, ...], scales_of: Callable[[_U8], tuple[_U8, _U8]]) -> _Decode:
    def decode(blocks: Blocks, out: NDArray[np.float32]) -> None:
        scales, mins = scales_of(blocks["scales"])
        np.copyto(out, split(blocks, *planes))
        w = out.reshape(*scales.shape, -1)
        np.multiply(_times(blocks, "d", scales), w, out=w)
        np.subtract(w, _times(blocks, "dmin", mins), out=w)

    return decode


def _decode_signed(planes: tuple[Plane, ...], half: int, scales_of: Callable[[Blocks], NDArray[np.int8]]) -> _Decode:
    def decode(blocks: Blocks, out: NDArray[np.float32]) -> None:
        codes = split(blocks, *planes)
        codes -= np.uint8(half)
        np.copyto(out, codes.view(np.int8))
        w = out.reshape(len(blocks), 16, 16)
        np.multiply(_times(blocks, "d", scales_of(blocks)), w, out=w)

    return decode


def _columns(x: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """x[n, 256] as [size, sub-blocks], the way that the searches want it."""
    return np.ascontiguousarray(x.reshape(-1, size).T)


def _rows(codes: _U8) -> _U8:
    """codes[size, sub-blocks] as [n, 256]."""
    return np.ascontiguousarray(codes.T).reshape(-1, 256)


def _encode_affine(planes: tuple[Plane, ...], most: int, per: int, scale_most: int, scales_to: Callable[[_U8, _U8], _U8]) -> _Encode:
    def encode(x: NDArray[np.float32], blocks: Blocks) -> None:
        fit = fit_affine(_columns(x, 256 // per), most, per=per, scale_most=scale_most)
        blocks["d"], blocks["dmin"] = fit.d, fit.dmin
        blocks["scales"] = scales_to(fit.scales.reshape(-1, per), fit.minima.reshape(-1, per))
        join(_rows(fit.codes), blocks, *planes)

    return encode


def _encode_signed(planes: tuple[Plane, ...], half: int, scale_most: int, scales_to: Callable[[NDArray[np.int8]], NDArray[np.generic]]) -> _Encode:
    def rounding(t: NDArray[np.float32]) -> NDArray[np.float32]:
        np.rint(t, out=t)
        return np.clip(t, np.float32(-half), np.float32(half - 1), out=t)

    # The plain choice, the furthest weight on the lowest code, comes first and wins ties.
    tries = [-half + beyond for beyond in (0.0, 0.9, 0.6, 0.3, -0.3, -0.6, -0.9)]

    def encode(x: NDArray[np.float32], blocks: Blocks) -> None:
        fit = fit_signed(_columns(x, 16), rounding, tries, per=16, scale_most=scale_most)
        blocks["d"] = fit.d
        blocks["scales"] = scales_to(fit.scales.reshape(-1, 16))
        fit.values[...] += np.float32(half)
        join(_rows(fit.values.astype(np.uint8)), blocks, *planes)

    return encode


def _stored_3k(blocks: Blocks) -> NDArray[np.int8]:
    return split_scales_3k(blocks["scales"])


def _stored_6k(blocks: Blocks) -> NDArray[np.int8]:
    scales: NDArray[np.int8] = blocks["scales"]
    return scales


def _as_is(scales: NDArray[np.int8]) -> NDArray[np.int8]:
    return scales


def _bytes(name: str, count: int) -> tuple[str, str, tuple[int]]:
    return name, "u1", (count,)


def _layout(*fields: tuple[str, str] | tuple[str, str, tuple[int]]) -> np.dtype[np.void]:
    return np.dtype(list(fields))


_D, _DMIN, _SCALES = ("d", "<f2"), ("dmin", "<f2"), _bytes("scales", 12)

Q2_K = Format(
    "Q2_K", 10, 256, _layout(_bytes("scales", 16), _bytes("qs", 64), _D, _DMIN), "q8_k", 15 * HALF_MAX,
    _decode_affine(_PLANES_2, _split_scales_2k), _encode_affine(_PLANES_2, 3, 16, 15, _join_scales_2k),
)  # fmt: skip
Q3_K = Format(
    "Q3_K", 11, 256, _layout(_bytes("hmask", 32), _bytes("qs", 64), _SCALES, _D), "q8_k", 3 * 31 * HALF_MAX,
    _decode_signed(_PLANES_3, 4, _stored_3k), _encode_signed(_PLANES_3, 4, 32, _join_scales_3k),
)  # fmt: skip
Q4_K = Format(
    "Q4_K", 12, 256, _layout(_D, _DMIN, _SCALES, _bytes("qs", 128)), "q8_k", 63 * HALF_MAX,
    _decode_affine(_PLANES_4, split_scales_4k), _encode_affine(_PLANES_4, 15, 8, 63, _join_scales_4k),
)  # fmt: skip
Q5_K = Format(
    "Q5_K", 13, 256, _layout(_D, _DMIN, _SCALES, _bytes("qh", 32), _bytes("qs", 128)), "q8_k", 63 * HALF_MAX,
    _decode_affine(_PLANES_5, split_scales_4k), _encode_affine(_PLANES_5, 31, 8, 63, _join_scales_4k),
)  # fmt: skip
Q6_K = Format(
    "Q6_K", 14, 256, _layout(_bytes("ql", 128), _bytes("qh", 64), ("scales", "i1", (16,)), _D), "q8_k", 31 * 127 * HALF_MAX,
    _decode_signed(_PLANES_6, 32, _stored_6k), _encode_signed(_PLANES_6, 32, 128, _as_is),
)  # fmt: skip
