"""linear with its fused parts: the unfused chain, its roundings where it rounds, and between which two numbers each element must lie.

    xn = rms_norm(x) rounded to x's dtype;  t = xn @ w.T + bias, rounded to y's;  gated: silu(gate) rounded, times up, rounded;  + residual, rounded

Every step is an interval: what a float32 computation may be off by widens it, and a rounding, being monotone, maps its ends. So an element that is
far from the middle between two numbers of y's dtype must be rounded as the chain rounds it, one that is near may go either way, and a
normalised x that may round to its neighbour costs that one step times |w|, and nothing where it may not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lanewise.contract import Tolerance, dtype
from lanewise.errors import ShapeError
from lanewise.oracle.elementwise import rms_norm, rms_norm_bound, silu_mul, silu_mul_bound
from lanewise.oracle.rounding import F64, ULPS, U, gamma

__all__ = ["SUMS", "Enclosure", "enclosed", "linear_chain", "normalised", "products", "rounded", "summing"]

_Floats = NDArray[np.floating]
_BLOCK = 1 << 21  # elements of w that are held in float64 at a time
# Where x * sigmoid(x) has its minimum: the root of 1 + x * sigmoid(-x).
_SILU_LEAST = -1.2784645427610738
# A matrix unit lines its 16 products and the accumulator up with the largest of them and cuts what sticks out: 17 cuts of a whole ulp for
# 16 terms, where rounding to nearest has 16 of half an ulp (Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, 2021).
_MATRIX_UNIT = 2 * 17 / 16
# Rounding errors of random numbers are as good as random: those of a sum exceed this many times sqrt(k) roundoffs, instead of the k of the worst
# case, with a chance below 2 exp(-LAMBDA^2 / 2), three in 10^8 (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
_LAMBDA = 6.0
SUMS = {
    "any": "in float32, in any order, of any numbers",
    "random": "in float32, in any order, of numbers that are drawn at random",
    "matrix": "by a matrix unit, which cuts where float32 rounds",
}


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What y may be: `want` is the chain before its last rounding, and every element of y lies in low..high, both in y's dtype."""

    want: F64
    low: F64
    high: F64
    step: F64  # the distance of neighbours in y's dtype

    def worst(self, got: ArrayLike) -> float:
        """The largest |got - want| in units of what the enclosure allows: at most 1 when all elements are inside, more when one is not."""
        got = np.asarray(got, dtype=np.float64)
        if got.shape != self.want.shape:
            raise ShapeError(f"got {got.shape}, want {self.want.shape}: they are compared element by element")
        return float(np.max(self._units(got), initial=0.0))

    def outside(self, got: ArrayLike) -> NDArray[np.intp]:
        """Where got is outside: one row of indices for each such element."""
        return np.argwhere(self._units(np.asarray(got, dtype=np.float64)) > 1)

    def _units(self, got: F64) -> F64:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            inside = (got >= self.low) & (got <= self.high)
            room = np.maximum(np.maximum(self.high - self.want, self.want - self.low), self.step / 2)
            used = np.where(got == self.want, 0.0, np.abs(got - self.want) / room)
            beyond = 1 + np.maximum(self.low - got, got - self.high) / self.step
        used = np.where(np.isnan(used), 1.0, np.minimum(used, 1.0))
        return np.where(inside, used, np.where(np.isnan(beyond), np.inf, beyond))


