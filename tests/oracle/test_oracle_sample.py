"""Sampling and penalties: examples by hand, frequencies over u, and a float32 sampler against the candidates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lanewise.oracle import ORACLES, penalize, penalize_bound, sample, sample_bound, sample_candidates, worst
from lanewise.oracle.cases import CASES, Case, case

_EIGHTHS = np.log(np.float32([1 / 8, 1 / 2, 1 / 8, 1 / 4]))  # from the most likely: 1, 3, 0, 2


def _sample32(logits: NDArray[np.float32], u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """Every step rounded to float32, with a reciprocal of the temperature."""
    order = np.argsort(-logits, kind="stable")[: top_k or None]
    scaled = logits[order] * (np.float32(1) / np.float32(temperature))
    p = np.exp(scaled - scaled[0])
    p = p / p.sum(dtype=np.float32)
    keep = len(p) if top_p >= 1 else int(np.searchsorted(np.cumsum(p, dtype=np.float32), np.float32(top_p))) + 1
    p = p[: max(1, min(keep, np.count_nonzero(p >= np.float32(min_p) * p[0])))]
    share = np.cumsum(p / p.sum(dtype=np.float32), dtype=np.float32)
    return int(order[min(int(np.searchsorted(share, np.float32(u), side="right")), np.count_nonzero(p) - 1)])


@pytest.mark.parametrize(
    ("u", "filters", "token"),
    [
        (0.0, {}, 1),
        (0.49, {}, 1),
        (0.51, {}, 3),
        (0.76, {}, 0),
        (0.99, {}, 2),
        (0.99, {"top_k": 2}, 3),
        (0.66, {"top_k": 2}, 1),
        (0.99, {"top_k": 1}, 1),
        (0.99, {"top_p": 0.45}, 1),
        (0.99, {"top_p": 0.55}, 3),
        (0.99, {"top_p": 0.8}, 0),
        (0.99, {"top_p": 0.0}, 1),
        (0.99, {"min_p": 0.3}, 3),
        (0.99, {"min_p": 0.2}, 2),
        (0.99, {"min_p": 1.0}, 1),
        (0.99, {"top_k": 3, "top_p": 0.8}, 3),  # of 4/7, 2/7, 1/7 two reach 0.8
        (0.6, {"temperature": 0.5}, 1),  # 16/22
        (0.6, {"temperature": 1e6}, 0),  # a quarter each
    ],
)
def test_eighths_are_picked_as_counted_by_hand(u: float, filters: dict[str, float], token: int) -> None:
    assert sample(_EIGHTHS, u, **filters) == token
    assert sample_candidates(_EIGHTHS, u, **filters) == {token}
    assert sample_bound(_EIGHTHS, u, **filters) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_equal_logits_go_to_the_lower_id(temperature: float) -> None:
    logits = np.float32([1, 7, 7, 0])
    assert sample(logits, 0.0, temperature) == 1
    assert sample(logits, 0.999, 0.0) == 1


def test_tokens_come_as_often_as_their_probability() -> None:
    logits, _, *rest = case("sample", "every filter, u 0.6").arguments()
    order = np.argsort(-logits)[:30]
    p = np.exp(logits[order].astype(np.float64) / 2)
    p = p[: np.searchsorted(np.cumsum(p / p.sum()), 0.9) + 1]
    p = p[p >= 0.05 * p[0]] / p[p >= 0.05 * p[0]].sum()
    steps = 2000
    counts = np.bincount([sample(logits, i / steps, *rest) for i in range(steps)], minlength=len(logits))
    np.testing.assert_allclose(counts[order[: len(p)]], p * steps, atol=1)  # an interval of the grid holds its length, rounded either way
    assert counts.sum() == counts[order[: len(p)]].sum()


def test_a_token_of_no_probability_is_never_picked() -> None:
    logits, u, temperature = case("sample", "masked tokens").arguments()
    assert np.isfinite(logits[list(sample_candidates(logits, u, temperature))]).all()
    assert ORACLES["sample"].worst(39, logits, u, temperature) == np.inf


def test_a_u_on_the_edge_has_two_candidates_and_one_beside_it_has_one() -> None:
    assert sample_candidates(_EIGHTHS, 0.5) == {1, 3}
    assert sample_bound(_EIGHTHS, 0.5) == 2
    assert {ORACLES["sample"].worst(token, _EIGHTHS, 0.5) for token in (1, 3)} == {0, 1}
    assert ORACLES["sample"].worst(0, _EIGHTHS, 0.5) == np.inf
    for beside in (0.5 - 2.0**-18, 0.5 + 2.0**-18):
        assert len(sample_candidates(_EIGHTHS, beside)) == 1


@pytest.mark.parametrize("side", [-(2.0**-28), 2.0**-28])
def test_a_filter_on_either_side_of_an_edge_has_both_answers_as_candidates(side: float) -> None:
    assert sample_candidates(_EIGHTHS, 0.99, top_p=0.75 + side) == {3, 0}
    assert sample_candidates(_EIGHTHS, 0.99, min_p=0.5 + side) == {1, 3}


@pytest.mark.parametrize(
    ("u", "top_p", "token"), [(0.25, 1.0, 1), (0.5, 1.0, 2), (0.75, 1.0, 3), (0.9, 0.75, 2), (0.9, 0.5, 1), (0.5, 0.5, 1), (0.9, 0.25, 0)]
)
def test_a_share_that_is_reached_exactly_is_enough_for_top_p_and_not_for_u(u: float, top_p: float, token: int) -> None:
    assert sample(np.zeros(4, np.float32), u, top_p=top_p, min_p=1.0) == token


@pytest.mark.parametrize("case", [c for c in CASES["sample"] if c.arguments()[2] > 0], ids=str)
def test_a_float32_sampler_is_among_the_candidates_which_are_few(case: Case) -> None:
    arguments = case.arguments()
    assert _sample32(*arguments) in sample_candidates(*arguments)
    if arguments[1] < 0.99 and not case.exact:  # the exact ones are on an edge
        assert len(sample_candidates(*arguments)) == 1


@settings(max_examples=150, deadline=None)
@given(
    vocab=st.integers(1, 60),
    u=st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75]), st.floats(0, 1, exclude_max=True)),
    temperature=st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 5]),
    top_p=st.sampled_from([0.25, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    steps=st.sampled_from([1, 16, 1 << 20]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_float32_sampler_is_among_the_candidates_even_on_edges(vocab, u, temperature, top_k, top_p, min_p, steps, seed) -> None:
    # logits on a coarse grid have many equal probabilities, which sum to where u and top_p are
    logits = (np.random.default_rng(seed).integers(-3 * steps, 3 * steps, vocab) / steps).astype(np.float32)
    arguments = (logits, u, temperature, top_k, top_p, min_p)
    assert _sample32(*arguments) in sample_candidates(*arguments)
    assert sample(*arguments) in sample_candidates(*arguments)


_LOGITS = np.float32([2, -2, 3, 0.5, -1])
_NONE = np.int64([])


@pytest.mark.parametrize(
    ("penalties", "want"),
    [
        ((np.int64([0, 1, 0]), _NONE, _NONE, 1.25, 0.0, 0.0), [1.6, -2.5, 3, 0.5, -1]),
        ((_NONE, np.int64([2, 4]), np.int64([3, 1]), 1.0, 0.5, 0.25), [2, -2, 1.75, 0.5, -1.75]),
        ((np.int64([2, 3]), np.int64([2]), np.int64([2]), 2.0, 0.5, 0.25), [2, -2, 0.5, 0.25, -1]),
        ((_NONE, np.int64([0]), np.int64([5]), 1.0, -0.5, 0.0), [2.5, -2, 3, 0.5, -1]),
    ],
    ids=["repetition divides or multiplies, once", "presence once and frequency by count", "repetition first", "a negative penalty favours"],
)
def test_penalties_are_as_counted_by_hand(penalties, want) -> None:
    np.testing.assert_array_equal(penalize(_LOGITS, *penalties), want)


def test_float32_penalties_are_within_the_bound_and_untouched_logits_may_not_change() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(100).astype(np.float32)
    seen, generated, counts = rng.choice(100, 40, replace=False), rng.choice(100, 20, replace=False), rng.integers(1, 9, 20)
    want, bound = (f(logits, seen, generated, counts, 1.1, 0.3, 0.7) for f in (penalize, penalize_bound))
    y = logits.copy()
    y[seen] = np.where(y[seen] > 0, y[seen] * np.float32(1 / 1.1), y[seen] * np.float32(1.1))
    y[generated] = y[generated] - np.float32(0.3) - np.float32(0.7) * counts.astype(np.float32)
    assert worst(y, want, bound) <= 1
    untouched = np.setdiff1d(np.arange(100), np.concatenate([seen, generated]))
    assert not bound[untouched].any()
    for wrong in (
        (seen, generated, counts, 1.1, 0.3, 0.0),
        (seen, generated, counts + 1, 1.1, 0.3, 0.7),
        (generated, generated, counts, 1.1, 0.3, 0.7),
    ):
        assert worst(penalize(logits, *wrong), want, bound) > 1
