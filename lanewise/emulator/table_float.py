"""Vector instructions on float16, float32 and float64: sums, products with one rounding, least and greatest, division's parts, roundings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.divide import fixup, fmas, scale
from lanewise.emulator.floats import approximate, fma16, fma32, fma64
from lanewise.emulator.op import Op, alias, ops
from lanewise.emulator.order import greatest, least, nan_greatest, nan_least, number_greatest, number_least
from lanewise.emulator.trig import turns

__all__ = ["FLOATS"]

Array = NDArray[Any]


def _median(low: Any, high: Any) -> Any:
    def run(a: Array, b: Array, c: Array) -> Array:
        plain = high(low(a, b), low(high(a, b), c))
        lost = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(lost, low(low(a, b), c), plain) if lost.any() else plain

    return run


def _fraction(x: Array) -> Array:
    """What is behind the point, below 1: of a number just below a whole one the largest that there is below 1."""
    below = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.where(np.isfinite(x), np.minimum(x - np.floor(x), below), x.dtype.type(np.nan))


def _mantissa(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[0], x)


def _exponent(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int32)


def _ldexp(x: Array, by: Array) -> Array:
    """x * 2^by with one rounding: float64 holds every product of float32 and what is left after 2000 doublings is infinite or nothing."""
    by = np.clip(by.astype(np.int64), -2200, 2200)
    if x.dtype == np.float64:
        return np.asarray(np.ldexp(x, by))
    power = (np.clip(by, -700, 700) + 1023 << 52).view(np.float64)
    return (x.astype(np.float64) * power).astype(x.dtype)


def _legacy(a: Array, b: Array) -> Array:
    """Zero times anything is zero."""
    return np.where((a == 0) | (b == 0), np.float32(0), a * b)


def _turns(function: Any) -> Any:
    return lambda x: function((x - np.floor(x)) * (2 * np.pi))


def _exact16(function: Any) -> Any:
    """float16 by way of float32, whose 24 bits are enough for one rounding of a result of 11."""
    return lambda x: function(x.astype(np.float32)).astype(np.float16)


def _of(kind: str, fma: Any) -> dict[str, Op]:
    """What every size has."""
    table = {
        **ops(kind, f"{kind} {kind}", {
            f"v_add_{kind}": lambda a, b: a + b,
            f"v_sub_{kind}": lambda a, b: a - b,
            f"v_subrev_{kind}": lambda a, b: b - a,
            f"v_mul_{kind}": lambda a, b: a * b,
            f"v_min_{kind}": least,
            f"v_max_{kind}": greatest,
            f"v_min_num_{kind}": number_least,
            f"v_max_num_{kind}": number_greatest,
            f"v_minimum_{kind}": nan_least,
            f"v_maximum_{kind}": nan_greatest,
        }),
        **ops(kind, f"{kind} {kind} {kind}", {
            f"v_fma_{kind}": fma,
            f"v_fmac_{kind}": fma,
            f"v_fmaak_{kind}": fma,
            f"v_fmamk_{kind}": fma,
            f"v_min3_{kind}": lambda a, b, c: least(least(a, b), c),
            f"v_max3_{kind}": lambda a, b, c: greatest(greatest(a, b), c),
            f"v_med3_{kind}": _median(least, greatest),
            f"v_minmax_{kind}": lambda a, b, c: greatest(least(a, b), c),
            f"v_maxmin_{kind}": lambda a, b, c: least(greatest(a, b), c),
            f"v_min3_num_{kind}": lambda a, b, c: number_least(number_least(a, b), c),
            f"v_max3_num_{kind}": lambda a, b, c: number_greatest(number_greatest(a, b), c),
            f"v_med3_num_{kind}": _median(number_least, number_greatest),
            f"v_minmax_num_{kind}": lambda a, b, c: number_greatest(number_least(a, b), c),
            f"v_maxmin_num_{kind}": lambda a, b, c: number_least(number_greatest(a, b), c),
            f"v_minimum3_{kind}": lambda a, b, c: nan_least(nan_least(a, b), c),
            f"v_maximum3_{kind}": lambda a, b, c: nan_greatest(nan_greatest(a, b), c),
            f"v_minimummaximum_{kind}": lambda a, b, c: nan_greatest(nan_least(a, b), c),
            f"v_maximumminimum_{kind}": lambda a, b, c: nan_least(nan_greatest(a, b), c),
            f"v_div_fixup_{kind}": fixup,
        }),
        **ops(kind, kind, {
            f"v_floor_{kind}": np.floor,
            f"v_ceil_{kind}": np.ceil,
            f"v_trunc_{kind}": np.trunc,
            f"v_rndne_{kind}": np.rint,
            f"v_fract_{kind}": _fraction,
            f"v_frexp_mant_{kind}": _mantissa,
        }),
    }  # fmt: skip
    return table


_F32 = {
    **_of("f32", fma32),
    **ops("f32", "f32 f32", {"v_mul_legacy_f32": _legacy}),
    **ops("f32", "f32 f32 f32", {"v_mad_f32": lambda a, b, c: a * b + c, "v_mac_f32": lambda a, b, c: a * b + c}),
    **ops("f32", "f32", {
        "v_rcp_f32": approximate(lambda x: 1 / x),
        "v_rcp_iflag_f32": approximate(lambda x: 1 / x),
        "v_rsq_f32": approximate(lambda x: 1 / np.sqrt(x)),
        "v_sqrt_f32": approximate(np.sqrt),
        "v_exp_f32": approximate(np.exp2),
        "v_log_f32": approximate(np.log2),
        "v_sin_f32": approximate(_turns(np.sin)),
        "v_cos_f32": approximate(_turns(np.cos)),
    }),
    **ops("f32", "f32 i32", {"v_ldexp_f32": _ldexp}),
    **ops("i32", "f32", {"v_frexp_exp_i32_f32": _exponent}),
    **ops("f32 mask", "f32 f32 f32", {"v_div_scale_f32": scale}),
    **ops("f32", "f32 f32 f32 mask", {"v_div_fmas_f32": fmas}),
}  # fmt: skip
_F16 = {
    **_of("f16", fma16),
    **ops("f16", "f16", {
        "v_rcp_f16": _exact16(lambda x: 1 / x),
        "v_rsq_f16": _exact16(lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32)),
        "v_sqrt_f16": _exact16(np.sqrt),
        "v_exp_f16": _exact16(np.exp2),
        "v_log_f16": _exact16(np.log2),
        "v_sin_f16": _exact16(_turns(np.sin)),
        "v_cos_f16": _exact16(_turns(np.cos)),
    }),
    **ops("f16", "f16 i16", {"v_ldexp_f16": _ldexp}),
    **ops("i16", "f16", {"v_frexp_exp_i16_f16": lambda x: _exponent(x).astype(np.int16)}),
}  # fmt: skip
_F64 = {
    **_of("f64", fma64),
    **ops("f64", "f64", {"v_rcp_f64": lambda x: 1 / x, "v_rsq_f64": lambda x: 1 / np.sqrt(x), "v_sqrt_f64": np.sqrt}),
    **ops("f64", "f64 i32", {"v_ldexp_f64": _ldexp}),
    **ops("f64", "f64 u32", {"v_trig_preop_f64": turns}),
    **ops("i32", "f64", {"v_frexp_exp_i32_f64": _exponent}),
    **ops("f64 mask", "f64 f64 f64", {"v_div_scale_f64": scale}),
    **ops("f64", "f64 f64 f64 mask", {"v_div_fmas_f64": fmas}),
}
_ALL = {**_F32, **_F16, **_F64}
FLOATS: dict[str, Op] = {**_ALL, **alias(_ALL, {
    **{f"v_s_{name}_{kind}": f"v_{name}_{kind}" for name in ("exp", "log", "rcp", "rsq", "sqrt") for kind in ("f32", "f16")},
    "v_madmk_f32": "v_mad_f32", "v_madak_f32": "v_mad_f32", "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
})}  # fmt: skip
