"""How activations become int8, defined once: every backend computes exactly these bits, and this file is the reference that they match.

For each group of G = 32 (q8_0) or 256 (q8_k) neighbours x of one token's row, all in float32 with IEEE rounding to nearest even:

    amax     = max |x|
    d        = amax / 127                     a correctly rounded division
    inverse  = 127 / amax                     a division of its own, never an approximate reciprocal and never 1/d
    q        = rint(x * inverse)              one product, then halves to even; never beyond 127 (see Error)
    sums     = q added up, 16 at a time       q8_k only; at most 16 * 127 in size

with two exceptions, in this order:

    any x is NaN or Inf     d = NaN (bits 0x7FC00000), q = 0, sums = 0: what is computed from the group shows that its input was broken
    amax < 2^-118           d = 0, q = 0, sums = 0

The threshold makes the definition the same with and without flushing of subnormals: above it d and inverse are normal (127 < 2^7 and
127 * 2^118 < 2^128), and a subnormal x has |x * inverse| < 2^-126 * 127 * 2^118 < 1/2, so that its q is 0 either way. Nothing in it is a
product that is added to something, which a compiler could fuse.

Error: |x - d*q| <= d/2 * (1 + SLACK) in a group with d > 0. With u = 2^-24, x * inverse is off by (2u + u^2) * 127 codes at most (which
also keeps it below 127.5), rint by half a code, and d by u * amax in 127 codes: together amax/127 * (1/2 + 127 * (3u + u^2)), and
amax/127 <= d / (1 - u).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError

__all__ = ["Q8_0", "Q8_K", "SLACK", "ZERO_BELOW", "quantize_q8_0", "quantize_q8_k"]

ZERO_BELOW = 2.0**-118

_U = 2.0**-24
SLACK = (1 + 254 * (3 * _U + _U * _U)) / (1 - _U) - 1


@dataclass(frozen=True, slots=True)
class Q8_0:  # noqa: N801 - the format's own name
    """q int8[m, k], d float32[m, k/32]: x is about d * q."""

    q: NDArray[np.int8]
    d: NDArray[np.float32]

    def dequantize(self) -> NDArray[np.float32]:
        """d * q as float32[m, k]; NaN all over a group whose input was not finite."""
        return _widen(self.q, self.d, 32)


@dataclass(frozen=True, slots=True)
class Q8_K:  # noqa: N801 - the format's own name
    """q int8[m, k], d float32[m, k/256], sums int16[m, k/16]: x is about d * q, and sums are those of 16 q each."""

    q: NDArray[np.int8]
    d: NDArray[np.float32]
    sums: NDArray[np.int16]

    def dequantize(self) -> NDArray[np.float32]:
        """d * q as float32[m, k]; NaN all over a group whose input was not finite."""
        return _widen(self.q, self.d, 256)


def quantize_q8_0(x: NDArray[np.float32]) -> Q8_0:
    """q int8[m, k] and d float32[m, k/32] of x float32[m, k]. Raises FormatError for another dtype or rank, or a k that 32 does not divide.

    >>> quantize_q8_0(np.full((1, 32), 2.0, np.float32)).q[0, :3]
    array([127, 127, 127], dtype=int8)
    """
    return Q8_0(*_quantize(x, 32, "q8_0"))


def quantize_q8_k(x: NDArray[np.float32]) -> Q8_K:
    """q int8[m, k], d float32[m, k/256] and sums int16[m, k/16] of x float32[m, k]. Raises FormatError as `quantize_q8_0`, with 256.

    >>> quantize_q8_k(np.full((1, 256), 2.0, np.float32)).sums[0, :3]
    array([2032, 2032, 2032], dtype=int16)
    """
    q, d = _quantize(x, 256, "q8_k")
    sums = q.reshape(len(q), q.shape[1] // 16, 16).sum(axis=-1, dtype=np.int16)
    return Q8_K(q, d, sums)


def _quantize(x: NDArray[np.float32], group: int, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2:
        given: Any = f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
        raise FormatError(f"{name}: x is {given}; it must be float32[m, k]")
    m, k = x.shape
    if k % group:
        raise FormatError(f"{name}: k={k} is not a whole number of groups of {group}")
    grouped = x.reshape(m, k // group, group)
    with np.errstate(all="ignore"):
        amax = np.abs(grouped).max(axis=-1)  # NaN wins over everything, Inf over every number
        broken = ~np.isfinite(amax)
        zero = amax < np.float32(ZERO_BELOW)
        d = amax / np.float32(127)
        inverse = np.float32(127) / amax
        inverse[zero | broken] = 0
        t = grouped * inverse[..., None]
        np.rint(t, out=t)
    d[zero] = 0
    if broken.any():
        d[broken] = np.float32(np.nan)
        t[broken] = 0
    return t.astype(np.int8).reshape(m, k), d


def _widen(q: NDArray[np.int8], d: NDArray[np.float32], group: int) -> NDArray[np.float32]:
    wide: NDArray[np.float32] = d[..., None] * q.reshape(*d.shape, group).astype(np.float32)
    return wide.reshape(q.shape)
