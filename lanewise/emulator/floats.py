"""Floating point as AMD's units round it, on arrays: what numpy does not have in one step.

Denormals are kept, as Triton asks the hardware to. Whoever calls these holds `np.errstate(all="ignore")`.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.native import fused32, widened16

__all__ = [
    "approximate", "bf16", "bf16_bits", "bits_of", "chosen", "exact_fma64", "fma16", "fma32", "fma64", "odd_sum", "plain_fma32", "plain_wide16",
    "to_int", "toward_zero16", "wide16",
]  # fmt: skip

Array = NDArray[Any]
_SMALLEST = {np.dtype(np.float32): np.float32(2.0**-126), np.dtype(np.float16): np.float16(2.0**-14)}
_WIDE16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
_BITS: dict[int, Any] = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def bits_of(x: Array) -> Array:
    return x.view(_BITS[x.dtype.itemsize])


def odd_sum(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd: rounding it again to 51 bits or fewer gives what the exact sum would have been rounded to."""
    s = np.asarray(a + b)
    rest = s - a
    error = (a - (s - rest)) + (b - rest)  # Knuth's two-sum: exact
    raw = s.view(np.int64)
    move = (error != 0) & (raw & 1 == 0) & np.isfinite(s)
    if not move.any():
        return s
    away = (error > 0) == (s > 0)  # toward the exact sum: larger in size, or smaller
    return np.asarray(raw + np.where(move, np.where(away, 1, -1), 0)).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32 with one rounding."""
    made = fused32(a, b, c) if a.dtype == b.dtype == c.dtype == np.float32 else None
    return plain_fma32(a, b, c) if made is None else made


def plain_fma32(a: Array, b: Array, c: Array) -> Array:
    """The same on any processor. The product is exact in float64; where the sum lies on a tie of float32 its rest decides."""
    product = a.astype(np.float64) * b
    s = np.asarray(product + c)
    result = s.astype(np.float32)
    raw = s.view(np.uint64)
    doubtful = (raw & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    small = np.abs(result) < _SMALLEST[result.dtype]
    if small.any():
        doubtful |= small & (s != 0)
    if doubtful.any():
        where = np.nonzero(doubtful)
        result[where] = odd_sum(np.broadcast_to(product, s.shape)[where], np.broadcast_to(c, s.shape)[where].astype(np.float64)).astype(np.float32)
    return result


def fma16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float16 with one rounding. The product is exact in float32; the sum is rounded to odd there (22 bits are enough for 11)."""
    product = np.asarray(wide16(a) * wide16(b))
    addend = wide16(c)
    s = np.asarray(product + addend)
    rest = s - product
    error = (product - (s - rest)) + (addend - rest)
    raw = s.view(np.int32)
    move = (error != 0) & (raw & 1 == 0) & np.isfinite(s)
    if move.any():
        s = (raw + np.where(move, np.where((error > 0) == (s > 0), 1, -1), 0).astype(np.int32)).view(np.float32)
    return s.astype(np.float16)


_SPLIT = 134217729.0  # 2^27 + 1: Dekker's split of 53 bits


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64 with one rounding, where nothing overflows or is denormal on the way; there in unlimited integers."""
    a, b, c = (np.asarray(x) for x in np.broadcast_arrays(a, b, c))
    high = np.asarray(a * b)
    s = np.asarray(high + c)
    easy = np.isfinite(s) & (np.abs(a) < 2.0**480) & (np.abs(b) < 2.0**480) & (np.abs(c) < 2.0**960)
    easy &= ((np.abs(high) > 2.0**-900) & (np.abs(s) > 2.0**-900)) | ((a == 0) | (b == 0))
    a1, b1 = a * _SPLIT, b * _SPLIT
    a1, b1 = a1 - (a1 - a), b1 - (b1 - b)
    a2, b2 = a - a1, b - b1
    low = ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2
    rest = s - high
    error = (high - (s - rest)) + (c - rest)
    # s + error + low is exact; the two small ones are joined to odd, so that the last sum rounds as if from the exact one (Boldo and Melquiond)
    result = np.asarray(s + odd_sum(error, low))
    plain = ~np.isfinite(s) & ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    result = np.where(plain, s, result)
    hard = ~easy & ~plain
    if hard.any():
        for at in zip(*np.nonzero(hard), strict=True):
            result[at] = exact_fma64(float(a[at]), float(b[at]), float(c[at]))
    return np.asarray(result)


def exact_fma64(a: float, b: float, c: float, scale: float = 1.0) -> float:
    """(a * b + c) * scale of finite numbers, rounded once, by way of fractions."""
    value = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(scale)
    if value == 0:
        return a * b + c
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def bf16_bits(x: Array) -> Array:
    """float32 to bfloat16 bits, to nearest even; NaN stays NaN."""
    raw = np.asarray(x).view(np.uint32)
    rounded = (raw + (np.uint32(0x7FFF) + (raw >> 16 & np.uint32(1)))) >> np.uint32(16)
    return np.asarray(np.where(np.isnan(x), raw >> np.uint32(16) | np.uint32(0x40), rounded)).astype(np.uint16)


def bf16(x: Array) -> Array:
    """bfloat16 bits to float32."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def toward_zero16(x: Array) -> Array:
    """float32 to float16, cut off; what is too large is the largest number (AMD's ISA guides, V_CVT_PKRTZ_F16_F32)."""
    near = (x.astype(np.float32) * np.float32(1)).astype(np.float16)  # a signalling NaN becomes a quiet one
    beyond = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.asarray(near.view(np.uint16) - beyond.astype(np.uint16)).view(np.float16)


def to_int(x: Array, dtype: Any) -> Array:
    """A float cut to an integer: out of range is the nearest that there is, and NaN is 0."""
    info = np.iinfo(dtype)
    wide = np.trunc(x.astype(np.float64))
    result = np.clip(np.where(np.isnan(wide), 0.0, wide), info.min, info.max)
    return np.asarray(result.astype(np.int64)).astype(dtype)


def approximate(function: Any) -> Any:
    """A function that the hardware approximates: correctly rounded here, and with denormals taken and given as zero, as v_exp_f32 and its like do.

    LLVM scales around it where it must not (`AMDGPUISelLowering`, needsDenormHandlingF32), so a kernel that relies on denormals shows.
    """

    def run(x: Array) -> Array:
        return _flushed(np.asarray(function(_flushed(x).astype(np.float64))).astype(np.float32))

    return run


def _flushed(x: Array) -> Array:
    small = np.abs(x) < _SMALLEST[x.dtype]
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x


def wide16(x: Array) -> Array:
    """float16 to float32."""
    made = widened16(x) if x.dtype == np.float16 else None
    return plain_wide16(x) if made is None else made


def plain_wide16(x: Array) -> Array:
    """The same on any processor. A table of all 65536 is faster than numpy's conversion."""
    return _WIDE16.take(x.view(np.uint16))


def chosen(mask: Array, yes: Array, no: Array) -> Array:
    """32 bits of one or the other in each lane. numpy's own choice waits for a branch in each where lanes differ."""
    a, b = no.view(np.uint32), yes.view(np.uint32)
    return (a ^ ((a ^ b) & -mask.astype(np.uint32))).view(no.dtype)
