"""Conversions. A float becomes an integer by cutting, what is out of range the end of the range, NaN 0; the rest rounds to nearest even."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.eighths import from_eighths, pair_to_eighths
from lanewise.emulator.fault import FaultError
from lanewise.emulator.floats import bf16, bf16_bits, to_int, toward_zero16
from lanewise.emulator.op import Op, alias, ops

__all__ = ["CONVERSIONS", "eighth_conversions"]

Array = NDArray[Any]


def _to(dtype: Any) -> Any:
    return lambda x: x.astype(dtype)


def _cut(dtype: Any) -> Any:
    return lambda x: to_int(x, dtype)


def _byte(number: int) -> Any:
    return lambda x: (x >> np.uint32(8 * number) & np.uint32(255)).astype(np.float32)


def _pair(convert: Any) -> Any:
    """Two results beside each other, of two sources."""
    return lambda a, b: np.stack(np.broadcast_arrays(convert(a), convert(b)))


def _normalized(dtype: Any) -> Any:
    most = np.iinfo(dtype).max
    return lambda x: to_int(np.rint(np.clip(x.astype(np.float64), -1 if np.iinfo(dtype).min else 0, 1) * most), dtype)


def _narrow(dtype: Any) -> Any:
    """Integers of 32 bits in 16, with what is out of range at the end of the range."""
    info = np.iinfo(dtype)
    return lambda x: np.clip(x.astype(np.int64), info.min, info.max).astype(dtype)


def _offset_i4(x: Array) -> Array:
    """Sixteenths, from a signed number of four bits."""
    return (((x & np.uint32(15)) ^ np.uint32(8)).astype(np.int32) - 8).astype(np.float32) / np.float32(16)


_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "u32": np.uint32, "i16": np.int16, "u16": np.uint16}
_PLAIN = (("f32", "f16"), ("f16", "f32"), ("f32", "f64"), ("f64", "f32"), ("f32", "i32"), ("f32", "u32"), ("f64", "i32"), ("f64", "u32"),
          ("f16", "i16"), ("f16", "u16"))  # fmt: skip
_CUT = (("i32", "f32"), ("u32", "f32"), ("i32", "f64"), ("u32", "f64"), ("i16", "f16"), ("u16", "f16"))


def _table() -> dict[str, Op]:
    found: dict[str, Op] = {}
    for new, old in _PLAIN:
        found |= ops(new, old, {f"v_cvt_{new}_{old}": _to(_TYPES[new])})
    for new, old in _CUT:
        found |= ops(new, old, {f"v_cvt_{new}_{old}": _cut(_TYPES[new])})
    return found


def _two(kind: str, older: bool) -> Any:
    low, high = (from_eighths(kind, older, byte) for byte in range(2))
    return lambda x: [low(x), high(x)]


def _scaled(kind: str) -> Any:
    """Times the power of two that a float32 has as its exponent."""
    plain = _two(kind, False)

    def run(x: Array, by: Array) -> list[Array]:
        power = (by.view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32) - 127
        return [np.ldexp(one.astype(np.float64), power).astype(np.float32) for one in plain(x)]

    return run


def _unscaled(kind: str, bounded: bool) -> Any:
    """The guide does not say which way the scale goes: only that of one is taken."""
    plain = pair_to_eighths(kind, False, bounded)

    def run(a: Array, b: Array, scale: Array) -> Array:
        if (scale.view(np.uint32) >> np.uint32(23) & np.uint32(255) != 127).any():
            raise FaultError("converts with a scale other than one, which the emulator has not")
        return plain(a, b)

    return run


def eighth_conversions(older: bool) -> dict[str, Op]:
    """Of floats of 8 bits, of the standard kind or of MI300's. The result's other half stays."""
    found: dict[str, Op] = {}
    for kind in ("fp8", "bf8"):
        found |= ops("f32x2", "u16", {f"v_cvt_pk_f32_{kind}": _two(kind, older)})
        found |= ops("f32", "u32", {f"v_cvt_f32_{kind}": from_eighths(kind, older, 0)})
        narrow = ops("u16", "f32 f32", {f"v_cvt_pk_{kind}_f32": pair_to_eighths(kind, older, bounded=False)})
        found |= {name: replace(one, keeps=True, clamp=pair_to_eighths(kind, older, bounded=True)) for name, one in narrow.items()}
    return found


_ALL: dict[str, Op] = {
    **_table(),
    **eighth_conversions(older=False),
    **{name: replace(one, clamp=_unscaled(name[-7:-4], bounded=True)) for name, one in ops("u16", "f32 f32 f32", {
        f"v_cvt_scalef32_pk_{kind}_f32": _unscaled(kind, bounded=False) for kind in ("fp8", "bf8")
    }).items()},
    **ops("f32x2", "u16 f32", {f"v_cvt_scalef32_pk_f32_{kind}": _scaled(kind) for kind in ("fp8", "bf8")}),
    **ops("f32", "u32", {f"v_cvt_f32_ubyte{number}": _byte(number) for number in range(4)}),
    **ops("f32", "u32", {"v_cvt_off_f32_i4": _offset_i4}),
    **ops("f32", "bf16", {"v_cvt_f32_bf16": bf16}),
    **ops("i32", "f32", {
        "v_cvt_flr_i32_f32": lambda x: to_int(np.floor(x), np.int32),
        "v_cvt_rpi_i32_f32": lambda x: to_int(np.floor(x + np.float32(0.5)), np.int32),
    }),
    **ops("f16x2", "f32 f32", {"v_cvt_pkrtz_f16_f32": _pair(toward_zero16), "v_cvt_pk_f16_f32": _pair(_to(np.float16))}),
    **ops("bf16x2", "f32 f32", {"v_cvt_pk_bf16_f32": _pair(bf16_bits)}),
    **ops("i16x2", "f32 f32", {"v_cvt_pknorm_i16_f32": _pair(_normalized(np.int16)), "v_cvt_pk_i16_f32": _pair(_cut(np.int16))}),
    **ops("u16x2", "f32 f32", {"v_cvt_pknorm_u16_f32": _pair(_normalized(np.uint16)), "v_cvt_pk_u16_f32": _pair(_cut(np.uint16))}),
    **ops("i16x2", "i32 i32", {"v_cvt_pk_i16_i32": _pair(_narrow(np.int16))}),
    **ops("u16x2", "u32 u32", {"v_cvt_pk_u16_u32": _pair(_narrow(np.uint16))}),
    **ops("f16x2", "f16 f16", {"v_pack_b32_f16": lambda a, b: np.stack(np.broadcast_arrays(a, b))}),
}  # fmt: skip
CONVERSIONS: dict[str, Op] = {**_ALL, **alias(_ALL, {
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32", "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32", "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32",
    "v_cvt_pk_norm_i16_f32": "v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_u16_f32": "v_cvt_pknorm_u16_f32",
})}  # fmt: skip
