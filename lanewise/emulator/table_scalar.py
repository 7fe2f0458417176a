"""Scalar instructions that are functions of their operands: results [waves, 1] and SCC, which most set to whether the result is not zero."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import fma16, fma32, to_int, toward_zero16, wide16
from lanewise.emulator.op import Op, alias, ops
from lanewise.emulator.order import greatest, least, nan_greatest, nan_least, number_greatest, number_least
from lanewise.emulator.table_compare import COMPARISONS
from lanewise.emulator.table_int import leading, ones, reversed32, trailing

__all__ = ["SCALARS"]

Array = NDArray[Any]


def _seen(run: Any) -> Any:
    """With SCC: whether the result is not zero."""

    def both(*args: Array) -> tuple[Array, Array]:
        value = run(*args)
        return value, value != 0

    return both


def _count(x: Array, width: int) -> Array:
    return x & x.dtype.type(width - 1)


def _words(x: Array) -> tuple[Array, Array]:
    return x.astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)


def _leading64(x: Array) -> Array:
    low, high = _words(x)
    return np.where(high != 0, leading(high), np.where(low != 0, leading(low) + np.uint32(32), np.uint32(0xFFFFFFFF)))


def _reversed64(x: Array) -> Array:
    low, high = _words(x)
    return reversed32(low).astype(np.uint64) << np.uint64(32) | reversed32(high)


def _ones64(x: Array) -> Array:
    low, high = _words(x)
    return ones(low) + ones(high)


def _field(x: Array, control: Array, size: int) -> Array:
    """Bits of x from control[4:0] (of 64: [5:0]), as many as control[22:16]; of a signed type with their sign. A width beyond x takes all of it."""
    offset = (control & np.uint32(size - 1)).astype(np.int64)
    width = (control >> np.uint32(16) & np.uint32(127)).astype(np.int64)
    moved = x >> offset.astype(x.dtype)
    empty = np.clip(size - width, 0, size - 1).astype(x.dtype)
    return np.where(width == 0, x.dtype.type(0), moved << empty >> empty)


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    return s, s < a


def _add_signed(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    return s, ((a ^ s) & (b ^ s)) < 0


def _sub_signed(a: Array, b: Array) -> tuple[Array, Array]:
    d = a - b
    return d, ((a ^ b) & (a ^ d)) < 0


def _add_in(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    s = a + b
    t = s + carry
    return t, (s < a) | (t < s)


def _sub_in(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    d = a - b
    return d - carry, (b > a) | (d < carry)


def _shift_add(by: int) -> Any:
    def run(a: Array, b: Array) -> tuple[Array, Array]:
        wide = (a.astype(np.uint64) << np.uint64(by)) + b
        return wide.astype(np.uint32), wide >> np.uint64(32) != 0

    return run


def _pair_toward_zero(a: Array, b: Array) -> Array:
    low, high = (toward_zero16(x).view(np.uint16).astype(np.uint32) for x in (a, b))
    return low | high << np.uint32(16)


def _high(a: Array, b: Array) -> Array:
    kind: Any = np.int64 if a.dtype == np.int32 else np.uint64
    return (a.astype(kind) * b.astype(kind) >> kind(32)).astype(a.dtype)


def _logic(size: int) -> dict[str, Op]:
    kind = f"u{size}"
    mask: Any = np.uint32(31) if size == 32 else np.uint32(63)
    wide: Any = np.uint32 if size == 32 else np.uint64
    return {
        **ops(f"{kind} scc", f"{kind} {kind}", {
            f"s_and_b{size}": _seen(lambda a, b: a & b),
            f"s_or_b{size}": _seen(lambda a, b: a | b),
            f"s_xor_b{size}": _seen(lambda a, b: a ^ b),
            f"s_andn2_b{size}": _seen(lambda a, b: a & ~b),
            f"s_orn2_b{size}": _seen(lambda a, b: a | ~b),
            f"s_nand_b{size}": _seen(lambda a, b: ~(a & b)),
            f"s_nor_b{size}": _seen(lambda a, b: ~(a | b)),
            f"s_xnor_b{size}": _seen(lambda a, b: ~(a ^ b)),
        }),
        **ops(f"{kind} scc", f"{kind} u32", {
            f"s_lshl_b{size}": _seen(lambda a, b: a << (b & mask).astype(wide)),
            f"s_lshr_b{size}": _seen(lambda a, b: a >> (b & mask).astype(wide)),
            f"s_bfe_u{size}": _seen(lambda a, b: _field(a, b, size)),
        }),
        **ops(f"i{size} scc", f"i{size} u32", {
            f"s_ashr_i{size}": _seen(lambda a, b: a >> (b & mask).astype(a.dtype)),
            f"s_bfe_i{size}": _seen(lambda a, b: _field(a, b, size)),
        }),
        **ops(kind, kind, {f"s_mov_b{size}": lambda a: a, f"s_brev_b{size}": reversed32 if size == 32 else _reversed64}),
        **ops(f"{kind} scc", kind, {f"s_not_b{size}": _seen(lambda a: ~a)}),
        **ops("u32 scc", kind, {
            f"s_bcnt1_i32_b{size}": _seen(ones if size == 32 else _ones64),
            f"s_bcnt0_i32_b{size}": _seen((lambda a: ones(~a)) if size == 32 else (lambda a: _ones64(~a))),
        }),
        **ops("u32", kind, {
            f"s_ff1_i32_b{size}": trailing if size == 32 else (lambda a: _leading64(_reversed64(a))),
            f"s_flbit_i32_b{size}": leading if size == 32 else _leading64,
        }),
        **ops(kind, f"{kind} {kind} scc", {f"s_{name}_b{size}": lambda a, b, scc: np.where(scc, a, b) for name in ("cselect", "cmov")}),
        **ops(kind, "u32 u32", {
            f"s_bfm_b{size}": lambda a, b: ((wide(1) << (a & mask).astype(wide)) - wide(1)) << (b & mask).astype(wide),
        }),
        **ops("scc", f"{kind} u32", {
            f"s_bitcmp1_b{size}": lambda a, b: a >> (b & mask).astype(wide) & wide(1) == 1,
            f"s_bitcmp0_b{size}": lambda a, b: a >> (b & mask).astype(wide) & wide(1) == 0,
        }),
        **ops(kind, f"u32 {kind}", {
            f"s_bitset1_b{size}": lambda a, b: b | wide(1) << (a & mask).astype(wide),
            f"s_bitset0_b{size}": lambda a, b: b & ~(wide(1) << (a & mask).astype(wide)),
        }),
    }  # fmt: skip


def _compares() -> dict[str, Op]:
    found: dict[str, Op] = {}
    for kind in ("i32", "u32", "u64"):
        for name in ("eq", "lg", "gt", "ge", "lt", "le"):
            found |= ops("scc", f"{kind} {kind}", {f"s_cmp_{name}_{kind}": COMPARISONS[f"v_cmp_{'ne' if name == 'lg' else name}_{kind}"].run})
    for kind in ("f32", "f16"):
        for name in ("lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"):
            found |= ops("scc", f"{kind} {kind}", {f"s_cmp_{name}_{kind}": COMPARISONS[f"v_cmp_{name}_{kind}"].run})
    return found


_ALL: dict[str, Op] = {
    **_logic(32),
    **_logic(64),
    **_compares(),
    **ops("u32 scc", "u32 u32", {"s_add_u32": _add, "s_sub_u32": lambda a, b: (a - b, b > a)}),
    **ops("u32 scc", "u32 u32", {f"s_lshl{by}_add_u32": _shift_add(by) for by in (1, 2, 3, 4)}),
    **ops("u32 scc", "u32 u32 scc", {"s_addc_u32": _add_in, "s_subb_u32": _sub_in}),
    **ops("i32 scc", "i32 i32", {
        "s_add_i32": _add_signed,
        "s_sub_i32": _sub_signed,
        "s_min_i32": lambda a, b: (np.minimum(a, b), a < b),
        "s_max_i32": lambda a, b: (np.maximum(a, b), a >= b),
        "s_absdiff_i32": _seen(lambda a, b: np.abs(a - b)),
    }),
    **ops("u32 scc", "u32 u32", {"s_min_u32": lambda a, b: (np.minimum(a, b), a < b), "s_max_u32": lambda a, b: (np.maximum(a, b), a >= b)}),
    **ops("i32 scc", "i32", {"s_abs_i32": _seen(np.abs)}),
    **ops("i32", "i32 i32", {"s_mul_i32": lambda a, b: a * b, "s_mul_hi_i32": _high}),
    **ops("u32", "u32 u32", {
        "s_mul_hi_u32": _high,
        "s_pack_ll_b32_b16": lambda a, b: a & np.uint32(0xFFFF) | b << np.uint32(16),
        "s_pack_lh_b32_b16": lambda a, b: a & np.uint32(0xFFFF) | b & np.uint32(0xFFFF0000),
        "s_pack_hh_b32_b16": lambda a, b: a >> np.uint32(16) | b & np.uint32(0xFFFF0000),
        "s_pack_hl_b32_b16": lambda a, b: a >> np.uint32(16) | b << np.uint32(16),
    }),
    **ops("u64", "u64 u64", {"s_add_u64": lambda a, b: a + b, "s_sub_u64": lambda a, b: a - b, "s_mul_u64": lambda a, b: a * b}),
    **ops("i32", "u32", {"s_sext_i32_i8": lambda a: a.view(np.int32) << 24 >> 24, "s_sext_i32_i16": lambda a: a.view(np.int32) << 16 >> 16}),
    **ops("i32", "i32", {"s_flbit_i32": lambda a: leading((a ^ a >> 31).view(np.uint32)).view(np.int32)}),
    **ops("f32", "i32", {"s_cvt_f32_i32": lambda a: a.astype(np.float32)}),
    **ops("f32", "u32", {"s_cvt_f32_u32": lambda a: a.astype(np.float32)}),
    **ops("i32", "f32", {"s_cvt_i32_f32": lambda a: to_int(a, np.int32)}),
    **ops("u32", "f32", {"s_cvt_u32_f32": lambda a: to_int(a, np.uint32)}),
    **ops("f32", "f32 f32", {
        "s_add_f32": lambda a, b: a + b,
        "s_sub_f32": lambda a, b: a - b,
        "s_mul_f32": lambda a, b: a * b,
        "s_min_f32": least,
        "s_max_f32": greatest,
        "s_min_num_f32": number_least,
        "s_max_num_f32": number_greatest,
        "s_minimum_f32": nan_least,
        "s_maximum_f32": nan_greatest,
    }),
    **ops("f32", "f32 f32 f32", {"s_fmac_f32": fma32, "s_fmaak_f32": fma32, "s_fmamk_f32": fma32}),
    **ops("f16", "f16 f16", {
        "s_add_f16": lambda a, b: a + b,
        "s_sub_f16": lambda a, b: a - b,
        "s_mul_f16": lambda a, b: a * b,
        "s_min_f16": least,
        "s_max_f16": greatest,
        "s_min_num_f16": number_least,
        "s_max_num_f16": number_greatest,
        "s_minimum_f16": nan_least,
        "s_maximum_f16": nan_greatest,
    }),
    **ops("f16", "f16 f16 f16", {"s_fmac_f16": fma16}),
    **ops("f16", "f16", {"s_floor_f16": np.floor, "s_ceil_f16": np.ceil, "s_trunc_f16": np.trunc, "s_rndne_f16": np.rint}),
    **ops("f32", "f16", {"s_cvt_f32_f16": wide16}),
    **ops("f32", "u32", {"s_cvt_hi_f32_f16": lambda a: wide16((a >> np.uint32(16)).astype(np.uint16).view(np.float16))}),
    **ops("f16", "f32", {"s_cvt_f16_f32": lambda a: a.astype(np.float16)}),
    **ops("u32", "f32 f32", {"s_cvt_pk_rtz_f16_f32": _pair_toward_zero}),
    **ops("f32", "f32", {"s_floor_f32": np.floor, "s_ceil_f32": np.ceil, "s_trunc_f32": np.trunc, "s_rndne_f32": np.rint}),
}  # fmt: skip
SCALARS: dict[str, Op] = {**_ALL, **alias(_ALL, {
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32", "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32", "s_or_not1_b64": "s_orn2_b64", "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64",
    "s_clz_i32_u32": "s_flbit_i32_b32", "s_clz_i32_u64": "s_flbit_i32_b64", "s_cls_i32": "s_flbit_i32", "s_add_nc_u64": "s_add_u64",
    "s_sub_nc_u64": "s_sub_u64",
})}  # fmt: skip