def rounded(x: ArrayLike, name: str) -> F64:
    """x rounded to nearest, ties to even, to that dtype: subnormal numbers are kept, what is too large is infinite.

    >>> rounded([1 + 2**-8, 1 + 3 * 2**-8, 70000.0], "bf16").tolist(), rounded([65519.0, 65520.0], "f16").tolist()
    ([1.0, 1.015625, 70144.0], [65504.0, inf])
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        quantum = _step(x, name)
        y = np.where(np.isfinite(x), np.rint(x / quantum) * quantum, x)
    return np.where(np.abs(y) >= _too_large(name), np.copysign(np.inf, y), y)


def products(x: F64, w: Any) -> tuple[F64, F64]:
    """(x @ w.T, |x| @ |w|.T) in float64, from x[m,k] and w[n,k], with a part of w in float64 at a time."""
    rows = max(1, _BLOCK // max(1, w.shape[1]))
    both = np.zeros((2, len(x), len(w)))
    for start in range(0, len(w), rows):
        block = w[start : start + rows].astype(np.float64)
        both[0, :, start : start + rows] = x @ block.T
        both[1, :, start : start + rows] = np.abs(x) @ np.abs(block).T
    return both[0], both[1]


def linear_chain(
    x: _Floats,
    w: Any,
    bias: _Floats | None = None,
    *,
    residual: _Floats | None = None,
    norm: _Floats | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    dtype: str = "bf16",
    out: str | None = None,
    exact: bool = False,
    sums: str = "any",
    multiply: Callable[[F64, Any], tuple[F64, F64]] = products,
) -> Enclosure:
    """The enclosure of y[m,n], from x[m,k], w[n,k] (gated: [2n,k], the n rows of the gate first), bias[n] or [m,n] and residual[m,n].

    Operands hold numbers of their dtypes; `dtype` is that of x and w and `out` that of y. exact: every product and sum is exact in float32.
    sums: how they are formed, of SUMS. multiply: `products`, for a w that numpy does not hold.
    """
    out = out or dtype
    xn, slack = (np.asarray(x, dtype=np.float64), None) if norm is None else normalised(x, norm, eps, dtype)
    t, magnitude = multiply(xn, w)
    moved = np.zeros(t.shape) if slack is None else multiply(slack, w)[1]
    if bias is not None:
        t, magnitude = t + bias.astype(np.float64), magnitude + np.abs(bias.astype(np.float64))
    off = np.zeros(t.shape) if exact else moved + summing(x.shape[1] + (bias is not None), sums).bound(t, magnitude + moved)
    return enclosed(t, off, residual=residual, gated=gated, out=out)


def enclosed(t: F64, off: F64, *, residual: _Floats | None = None, gated: bool = False, out: str = "f32") -> Enclosure:
    """What y[m,n] may be when product and bias are t[m,n] (gated: [m,2n]), which a computation has to within `off`: the chain from there on."""
    y = (t, t - off, t + off)
    if gated:
        n = t.shape[1] // 2
        gate, up = (tuple(rounded(end[:, half], out) for end in y) for half in (slice(None, n), slice(n, None)))
        y = _times(_silu(gate, out), up)
    if residual is not None:
        added = residual.astype(np.float64)
        # a float32 residual is added in float32, and only then rounded to a narrower y
        ends = [rounded(end, out) + added for end in y]
        y = (ends[0], np.minimum(ends[1], rounded(ends[1], "f32")), np.maximum(ends[2], rounded(ends[2], "f32")))
    return Enclosure(y[0], rounded(y[1], out), rounded(y[2], out), _step(rounded(y[0], out), out))


def normalised(x: _Floats, norm: _Floats, eps: float, name: str) -> tuple[F64, F64]:
    """rms_norm(x) rounded to x's dtype, and the step to the neighbour that a float32 norm may round to instead: 0 where it may not."""
    exact, off = rms_norm(x, norm, eps), rms_norm_bound(x, norm, eps)
    xn = rounded(exact, name)
    return xn, np.maximum(rounded(exact + off, name) - xn, xn - rounded(exact - off, name))


def summing(terms: int, sums: str) -> Tolerance:
    """What a float32 sum of so many terms may be off by, formed as `sums` of SUMS says; without a last rounding."""
    if sums not in SUMS:
        raise ShapeError(f"sums {sums!r}; known are {', '.join(SUMS)}")
    worst = Tolerance.dot(terms)
    if sums == "matrix":
        return Tolerance(gamma(math.ceil(terms * _MATRIX_UNIT)), 0.0, worst.floor)
    likely = math.expm1(_LAMBDA * math.sqrt(terms) * U + terms * U * U / (1 - U))
    return worst if sums == "any" else Tolerance(min(worst.summing, likely), 0.0, worst.floor)


def _silu(gate: tuple[F64, ...], out: str) -> tuple[F64, F64, F64]:
    """silu of an interval, computed in float32 and rounded. It falls, and rises from its minimum on.

    A GPU's division may be off by what a library function is (CUDA's programming guide: 2 ulp), which silu_mul_bound counts as one rounding.
    """

    def at(x: F64) -> tuple[F64, F64]:
        one = np.ones(x.shape)
        value = silu_mul(x, one)
        return value, silu_mul_bound(x, one) + gamma(2 * ULPS) * np.abs(value)

    (value, _), (first, first_off), (last, last_off) = (at(end) for end in gate)
    least, least_off = at(np.full(value.shape, _SILU_LEAST))
    within = (gate[1] <= _SILU_LEAST) & (gate[2] >= _SILU_LEAST)
    low = np.where(within, least - least_off, np.minimum(first - first_off, last - last_off))
    return rounded(value, out), rounded(low, out), rounded(np.maximum(first + first_off, last + last_off), out)


def _times(a: tuple[F64, ...], b: tuple[F64, ...]) -> tuple[F64, F64, F64]:
    corners = np.stack([a[i] * b[j] for i in (1, 2) for j in (1, 2)])
    return a[0] * b[0], np.min(corners, axis=0), np.max(corners, axis=0)


def _step(x: F64, name: str) -> F64:
    """The distance between the numbers of that dtype around x."""
    found = dtype(name)
    exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))[1]
    return np.asarray(np.maximum(np.ldexp(2 * found.roundoff, exponent - 1), found.tiny))


def _too_large(name: str) -> float:
    """2^(emax + 1), from the smallest number 2^(1 - emax - (p - 1)) and the roundoff 2^-p."""
    found = dtype(name)
    return float(4 * (2 * found.roundoff) / found.tiny)
