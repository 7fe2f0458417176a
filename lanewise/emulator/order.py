"""The lesser and the greater of two floats, by each of the three rules that AMD's units have for NaN; -0 is below +0 in all of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import bits_of

__all__ = ["greatest", "least", "nan_greatest", "nan_least", "number_greatest", "number_least", "signalling"]

Array = NDArray[Any]


def least(a: Array, b: Array) -> Array:
    """A number before a quiet NaN, and of a signalling NaN a quiet one: V_MIN in IEEE mode, which Triton asks for."""
    return _signalled(number_least(a, b), a, b)


def greatest(a: Array, b: Array) -> Array:
    return _signalled(number_greatest(a, b), a, b)


def number_least(a: Array, b: Array) -> Array:
    """A number before a NaN of any kind (IEEE 754-2019, minimumNumber)."""
    return _picked(np.fmin, np.bitwise_or, a, b)


def number_greatest(a: Array, b: Array) -> Array:
    return _picked(np.fmax, np.bitwise_and, a, b)


def nan_least(a: Array, b: Array) -> Array:
    """NaN where one is (IEEE 754-2019, minimum)."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), number_least(a, b))


def nan_greatest(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), number_greatest(a, b))


def signalling(x: Array) -> Array:
    quiet = {2: 9, 4: 22, 8: 51}[x.dtype.itemsize]
    return np.isnan(x) & ((bits_of(x) >> quiet & 1) == 0)


def _picked(pick: Any, signs: Any, a: Array, b: Array) -> Array:
    """numpy's choice, but with an order of zeros; numpy gives NaN for a signalling one beside a number."""
    result = np.asarray(pick(a, b))
    zero = result == 0
    if zero.any():
        zero = zero & (a == b)
        result = np.where(zero, signs(bits_of(a), bits_of(b)), bits_of(result)).view(result.dtype)
    if np.isnan(result).any():
        result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
    return result


def _signalled(result: Array, a: Array, b: Array) -> Array:
    if not (np.isnan(a).any() or np.isnan(b).any()):
        return result
    return np.where(signalling(a) | signalling(b), result.dtype.type(np.nan), result)
