"""Sampling follows its definition, and a seed decides everything."""

import numpy as np
import pytest

from lanewise.backends import Distribution
from lanewise.engine.params import SamplingParams
from lanewise.engine.sampler import Sampler

VOCAB = 50
LOGITS = np.random.default_rng(3).normal(0, 2, VOCAB).astype(np.float32)
DRAWS = 4000


def _draws(params: SamplingParams, count: int = DRAWS) -> np.ndarray:
    """`count` first tokens, each by a sampler of its own seed."""
    return np.array([Sampler(SamplingParams(**{**_fields(params), "seed": seed}), [0], VOCAB).pick(Distribution(LOGITS))[0] for seed in range(count)])


def _fields(params: SamplingParams) -> dict[str, object]:
    return {name: getattr(params, name) for name in params.__slots__}


def test_greedy_takes_the_greatest_logit_and_the_lower_id_of_equals() -> None:
    logits = np.array([1.0, 5.0, 5.0], np.float32)
    assert Sampler(SamplingParams(), [0], 3).pick(Distribution(logits))[0] == 1


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    def tokens(seed: int) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.0, seed=seed), [0], VOCAB)
        return [sampler.pick(Distribution(LOGITS))[0] for _ in range(30)]

    assert tokens(7) == tokens(7)
    assert tokens(7) != tokens(8)


def test_without_a_seed_two_samplers_differ() -> None:
    one, two = (Sampler(SamplingParams(temperature=5.0), [0], VOCAB) for _ in range(2))
    assert [one.pick(Distribution(LOGITS))[0] for _ in range(40)] != [two.pick(Distribution(LOGITS))[0] for _ in range(40)]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=5),
        SamplingParams(temperature=1.0, top_p=0.6),
        SamplingParams(temperature=1.5, min_p=0.1),
    ],
    ids=["plain", "top_k", "top_p", "min_p"],
)
def test_frequencies_of_many_draws_follow_the_filtered_probabilities(params: SamplingParams) -> None:
    ids, p = Distribution(LOGITS).probabilities(params.temperature, params.top_k, params.top_p, params.min_p)
    drawn = _draws(params)
    assert set(drawn) <= set(ids.tolist())
    counts = np.array([(drawn == i).sum() for i in ids])
    # a count is binomial; five standard deviations and one draw for the least likely
    assert np.all(np.abs(counts - DRAWS * p) <= 5 * np.sqrt(DRAWS * p * (1 - p)) + 1)


def test_penalties_make_seen_tokens_less_likely() -> None:
    best = int(np.argmax(LOGITS))
    for change in ({"repetition_penalty": 100.0}, {"presence_penalty": 50.0}, {"frequency_penalty": 50.0}):
        sampler = Sampler(SamplingParams(**change), [0], VOCAB)  # type: ignore[arg-type]
        assert sampler.pick(Distribution(LOGITS))[0] == best
        assert sampler.pick(Distribution(LOGITS))[0] != best
    assert Sampler(SamplingParams(repetition_penalty=100.0), [best], VOCAB).pick(Distribution(LOGITS))[0] != best
    assert Sampler(SamplingParams(presence_penalty=50.0), [best], VOCAB).pick(Distribution(LOGITS))[0] == best  # the prompt does not count


def test_frequency_counts_every_time_and_presence_once() -> None:
    logits = np.array([10.0, 9.0, 0.0], np.float32)
    often = Sampler(SamplingParams(frequency_penalty=0.6), [2], 3)
    assert [often.pick(Distribution(logits))[0] for _ in range(4)] == [0, 0, 1, 0]
    once = Sampler(SamplingParams(presence_penalty=0.6), [2], 3)
    assert [once.pick(Distribution(logits))[0] for _ in range(4)] == [0, 0, 0, 0]


def test_log_probabilities_are_those_of_the_unchanged_logits() -> None:
    sampler = Sampler(SamplingParams(temperature=0.3, top_k=1, repetition_penalty=3.0, logprobs=2), [0], VOCAB)
    token, entry = sampler.pick(Distribution(LOGITS))
    wide = LOGITS.astype(np.float64)
    want = wide - np.log(np.exp(wide).sum())
    assert entry is not None
    slack = VOCAB * np.finfo(float).eps  # a sum of that many terms
    assert np.isclose(entry.logprob, want[token], rtol=slack, atol=slack)
    assert [i for i, _ in entry.top] == np.argsort(-wide)[:2].tolist()
    assert np.allclose([p for _, p in entry.top], np.sort(want)[::-1][:2], rtol=slack, atol=slack)


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.97}, {"min_p": 0.001}, {"top_k": 200, "top_p": 0.9}], ids=str)
def test_a_large_vocabulary_is_sampled_as_if_all_of_it_were_sorted(filters: dict[str, float]) -> None:
    logits = np.round(np.random.default_rng(5).normal(0, 2, 5000), 1).astype(np.float32)  # rounded: many ties
    order = np.argsort(-logits, kind="stable")[: filters.get("top_k", len(logits))]  # type: ignore[misc]
    p = np.exp(logits[order].astype(np.float64) - logits.max())
    p /= p.sum()
    keep = int(np.searchsorted(np.cumsum(p), filters["top_p"])) + 1 if "top_p" in filters else len(p)
    keep = min(keep, int((p >= filters.get("min_p", 0.0) * p[0]).sum()))
    ids, got = Distribution(logits).probabilities(1.0, **filters)  # type: ignore[arg-type]
    assert ids.tolist() == order[:keep].tolist()
    assert np.allclose(got, p[:keep] / p[:keep].sum(), rtol=len(logits) * np.finfo(float).eps, atol=0)  # a sum of that many terms


def test_the_smallest_temperature_is_as_good_as_greedy() -> None:
    ids, p = Distribution(LOGITS).probabilities(5e-324)
    assert ids[0] == np.argmax(LOGITS)
    assert p[0] == 1.0
