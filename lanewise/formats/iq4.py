"""IQ4_NL and IQ4_XS: 4-bit codes into a table of 16 uneven values, denser near zero as weights are.

    IQ4_NL     w = d * VALUES[q]            blocks of 32
    IQ4_XS     w = d*scale * VALUES[q]      blocks of 256: 8 sub-blocks of 32 with 6-bit signed scales (stored + 32)

Layouts: block_iq4_nl and block_iq4_xs in ggml-common.h; the values: kvalues_iq4nl there.
"""

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.bits import Blocks, Plane, join, split
from lanewise.formats.format import HALF_MAX, Format
from lanewise.formats.search import fit_signed, search_signed, to_half

__all__ = ["IQ4_NL", "IQ4_XS", "VALUES", "split_scales_4xs"]

_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
VALUES = np.array(_VALUES, np.float32)
VALUES.flags.writeable = False

_PLANE_NL = Plane("qs", groups=1, bits=4)
_PLANE_XS = Plane("qs", groups=8, bits=4)

# The nearest value of any t is that of floor(2t): the midpoints between values are whole or half numbers. t in -128..127.5.
_MIDPOINTS = (VALUES[1:] + VALUES[:-1]) / 2
_NEAREST = VALUES[np.searchsorted(_MIDPOINTS, np.arange(-256, 256) / 2, side="right")]
_CODES = np.zeros(256, np.uint8)
_CODES[np.array(_VALUES) + 128] = np.arange(16)

# Code values that the furthest weight is put on: round the low end of the table (the plain choice first), then round its high end.
_TRIES = (-127.0, -119.8, -122.2, -124.6, -129.4, -131.8, -134.2, 113.0, 107.0, 119.0)


def _rounding(t: NDArray[np.float32]) -> NDArray[np.float32]:
    t += t
    np.floor(t, out=t)
    np.clip(t, np.float32(-256), np.float32(255), out=t)
    t += np.float32(256)
    return _NEAREST.take(t.astype(np.int16))


def _codes(values: NDArray[np.float32], block: int) -> NDArray[np.uint8]:
    """Codes [n, block] of values[32, sub-blocks]."""
    return np.ascontiguousarray(_CODES.take(values.astype(np.int16) + np.int16(128)).T).reshape(-1, block)


def split_scales_4xs(high: NDArray[np.uint16], low: NDArray[np.uint8]) -> NDArray[np.int8]:
    """scales[n, 8] in -32..31 of IQ4_XS: low nibbles from low[n, 4], lowest first, and from high[n] two bits each, lowest first."""
    nibbles = (low[:, :, None] >> np.array([0, 4], np.uint8) & 15).reshape(-1, 8)
    tops = (high[:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)).astype(np.uint8)
    return (nibbles | tops << 4).view(np.int8) - np.int8(32)


def _decode_nl(blocks: Blocks, out: NDArray[np.float32]) -> None:
    VALUES.take(split(blocks, _PLANE_NL), out=out, mode="clip")
    np.multiply(blocks["d"].astype(np.float32)[:, None], out, out=out)


def _encode_nl(x: NDArray[np.float32], blocks: Blocks) -> None:
    columns = np.ascontiguousarray(x.T)
    d = to_half(search_signed(columns, _rounding, _TRIES))
    blocks["d"] = d
    step = d.astype(np.float32)
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step != 0)
    join(_codes(_rounding(columns * inverse), 32), blocks, _PLANE_NL)


def _decode_xs(blocks: Blocks, out: NDArray[np.float32]) -> None:
    VALUES.take(split(blocks, _PLANE_XS), out=out, mode="clip")
    steps = blocks["d"].astype(np.float32)[:, None] * split_scales_4xs(blocks["scales_h"], blocks["scales_l"]).astype(np.float32)
    w = out.reshape(len(blocks), 8, 32)
    np.multiply(steps[:, :, None], w, out=w)


def _encode_xs(x: NDArray[np.float32], blocks: Blocks) -> None:
    fit = fit_signed(np.ascontiguousarray(x.reshape(-1, 32).T), _rounding, _TRIES, per=8, scale_most=32)
    blocks["d"] = fit.d
    stored = (fit.scales.reshape(-1, 8) + np.int8(32)).view(np.uint8)
    blocks["scales_l"] = (stored[:, 0::2] & 15) | (stored[:, 1::2] << 4)
    blocks["scales_h"] = np.bitwise_or.reduce((stored >> 4).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16), axis=1)
    join(_codes(fit.values, 256), blocks, _PLANE_XS)


_LAYOUT_NL = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
_LAYOUT_XS = np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", (4,)), ("qs", "u1", (128,))])

IQ4_NL = Format("IQ4_NL", 20, 32, _LAYOUT_NL, "q8_0", 113 * HALF_MAX, _decode_nl, _encode_nl)
IQ4_XS = Format("IQ4_XS", 23, 256, _LAYOUT_XS, "q8_k", 113 * 31 * HALF_MAX, _decode_xs, _encode_xs)
