"""Arithmetic of every type, one element a lane: what is defined exactly is compared to the bit."""

import math
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from . import APPROXIMATED, ONE_ROUNDING, exact, family, near, numbers

CASES, case = family()
N = 512


@triton.jit
def _floats(x, y, z, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    tl.store(out + at, a + b)
    tl.store(out + n + at, a - b)
    tl.store(out + 2 * n + at, a * b)
    tl.store(out + 3 * n + at, -a)
    tl.store(out + 4 * n + at, tl.abs(a))
    tl.store(out + 5 * n + at, tl.minimum(a, b))
    tl.store(out + 6 * n + at, tl.maximum(a, b))
    tl.store(out + 7 * n + at, tl.where(a < b, c, a))
    tl.store(out + 8 * n + at, tl.where(a >= c, b, -c))


@triton.jit
def _fused(x, y, z, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.fma(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


def _plain(dtype: torch.dtype) -> None:
    x, y, z = (numbers(N, dtype, seed, 4.0) for seed in range(3))
    y[::7], z[::5] = x[::7], -x[::5]
    out = torch.empty(9, N, dtype=dtype)
    _floats[(2,)](x, y, z, out, N, 256, num_warps=2)
    wide = [one.double() for one in (x, y, z)]
    a, b, c = wide
    want = [a + b, a - b, a * b, -a, a.abs(), torch.minimum(a, b), torch.maximum(a, b), torch.where(a < b, c, a), torch.where(a >= c, b, -c)]
    for row, one in zip(out, want, strict=True):
        exact(row, one.to(dtype))  # sums and products of two halves are exact in float64, so this rounds once


@case
def floats_of_16_bits(row: Any) -> None:
    _plain(torch.float16)


@case(aborts=("gfx1030",))  # LLVM has no product of bfloat16 for it and ends the process
def bfloats(row: Any) -> None:
    _plain(torch.bfloat16)


@case
def floats_of_32_bits(row: Any) -> None:
    _plain(torch.float32)


@case
def floats_of_64_bits(row: Any) -> None:
    _plain(torch.float64)


@case
def multiplications_with_one_rounding(row: Any) -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        x, y, z = (numbers(N, dtype, seed) for seed in range(3))
        z = (-(x.double() * y.double())).to(dtype)  # only the product's rest is left
        out = torch.empty(N, dtype=dtype)
        _fused[(2,)](x, y, z, out, 256)
        wide = [one.numpy().astype(np.longdouble) for one in (x, y, z)]
        if dtype != torch.float64:
            exact(out, torch.as_tensor((wide[0] * wide[1] + wide[2]).astype(np.float64)).to(dtype))
        else:
            from fractions import Fraction

            sums = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
            exact(out, torch.tensor(sums, dtype=dtype))


@triton.jit
def _nan(x, y, out, n, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    rule: tl.constexpr = tl.PropagateNan.ALL if KEEP else tl.PropagateNan.NONE
    tl.store(out + at, tl.minimum(a, b, propagate_nan=rule))
    tl.store(out + n + at, tl.maximum(a, b, propagate_nan=rule))
    tl.store(out + 2 * n + at, tl.clamp(a, -1.0, 1.0, propagate_nan=rule))


@case
def least_and_greatest_beside_nan(row: Any) -> None:
    for dtype in (torch.float32, torch.float16):
        x, y = numbers(64, dtype, 0), numbers(64, dtype, 1)
        x[::3], y[::4] = float("nan"), float("nan")
        for keep in (False, True):
            out = torch.empty(3, 64, dtype=dtype)
            _nan[(1,)](x, y, out, 64, 64, keep)
            low, high = (torch.minimum, torch.maximum) if keep else (torch.fmin, torch.fmax)
            exact(out[0], low(x, y))
            exact(out[1], high(x, y))
            if keep:
                exact(out[2], x.clamp(-1, 1))


@triton.jit
def _divided(x, y, out, n, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a / b)
    tl.store(out + n + at, tl.sqrt(tl.abs(a)))
    tl.store(out + 2 * n + at, tl.rsqrt(tl.abs(a)))
    if EXACT:
        tl.store(out + 3 * n + at, tl.div_rn(a, b))
        tl.store(out + 4 * n + at, tl.sqrt_rn(tl.abs(a)))
    tl.store(out + 5 * n + at, tl.floor(a))
    tl.store(out + 6 * n + at, tl.ceil(a))


@case
def quotients_and_roots_of_32_bits(row: Any) -> None:
    x, y = numbers(N, torch.float32, 0, 100.0), numbers(N, torch.float32, 1)
    x[:4] = torch.tensor([0.0, 1e-30, 1e30, 9.0])
    out = torch.empty(7, N)
    _divided[(4,)](x, y, out, N, 128, True)
    a, b = x.double(), y.double()
    near(out[0], a / b, APPROXIMATED)
    near(out[1], a.abs().sqrt(), APPROXIMATED)
    near(out[2], a.abs().rsqrt(), APPROXIMATED)
    exact(out[3], (a / b).float())
    exact(out[4], np.sqrt(a.abs().numpy()).astype(np.float32))
    exact(out[5], a.floor().float())
    exact(out[6], a.ceil().float())


@case
def quotients_and_roots_of_64_bits(row: Any) -> None:
    x, y = numbers(N, torch.float64, 0, 100.0), numbers(N, torch.float64, 1)
    x[:4] = torch.tensor([0.0, 1e-300, 1e300, 9.0])
    out = torch.empty(7, N, dtype=torch.float64)
    _divided[(4,)](x, y, out, N, 128, False)
    exact(out[0], x / y)
    exact(out[1], np.sqrt(x.abs().numpy()))  # torch's own root is not always the nearest
    near(out[2], x.abs().rsqrt(), APPROXIMATED)
    exact(out[5], x.floor())
    exact(out[6], x.ceil())


@triton.jit
def _functions(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(out + at, tl.exp(a))
    tl.store(out + n + at, tl.exp2(a))
    tl.store(out + 2 * n + at, tl.log(tl.abs(a)))
    tl.store(out + 3 * n + at, tl.log2(tl.abs(a)))
    tl.store(out + 4 * n + at, tl.sin(a))
    tl.store(out + 5 * n + at, tl.cos(a))
    tl.store(out + 6 * n + at, tl.erf(a))
    tl.store(out + 7 * n + at, tl.sigmoid(a))
    tl.store(out + 8 * n + at, libdevice.tanh(a))
    tl.store(out + 9 * n + at, libdevice.pow(tl.abs(a), 1.5))
    tl.store(out + 10 * n + at, libdevice.nearbyint(a))
    tl.store(out + 11 * n + at, libdevice.trunc(a))
    tl.store(out + 12 * n + at, libdevice.fmod(a, 0.75))


@case
def functions(row: Any) -> None:
    x = numbers(N, torch.float32, 0, 3.0)
    out = torch.empty(13, N)
    _functions[(2,)](x, out, N, 256)
    a = x.double()
    want = [a.exp(), a.exp2(), a.abs().log(), a.abs().log2(), a.sin(), a.cos(), torch.erf(a), a.sigmoid(), a.tanh(), a.abs().pow(1.5)]
    # of a number near a zero of the function the error is that of its argument, and an exponential's grows with it
    sizes = [a.exp() * a.abs().clamp(min=1), a.exp2() * a.abs().clamp(min=1), a.abs().log().abs().clamp(min=1), a.abs().log2().abs().clamp(min=1),
             *[torch.ones_like(a)] * 3, a.sigmoid(), torch.ones_like(a), a.abs().pow(1.5)]  # fmt: skip
    for got, one, size in zip(out, want, sizes, strict=False):
        near(got, one, APPROXIMATED, size)
    exact(out[10], a.round().float())
    exact(out[11], a.trunc().float())
    exact(out[12], torch.fmod(a, 0.75).float())


@triton.jit
def _functions64(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(out + at, libdevice.exp(a))
    tl.store(out + n + at, libdevice.log(tl.abs(a)))
    tl.store(out + 2 * n + at, libdevice.sin(a))
    tl.store(out + 3 * n + at, libdevice.erf(a))
    tl.store(out + 4 * n + at, libdevice.nearbyint(a))
    tl.store(out + 5 * n + at, libdevice.tanh(a))


@case
def functions_of_64_bits(row: Any) -> None:
    x = numbers(128, torch.float64, 0, 3.0)
    x[:8] = torch.tensor([1e5, -1e10, 1e22, 3e50, 1e100, -1e200, 1e300, 2.0**1000], dtype=torch.float64)  # angles of many turns
    out = torch.empty(6, 128, dtype=torch.float64)
    # Triton fuses products and sums as it likes, and by that takes the sine of an angle of many turns its exact rests: it is then wrong from the
    # first digit on. As AMD's library is written it is right.
    _functions64[(1,)](x, out, 128, 128, enable_fp_fusion=False)
    sines = torch.tensor([math.sin(one) for one in x.tolist()], dtype=torch.float64)
    want = [x.exp(), x.abs().log(), sines, torch.erf(x), x.round(), x.tanh()]
    for got, one in zip(out, want, strict=True):
        near(got, one, APPROXIMATED, one.abs().clamp(min=1))


@triton.jit
def _integers(x, y, out, n, SHIFTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a + b)
    tl.store(out + n + at, a - b)
    tl.store(out + 2 * n + at, a * b)
    tl.store(out + 3 * n + at, a & b)
    tl.store(out + 4 * n + at, a | b)
    tl.store(out + 5 * n + at, a ^ b)
    tl.store(out + 6 * n + at, ~a)
    tl.store(out + 7 * n + at, tl.minimum(a, b))
    tl.store(out + 8 * n + at, tl.maximum(a, b))
    by = b & SHIFTS
    tl.store(out + 9 * n + at, a << by)
    tl.store(out + 10 * n + at, a >> by)
    some = tl.where(b == 0, 1, b)
    tl.store(out + 11 * n + at, a // some)
    tl.store(out + 12 * n + at, a % some)
    tl.store(out + 13 * n + at, tl.where(a < b, a, b ^ a))


def _whole(kind: Any) -> None:
    dtype = np.dtype(kind)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, N * dtype.itemsize, np.uint8).view(dtype)
    y = rng.integers(0, 256, N * dtype.itemsize, np.uint8).view(dtype)
    y[: N // 2] >>= dtype.type(4 * dtype.itemsize)  # quotients of several digits
    y[:8] = np.array([0, 1, 2, 3, 7, 10, 100, 127], dtype)
    if dtype.kind == "i":
        y[(x == np.iinfo(dtype).min) & (y == -1)] = 1  # which quotient overflows
    out = np.zeros((14, N), dtype)
    size = 8 * dtype.itemsize
    _integers[(2,)](torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(out), N, size - 1, 256)
    by, some = y & dtype.type(size - 1), np.where(y == 0, dtype.type(1), y)
    if dtype.kind == "i":  # toward zero, as C has it
        wide = [[int(a), int(b)] for a, b in zip(x, some, strict=True)]
        quotient = np.array([abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in wide], dtype)
    else:
        quotient = x // some
    rest = x - quotient * some
    want = [
        x + y,
        x - y,
        x * y,
        x & y,
        x | y,
        x ^ y,
        ~x,
        np.minimum(x, y),
        np.maximum(x, y),
        x << by,
        x >> by,
        quotient,
        rest,
        np.where(x < y, x, y ^ x),
    ]
    for number, one in enumerate(want):
        wrong = out[number] != one
        assert not wrong.any(), f"row {number} of {dtype}: {x[wrong][:3]}, {y[wrong][:3]} gave {out[number][wrong][:3]}, not {one[wrong][:3]}"


@case
def integers_of_8_bits(row: Any) -> None:
    _whole(np.int8)
    _whole(np.uint8)


@case
def integers_of_16_bits(row: Any) -> None:
    _whole(np.int16)
    _whole(np.uint16)


@case
def integers_of_32_bits(row: Any) -> None:
    _whole(np.int32)
    _whole(np.uint32)


@case
def integers_of_64_bits(row: Any) -> None:
    _whole(np.int64)
    _whole(np.uint64)


@triton.jit
def _upper(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.umulhi(tl.load(x + at), tl.load(y + at)))


@case
def upper_halves_of_products(row: Any) -> None:
    for dtype, bits in ((np.uint32, 32), (np.uint64, 64)):
        rng = np.random.default_rng(1)
        x, y = (rng.integers(0, 256, 128 * bits // 8, np.uint8).view(dtype) for _ in range(2))
        out = np.zeros(128, dtype)
        _upper[(1,)](torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(out), 128, 128)
        assert out.tolist() == [int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)]


@triton.jit
def _alone(x, h, i, out, halves, whole, N: tl.constexpr):
    """What is the same in every lane: numbers of one program, which newer targets compute in scalar registers."""
    a, b = tl.load(x), tl.load(x + 1)
    p, q = tl.load(h), tl.load(h + 1)
    m, n = tl.load(i), tl.load(i + 1)
    at = tl.arange(0, N)
    lane = tl.where(at == 0, a + b, tl.where(at == 1, a * b - 1.5, tl.where(at == 2, tl.floor(a), tl.where(at == 3, tl.maximum(a, b), -tl.abs(b)))))
    tl.store(out + at, lane)
    tl.store(out + N + at, tl.where(at == 0, 1 / a, tl.where(at == 1, tl.sqrt(tl.abs(b)), tl.where(at == 2, tl.exp2(a), tl.log2(tl.abs(b))))))
    tl.store(out + 2 * N + at, tl.where(at == 0, tl.fma(a, b, a), tl.where(at == 1, m.to(tl.float32), tl.where(a < b, p.to(tl.float32), 2.0))))
    tl.store(halves + at, tl.where(at == 0, p + q, tl.where(at == 1, p * q, tl.where(at == 2, tl.minimum(p, q), a.to(tl.float16)))))
    most = tl.where(m > n, m, n)
    tl.store(whole + at, tl.where(at == 0, m * n + 5, tl.where(at == 1, m // n, tl.where(at == 2, m % n, most >> (n & 7)))))
    tl.store(whole + N + at, tl.where(at == 0, a.to(tl.int64), tl.where(at == 1, (m.to(tl.uint64) // 1000003).to(tl.int64), (m & 0xFF) << 33)))


@case
def numbers_of_a_program(row: Any) -> None:
    for seed in range(3):
        x, h = numbers(2, torch.float32, seed, 5.0), numbers(2, torch.float16, seed)
        i = numbers(2, torch.int64, seed) >> torch.tensor([8, 40])
        out, halves, whole = torch.empty(3, 32), torch.empty(32, dtype=torch.float16), torch.empty(2, 32, dtype=torch.int64)
        _alone[(1,)](x, h, i, out, halves, whole, 32)
        a, b = x.double()
        p, q = h
        m, n = (int(one) for one in i)
        exact(out[0, :5], torch.stack([a + b, out[0, 1].double(), a.floor(), torch.maximum(a, b), -b.abs()]).float())
        near(out[0, 1:2], (a * b - 1.5)[None], ONE_ROUNDING + APPROXIMATED, (a * b).abs()[None] + 1.5)
        want = torch.stack([1 / a, b.abs().sqrt(), a.exp2(), b.abs().log2()])
        near(out[1, :4], want, APPROXIMATED, want.abs() * 8 + 1)
        near(out[2, :3], torch.stack([a * b + a, torch.tensor(float(m)), p.double() if a < b else a * 0 + 2]), ONE_ROUNDING * (1 + 2.0**-20))
        exact(halves[:4], torch.stack([p + q, p * q, torch.minimum(p, q), a.half()]))
        quotient = abs(m) // abs(n) * (1 if (m < 0) == (n < 0) else -1)
        wrapped = ((m * n + 5) + 2**63) % 2**64 - 2**63
        assert whole[0, :4].tolist() == [wrapped, quotient, m - quotient * n, max(m, n) >> (n & 7)]
        assert whole[1, :3].tolist() == [int(a), m % 2**64 // 1000003, (m & 0xFF) << 33]
