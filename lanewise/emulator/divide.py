"""The three instructions around which LLVM builds a correctly rounded division: scale, the last multiply-add scaled back, and the special cases.

The rules are those of AMD's ISA guides (V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP), with three corrections without which LLVM's division would not be
the correctly rounded one that it is:
- A denominator whose inverse is denormal is made smaller; the text makes it larger where the quotient is denormal as well, and asks for float32
  whether a float64 is denormal.
- V_DIV_FMAS divides by what V_DIV_SCALE multiplied with, or the other way round; the text has one direction.
- V_DIV_FIXUP gives infinity where the quotient is none, for one that overflows arrives as NaN; the text asks for the denominator's exponent, which
  it has excluded by then.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import bits_of, exact_fma64, fma32, fma64, odd_sum

__all__ = ["fixup", "fmas", "scale"]

Array = NDArray[Any]
# (shift of the exponent, its mask, its bias, bits of a number, scale, exponents apart, smallest exponent) by size
_SHAPE = {2: (10, 31, 15), 4: (23, 255, 127), 8: (52, 2047, 1023)}


def _exponent(x: Array) -> Array:
    """As it is stored: 0 of zero and denormals."""
    shift, mask, _ = _SHAPE[x.dtype.itemsize]
    kind: Any = {2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize]
    return (x.view(kind) >> kind(shift)).astype(np.int32) & mask


def scale(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """(a scaled, whether the quotient has to be scaled back) of numerator c and denominator b, one of which a is."""
    wide = a.dtype == np.float64
    power, apart, tiny, smallest = (128, 768, 53, 2.0**-1022) if wide else (64, 96, 23, 2.0**-126)
    ec, eb = _exponent(c), _exponent(b)
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    # the usual case needs none of it: nothing near the ends
    largest, most = int(np.max(np.abs(ec - eb))), _SHAPE[a.dtype.itemsize][1]
    if largest < apart and min(int(ec.min()), int(eb.min())) > tiny and int(eb.max()) < most - 2:
        return np.broadcast_to(a, shape), np.zeros(shape, bool)
    up, down = a.dtype.type(2.0**power), a.dtype.type(2.0**-power)
    inverse, quotient = np.abs(1 / b), np.abs(c / b)
    low_inverse = (inverse < smallest) & (inverse > 0)
    low_quotient = (quotient < smallest) & (quotient > 0)
    low_b = (eb == 0) & (b != 0)
    zero = (b == 0) | (c == 0)
    far = ec - eb >= apart
    is_b, is_c = a == b, a == c
    conditions = [zero, far, low_b, low_inverse & low_quotient, low_inverse, low_quotient, ec <= tiny]
    results = [np.full_like(a, np.nan), np.where(is_b, a * up, a), a * up, np.where(is_b, a * down, a), a * down, np.where(is_c, a * up, a), a * up]
    flags = [False, True, False, True, False, True, False]
    return np.asarray(np.select(conditions, results, a)), np.asarray(np.select(conditions, [np.full(shape, flag) for flag in flags], False))


def fmas(a: Array, b: Array, c: Array, back: Array) -> Array:
    """a * b + c with one rounding, and where `back` is set scaled: up where c is large, down where it is small."""
    if a.dtype == np.float64:
        plain = fma64(a, b, c)
        if not back.any():
            return plain
        a, b, c, back, plain = (np.asarray(x) for x in np.broadcast_arrays(a, b, c, back, plain))
        factor = np.where(_exponent(c) > 1023, 2.0**128, 2.0**-128)
        result = np.where(back, plain * factor, plain)
        for at in zip(*np.nonzero(back & np.isfinite(plain)), strict=True):  # few, near the ends of the range, where a second rounding would show
            result[at] = exact_fma64(float(a[at]), float(b[at]), float(c[at]), float(factor[at]))
        return result
    if not back.any():
        return fma32(a, b, c)
    s = odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
    return (s * np.where(back, np.where(_exponent(c) > 127, 2.0**64, 2.0**-64), 1.0)).astype(np.float32)


def _ordinary(x: Array) -> bool:
    """Whether no number is zero, denormal, infinite or NaN."""
    sized = np.abs(x)
    return bool(sized.min() >= np.finfo(x.dtype).tiny and sized.max() < np.inf)


def fixup(a: Array, b: Array, c: Array) -> Array:
    """a, the quotient, with its sign, or what the quotient is of numerator c and denominator b that are no ordinary numbers."""
    sign_bit = bits_of(a).dtype.type(1 << 8 * a.dtype.itemsize - 1)
    plain = ((bits_of(a) & ~sign_bit) | ((bits_of(b) ^ bits_of(c)) & sign_bit)).view(a.dtype)
    if _ordinary(a) and _ordinary(b) and _ordinary(c) and float(np.abs(c).min()) >= float(np.abs(b).max()) * 2.0**-148:
        return plain
    ec, eb = _exponent(c), _exponent(b)
    negative = np.signbit(b) != np.signbit(c)
    infinite_b, infinite_c = np.isinf(b), np.isinf(c)
    none = np.isnan(b) | np.isnan(c) | ((b == 0) & (c == 0)) | (infinite_b & infinite_c)
    sign = np.where(negative, a.dtype.type(-1), a.dtype.type(1))
    under = ec - eb < (-150 if a.dtype == np.float32 else -1075)
    if a.dtype == np.float16:
        under = np.zeros_like(under)
    infinite, zero = sign * a.dtype.type(np.inf), sign * a.dtype.type(0)
    conditions = [none, (b == 0) | infinite_c, infinite_b | (c == 0), under, ~np.isfinite(a)]
    results = [np.full_like(plain, np.nan), infinite, zero, zero, infinite]
    return np.asarray(np.select(conditions, results, plain))
