"""Loads and stores of every stride, with masks, and what moves elements between lanes without computing."""

from typing import Any

import torch
import triton
import triton.language as tl

from . import exact, family, numbers

CASES, case = family()


@triton.jit
def _copied(x, out, m, n, sm, sn, tm, tn, M: tl.constexpr, N: tl.constexpr, other):
    row, column = tl.program_id(0) * M + tl.arange(0, M)[:, None], tl.program_id(1) * N + tl.arange(0, N)[None, :]
    inside = (row < m) & (column < n)
    value = tl.load(x + row * sm + column * sn, mask=inside, other=other)
    tl.store(out + row * tm + column * tn, value, mask=(row < m + 1) & (column < n))


@case
def strides_and_masks(row: Any) -> None:
    for dtype in (torch.float32, torch.int8, torch.float16, torch.float64, torch.int16):
        x = numbers((37, 61), dtype, 1)
        out = torch.zeros(38, 61, dtype=dtype)
        for given in (x, numbers((61, 37), dtype, 2).t()):
            _copied[(5, 1)](given, out, 37, 61, *given.stride(), *out.stride(), 8, 64, 3)
            exact(out[:37], given)
            exact(out[37], torch.full((61,), 3, dtype=dtype))
    whole = numbers((80, 200), torch.float32, 3)
    part = whole[3:40:2, 5:180:3]
    out = torch.zeros(59, 19).t()
    _copied[(2, 2)](part, out, part.shape[0] - 1, part.shape[1], *part.stride(), *out.stride(), 16, 32, 9)
    exact(out[:18], part[:18])
    exact(out[18], torch.full((59,), 9.0))


