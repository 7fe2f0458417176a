"""Conversions among all types of Triton, their ends where they are defined, and 16-bit halves of registers."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from . import exact, family, numbers

CASES, case = family()
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
N = 128


@triton.jit
def _to(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def _to_all(x, a, b, c, d, e, f, g, h, i, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(a + at, value.to(a.dtype.element_ty))
    tl.store(b + at, value.to(b.dtype.element_ty))
    tl.store(c + at, value.to(c.dtype.element_ty))
    tl.store(d + at, value.to(d.dtype.element_ty))
    tl.store(e + at, value.to(e.dtype.element_ty))
    tl.store(f + at, value.to(f.dtype.element_ty))
    tl.store(g + at, value.to(g.dtype.element_ty))
    tl.store(h + at, value.to(h.dtype.element_ty))
    tl.store(i + at, value.to(i.dtype.element_ty))


def _every(x: torch.Tensor) -> None:
    kinds = (*FLOATS, *INTEGERS)
    outs = [torch.empty(len(x), dtype=kind) for kind in kinds]
    _to_all[(1,)](x, *outs, len(x))
    for kind, out in zip(kinds, outs, strict=True):
        exact(out, _rounded(x, kind))


def _rounded(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """By one rounding. torch rounds float64 by way of float32."""
    if not kind.is_floating_point or x.dtype != torch.float64 or kind not in (torch.float16, torch.bfloat16):
        return x.to(kind)
    if kind == torch.float16:
        return torch.from_numpy(x.numpy().astype(np.float16))
    bits = x.numpy().astype(np.float32)
    low = bits.view(np.uint32)
    near = np.where(
        (bits.astype(np.float64) != x.numpy()) & (low & 1 == 0), low + np.where(np.abs(bits) < np.abs(x.numpy()), 1, -1).astype(np.int64), low
    )
    return torch.from_numpy(near.astype(np.uint32).view(np.float32).copy()).to(kind)


@case
def floats_to_everything(row: Any) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = numbers(N, dtype, 3, 30.0).clamp(0, 127)  # what every integer holds
        _every(x)


@case
def wide_floats_to_everything(row: Any) -> None:
    for dtype in (torch.float32, torch.float64):
        _every(numbers(N, dtype, 3, 30.0).clamp(0, 127))


@case
def integers_to_everything(row: Any) -> None:
    for dtype in INTEGERS:
        x = numbers(N, dtype, 4)
        x[:6] = torch.tensor([0, 1, 2, 127, 3, 5], dtype=dtype)
        _every(x)


@case
def unsigned_to_everything(row: Any) -> None:
    for dtype in (np.uint16, np.uint32, np.uint64):
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, N * np.dtype(dtype).itemsize, np.uint8).view(dtype)
        outs = [torch.empty(N, dtype=kind) for kind in (*FLOATS, *INTEGERS)]
        _to_all[(1,)](torch.from_numpy(x), *outs, N)
        for out in outs[4:]:
            exact(out, torch.from_numpy(x.astype(np.int64)).to(out.dtype))
        exact(outs[3], x.astype(np.float64))
        exact(outs[2], x.astype(np.float32))


@case
def negative_floats_to_signed_integers(row: Any) -> None:
    for dtype in FLOATS:
        x = numbers(N, dtype, 5, 40.0).clamp(-127, 127)
        for kind in (torch.int8, torch.int16, torch.int32, torch.int64):
            out = torch.empty(N, dtype=kind)
            _to[(1,)](x, out, N)
            exact(out, x.to(kind))


@case
def ends_of_floats(row: Any) -> None:
    """Overflow to infinity, ties to even, denormals, NaN, zeros with their sign."""
    special = [0.0, -0.0, 65504.0, 65519.0, 65520.0, -70000.0, 6e-8, 2.9e-8, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11,
               1 + 2.0**-8, 1 + 3 * 2.0**-8,
               float("inf"), -float("inf"), float("nan"), 3.39e38, 1e-40, -1e-45, 2.0**-133, 2.0**-134, 1.5, -2.5]  # fmt: skip
    x = torch.tensor((special * 6)[:128], dtype=torch.float32)
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        out = torch.empty(128, dtype=kind)
        _to[(1,)](x, out, 128)
        exact(out, x.to(kind))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        given = x.to(dtype)
        out = torch.empty(128, dtype=torch.float32)
        _to[(1,)](given, out, 128)
        exact(out, given.float())


@case
def large_integers_round_to_even(row: Any) -> None:
    x = torch.tensor([2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31), 2**31 - 65, 2**30 + 32, 2**30 + 96, -(2**24) - 1] * 16, dtype=torch.int32)
    y = torch.tensor(
        [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63), 2**62 + 2**38, 2**62 + 3 * 2**38, 2**40 + 2**16 + 1, -(2**53) - 1] * 16, dtype=torch.int64
    )
    for given in (x, y):
        for kind in (np.float32, np.float64):
            out = torch.empty(128, dtype=torch.float32 if kind is np.float32 else torch.float64)
            _to[(1,)](given, out, 128)
            exact(out, given.numpy().astype(kind))


@triton.jit
def _bits(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value.to(tl.int32, bitcast=True))
    half = value.to(tl.float16)
    tl.store(out + n + at, half.to(tl.int16, bitcast=True).to(tl.int32))
    tl.store(out + 2 * n + at, value.to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.int32))
    rounded = value.to(tl.float16, fp_downcast_rounding="rtz")
    tl.store(out + 3 * n + at, rounded.to(tl.int16, bitcast=True).to(tl.int32))


@case
def bits_of_floats(row: Any) -> None:
    x = numbers(N, torch.float32, 6, 1000.0)
    out = torch.empty(4, N, dtype=torch.int32)
    _bits[(1,)](x, out, N, N)
    exact(out[0], x.view(torch.int32))
    exact(out[1], x.half().view(torch.int16).int())
    exact(out[2], x.bfloat16().view(torch.int16).int() & 0xFFFF)
    cut = x.half()
    over = cut.float().abs() > x.abs()
    exact(out[3], (cut.view(torch.int16).int() - over.int()))


@triton.jit
def _halves(x, y, out, n, BLOCK: tl.constexpr):
    """16-bit values that stay in registers beside each other: sums, products, shifts, picks, and what is made of two bytes."""
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    low, high = a & 0xFF, (a >> 8) & 0xFF
    tl.store(out + at, low * high + b)
    tl.store(out + n + at, (high | (b << 8)).to(a.dtype))
    tl.store(out + 2 * n + at, tl.where(low > high, a, b) * 3)
    tl.store(out + 3 * n + at, tl.maximum(a, b) - tl.minimum(a, b))
    tl.store(out + 4 * n + at, (a.to(tl.int32) * b.to(tl.int32) >> 16).to(a.dtype))


@case
def halves_of_registers(row: Any) -> None:
    for dtype in (np.int16, np.uint16):
        rng = np.random.default_rng(7)
        x, y = (rng.integers(0, 256, 2 * 512, np.uint8).view(dtype) for _ in range(2))
        out = np.zeros((5, 512), dtype)
        _halves[(1,)](torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(out), 512, 512)
        low, high = x & dtype(255), x >> dtype(8) & dtype(255)
        product = (x.astype(np.int64) * y >> 16).astype(dtype)
        want = [low * high + y, high | y << dtype(8), np.where(low > high, x, y) * dtype(3), np.maximum(x, y) - np.minimum(x, y), product]
        for number, one in enumerate(want):
            assert (out[number] == one).all(), number


@triton.jit
def _eighths(x, out, n, BLOCK: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at).to(KIND, bitcast=True)
    tl.store(out + at, value.to(tl.float32))


@triton.jit
def _to_eighths(x, out, BLOCK: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(KIND).to(tl.uint8, bitcast=True))


def _float8(kind: Any, dtype: torch.dtype) -> None:
    raw = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    out = torch.empty(256)
    _eighths[(1,)](raw, out, 256, 256, kind)
    exact(out, raw.view(dtype).float())
    x = numbers(256, torch.float32, 8, 20.0).half().float()
    got = torch.empty(256, dtype=torch.uint8)
    _to_eighths[(1,)](x, got, 256, kind)
    exact(got.view(dtype).float(), x.to(dtype).float())


@case(first=("gfx942", "gfx950"))
def floats_of_8_bits(row: Any) -> None:
    _float8(tl.float8e5, torch.float8_e5m2)


@case(first=("gfx942", "gfx950"))
def floats_of_8_bits_with_four_of_exponent(row: Any) -> None:
    _float8(tl.float8e4nv, torch.float8_e4m3fn)


@case(first=("gfx942", "gfx950"))
def floats_of_8_bits_of_the_older_kind(row: Any) -> None:
    """Triton has these for one target alone."""
    if row.negative_zero_is_nan:
        _float8(tl.float8e4b8, torch.float8_e4m3fnuz)
        _float8(tl.float8e5b16, torch.float8_e5m2fnuz)
