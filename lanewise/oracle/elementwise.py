"""RMS norm, SiLU-mul and rotary positions in float64."""

import math

import numpy as np
from numpy.typing import NDArray

from lanewise.contract import Tolerance, dtype
from lanewise.oracle.rounding import EXP_FLOOR, F64, ULPS, chained, exp_error, gamma

__all__ = ["rms_norm", "rms_norm_bound", "rope", "rope_bound", "silu_mul", "silu_mul_bound"]

_Floats = NDArray[np.floating]
_TINY = dtype("f32").tiny
_U64 = 2.0**-53  # float64's unit roundoff


def rms_norm(x: _Floats, weight: _Floats, eps: float) -> F64:
    """y[...,k] = x[...,k] / sqrt(mean(x[...,:]^2) + eps) * weight[k] (Zhang and Sennrich 2019, equation 4, eps inside the root)."""
    wide = x.astype(np.float64)
    return np.asarray(wide / _root(wide, eps) * weight.astype(np.float64))


def rms_norm_bound(x: _Floats, weight: _Floats, eps: float, out: str = "f32") -> F64:
    """Everything is a product, so the error is relative to the result.

    The sum of k squares has no cancellation: gamma(k); the mean and adding a rounded eps make it gamma(k + 3), of which the root passes on half.
    Squares that underflow cost at most `tiny` each. The root (ULPS), the division and the two multiplications follow one after another.
    """
    wide = x.astype(np.float64)
    root = _root(wide, eps)
    inside = gamma(wide.shape[-1] + 3) + 2 * _TINY / root**2
    roundings = Tolerance.chain(2 * ULPS + 3, out)
    # whichever two of x, 1/root and weight meet first, their product may underflow by a `tiny` that the third then scales
    lost = _TINY * (np.abs(wide) + np.abs(weight.astype(np.float64)) + 1 / root)
    relative = chained(1 / np.sqrt(1 - inside) - 1, roundings.rounding)
    return np.asarray(relative * np.abs(rms_norm(x, weight, eps)) + roundings.floor + lost)


def _root(x: F64, eps: float) -> F64:
    return np.asarray(np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps))


def silu_mul(gate: _Floats, up: _Floats) -> F64:
    """y[m,n] = gate * sigmoid(gate) * up, all [m,n] (Shazeer 2020, SwiGLU).

    >>> silu_mul(np.float32([0, 100, -1000]), np.float32([3, 2, 2]))
    array([  0., 200.,  -0.])
    """
    return np.asarray(gate.astype(np.float64) * _sigmoid(gate.astype(np.float64)) * up.astype(np.float64))


def silu_mul_bound(gate: _Floats, up: _Floats, out: str = "f32") -> F64:
    """sigmoid(g) = 1 / (1 + e) with e = exp(-g): an error of e reaches it times e / (1 + e) = sigmoid(-g), which is nothing for large g.

    Then four roundings: the addition, the division and two multiplications. Where e overflows float32, the sigmoid is 0 and not EXP_FLOOR.
    A sigmoid made from tanh is outside this bound: it cancels for negative g.
    """
    g, u = gate.astype(np.float64), up.astype(np.float64)
    from_exp = _sigmoid(-g) * exp_error(g)
    roundings = Tolerance.chain(4, out)
    floor = EXP_FLOOR * np.abs(g * u) + _TINY * (np.abs(g) + np.abs(u)) + roundings.floor
    relative = chained(from_exp / (1 - from_exp), roundings.rounding)
    return np.asarray(relative * np.abs(silu_mul(gate, up)) + floor)


def _sigmoid(x: F64) -> F64:
    small = np.exp(-np.abs(x))  # never overflows
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def rope(x: _Floats, position: NDArray[np.integer], inv_freq: F64, magnitude: float = 1.0, interleaved: bool = False) -> F64:
    """y[m,heads,dim]: each pair of x turned by position[m] * inv_freq[i], times magnitude (Su et al. 2021, equation 34).

    inv_freq is float64[rot/2]; pair i is (i, i + rot/2), or (2i, 2i + 1) when interleaved; dims from rot on stay as they are.
    magnitude scales cos and sin (YaRN's attention factor). Angles are float64: at position 100000 a float32 angle is off by 0.004.
    """
    y = x.astype(np.float64)
    for row in range(len(x)):
        for first, second, angle in _pairs(int(position[row]), inv_freq, interleaved):
            a, b = x[row, :, first].astype(np.float64), x[row, :, second].astype(np.float64)
            cos, sin = magnitude * math.cos(angle), magnitude * math.sin(angle)
            y[row, :, first] = a * cos - b * sin
            y[row, :, second] = b * cos + a * sin
    return y


def rope_bound(x: _Floats, position: NDArray[np.integer], inv_freq: F64, magnitude: float = 1.0, interleaved: bool = False, out: str = "f32") -> F64:
    """A sum of two products whose cos and sin are rounded to float32 and multiplied by a rounded magnitude: gamma(2 + 3).

    The float64 angle is off by 2^-53 of itself, and cos and sin by ULPS of float64 more. Dims that are not turned may not change.
    """
    bound = np.zeros(x.shape) if out == "f32" else np.abs(x.astype(np.float64)) * dtype(out).roundoff + dtype(out).tiny
    want = rope(x, position, inv_freq, magnitude, interleaved)
    tolerance = Tolerance.dot(5, out)
    for row in range(len(x)):
        for first, second, angle in _pairs(int(position[row]), inv_freq, interleaved):
            a, b = np.abs(x[row, :, first].astype(np.float64)), np.abs(x[row, :, second].astype(np.float64))
            cos, sin = abs(magnitude * math.cos(angle)), abs(magnitude * math.sin(angle))
            turned = (a + b) * abs(magnitude) * (abs(angle) + 2 * ULPS) * _U64
            bound[row, :, first] = tolerance.bound(want[row, :, first], a * cos + b * sin) + turned
            bound[row, :, second] = tolerance.bound(want[row, :, second], b * cos + a * sin) + turned
    return bound


def _pairs(position: int, inv_freq: F64, interleaved: bool) -> list[tuple[int, int, float]]:
    half = len(inv_freq)
    return [(2 * i, 2 * i + 1, position * float(f)) if interleaved else (i, i + half, position * float(f)) for i, f in enumerate(inv_freq)]