@triton.jit
def _turned(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    back = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(out + back, tl.trans(tl.load(x + at)))


@case
def transposes(row: Any) -> None:
    for m, n, dtype, warps in ((32, 64, torch.float32, 4), (16, 16, torch.float16, 1), (64, 32, torch.int8, 2), (8, 32, torch.float64, 2)):
        x = numbers((m, n), dtype, 2)
        out = torch.empty(n, m, dtype=dtype)
        _turned[(1,)](x, out, m, n, num_warps=warps)
        exact(out, x.t())


@triton.jit
def _permuted(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, A)[:, None, None] * (B * C) + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    to = tl.arange(0, C)[:, None, None] * (A * B) + tl.arange(0, A)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(out + to, tl.permute(tl.load(x + at), (2, 0, 1)))


@case
def permutations_of_three_axes(row: Any) -> None:
    for dtype in (torch.float32, torch.int16):
        x = numbers((4, 8, 16), dtype, 3)
        out = torch.empty(16, 4, 8, dtype=dtype)
        _permuted[(1,)](x, out, 4, 8, 16)
        exact(out, x.permute(2, 0, 1))


@triton.jit
def _put_together(x, y, cat, joined, mixed, low, high, shaped, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    both = tl.arange(0, 2 * N)
    pair = tl.join(a, b)
    tl.store(joined + at[:, None] * 2 + tl.arange(0, 2)[None, :], pair)
    tl.store(mixed + both, tl.interleave(a, b))
    c, d = tl.split(pair)
    tl.store(low + at, c)
    tl.store(high + at, d)
    tl.store(cat + both, tl.cat(a, b, can_reorder=True))
    table = tl.reshape(a, (N // 8, 8))
    tl.store(shaped + tl.arange(0, N // 8)[None, :] + tl.arange(0, 8)[:, None] * (N // 8), tl.trans(table))


@case
def joins_and_splits(row: Any) -> None:
    for dtype, warps in ((torch.float32, 1), (torch.float16, 4), (torch.int8, 2)):
        x, y = numbers(128, dtype, 4), numbers(128, dtype, 5)
        cat, joined, mixed = torch.empty(256, dtype=dtype), torch.empty(128, 2, dtype=dtype), torch.empty(256, dtype=dtype)
        low, high, shaped = (torch.empty(128, dtype=dtype) for _ in range(3))
        _put_together[(1,)](x, y, cat, joined, mixed, low, high, shaped, 128, num_warps=warps)
        exact(cat.sort().values, torch.cat((x, y)).sort().values)
        exact(joined, torch.stack((x, y), 1))
        exact(mixed, torch.stack((x, y), 1).flatten())
        exact(low, x)
        exact(high, y)
        exact(shaped, x.reshape(16, 8).t().flatten())


@triton.jit
def _constants(out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.full([N], 0.1, tl.float32) + tl.zeros([N], tl.float32))
    tl.store(out + N + at, tl.where(at % 2 == 0, 3.14159274, -1e30))
    tl.store(out + 2 * N + at, at * 0.15915494309189535)
    tl.store(out + 3 * N + at, (at - 64) * 0.5 + 4.0)
    tl.store(out + 4 * N + at, ((at - 64).to(tl.float16) * 0.5 - 2.0).to(tl.float32))
    tl.store(out + 5 * N + at, ((at - 64).to(tl.float64) * 0.1 - 16.0).to(tl.float32))


@case
def constants(row: Any) -> None:
    out = torch.empty(6, 128)
    _constants[(1,)](out, 128)
    at = torch.arange(128)
    exact(out[0], torch.full((128,), 0.1))
    exact(out[1], torch.where(at % 2 == 0, 3.14159274, -1e30).float())
    exact(out[2], at.float() * torch.tensor(0.15915494309189535))
    exact(out[3], (at - 64) * 0.5 + 4.0)
    exact(out[4], ((at - 64).half() * 0.5 - 2.0).float())
    exact(out[5], ((at - 64).double() * 0.1 - 16.0).float())


@triton.jit
def _arguments(out, a, b, c, d, e, flag, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, a + b.to(tl.float64) + c.to(tl.float64) + d + e + tl.where(flag, 1000, 0))


@case
def numbers_as_arguments(row: Any) -> None:
    out = torch.empty(64, dtype=torch.float64)
    _arguments[(1,)](out, 2.5, 2**40 + 1, -7, 3, 1, True, 64)
    exact(out, torch.full((64,), 2.5 + 2**40 + 1 - 7 + 3 + 1 + 1000, dtype=torch.float64))


@triton.jit
def _pointers(x, index, out, n, N: tl.constexpr):
    """Gathers with 64-bit offsets, and of bytes of which some lanes have none."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    where = tl.load(index + at, mask=at < n, other=-1)
    value = tl.load(x + where, mask=where >= 0, other=-5)
    tl.store(out + at, value, mask=at < n)


@case
def gathers_from_memory(row: Any) -> None:
    for dtype in (torch.int8, torch.float16, torch.float32, torch.int64):
        x = numbers(500, dtype, 6)
        index = torch.randint(-200, 500, (300,), generator=torch.Generator().manual_seed(2), dtype=torch.int64)
        out = torch.zeros(300, dtype=dtype)
        _pointers[(3,)](x, index, out, 300, 128)
        exact(out, torch.where(index < 0, torch.tensor(-5, dtype=dtype), x[index.clamp(min=0)]))


@triton.jit
def _blocks(x, out, m, n, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_block_ptr(x, (m, n), (n, 1), (tl.program_id(0) * M, 0), (M, N), (1, 0))
    target = tl.make_block_ptr(out, (n, m), (m, 1), (0, tl.program_id(0) * M), (N, M), (1, 0))
    for _ in range(0, n, N):
        value = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.trans(value), boundary_check=(0, 1))
        source, target = tl.advance(source, (0, N)), tl.advance(target, (N, 0))


@case
def block_pointers(row: Any) -> None:
    x = numbers((37, 75), torch.float32, 7)
    out = torch.zeros(75, 37)
    _blocks[(3,)](x, out, 37, 75, 16, 32)
    exact(out, x.t())


@triton.jit
def _descriptors(x, out, m, n, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, (m, n), (n, 1), (M, N))
    target = tl.make_tensor_descriptor(out, (m, n), (n, 1), (M, N))
    at = tl.program_id(0) * M
    for column in range(0, n, N):
        target.store([at, column], source.load([at, column]) * 2)


@case
def tensor_descriptors(row: Any) -> None:
    x, out = numbers((37, 72), torch.float32, 8), torch.zeros(37, 72)
    _descriptors[(3,)](x, out, 37, 72, 16, 32)
    exact(out, 2 * x)
