"""V_TRIG_PREOP_F64: a run of the binary digits of 2 / pi, by which a large angle is brought into a turn (AMD's ISA guides)."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["turns"]

_DIGITS = 1201  # behind the point, as many as the hardware has
_RUN = 53
_FROM = 1077  # the exponent, as it is stored, from which on whole turns are left out
_LARGE, _SCALED = 1968, 128  # from which on the result is made larger, and by what power of two


@functools.cache
def _two_over_pi() -> int:
    """2 / pi * 2^1201, by Machin's formula with a rest."""
    bits = _DIGITS + 64

    def inverse_tangent(of: int) -> int:
        power, number, sign, total = (1 << bits) // of, 1, 1, 0
        while power:
            total += sign * (power // number)
            power, number, sign = power // (of * of), number + 2, -sign
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (1 << bits + _DIGITS + 1) // pi


def turns(x: NDArray[Any], segment: NDArray[Any]) -> NDArray[Any]:
    """float64: the `segment`-th run of digits for an angle of x's size."""
    x, segment = np.broadcast_arrays(x, segment)
    exponent = (np.ascontiguousarray(x).view(np.uint64) >> np.uint64(52)).astype(np.int64) & 2047
    shift = (segment.astype(np.int64) & 31) * _RUN + np.maximum(exponent - _FROM, 0)
    scale = np.where(exponent >= _LARGE, _SCALED, 0) - _RUN - shift
    result = np.empty(shift.shape)
    for one in np.unique(shift):
        behind = _DIGITS - _RUN - int(one)
        digits = _two_over_pi() >> behind if behind >= 0 else _two_over_pi() << -behind
        result[shift == one] = float(digits & (1 << _RUN) - 1)
    return np.asarray(np.ldexp(result, scale))
