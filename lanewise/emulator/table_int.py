"""Vector instructions on integers and bits. Sums and products wrap, as numpy's do; shifts take as many bits of the count as the size has."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import chosen
from lanewise.emulator.op import Op, alias, ops

__all__ = ["INTEGERS", "leading", "ones", "reversed32", "trailing"]

Array = NDArray[Any]
_U32 = np.uint32


def _shift(x: Array, width: int) -> Array:
    return x & x.dtype.type(width - 1)


def _wide(a: Array, b: Array) -> Array:
    """The 64-bit product of 32-bit integers, with their sign."""
    kind = np.int64 if a.dtype.kind == "i" else np.uint64
    return np.asarray(a.astype(kind) * b.astype(kind))


def _high(a: Array, b: Array) -> Array:
    return np.asarray(_wide(a, b) >> 32).astype(a.dtype)


def _u24(x: Array) -> Array:
    return x & _U32(0xFFFFFF)


def _i24(x: Array) -> Array:
    return x << 8 >> 8


def _bfe_u(a: Array, offset: Array, width: Array) -> Array:
    return a >> (offset & _U32(31)) & ((_U32(1) << (width & _U32(31))) - _U32(1))


def _bfe_i(a: Array, offset: Array, width: Array) -> Array:
    bits = (width & _U32(31)).astype(np.int32)
    empty = 32 - bits & 31
    field = (a >> (offset & _U32(31)).astype(np.int32)) << empty >> empty
    return np.where(bits == 0, np.int32(0), field) if not bits.all() else field


def _bytes_of(high: Array, low: Array, select: Array) -> Array:
    """Each byte of the result is one of the eight of two words, a sign of one of four, or all zeros or ones (V_PERM_B32)."""
    data = high.astype(np.uint64) << np.uint64(32) | low
    result: Any = _U32(0)
    for place in range(0, 32, 8):
        which = select >> _U32(place) & _U32(0xFF)
        byte = (data >> (np.minimum(which, _U32(7)) * _U32(8)).astype(np.uint64) & np.uint64(0xFF)).astype(np.uint32)
        if (which > 7).any():
            sign = (data >> np.minimum((which.astype(np.int64) - 8) * 16 + 15, 63).clip(0).astype(np.uint64) & np.uint64(1)).astype(np.uint32)
            byte = np.where(which > 7, np.where(which > 12, _U32(0xFF), np.where(which == 12, _U32(0), sign * _U32(0xFF))), byte)
        result = result | byte << _U32(place)
    return np.asarray(result)


def reversed32(x: Array) -> Array:
    for step, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = (x >> _U32(step) & _U32(mask)) | (x & _U32(mask)) << _U32(step)
    return x >> _U32(16) | x << _U32(16)


def ones(x: Array) -> Array:
    """How many bits of a uint32 are set."""
    x = x - (x >> _U32(1) & _U32(0x55555555))
    x = (x & _U32(0x33333333)) + (x >> _U32(2) & _U32(0x33333333))
    return ((x + (x >> _U32(4)) & _U32(0x0F0F0F0F)) * _U32(0x01010101)) >> _U32(24)


def leading(x: Array) -> Array:
    """Zeros in front of the first one of a uint32; all ones where there is none."""
    return np.where(x == 0, np.int32(-1), 32 - np.frexp(x.astype(np.float64))[1].astype(np.int32)).view(np.uint32)


def trailing(x: Array) -> Array:
    return leading(reversed32(x))


def _leading_signs(x: Array) -> Array:
    """Where the first bit is that differs from the sign."""
    return leading((x ^ x >> 31).view(np.uint32))


def _bitop3(a: Array, b: Array, c: Array, *, bitop3: int) -> Array:
    """A function of three bits by its table of truth: the result for bits a, b, c is bit 4a + 2b + c."""
    dtype = np.result_type(a, b, c).type
    result: Any = dtype(0)
    for case in range(8):
        if bitop3 >> case & 1:
            result = result | (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
    return np.asarray(result) if np.ndim(result) else np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype)


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    return s, s < a


def _add_in(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    s = a + b
    t = s + carry
    return t, (s < a) | (t < s)


def _sub(a: Array, b: Array) -> tuple[Array, Array]:
    return a - b, b > a


def _sub_in(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    d = a - b
    return d - carry, (b > a) | (d < carry)


def _mad_u64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    s = _wide(a, b) + c
    return s, s < c


def _mad_i64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """The second is bit 64 of the exact sum, its sign."""
    p = _wide(a, b)
    s = p + c
    return s, (s < 0) ^ (((p ^ s) & (c ^ s)) < 0)


def _moved(high: Array, low: Array, by: Array) -> Array:
    """The lower word of two that are shifted right as one."""
    return ((high.astype(np.uint64) << np.uint64(32) | low) >> by.astype(np.uint64)).astype(np.uint32)


def _median(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _saturated(kind: Any, function: Any) -> Any:
    """What clamp makes of a sum or difference: the nearest that there is."""
    info = np.iinfo(kind)

    def run(a: Array, b: Array, *more: Array) -> Array:
        wide = function(a.astype(np.int64), b.astype(np.int64), *(one.astype(np.int64) for one in more))
        return np.clip(wide, info.min, info.max).astype(kind)

    return run


_TWO: dict[str, Op] = {
    **ops("u32", "u32 u32", {
        "v_and_b32": lambda a, b: a & b,
        "v_or_b32": lambda a, b: a | b,
        "v_xor_b32": lambda a, b: a ^ b,
        "v_xnor_b32": lambda a, b: ~(a ^ b),
        "v_add_u32": lambda a, b: a + b,
        "v_sub_u32": lambda a, b: a - b,
        "v_subrev_u32": lambda a, b: b - a,
        "v_mul_lo_u32": lambda a, b: a * b,
        "v_mul_hi_u32": _high,
        "v_mul_u32_u24": lambda a, b: _u24(a) * _u24(b),
        "v_mul_hi_u32_u24": lambda a, b: _high(_u24(a), _u24(b)),
        "v_lshlrev_b32": lambda a, b: b << _shift(a, 32),
        "v_lshrrev_b32": lambda a, b: b >> _shift(a, 32),
        "v_max_u32": np.maximum,
        "v_min_u32": np.minimum,
        "v_bfm_b32": lambda a, b: ((_U32(1) << _shift(a, 32)) - _U32(1)) << _shift(b, 32),
        "v_bcnt_u32_b32": lambda a, b: ones(a) + b,
    }),
    **ops("i32", "i32 i32", {
        "v_add_i32": lambda a, b: a + b,
        "v_sub_i32": lambda a, b: a - b,
        "v_mul_hi_i32": _high,
        "v_mul_i32_i24": lambda a, b: _i24(a) * _i24(b),
        "v_mul_hi_i32_i24": lambda a, b: _high(_i24(a), _i24(b)),
        "v_max_i32": np.maximum,
        "v_min_i32": np.minimum,
        "v_ashrrev_i32": lambda a, b: b >> _shift(a, 32),
    }),
    **ops("u64", "u32 u64", {
        "v_lshlrev_b64": lambda a, b: b << _shift(a, 64).astype(np.uint64),
        "v_lshrrev_b64": lambda a, b: b >> _shift(a, 64).astype(np.uint64),
    }),
    **ops("i64", "u32 i64", {"v_ashrrev_i64": lambda a, b: b >> _shift(a, 64).astype(np.int64)}),
    **ops("u16", "u16 u16", {
        "v_add_u16": lambda a, b: a + b,
        "v_sub_u16": lambda a, b: a - b,
        "v_subrev_u16": lambda a, b: b - a,
        "v_mul_lo_u16": lambda a, b: a * b,
        "v_lshlrev_b16": lambda a, b: b << _shift(a, 16),
        "v_lshrrev_b16": lambda a, b: b >> _shift(a, 16),
        "v_max_u16": np.maximum,
        "v_min_u16": np.minimum,
        "v_and_b16": lambda a, b: a & b,
        "v_or_b16": lambda a, b: a | b,
        "v_xor_b16": lambda a, b: a ^ b,
    }),
    **ops("i16", "i16 i16", {
        "v_add_i16": lambda a, b: a + b,
        "v_sub_i16": lambda a, b: a - b,
        "v_max_i16": np.maximum,
        "v_min_i16": np.minimum,
        "v_ashrrev_i16": lambda a, b: b >> _shift(a, 16),
    }),
    **ops("u32 mask", "u32 u32", {"v_add_co_u32": _add, "v_sub_co_u32": _sub, "v_subrev_co_u32": lambda a, b: _sub(b, a)}),
    **ops("u32 mask", "u32 u32 mask", {
        "v_addc_co_u32": _add_in,
        "v_subb_co_u32": _sub_in,
        "v_subbrev_co_u32": lambda a, b, carry: _sub_in(b, a, carry),
    }),
}  # fmt: skip
_THREE: dict[str, Op] = {
    **ops("u32", "u32 u32 u32", {
        "v_add3_u32": lambda a, b, c: a + b + c,
        "v_lshl_add_u32": lambda a, b, c: (a << _shift(b, 32)) + c,
        "v_add_lshl_u32": lambda a, b, c: a + b << _shift(c, 32),
        "v_lshl_or_b32": lambda a, b, c: a << _shift(b, 32) | c,
        "v_and_or_b32": lambda a, b, c: a & b | c,
        "v_or3_b32": lambda a, b, c: a | b | c,
        "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
        "v_xad_u32": lambda a, b, c: (a ^ b) + c,
        "v_bfe_u32": _bfe_u,
        "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
        "v_alignbit_b32": lambda a, b, c: _moved(a, b, _shift(c, 32)),
        "v_alignbyte_b32": lambda a, b, c: _moved(a, b, _shift(c, 4) * _U32(8)),
        "v_perm_b32": _bytes_of,
        "v_mad_u32_u24": lambda a, b, c: _u24(a) * _u24(b) + c,
        "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_med3_u32": _median,
        "v_maxmin_u32": lambda a, b, c: np.minimum(np.maximum(a, b), c),
        "v_minmax_u32": lambda a, b, c: np.maximum(np.minimum(a, b), c),
        "v_sad_u32": lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
    }),
    **ops("u32", "u32 u32 u32", {"v_bitop3_b32": _bitop3}, takes="bitop3"),
    **ops("u16", "u16 u16 u16", {"v_bitop3_b16": _bitop3}, takes="bitop3"),
    **ops("u64", "u64 u32 u64", {"v_lshl_add_u64": lambda a, b, c: (a << (b & _U32(7)).astype(np.uint64)) + c}),
    **ops("u64 mask", "u32 u32 u64", {"v_mad_u64_u32": _mad_u64}),
    **ops("i64 mask", "i32 i32 i64", {"v_mad_i64_i32": _mad_i64}),
    **ops("i32", "i32 u32 u32", {"v_bfe_i32": _bfe_i}),
    **ops("i32", "i32 i32 i32", {
        "v_mad_i32_i24": lambda a, b, c: _i24(a) * _i24(b) + c,
        "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_med3_i32": _median,
        "v_maxmin_i32": lambda a, b, c: np.minimum(np.maximum(a, b), c),
        "v_minmax_i32": lambda a, b, c: np.maximum(np.minimum(a, b), c),
    }),
    **ops("u16", "u16 u16 u16", {
        "v_mad_u16": lambda a, b, c: a * b + c,
        "v_max3_u16": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_min3_u16": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_med3_u16": _median,
    }),
    **ops("i16", "i16 i16 i16", {
        "v_mad_i16": lambda a, b, c: a * b + c,
        "v_max3_i16": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_min3_i16": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_med3_i16": _median,
    }),
    **ops("u32", "u16 u16 u32", {"v_mad_u32_u16": lambda a, b, c: a.astype(np.uint32) * b + c}),
    **ops("i32", "i16 i16 i32", {"v_mad_i32_i16": lambda a, b, c: a.astype(np.int32) * b + c}),
}  # fmt: skip
_ONE: dict[str, Op] = {
    **ops("u32", "u32", {
        "v_mov_b32": lambda a: a,
        "v_not_b32": lambda a: ~a,
        "v_bfrev_b32": reversed32,
        "v_ffbh_u32": leading,
        "v_ffbl_b32": trailing,
    }),
    **ops("u32", "i32", {"v_ffbh_i32": _leading_signs}),
    **ops("u64", "u64", {"v_mov_b64": lambda a: a}),
    **ops("u16", "u16", {"v_mov_b16": lambda a: a, "v_not_b16": lambda a: ~a}),
    **ops("f32", "f32 f32 mask", {"v_cndmask_b32": lambda a, b, mask: chosen(mask, b, a)}),
    **ops("u16", "u16 u16 mask", {"v_cndmask_b16": lambda a, b, mask: np.where(mask, b, a)}),
    **ops("i32", "i16", {"v_cvt_i32_i16": lambda a: a.astype(np.int32)}),
    **ops("u32", "u16", {"v_cvt_u32_u16": lambda a: a.astype(np.uint32)}),
}  # fmt: skip
_ALL = {**_ONE, **_TWO, **_THREE}
_CLAMPS = {name: _saturated(kind, _ALL[name].run) for kind, names in {
    np.uint32: ("v_add_u32", "v_sub_u32", "v_subrev_u32"), np.int32: ("v_add_i32", "v_sub_i32"),
    np.uint16: ("v_add_u16", "v_sub_u16", "v_subrev_u16"), np.int16: ("v_add_i16", "v_sub_i16"),
}.items() for name in names}  # fmt: skip
_ALL |= {name: replace(_ALL[name], clamp=clamp) for name, clamp in _CLAMPS.items()}
# gfx10 and later say "no carry" where gfx9 says nothing, and count zeros by shorter names from gfx11 on.
INTEGERS: dict[str, Op] = {**_ALL, **alias(_ALL, {
    "v_add_nc_u32": "v_add_u32", "v_sub_nc_u32": "v_sub_u32", "v_subrev_nc_u32": "v_subrev_u32", "v_add_nc_i32": "v_add_i32",
    "v_sub_nc_i32": "v_sub_i32", "v_add_nc_u16": "v_add_u16", "v_sub_nc_u16": "v_sub_u16", "v_add_nc_i16": "v_add_i16", "v_sub_nc_i16": "v_sub_i16",
    "v_add_co_ci_u32": "v_addc_co_u32", "v_sub_co_ci_u32": "v_subb_co_u32", "v_subrev_co_ci_u32": "v_subbrev_co_u32",
    "v_clz_i32_u32": "v_ffbh_u32", "v_ctz_i32_b32": "v_ffbl_b32", "v_cls_i32": "v_ffbh_i32", "v_mad_co_u64_u32": "v_mad_u64_u32",
    "v_mad_co_i64_i32": "v_mad_i64_i32", "v_mad_legacy_u16": "v_mad_u16", "v_mad_legacy_i16": "v_mad_i16",
    "v_mul_lo_i32": "v_mul_lo_u32",
})}  # fmt: skip
