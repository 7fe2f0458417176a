"""Floats of 8 bits: fp8 has four bits of exponent, bf8 has five.

Facts: the OCP's "8-bit Floating Point Specification"; AMD's CDNA3 ISA guide for the older kind, whose bias is one more, which has no infinities and
whose one NaN is what would be the negative zero.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["eighths"]

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
