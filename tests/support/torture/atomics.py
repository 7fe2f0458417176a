"""Atomics of every operation and type, with and without what was there, with masks, and of several programs at one place."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from . import exact, family, numbers

CASES, case = family()


@triton.jit
def _each(x, add, high, low, both, either, one, old, n, BLOCK: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0)
    tl.store(old + at, tl.atomic_add(add + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)
    tl.store(old + n + at, tl.atomic_max(high + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)
    tl.store(old + 2 * n + at, tl.atomic_min(low + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)
    if not value.dtype.is_floating():
        tl.store(old + 3 * n + at, tl.atomic_and(both + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)
        tl.store(old + 4 * n + at, tl.atomic_or(either + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)
        tl.store(old + 5 * n + at, tl.atomic_xor(one + at, value, mask=inside, sem=SEM, scope=SCOPE), mask=inside)


@triton.jit
def _unused(x, add, high, low, both, either, one, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0)
    tl.atomic_add(add + at, value, mask=inside)
    tl.atomic_max(high + at, value, mask=inside)
    tl.atomic_min(low + at, value, mask=inside)
    if not value.dtype.is_floating():
        tl.atomic_and(both + at, value, mask=inside)
        tl.atomic_or(either + at, value, mask=inside)
        tl.atomic_xor(one + at, value, mask=inside)


def _all(dtype: torch.dtype, sem: str = "acq_rel", scope: str = "gpu") -> None:
    n = 300
    x, held = numbers(n, dtype, 1), numbers(n, dtype, 2)
    whole = not dtype.is_floating_point
    want = [x + held, torch.maximum(x, held), torch.minimum(x, held), *((x & held, x | held, x ^ held) if whole else (held,) * 3)]
    places = [held.clone() for _ in range(6)]
    old = torch.zeros(6, n, dtype=dtype)
    _each[(3,)](x, *places, old, n, 128, sem, scope)
    for number, one in enumerate(want):
        exact(places[number], one)
        if whole or number not in (3, 4, 5):
            exact(old[number], held)
    places = [held.clone() for _ in range(6)]
    _unused[(3,)](x, *places, n, 128)
    for place, one in zip(places, want, strict=True):
        exact(place, one)


@case
def atomics_of_32_bits(row: Any) -> None:
    _all(torch.int32)


@case
def atomics_of_64_bits(row: Any) -> None:
    _all(torch.int64, "relaxed")


@case
def atomics_of_floats(row: Any) -> None:
    _all(torch.float32, "release", "cta")


@case
def atomics_of_doubles(row: Any) -> None:
    _all(torch.float64, "acquire", "sys")


@case
def atomics_of_unsigned(row: Any) -> None:
    rng = np.random.default_rng(3)
    x, held = (rng.integers(0, 2**32, 128, np.uint32) for _ in range(2))
    places = [held.copy() for _ in range(6)]
    _unused[(1,)](torch.from_numpy(x), *(torch.from_numpy(one) for one in places), 128, 128)
    want = [x + held, np.maximum(x, held), np.minimum(x, held), x & held, x | held, x ^ held]
    assert all((a == b).all() for a, b in zip(places, want, strict=True))


@triton.jit
def _exchanged(x, place, old, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0)
    tl.store(old + at, tl.atomic_xchg(place + at, value, mask=at < n), mask=at < n)


@case
def exchanges(row: Any) -> None:
    for dtype in (torch.int32, torch.int64, torch.float32):
        x, held = numbers(300, dtype, 1), numbers(300, dtype, 2)
        place, old = held.clone(), torch.empty_like(held)
        with triton.knobs.amd.scope():
            triton.knobs.amd.use_buffer_atomics = False  # Triton 3.6 names an intrinsic for this one that LLVM does not have
            _exchanged[(3,)](x, place, old, 300, 128)
        exact(place, x)
        exact(old, held)


@triton.jit
def _narrow(x, add, old, n, BLOCK: tl.constexpr, USED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    before = tl.atomic_add(add + at, value, mask=at < n, sem="relaxed")
    if USED:
        tl.store(old + at, before, mask=at < n)


def _halves(dtype: torch.dtype) -> None:
    for n in (256, 302):
        x, held = numbers(n, dtype, 1), numbers(n, dtype, 2)
        for used in (False, True):
            place, old = held.clone(), held.clone()
            _narrow[(3,)](x, place, old, n, 128, used)
            exact(place, x + held)
            exact(old, held)


@case
def atomic_sums_of_halves(row: Any) -> None:
    _halves(torch.float16)


@case
def atomic_sums_of_bfloats(row: Any) -> None:
    _halves(torch.bfloat16)


@triton.jit
def _one_place(x, total, high, count, tickets, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(total, tl.sum(value, 0))
    tl.atomic_max(high, tl.max(value, 0))
    tl.store(tickets + program, tl.atomic_add(count, 1))
    tl.atomic_add(total + 1 + at % 4, value, mask=at < n)


@case
def programs_that_add_to_one_place(row: Any) -> None:
    x = numbers(1000, torch.float32, 4).round()
    total, high = torch.zeros(5), torch.full((1,), -1e9)
    count, tickets = torch.zeros(1, dtype=torch.int32), torch.full((16,), -1, dtype=torch.int32)
    _one_place[(16,)](x, total, high, count, tickets, 1000, 64)
    exact(total[:1] + 0.0, x.sum()[None])
    exact(total[1:] + 0.0, torch.stack([x[place::4].sum() for place in range(4)]))
    exact(high, x.max()[None])
    assert count.item() == 16
    assert sorted(tickets.tolist()) == list(range(16))


@triton.jit
def _compared(lock, data, out, BLOCK: tl.constexpr):
    """A lock around a sum: whoever finds 0 puts 1, and the last one out puts 0 again."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(data + at, tl.load(data + at) * 2 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
    tl.store(out + tl.program_id(0), 1)


@case
def locks(row: Any) -> None:
    lock, data, out = torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), torch.zeros(7, dtype=torch.int32)
    _compared[(7,)](lock, data, out, 64, num_warps=2)
    exact(data, torch.full((64,), 127, dtype=torch.int32))
    exact(out, torch.ones(7, dtype=torch.int32))
    assert lock.item() == 0


@triton.jit
def _swapped(place, expected, new, old, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(old + at, tl.atomic_cas(place + at, tl.load(expected + at), tl.load(new + at), sem="relaxed"))


@case
def comparisons_and_swaps(row: Any) -> None:
    for dtype in (torch.int32, torch.int64):
        held, new = numbers(128, dtype, 5), numbers(128, dtype, 6)
        expected = torch.where(torch.arange(128) % 3 == 0, held, new)
        place, old = held.clone(), torch.empty(128, dtype=dtype)
        _swapped[(1,)](place, expected, new, old, 128)
        exact(place, torch.where(expected == held, new, held))
        exact(old, held)


@triton.jit
def _counted(keys, table, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < n, other=0)
    tl.atomic_add(table + key, 1, mask=at < n)


@case
def lanes_that_add_to_one_place(row: Any) -> None:
    keys = torch.randint(0, 10, (500,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    table = torch.zeros(10, dtype=torch.int32)
    _counted[(4,)](keys, table, 500, 128)
    exact(table, torch.bincount(keys, minlength=10).int())
