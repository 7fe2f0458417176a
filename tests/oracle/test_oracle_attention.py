"""Attention: against torch over gathered keys, a flash-style float32 computation against the bound, and the cache write."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from lanewise.errors import ShapeError
from lanewise.oracle import attention, attention_bound, worst, write_kv
from lanewise.oracle.cases import CASES, Case, case, paged

# two float64 computations, each within the float32 bound times the ratio of the roundoffs
_F64_SHARE = 2 * 2.0 ** (24 - 53)


def _torch_attention(dtype: torch.dtype, q, keys, values, table, start, context, scale, window=None) -> np.ndarray:
    """scaled_dot_product_attention of each sequence, over its keys gathered in order, with an explicit mask."""
    page, kv_heads = keys.shape[1:3]
    y = np.zeros((*q.shape[:2], values.shape[-1]))
    for j, total in enumerate(context):
        rows = slice(start[j], start[j + 1])
        places = [(table[j, p // page], p % page) for p in range(total)]
        k, v = (torch.from_numpy(np.asarray([a[place] for place in places])).to(dtype).transpose(0, 1) for a in (keys, values))
        position = torch.arange(total - (rows.stop - rows.start), total)[:, None]
        seen = torch.arange(total)[None] <= position
        if window is not None:
            seen &= torch.arange(total)[None] > position - window
        group = q.shape[1] // kv_heads
        head = torch.from_numpy(q[rows]).to(dtype).transpose(0, 1)
        out = functional.scaled_dot_product_attention(
            head, k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0), attn_mask=seen, scale=scale
        )
        y[rows] = out.transpose(0, 1).numpy()
    return y


def _flash(q, keys, values, table, start, context, scale, window=None, block=16) -> np.ndarray:
    """Blocks of keys with a running maximum, exp2 instead of exp, everything rounded to float32: as a GPU kernel goes about it."""
    page, kv_heads = keys.shape[1:3]
    y = np.zeros((*q.shape[:2], values.shape[-1]), dtype=np.float32)
    log2e = np.float32(scale * np.log2(np.e))
    for j, total in enumerate(context):
        count = start[j + 1] - start[j]
        for i, row in enumerate(range(start[j], start[j + 1])):
            position = total - count + i
            oldest = 0 if window is None else max(0, position - window + 1)
            for h in range(q.shape[1]):
                kv = h // (q.shape[1] // kv_heads)
                most, below, above = np.float32(-1e38), np.float32(0), np.zeros(values.shape[-1], dtype=np.float32)
                for first in range(oldest, position + 1, block):
                    places = [(table[j, p // page], p % page, kv) for p in range(first, min(first + block, position + 1))]
                    k, v = (np.asarray([a[place] for place in places]) for a in (keys, values))
                    score = (k @ q[row, h]) * log2e
                    new = max(most, score.max())
                    e, again = np.exp2(score - new), np.exp2(most - new)
                    below, above, most = below * again + e.sum(dtype=np.float32), above * again + e @ v, new
                y[row, h] = above / below
    return y


@pytest.mark.parametrize("case", CASES["attention"], ids=str)
def test_torch_agrees_in_float64_and_is_within_the_bound_in_float32(case: Case) -> None:
    arguments = case.arguments()
    want, bound = attention(*arguments), attention_bound(*arguments)
    assert worst(_torch_attention(torch.float64, *arguments), want, bound * _F64_SHARE) <= 1
    assert worst(_torch_attention(torch.float32, *arguments), want, bound) <= 1


@pytest.mark.parametrize("case", CASES["attention"], ids=str)
def test_a_flash_style_float32_attention_is_within_the_bound(case: Case) -> None:
    arguments = case.arguments()
    assert worst(_flash(*arguments), attention(*arguments), attention_bound(*arguments)) <= 1


@settings(max_examples=25, deadline=None)
@given(
    sequences=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=3),
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 3, 8]),
    dim=st.sampled_from([1, 4, 9]),
    page=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_and_any_sharpness_is_within_the_bound(sequences, kv_heads, group, dim, page, seed) -> None:
    rng = np.random.default_rng(seed)
    q, *rest, scale = paged(rng, [(new, new + old) for new, old in sequences], kv_heads * group, kv_heads, dim, page)
    arguments = (q, *rest, scale * rng.choice([0.0, 0.1, 1.0, 10.0, 100.0]))
    assert worst(_flash(*arguments), attention(*arguments), attention_bound(*arguments)) <= 1


def test_the_bound_stays_near_roundoff_for_ordinary_sizes() -> None:
    arguments = case("attention", "a prompt").arguments()
    # values are about 1: a bound of 2^-16 still tells a key in a hundred thousand apart
    assert np.max(attention_bound(*arguments)) < 2.0**-16


def test_one_key_is_copied_and_the_bound_knows_that_its_weight_is_one() -> None:
    q, keys, values, table, start, context, scale = case("attention", "one key each").arguments()
    y, bound = (f(q, keys, values, table, start, context, scale) for f in (attention, attention_bound))
    for row in range(2):
        np.testing.assert_array_equal(y[row, 2], values[table[row, 0], 0, 0])
    np.testing.assert_array_equal(attention_bound(q * np.float32(2**20), keys, values, table, start, context, scale), bound)


def test_a_hopeless_score_still_gives_a_mean_of_the_values_and_the_bound_says_so() -> None:
    q, keys, values, *rest = case("attention", "a prompt").arguments()
    y, bound = (f(q * np.float32(2.0**60), keys, values, *rest) for f in (attention, attention_bound))
    assert np.all(bound <= 2.0 * np.nanmax(np.abs(values)) * (1 + 2.0**-16))
    assert worst(_flash(q * np.float32(2.0**60), keys, values, *rest), y, bound) <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query_start": np.int32([0, 2])}, "rows 0..2 of 3"),
        ({"context": np.int32([2])}, "3 new rows but only 2 tokens"),
        ({"page_table": np.int32([[-1, 0]])}, "page -1 is outside"),
        ({"q": np.ones((3, 3, 4), np.float32)}, "3 heads on 2 kv heads"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operands_that_contradict_each_other_are_refused(change, words) -> None:
    cache = np.ones((2, 2, 2, 4), np.float32)
    arguments = {
        "q": np.ones((3, 2, 4), np.float32),
        "keys": cache,
        "values": cache,
        "page_table": np.int32([[1, 0]]),
        "query_start": np.int32([0, 3]),
        "context": np.int32([3]),
        "scale": 1.0,
    }
    attention(**arguments)
    with pytest.raises(ShapeError, match=words):
        attention(**{**arguments, **change})


def test_write_kv_puts_rows_into_their_slots_and_touches_nothing_else() -> None:
    keys, values = np.full((3, 4, 2, 5), -1, np.float32), np.full((3, 4, 2, 5), -2, np.float32)
    k, v = np.random.default_rng(0).standard_normal((2, 3, 2, 5)).astype(np.float32)
    slots = np.int32([11, 0, 6])
    write_kv(k, v, keys, values, slots)
    np.testing.assert_array_equal(keys[[2, 0, 1], [3, 0, 2]], k)
    np.testing.assert_array_equal(values[[2, 0, 1], [3, 0, 2]], v)
    assert (keys == -1).sum() == (values == -2).sum() == 9 * 2 * 5
    with pytest.raises(ShapeError, match=r"slot 12 is outside 0\.\.11"):
        write_kv(k[:1], v[:1], keys, values, np.int32([12]))
