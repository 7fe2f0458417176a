"""Reductions along each axis, scans, norms, softmax, sorting, counting and gathering."""

from typing import Any

import torch
import triton
import triton.language as tl

from . import APPROXIMATED, ONE_ROUNDING, exact, family, near, numbers

CASES, case = family()


@triton.jit
def _reduced(x, total, high, low, first, last, parity, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    to = tl.arange(0, N if AXIS == 0 else M)
    value = tl.load(x + at)
    tl.store(total + to, tl.sum(value, AXIS))
    tl.store(high + to, tl.max(value, AXIS))
    tl.store(low + to, tl.min(value, AXIS))
    tl.store(first + to, tl.argmax(value, AXIS))
    tl.store(last + to, tl.argmin(value, AXIS, tie_break_left=False))
    if not value.dtype.is_floating():
        tl.store(parity + to, tl.xor_sum(value, AXIS))


def _check(m: int, n: int, axis: int, dtype: torch.dtype, warps: int) -> None:
    x = numbers((m, n), dtype, m + n)
    x = x.round().clamp(-8, 8) if dtype.is_floating_point else x  # sums are exact, and there are ties
    size = n if axis == 0 else m
    total, high, low, parity = (torch.empty(size, dtype=dtype) for _ in range(4))
    first, last = (torch.empty(size, dtype=torch.int32) for _ in range(2))
    _reduced[(1,)](x, total, high, low, first, last, parity, m, n, axis, num_warps=warps)
    exact(total, x.double().sum(axis).to(dtype) if dtype.is_floating_point else x.sum(axis).to(dtype))
    exact(high, x.amax(axis))
    exact(low, x.amin(axis))
    exact(first, (x == x.amax(axis, keepdim=True)).int().argmax(axis).int())
    if not dtype.is_floating_point:
        bits = x
        while bits.shape[axis] > 1:
            a, b = bits.chunk(2, axis)
            bits = a ^ b
        exact(parity, bits.squeeze(axis))
    assert (x.gather(axis, last.long().unsqueeze(axis)).squeeze(axis) == x.amin(axis)).all()


@case
def reductions_by_one_warp(row: Any) -> None:
    _check(8, 128, 1, torch.float32, 1)
    _check(64, 16, 0, torch.int32, 1)


@case
def reductions_by_two_warps(row: Any) -> None:
    _check(4, 256, 1, torch.int32, 2)
    _check(32, 32, 0, torch.float32, 2)


@case
def reductions_by_four_warps(row: Any) -> None:
    _check(2, 1024, 1, torch.float32, 4)
    _check(128, 8, 0, torch.float16, 4)


@case
def reductions_by_eight_warps(row: Any) -> None:
    _check(4, 512, 1, torch.int32, 8)
    _check(256, 4, 0, torch.float32, 8)


@case
def reductions_of_wide_numbers(row: Any) -> None:
    _check(4, 128, 1, torch.float64, 4)
    _check(128, 4, 0, torch.int64, 2)


@case
def reductions_of_narrow_numbers(row: Any) -> None:
    _check(8, 64, 1, torch.float16, 1)
    _check(16, 32, 0, torch.int16, 2)
    _check(16, 32, 1, torch.int8, 1)


@triton.jit
def _odd_even(a, b):
    return a + b


@triton.jit
def _pair(value1, index1, value2, index2):
    better = (value1 > value2) | ((value1 == value2) & (index1 < index2))
    return tl.where(better, value1, value2), tl.where(better, index1, index2)


@triton.jit
def _custom(x, out, where, total, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    best, index = tl.reduce((value, at), 0, _pair)
    tl.store(out, best)
    tl.store(where, index)
    tl.store(total, tl.reduce(value, 0, _odd_even))


@case
def reductions_by_a_function(row: Any) -> None:
    x = numbers(256, torch.float32, 9).round()
    out, where, total = torch.empty(1), torch.empty(1, dtype=torch.int32), torch.empty(1)
    _custom[(1,)](x, out, where, total, 256)
    assert (out.item(), where.item(), total.item()) == (x.max().item(), int((x == x.max()).int().argmax()), x.sum().item())


@triton.jit
def _softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + at, (value / tl.sum(value, 0)).to(out.dtype.element_ty), mask=at < n)


@case
def softmax(row: Any) -> None:
    for n, warps, dtype in ((37, 1, torch.float32), (781, 4, torch.float16), (1000, 8, torch.float32)):
        x = numbers((3, n), dtype, n, 4.0)
        out = torch.empty_like(x)
        _softmax[(3,)](x, out, n, triton.next_power_of_2(n), num_warps=warps)
        want = torch.softmax(x.double(), 1)
        # the exponent's own rounding grows with its size; a sum of n terms that are all positive rounds log2(n) times
        near(out, want, ONE_ROUNDING if dtype == torch.float16 else APPROXIMATED * 16, want.clamp(min=2.0**-14))


@triton.jit
def _norm(x, weight, bias, out, mean_out, n, eps, BLOCK: tl.constexpr, CENTRED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + row * n + at, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        mean = tl.sum(value, 0) / n
        tl.store(mean_out + row, mean)
        value = tl.where(inside, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / n + eps)
    value = value * scale * tl.load(weight + at, mask=inside).to(tl.float32)
    if CENTRED:
        value += tl.load(bias + at, mask=inside).to(tl.float32)
    tl.store(out + row * n + at, value.to(out.dtype.element_ty), mask=inside)


@case
def norms(row: Any) -> None:
    for n, warps, dtype in ((200, 1, torch.float32), (577, 4, torch.bfloat16)):
        if dtype == torch.bfloat16 and row.name == "gfx1030":
            dtype = torch.float16
        x, weight, bias = numbers((3, n), dtype, 1), numbers(n, dtype, 2), numbers(n, dtype, 3)
        for centred in (True, False):
            out, mean = torch.empty_like(x), torch.empty(3)
            _norm[(3,)](x, weight, bias, out, mean, n, 1e-5, triton.next_power_of_2(n), centred, num_warps=warps)
            a = x.double()
            if centred:
                near(mean, a.mean(1), APPROXIMATED, a.abs().mean(1))
                a = a - a.mean(1, keepdim=True)
            want = a * torch.rsqrt((a * a).mean(1, keepdim=True) + 1e-5) * weight.double() + (bias.double() if centred else 0)
            size = want.abs() + bias.double().abs() + 1
            near(out, want, ONE_ROUNDING + (APPROXIMATED if dtype == torch.float32 else 0.1), size)


@triton.jit
def _multiplied(a, b):
    return a * b


@triton.jit
def _linear(decay1, value1, decay2, value2):
    return decay1 * decay2, value1 * decay2 + value2


@triton.jit
def _scans(x, y, total, back, product, state, high, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value, decay = tl.load(x + at), tl.load(y + at)
    tl.store(total + at, tl.cumsum(value, AXIS))
    tl.store(back + at, tl.cumsum(value, AXIS, reverse=True))
    tl.store(product + at, tl.associative_scan(decay, AXIS, _multiplied))
    _, found = tl.associative_scan((decay, value), AXIS, _linear)
    tl.store(state + at, found)
    tl.store(high + at, tl.cumprod(decay, AXIS))


@case
def scans(row: Any) -> None:
    for m, n, axis, warps in ((1, 256, 1, 1), (4, 128, 1, 4), (64, 8, 0, 2), (128, 4, 0, 8)):
        x = numbers((m, n), torch.float32, 4).round()
        y = torch.where(numbers((m, n), torch.float32, 5) > 1.5, 0.5, 1.0)  # powers of two: everything is exact
        total, back, product, state, high = (torch.empty(m, n) for _ in range(5))
        _scans[(1,)](x, y, total, back, product, state, high, m, n, axis, num_warps=warps)
        a, d = x.double(), y.double()
        exact(total + 0.0, a.cumsum(axis).float())  # a zero has no sign then
        exact(back + 0.0, a.flip(axis).cumsum(axis).flip(axis).float())
        exact(product, d.cumprod(axis).float())
        exact(high, d.cumprod(axis).float())
        want, held = torch.empty_like(a), torch.zeros_like(a.select(axis, 0))
        for step in range(x.shape[axis]):
            held = held * d.select(axis, step) + a.select(axis, step)
            want.select(axis, step).copy_(held)
        near(state, want, APPROXIMATED, want.abs().clamp(min=1))


@triton.jit
def _sorted(x, up, down, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(up + at, tl.sort(value, 1))
    tl.store(down + at, tl.sort(value, 1, descending=True))


@case
def sorting(row: Any) -> None:
    for m, n, dtype, warps in ((1, 128, torch.float32, 1), (4, 64, torch.int32, 4), (2, 32, torch.float16, 2)):
        x = numbers((m, n), dtype, 6)
        up, down = torch.empty_like(x), torch.empty_like(x)
        _sorted[(1,)](x, up, down, n, m, num_warps=warps)
        exact(up, x.sort(1).values)
        exact(down, x.sort(1, descending=True).values)


@triton.jit
def _counted(x, out, n, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)
    found = tl.histogram(tl.load(x + at), BINS, mask=at < n)
    tl.store(out + tl.arange(0, BINS), found)


@case
def histograms(row: Any) -> None:
    for n, bins, warps in ((200, 16, 1), (512, 64, 4)):
        x = torch.randint(0, bins, (512,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
        out = torch.empty(bins, dtype=torch.int32)
        _counted[(1,)](x, out, n, 512, bins, num_warps=warps)
        exact(out, torch.bincount(x[:n], minlength=bins).int())


@triton.jit
def _gathered(x, index, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    if AXIS == 1:
        to = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    else:
        to = tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + to, tl.gather(tl.load(x + at), tl.load(index + to), AXIS))


@case
def gathers(row: Any) -> None:
    for m, n, k, axis, warps in ((4, 64, 32, 1, 1), (64, 8, 128, 0, 4)):
        x = numbers((m, n), torch.float32, 7)
        shape = (m, k) if axis == 1 else (k, n)
        index = torch.randint(0, x.shape[axis], shape, generator=torch.Generator().manual_seed(1), dtype=torch.int32)
        out = torch.empty(shape)
        _gathered[(1,)](x, index, out, m, n, k, axis, num_warps=warps)
        exact(out, x.gather(axis, index.long()))


@triton.jit
def _random(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.randint(seed, at))
    tl.store(out + N + at, tl.randint(seed + 1, at))


@case
def random_numbers(row: Any) -> None:
    out = torch.empty(2, 128, dtype=torch.int32)
    _random[(1,)](out, 1234, 128)
    for number, seed in enumerate((1234, 1235)):
        assert out[number].tolist() == [_philox(seed, at) for at in range(128)]


def _philox(seed: int, counter: int) -> int:
    """The first word of Philox 4x32, ten rounds (Salmon et al., 2011), as a signed number."""
    c, k, most = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & most, (a >> 32) ^ c[3] ^ k[1], a & most]
        k = [k[0] + 0x9E3779B9 & most, k[1] + 0xBB67AE85 & most]
    return c[0] - (1 << 32) if c[0] >> 31 else c[0]
