"""Attention over the paged float16 cache: within the oracle's bound, the same bits alone, together, walked or spread."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.cpu import BEST, FUSED, HERE, call

from lanewise.kernels.cpu.attention import SPLIT, TASK_FIELDS, TASK_ROWS, attend_kernel, combine_kernel, scratch_bytes, state_floats
from lanewise.kernels.cpu.emit import LANES
from lanewise.oracle import ORACLES
from lanewise.oracle.cases import paged

MARGIN = 64  # floats behind each row, and behind the scratch, that nobody may write

Arguments = tuple[Any, ...]
# With and without instructions for float16 and fma. Without, a kernel is full of calls of fmaf and takes long to compile.
ISAS = tuple(dict.fromkeys((BEST, *(isa for isa in ("x86-64-v3", "x86-64") if isa in HERE))))


def _arguments(sequences: Sequence[tuple[int, int]], group: int, dim: int, kv_heads: int = 2, seed: int = 0) -> Arguments:
    """The oracle's arguments, keys and values already rounded to what the cache can hold."""
    q, keys, values, *rest = paged(np.random.default_rng(seed), sequences, group * kv_heads, kv_heads, dim, LANES)
    return (q, *(cache.astype(np.float16).astype(np.float32) for cache in (keys, values)), *rest)


