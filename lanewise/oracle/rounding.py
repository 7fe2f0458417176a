"""What the error bounds are built from, and the comparison of a result with its bound.

All bounds hold for float32 arithmetic that rounds to nearest (unit roundoff U), sums in any order, with or without fused multiply-add, and may
flush subnormal numbers only inside exp. They hold while every product and partial sum stays inside float32's range; an overflow is outside them.
The oracle's own float64 error is 2^-29 of a bound and is not counted.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lanewise.contract import Tolerance, dtype
from lanewise.errors import ShapeError

__all__ = ["EXP_FLOOR", "F64", "ULPS", "U", "chained", "exp_error", "gamma", "indices", "worst"]

F64 = NDArray[np.float64]
U = dtype("f32").roundoff
# What a library's float32 exp, sqrt, division or reciprocal root may be off by; one ulp is at most 2 U relative to the value.
# CUDA's programming guide (appendix on mathematical functions) found at most 2 ulp for expf and rsqrtf; a test holds NumPy and torch to this.
ULPS = 4
# exp below this may be zero: float32's smallest normal number, since a GPU's exp2 may flush and 1 / (1 + exp(-x)) meets infinity.
EXP_FLOOR = 2.0**-126
_EXP_RANGE = 104.0  # |x| from which exp(x) is 0 or infinite in float32


def gamma(operations: int) -> float:
    """The relative error of `operations` float32 roundings multiplied together, or of a sum of that many products (Higham, section 3.1)."""
    return Tolerance.dot(operations).summing


def exp_error(x: F64) -> F64:
    """The relative error of a float32 exp(x): ULPS of the library, and 2 U |x| because a GPU takes exp2(x * log2(e)) with a rounded product."""
    return np.asarray((2 * ULPS + 2 * np.minimum(np.abs(x), _EXP_RANGE)) * U, dtype=np.float64)


def chained(*errors: ArrayLike) -> F64:
    """The relative error of a product of factors with these relative errors: prod(1 + e) - 1."""
    total = np.ones(())
    for error in errors:
        total = total * (1 + np.asarray(error, dtype=np.float64))
    return total - 1


def indices(name: str, values: NDArray[np.integer], limit: int) -> list[int]:
    """The ids as Python ints. Raises ShapeError outside 0..limit-1: NumPy would read a negative one from the end."""
    found = [int(i) for i in values]
    for i in found:
        if not 0 <= i < limit:
            raise ShapeError(f"{name} {i} is outside 0..{limit - 1}")
    return found


def worst(got: ArrayLike, want: F64, bound: F64) -> float:
    """The largest |got - want| / bound, 0.0 for no elements: a result is right when this is at most 1. NaN counts as infinitely wrong.

    >>> worst(np.float32([1.0, 2.0]), np.array([1.0, 2.5]), np.array([0.0, 1.0]))
    0.5
    """
    got, bound = np.asarray(got, dtype=np.float64), np.asarray(bound, dtype=np.float64)
    if not got.shape == want.shape == bound.shape:
        raise ShapeError(f"got {got.shape}, want {want.shape} and bound {bound.shape} are compared element by element; they must be equal")
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(got == want, 0.0, np.abs(got - want) / bound)
    return float(np.max(np.where(np.isnan(ratio), np.inf, ratio), initial=0.0))
