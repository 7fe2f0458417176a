"""Floats of 8 bits: fp8 has four bits of exponent, bf8 has five.

Facts: the OCP's "8-bit Floating Point Specification"; AMD's CDNA3 ISA guide for the older kind, whose bias is one more, which has no infinities and
whose one NaN is what would be the negative zero.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["eighths", "from_eighths", "pair_to_eighths"]

_EXPONENT = {"fp8": 4, "bf8": 5}
_NEGATIVE_ZERO = 0x80


@functools.cache
def eighths(kind: str, older: bool) -> NDArray[Any]:
    """The 256 numbers of "fp8" or "bf8" as float64.

    >>> float(eighths("fp8", False)[0x7E]), float(eighths("bf8", False)[0x7B]), float(eighths("fp8", True)[0x7F])
    (448.0, 57344.0, 240.0)
    """
    exponent_bits = _EXPONENT[kind]
    fraction_bits = 7 - exponent_bits
    raw = np.arange(256)
    exponent, fraction = raw >> fraction_bits & (1 << exponent_bits) - 1, raw & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - (0 if older else 1)
    size = np.ldexp(fraction + np.where(exponent > 0, 1 << fraction_bits, 0), np.maximum(exponent, 1) - bias - fraction_bits)
    number = np.where(raw & 128, -size, size).astype(np.float64)
    if older:
        number[_NEGATIVE_ZERO] = np.nan
    elif kind == "fp8":
        number[raw & 127 == 127] = np.nan
    else:
        top = exponent == (1 << exponent_bits) - 1
        number[top] = np.where(fraction[top] > 0, np.nan, np.where(raw[top] & 128, -np.inf, np.inf))
    return number


def from_eighths(kind: str, older: bool, byte: int) -> Callable[..., NDArray[Any]]:
    """One of the four (or two) bytes of an unsigned integer as float32."""
    table = eighths(kind, older).astype(np.float32)
    return lambda x: table.take(x >> x.dtype.type(8 * byte) & x.dtype.type(255))


def pair_to_eighths(kind: str, older: bool, bounded: bool) -> Callable[..., NDArray[Any]]:
    """Two float32, the first in the lower byte of a uint16. bounded: what is too large is the largest number, and not infinity or NaN."""

    def run(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        low, high = (_nearest(x, kind, older, bounded) for x in np.broadcast_arrays(a, b))
        return low | high << np.uint16(8)

    return run


def _nearest(x: NDArray[Any], kind: str, older: bool, bounded: bool) -> NDArray[Any]:
    """To nearest even."""
    numbers = eighths(kind, older)[:128]
    ascending = numbers[np.isfinite(numbers)]
    size = np.abs(x.astype(np.float64))
    finite = np.where(np.isfinite(size), size, 0.0)
    fraction_bits = 7 - _EXPONENT[kind]
    least = int(np.frexp(ascending[1])[1]) - 1 + fraction_bits  # the exponent of the least normal number
    unit = np.ldexp(1.0, np.maximum(np.frexp(finite)[1] - 1, least) - fraction_bits)
    rounded = np.rint(finite / unit) * unit
    code = np.searchsorted(ascending, np.minimum(rounded, ascending[-1])).astype(np.uint16)
    over = (rounded > ascending[-1]) | np.isinf(size)
    beyond = len(ascending) - 1 if bounded else _NEGATIVE_ZERO if older else len(ascending)  # what follows the largest is infinity, or NaN
    code = np.where(over, np.uint16(beyond), code)
    code = np.where(np.isnan(size), np.uint16(_NEGATIVE_ZERO if older else 127), code)
    signed = np.signbit(x) & ~(older & ((code == 0) | (code == _NEGATIVE_ZERO)))
    return np.asarray(code | np.where(signed, np.uint16(128), np.uint16(0))).astype(np.uint16)
