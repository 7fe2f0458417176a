"""Packed instructions, [2, waves, lanes]; multiply-adds of mixed sizes; dot products of halves, bytes and nibbles."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import bf16, bf16_bits, fma16, fma32, wide16
from lanewise.emulator.native import dot2
from lanewise.emulator.op import Op, alias, ops
from lanewise.emulator.order import greatest, least, nan_greatest, nan_least, number_greatest, number_least

__all__ = ["PACKED_OPS"]

Array = NDArray[Any]


def _both(run: Any) -> Any:
    """Of two floats in two registers."""
    return lambda *pairs: [run(*halves) for halves in zip(*pairs, strict=True)]


def _mixed16(a: Array, b: Array, c: Array) -> Array:
    """The same, rounded to float32 and then to float16 (AMD's ISA guides, V_FMA_MIXLO_F16)."""
    return fma32(a, b, c).astype(np.float16)


def _dot2(a: Array, b: Array, c: Array) -> Array:
    """c + a0 b0, then + a1 b1, each rounded; products of halves are exact in float32."""
    made = dot2(a, b, c)
    return plain_dot2(a, b, c) if made is None else made


def plain_dot2(a: Array, b: Array, c: Array) -> Array:
    """The same on any processor."""
    p = wide16(a) * wide16(b)
    return c + p[0] + p[1]


def _dot2_bf16(a: Array, b: Array, c: Array) -> Array:
    p = bf16(a) * bf16(b)
    return c + p[0] + p[1]


def _dot2_to_bf16(a: Array, b: Array, c: Array) -> Array:
    """Summed in float32 and rounded once: the text does not say where a sum of bfloat16 is rounded."""
    return bf16_bits(_dot2_bf16(a, b, bf16(c)))


def dot2_bf16_last(a: Array, b: Array, c: Array) -> Array:
    """Where the matrix unit is MFMA the two products are added first."""
    p = bf16(a) * bf16(b)
    return p[0] + p[1] + c


def _dot_int(a: Array, b: Array, c: Array) -> Array:
    """c plus the products, which wrap."""
    return c + np.einsum("...i,...i->...", *np.broadcast_arrays(a.astype(np.int32), b.astype(np.int32))).astype(c.dtype)


def _dot4(a: Array, b: Array, c: Array) -> Array:
    """c plus four products of bytes, signed by signed, or by an unsigned one."""
    if a.dtype == np.int8 and b.dtype == np.int8:
        x, y = a.view(np.int16), b.view(np.int16)
        # two products in 16 bits each: their sum is at most 2^15, one too many, so that it is kept less one
        pair = ((x << 8 >> 8) * (y << 8 >> 8) - np.int16(1)) + (x >> 8) * (y >> 8)
        both = pair.view(np.int32)[..., 0]
        return (both << 16 >> 16) + (both >> 16) + np.int32(2) + c
    p = a.astype(np.int32) * b.astype(np.int32)
    return c + (p[..., 0] + p[..., 1] + p[..., 2] + p[..., 3])


def _dot4u(a: Array, b: Array, c: Array) -> Array:
    p = a.astype(np.uint32) * b
    return c + p.sum(axis=-1, dtype=np.uint32)


def _dot2_int(kind: Any) -> Any:
    def run(a: Array, b: Array, c: Array) -> Array:
        p = a.astype(kind) * b.astype(kind)
        return c + p[0] + p[1]

    return run


def _dot_clamp(kind: Any) -> Any:
    """The exact sum, with what is out of range at the end of the range."""
    info = np.iinfo(kind)

    def run(a: Array, b: Array, c: Array) -> Array:
        wide = (a.astype(np.int64) * b.astype(np.int64)).sum(axis=-1) + c.astype(np.int64)
        return np.clip(wide, info.min, info.max).astype(kind)

    return run


def _shift(x: Array) -> Array:
    return x & x.dtype.type(15)


_ALL: dict[str, Op] = {
    **ops("f16x2", "f16x2 f16x2", {
        "v_pk_add_f16": lambda a, b: a + b,
        "v_pk_mul_f16": lambda a, b: a * b,
        "v_pk_min_f16": least,
        "v_pk_max_f16": greatest,
        "v_pk_min_num_f16": number_least,
        "v_pk_max_num_f16": number_greatest,
        "v_pk_minimum_f16": nan_least,
        "v_pk_maximum_f16": nan_greatest,
    }),
    **ops("f16x2", "f16x2 f16x2 f16x2", {
        "v_pk_fma_f16": fma16,
        "v_pk_fmac_f16": fma16,
        "v_pk_minimum3_f16": lambda a, b, c: nan_least(nan_least(a, b), c),
        "v_pk_maximum3_f16": lambda a, b, c: nan_greatest(nan_greatest(a, b), c),
    }),
    **ops("u16x2", "u16x2 u16x2", {
        "v_pk_add_u16": lambda a, b: a + b,
        "v_pk_sub_u16": lambda a, b: a - b,
        "v_pk_mul_lo_u16": lambda a, b: a * b,
        "v_pk_min_u16": np.minimum,
        "v_pk_max_u16": np.maximum,
        "v_pk_lshlrev_b16": lambda a, b: b << _shift(a),
        "v_pk_lshrrev_b16": lambda a, b: b >> _shift(a),
    }),
    **ops("i16x2", "i16x2 i16x2", {
        "v_pk_add_i16": lambda a, b: a + b,
        "v_pk_sub_i16": lambda a, b: a - b,
        "v_pk_min_i16": np.minimum,
        "v_pk_max_i16": np.maximum,
        "v_pk_ashrrev_i16": lambda a, b: b >> _shift(a),
    }),
    **ops("u16x2", "u16x2 u16x2 u16x2", {"v_pk_mad_u16": lambda a, b, c: a * b + c}),
    **ops("i16x2", "i16x2 i16x2 i16x2", {"v_pk_mad_i16": lambda a, b, c: a * b + c}),
    **ops("f32x2", "f32x2 f32x2", {
        "v_pk_add_f32": _both(np.add),
        "v_pk_mul_f32": _both(np.multiply),
        "v_pk_mov_b32": lambda a, b: [a[0], b[0]],  # op_sel alone says which word of each
    }),
    **ops("f32x2", "f32x2 f32x2 f32x2", {"v_pk_fma_f32": _both(fma32)}),
    **ops("f32", "mix mix mix", {"v_fma_mix_f32": fma32}),
    **ops("f16", "mix mix mix", {"v_fma_mixlo_f16": _mixed16}),
    **ops("f16hi", "mix mix mix", {"v_fma_mixhi_f16": _mixed16}),
    **ops("f32", "f16x2 f16x2 f32", {"v_dot2_f32_f16": _dot2, "v_dot2c_f32_f16": _dot2}),
    **ops("f32", "bf16x2 bf16x2 f32", {"v_dot2_f32_bf16": _dot2_bf16, "v_dot2c_f32_bf16": _dot2_bf16}),
    **ops("bf16", "bf16x2 bf16x2 bf16", {"v_dot2_bf16_bf16": _dot2_to_bf16}),
    **ops("i32", "i16x2 i16x2 i32", {"v_dot2_i32_i16": _dot2_int(np.int32), "v_dot2c_i32_i16": _dot2_int(np.int32)}),
    **ops("u32", "u16x2 u16x2 u32", {"v_dot2_u32_u16": _dot2_int(np.uint32)}),
    **ops("i32", "i8x4 i8x4 i32", {"v_dot4_i32_i8": _dot4, "v_dot4c_i32_i8": _dot4}),
    **ops("i32", "iu8x4 iu8x4 i32", {"v_dot4_i32_iu8": _dot4}),
    **ops("u32", "u8x4 u8x4 u32", {"v_dot4_u32_u8": _dot4u}),
    **ops("i32", "i4x8 i4x8 i32", {"v_dot8_i32_i4": _dot_int, "v_dot8c_i32_i4": _dot_int}),
    **ops("i32", "iu4x8 iu4x8 i32", {"v_dot8_i32_iu4": _dot_int}),
    **ops("u32", "u4x8 u4x8 u32", {"v_dot8_u32_u4": _dot_int}),
}  # fmt: skip
_ALL |= {name: replace(one, clamp=_dot_clamp(np.uint32 if one.dst == ("u32",) else np.int32)) for name, one in _ALL.items()
         if name.startswith(("v_dot4", "v_dot8"))}  # fmt: skip
PACKED_OPS: dict[str, Op] = {**_ALL, **alias(_ALL, {
    "v_dot2acc_f32_f16": "v_dot2c_f32_f16",
})}  # fmt: skip
