"""The scale searches that the K and IQ4 quantizers share: many sub-blocks side by side, in plain float32.

Arrays here lie weight-first, x[b, n] with the n sub-blocks side by side: every step is then one long vector operation, and a sum over a
sub-block is a tree of them. Nothing depends on how many sub-blocks come along, and every operation is a single IEEE rounding: a block
gets the same bytes in any company and on any machine.

The method (the idea of ggml's make_qx_quants and make_qkx2_quants, with the plain squared error as its goal): try a few scales round the
one that the extremes ask for; round to codes; fit scale and minimum to those codes by least squares; keep the best fit. Then round the
sub-block scales to the block's small integers, and let each try its neighbours too, since the weights' error is what counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.format import HALF_MAX

__all__ = ["Affine", "Signed", "fit_affine", "fit_signed", "search_signed", "to_half"]

_F32 = NDArray[np.float32]
Rounding = Callable[[_F32], _F32]  # each element replaced by the nearest code's value; may work in place

# A sub-block with less range than this is as good as zero (the smallest step there is: 2^-24, in fp16), and squares above it are normal.
_TINY = np.float32(2.0**-40)
# Tries for an affine scale, in codes: how much wider than the range of codes the range of weights is made, and where its middle goes; half
# the width holds the low end in place, minus half the high end. The plain choice comes first and wins ties.
_AFFINE_TRIES = ((0.0, 0.0), (-0.8, -0.4), (-0.4, -0.2), (0.4, 0.2), (-0.6, 0.3), (0.5, -0.25))
_NEIGHBOURS = (np.float32(0), np.float32(-1), np.float32(1))


@dataclass(frozen=True, slots=True)
class Affine:
    """w = d*scale * code - dmin*minimum: codes[b, n], an integer scale and minimum for each of n sub-blocks, d and dmin for each block."""

    d: NDArray[np.float16]
    dmin: NDArray[np.float16]
    scales: NDArray[np.uint8]
    minima: NDArray[np.uint8]
    codes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Signed:
    """w = d*scale * value: values[b, n] of the codes, an integer scale for each of n sub-blocks, d for each block."""

    d: NDArray[np.float16]
    scales: NDArray[np.int8]
    values: _F32


def fit_affine(x: _F32, most: int, *, per: int, scale_most: int) -> Affine:
    """For x[b, n]: codes 0..most, scales and minima 0..scale_most, `per` sub-blocks to a block."""
    scale, minimum = _search_affine(x, most)
    d, scales = _integers(scale, per, 0, scale_most)
    dmin, minima = _integers(minimum, per, 0, scale_most)
    wide_d, wide_dmin = _widen(d, per), _widen(dmin, per)

    def encode(i: _F32, j: _F32) -> tuple[_F32, _F32]:
        """The nearest codes under integer scale i and minimum j, and their squared error."""
        step, offset = wide_d * i, wide_dmin * j
        codes = x + offset
        codes *= _divide(np.float32(1), step)
        _round(codes, 0, most)
        error = codes * step
        error -= offset
        error -= x
        error *= error
        return codes, _sum(error)

    least = np.full_like(scale, np.inf)
    best_i, best_j = scales, minima
    for step_i in _NEIGHBOURS:
        for step_j in _NEIGHBOURS:
            i, j = np.clip(scales + step_i, 0, scale_most), np.clip(minima + step_j, 0, scale_most)
            error = encode(i, j)[1]
            better = error < least
            best_i, best_j, least = np.where(better, i, best_i), np.where(better, j, best_j), np.where(better, error, least)
    codes = encode(best_i, best_j)[0]
    return Affine(d, dmin, best_i.astype(np.uint8), best_j.astype(np.uint8), codes.astype(np.uint8))


def fit_signed(x: _F32, rounding: Rounding, tries: Sequence[float], *, per: int, scale_most: int) -> Signed:
    """For x[b, n]: the codes of `rounding`, scales -scale_most..scale_most-1, `per` sub-blocks to a block."""
    d, scales = _integers(search_signed(x, rounding, tries), per, -scale_most, scale_most - 1)
    wide_d = _widen(d, per)

    def encode(i: _F32) -> tuple[_F32, _F32]:
        step = wide_d * i
        values = rounding(x * _divide(np.float32(1), step))
        error = values * step
        error -= x
        error *= error
        return values, _sum(error)

    least = np.full(x.shape[1], np.inf, np.float32)
    best = scales
    for step in _NEIGHBOURS:
        i = np.clip(scales + step, -scale_most, scale_most - 1)
        error = encode(i)[1]
        better = error < least
        best, least = np.where(better, i, best), np.where(better, error, least)
    return Signed(d, best.astype(np.int8), encode(best)[0])


def search_signed(x: _F32, rounding: Rounding, tries: Sequence[float]) -> _F32:
    """scale[n] that makes scale * rounding(x/scale) close to x[b, n]. `tries`: the code values that the furthest x is put on."""
    furthest = np.where(x.max(axis=0) >= -x.min(axis=0), x.max(axis=0), x.min(axis=0))
    scale, gain = np.zeros_like(furthest), np.zeros_like(furthest)
    inverse = _inverse(furthest)
    for top in tries:
        codes = rounding(x * (np.float32(top) * inverse))
        along = _sum(codes * x)
        codes *= codes
        fitted = _divide(along, _sum(codes))
        better = fitted * along > gain
        scale, gain = np.where(better, fitted, scale), np.where(better, fitted * along, gain)
    return scale


def _search_affine(x: _F32, most: int) -> tuple[_F32, _F32]:
    """scale[n] >= 0 and minimum[n] >= 0 that make scale*code - minimum close to x[b, n]; a fit's `gain` is how much error it removes.

    Works on y = x - middle and on codes less `half` = most/2, both of which add up to little: their sums keep the digits that squares of
    one sign would lose.
    """
    count, half = np.float32(len(x)), np.float32(most / 2)
    lowest = np.minimum(x.min(axis=0), np.float32(0))
    reach = np.maximum(x.max(axis=0), np.float32(0)) - lowest
    middle = lowest + reach * np.float32(0.5)
    y = x - middle
    inverse = _inverse(reach)
    total = _sum(y.copy())
    codes, scratch = np.empty_like(y), np.empty_like(y)
    # to begin with, a scale of zero: all weights on the minimum
    scale, shift = np.zeros_like(reach), lowest - middle
    gain = shift * (total + total - count * shift)
    for wider, slide in _AFFINE_TRIES:
        np.multiply(y, np.float32(most + wider) * inverse, out=codes)
        codes += np.float32(most / 2 + slide)
        _round(codes, 0, most)
        codes -= half
        squares = _sum(np.multiply(codes, codes, out=scratch))
        along = _sum(np.multiply(codes, y, out=scratch))
        sums = _sum(codes)
        # Least squares for y = s*code + t. Code 0 may not lie above zero; where it would, the best s with code 0 at zero has its own formula.
        determinant = count * squares - sums * sums
        s = _divide(count * along - sums * total, determinant)
        t = _divide(squares * total - sums * along, determinant)
        free = (determinant > 0) & (t - s * half + middle <= 0)
        # the sums of code^2 and code*x, with neither of them centred
        plain_squares = squares + half * (sums + sums + count * half)
        plain_along = along + half * total + middle * (sums + count * half)
        s = np.where(free, s, np.maximum(_divide(plain_along, plain_squares), np.float32(0)))
        t = np.where(free, t, s * half - middle)
        removed = s * (along + along - s * squares - (t + t) * sums) + t * (total + total - count * t)
        better = removed > gain
        scale, shift, gain = np.where(better, s, scale), np.where(better, t, shift), np.where(better, removed, gain)
    return scale, np.maximum(scale * half - shift - middle, np.float32(0))


def _integers(values: _F32, per: int, least: int, most: int) -> tuple[NDArray[np.float16], _F32]:
    """(d[n/per], integers[n]) with values[n] close to d * integers; the furthest value of a block gets the furthest integer."""
    grouped = values.reshape(-1, per)
    furthest = np.take_along_axis(grouped, np.abs(grouped).argmax(axis=1)[:, None], axis=1)[:, 0]
    d = to_half(furthest / np.float32(least if least < 0 else most), up=True)
    integers = values * _divide(np.float32(1), _widen(d, per))
    return d, _round(integers, least, most)


def to_half(d: _F32, *, up: bool = False) -> NDArray[np.float16]:
    """d as the nearest finite fp16. `up`: a subnormal is rounded away from zero, or the integers above it would not reach far enough."""
    size = np.minimum(np.abs(d), np.float32(HALF_MAX))
    half: NDArray[np.float16] = size.astype(np.float16)
    if up:
        bits = half.view(np.uint16)
        bits += (size < np.float32(2.0**-14)) & (half.astype(np.float32) < size)
    return np.where(d < 0, -half, half)


def _widen(d: NDArray[np.float16], per: int) -> _F32:
    return np.repeat(d.astype(np.float32), per)


def _round(t: _F32, least: int, most: int) -> _F32:
    """Nearest integer in least..most, halves to even, in place."""
    np.rint(t, out=t)
    return np.clip(t, np.float32(least), np.float32(most), out=t)


def _divide(a: _F32 | np.float32, b: _F32) -> _F32:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(b), where=b != 0)


def _inverse(size: _F32) -> _F32:
    """1 / size, and 0 for a sub-block as good as zero."""
    return np.divide(np.float32(1), size, out=np.zeros_like(size), where=np.abs(size) >= _TINY)


def _sum(a: _F32) -> _F32:
    """sum over the first axis (a power of two long) as a tree, so that its rounding is fixed; uses `a` up."""
    half = len(a)
    while half > 1:
        half //= 2
        np.add(a[:half], a[half : 2 * half], out=a[:half])
    top: _F32 = a[0].copy()
    return top