def attend(arguments: Arguments, isa: str = BEST, *, spread: bool = False) -> np.ndarray:
    """y[m, heads, dim] by the kernels, one task after the other."""
    q, keys, values, table, start, context, scale, *window = arguments
    (m, heads, dim), kv_heads = q.shape, keys.shape[2]
    rows = np.full((m + 1, heads * dim + MARGIN), 5, np.float32)
    out = np.full_like(rows, 5)
    rows[:m, : heads * dim] = q.reshape(m, -1)
    table = np.ascontiguousarray(table, np.int32)
    k, v = (np.ascontiguousarray(cache.transpose(order), np.float16) for cache, order in ((keys, (0, 2, 3, 1)), (values, (0, 2, 1, 3))))
    tasks = [
        (first, min(TASK_ROWS, end - first), total - (end - first), table.ctypes.data + j * table.strides[0])
        for j, (begin, end, total) in enumerate(zip(start[:-1].tolist(), start[1:].tolist(), context.tolist(), strict=True))
        for first in range(begin, end, TASK_ROWS)
    ]
    numbers = np.array(tasks, np.int64).reshape(-1, TASK_FIELDS)
    splits = -(-int(context.max(initial=1)) // SPLIT) if spread else 0
    partial = np.full(len(tasks) * heads * max(splits, 1) * TASK_ROWS * state_floats(dim), np.nan, np.float32)
    scratch = np.full(scratch_bytes(dim) // 4 + MARGIN, np.nan, np.float32)
    call(
        attend_kernel(dim), isa, len(tasks) * kv_heads * max(splits, 1), q=rows, q_step=rows.strides[0], keys=k, values=v,
        page_step=k[0].nbytes, tasks=numbers, y=out, y_step=out.strides[0], heads=heads, kv_heads=kv_heads,
        scale=float(scale), window=window[0] if window else 0, scratch=scratch,
        scratch_step=scratch.nbytes, splits=splits, partial=partial, reach=(table,),
    )  # fmt: skip
    if spread:
        call(
            combine_kernel(dim), isa, len(tasks) * kv_heads, tasks=numbers, y=out, y_step=out.strides[0], heads=heads, kv_heads=kv_heads,
            splits=splits, partial=partial, reach=(table,),
        )  # fmt: skip
    assert np.isnan(scratch[-MARGIN:]).all()
    assert (out[m:] == 5).all()
    assert (out[:, heads * dim :] == 5).all()
    return out[:m, : heads * dim].reshape(q.shape)


MIXED = [(1, 10), (7, 9), (0, 5), (3, 12), (1, 4), (13, 33)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [1, 3, 7, 8])
def test_prompts_and_steps_together_are_within_the_bound(isa: str, group: int) -> None:
    arguments = _arguments(MIXED, group, 16)
    assert ORACLES["attention"].worst(attend(arguments, isa), *arguments) <= 1


@pytest.mark.parametrize("dim", [64, 80, 128])
def test_every_head_size_is_within_the_bound(dim: int) -> None:
    arguments = _arguments(MIXED, 3, dim)
    assert ORACLES["attention"].worst(attend(arguments), *arguments) <= 1


@pytest.mark.parametrize("context", [SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT + 6])
@pytest.mark.parametrize("window", [None, 5, SPLIT + 3])
def test_contexts_around_a_split_are_within_the_bound_with_and_without_a_window(context: int, window: int | None) -> None:
    arguments = _arguments([(1, context), (3, context)], 3, 16, kv_heads=1)
    arguments = arguments if window is None else (*arguments, window)
    assert ORACLES["attention"].worst(attend(arguments), *arguments) <= 1


@pytest.mark.parametrize("window", [1, 5, 16, 40])
def test_a_window_hides_what_lies_before_it(window: int) -> None:
    arguments = (*_arguments(MIXED, 7, 16), window)
    assert ORACLES["attention"].worst(attend(arguments), *arguments) <= 1


@pytest.mark.parametrize("isa", ISAS)
def test_spread_splits_give_the_bits_of_walked_ones(isa: str) -> None:
    arguments = _arguments([(1, 2 * SPLIT + 6), (1, 40), (2, SPLIT + 1), (1, SPLIT)], 3, 16)
    np.testing.assert_array_equal(attend(arguments, isa, spread=True), attend(arguments, isa))
    windowed = (*arguments, SPLIT // 2)
    np.testing.assert_array_equal(attend(windowed, isa, spread=True), attend(windowed, isa))


def test_a_row_has_the_same_bits_alone_and_in_any_prompt_or_batch() -> None:
    q, keys, values, table, start, context, scale = arguments = _arguments([*MIXED, (9, SPLIT + 4)], 7, 16)
    together = attend(arguments)
    for j in range(len(context)):
        for row in range(start[j], start[j + 1]):
            seen = context[j] - (start[j + 1] - 1 - row)
            alone = attend((q[row : row + 1], keys, values, table[j : j + 1], np.int32([0, 1]), np.int32([seen]), scale))
            np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize("dim", [16, 64])
def test_every_instruction_set_with_fma_gives_the_same_bits(dim: int) -> None:
    arguments = _arguments(MIXED, 3, dim)
    best = attend(arguments)
    for isa in (isa for isa in ISAS if isa in FUSED):
        np.testing.assert_array_equal(attend(arguments, isa), best)


def test_slots_that_hold_no_token_of_the_sequence_are_not_read() -> None:
    """`paged` leaves NaN there; other finite numbers in their place must change nothing, nor may those that only a later row sees."""
    arguments = _arguments(MIXED, 3, 16)
    q, keys, values, *rest = arguments
    before = attend(arguments)
    assert np.isnan(keys).any()
    np.testing.assert_array_equal(attend((q, np.nan_to_num(keys, nan=9.0), np.nan_to_num(values, nan=9.0), *rest)), before)
    table, start, context = rest[:3]
    position = int(context[1]) - 1
    newest = (table[1, position // LANES], position % LANES)
    keys[newest] = values[newest] = 1e4
    after = attend(arguments)
    last = int(start[2]) - 1
    np.testing.assert_array_equal(np.delete(after, last, 0), np.delete(before, last, 0))
    assert not np.array_equal(after[last], before[last])


def test_large_scores_do_not_overflow() -> None:
    q, *rest = _arguments([(3, 10), (1, 20)], 3, 16)
    arguments = (q * np.float32(1000), *rest)
    got = attend(arguments)
    assert np.isfinite(got).all()
    assert ORACLES["attention"].worst(got, *arguments) <= 1


def test_a_broken_query_gives_nan_and_spoils_no_other() -> None:
    q, *rest = _arguments(MIXED, 3, 16)
    before = attend((q, *rest))
    broken = q.copy()
    broken[4, 1] = np.nan
    after = attend((broken, *rest))
    assert np.isnan(after[4, 1]).all()
    before[4, 1] = after[4, 1] = 0
    np.testing.assert_array_equal(after, before)
