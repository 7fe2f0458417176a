"""Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: 32 weights under one fp16 scale d, and in the _1 formats one fp16 minimum m.

    Q4_0, Q5_0, Q8_0   w = d * q           q in -8..7, -16..15, -127..127
    Q4_1, Q5_1         w = d * q + m       q in 0..15, 0..31

Layouts: block_q4_0 ... block_q8_0 in ggml-common.h. Quantizing finds d and rounds as ggml's reference quantizers do, so that files
come out the same: in Q4_0 and Q5_0 the value furthest from zero becomes the lowest code, which makes d negative when it is positive
and lets a value of nearly that size on the other side err by a whole step; Q8_0 rounds halves away from zero; and the codes are
those of the float32 scale, before it is rounded to fp16.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.bits import Blocks, Plane, join, split
from lanewise.formats.format import HALF_MAX, Format

__all__ = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]

_Decode = Callable[[Blocks, NDArray[np.float32]], None]
_Encode = Callable[[NDArray[np.float32], Blocks], None]

_NIBBLES = Plane("qs", groups=1, bits=4)
_FOUR = (_NIBBLES,)
_FIVE = (_NIBBLES, Plane("qh", groups=4, bits=1, at=4))


def _scale(blocks: Blocks, name: str) -> NDArray[np.float32]:
    """An fp16 field as a float32 column."""
    column: NDArray[np.float32] = blocks[name].astype(np.float32)[:, None]
    return column


def _decode_signed(planes: tuple[Plane, ...], half: int) -> _Decode:
    def decode(blocks: Blocks, out: NDArray[np.float32]) -> None:
        codes = split(blocks, *planes)
        codes -= np.uint8(half)
        np.copyto(out, codes.view(np.int8))
        np.multiply(_scale(blocks, "d"), out, out=out)

    return decode


def _decode_affine(planes: tuple[Plane, ...]) -> _Decode:
    def decode(blocks: Blocks, out: NDArray[np.float32]) -> None:
        np.copyto(out, split(blocks, *planes))
        np.multiply(_scale(blocks, "d"), out, out=out)
        np.add(out, _scale(blocks, "m"), out=out)

    return decode


def _decode_q8_0(blocks: Blocks, out: NDArray[np.float32]) -> None:
    np.copyto(out, blocks["qs"])
    np.multiply(out, _scale(blocks, "d"), out=out)


def _inverse(d: NDArray[np.float32]) -> NDArray[np.float32]:
    """1/d, or 0 where that is not finite: such a d is zero in fp16 too."""
    inverse = np.float32(1) / d
    inverse[~np.isfinite(inverse)] = 0
    return inverse


def _truncate(t: NDArray[np.float32], most: int) -> NDArray[np.uint8]:
    return np.minimum(t, np.float32(most), out=t).astype(np.uint8)


def _encode_signed(planes: tuple[Plane, ...], half: int) -> _Encode:
    def encode(x: NDArray[np.float32], blocks: Blocks) -> None:
        furthest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
        d = furthest / np.float32(-half)
        blocks["d"] = d[:, 0]
        join(_truncate(x * _inverse(d) + np.float32(half + 0.5), 2 * half - 1), blocks, *planes)

    return encode


def _encode_affine(planes: tuple[Plane, ...], most: int) -> _Encode:
    def encode(x: NDArray[np.float32], blocks: Blocks) -> None:
        least = x.min(axis=1, keepdims=True)
        d = (x.max(axis=1, keepdims=True) - least) / np.float32(most)
        blocks["d"], blocks["m"] = d[:, 0], least[:, 0]
        join(_truncate((x - least) * _inverse(d) + np.float32(0.5), most), blocks, *planes)

    return encode


def _encode_q8_0(x: NDArray[np.float32], blocks: Blocks) -> None:
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    blocks["d"] = d[:, 0]
    t = x * _inverse(d)
    # Half away from zero, without the double rounding of floor(t + 0.5): the fraction is exact.
    whole = np.trunc(t)
    blocks["qs"] = whole + np.trunc((t - whole) * np.float32(2))


def _layout(*fields: tuple[str, str] | tuple[str, str, tuple[int]]) -> np.dtype[np.void]:
    return np.dtype(list(fields))


_D, _M, _QH, _QS = ("d", "<f2"), ("m", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))

Q4_0 = Format("Q4_0", 2, 32, _layout(_D, _QS), "q8_0", 8 * HALF_MAX, _decode_signed(_FOUR, 8), _encode_signed(_FOUR, 8))
Q4_1 = Format("Q4_1", 3, 32, _layout(_D, _M, _QS), "q8_0", HALF_MAX, _decode_affine(_FOUR), _encode_affine(_FOUR, 15))
Q5_0 = Format("Q5_0", 6, 32, _layout(_D, _QH, _QS), "q8_0", 16 * HALF_MAX, _decode_signed(_FIVE, 16), _encode_signed(_FIVE, 16))
Q5_1 = Format("Q5_1", 7, 32, _layout(_D, _M, _QH, _QS), "q8_0", HALF_MAX, _decode_affine(_FIVE), _encode_affine(_FIVE, 31))
Q8_0 = Format("Q8_0", 8, 32, _layout(_D, ("qs", "i1", (32,))), "q8_0", 127 * HALF_MAX, _decode_q8_0, _encode_q8_0)
