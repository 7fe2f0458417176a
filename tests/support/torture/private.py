"""Kernels whose values do not fit into registers, so that a lane's own memory holds some of them; and what no kernel can do here."""

from typing import Any

import torch
import triton
import triton.language as tl

from . import exact, family, numbers

CASES, case = family()


@triton.jit
def _held(x, y, N: tl.constexpr, PARTS: tl.constexpr):
    """Everything is loaded before a barrier and used behind it, so that all of it is alive at once."""
    at = tl.arange(0, N)
    value = tl.load(x + at)
    turned = tl.load(x + N + at)
    tl.debug_barrier()
    for part in tl.static_range(PARTS):
        other = value * (part + 1) + turned
        turned = tl.where(other > 0, turned + part, value)
    tl.store(y + at, value + turned)


def held(row: Any, warps: int) -> None:
    """By an option that gives a wave too few registers."""
    size = 64 * row.wave * warps
    x, y = numbers((2, size), torch.int32, warps), torch.empty(size, dtype=torch.int32)
    _held[(1,)](x, y, size, 3, num_warps=warps, waves_per_eu=16 if row.wave == 32 else 8)
    value, turned = x
    for part in range(3):
        turned = torch.where(value * (part + 1) + turned > 0, turned + part, value)
    exact(y, value + turned)


@case
def registers_that_do_not_suffice(row: Any) -> None:
    held(row, 1)


@case
def registers_that_do_not_suffice_in_several_waves(row: Any) -> None:
    held(row, 4)


@triton.jit
def _sums(x, y, n, N: tl.constexpr, PARTS: tl.constexpr):
    """The same of a loop, in groups that each leave some lanes out."""
    at = tl.arange(0, N)
    inside = at < n - tl.program_id(0) * 5
    value = tl.load(x + at, mask=inside, other=0)
    total = value
    for part in range(PARTS):
        other = tl.load(x + N + at, mask=inside, other=1) * (part + 1)
        total = tl.where(other > total, other - value, total + other)
    tl.store(y + tl.program_id(0) * N + at, total, mask=inside)


@case
def registers_that_do_not_suffice_in_loops(row: Any) -> None:
    size = 64 * row.wave
    x, y = numbers((2, size), torch.int32, 3), torch.zeros(3, size, dtype=torch.int32)
    _sums[(3,)](x, y, size - 7, size, 5, num_warps=1, waves_per_eu=16 if row.wave == 32 else 8)
    for program in range(3):
        inside = torch.arange(size) < size - 7 - 5 * program
        total = x[0]
        for part in range(5):
            other = x[1] * (part + 1)
            total = torch.where(other > total, other - x[0], total + other)
        exact(y[program], torch.where(inside, total, 0))


@triton.jit
def printing(x, N: tl.constexpr):
    tl.device_print("x", tl.load(x + tl.arange(0, N)))


@triton.jit
def asserting(x, N: tl.constexpr):
    tl.device_assert(tl.load(x + tl.arange(0, N)) > 0, "not positive")
