"""Sampling by compiled passes answers as the definition does: the same tokens, in the same order, for the same u."""

import functools
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny
from support.cpu import BEST, HERE, RUNNABLE

from lanewise import LLM, SamplingParams, dispatch
from lanewise.arch import host
from lanewise.backends import Distribution
from lanewise.backends.cpu.runner import CpuRunner
from lanewise.backends.cpu.sampling import CpuDistribution, Passes
from lanewise.backends.reference import ReferenceRunner
from lanewise.contract import Problem
from lanewise.errors import ModelError
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.sample import SAMPLE_KERNELS
from lanewise.oracle import ORACLES
from lanewise.oracle.cases import CASES, Case

VOCABS = (1, 7, 16, 50, 600, 5003)
TEMPERATURES = (5e-324, 1e-3, 0.3, 0.8, 1.0, 2.0, 50.0, 2.0**63)
FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"top_k": 1}, {"top_k": 40}, {"top_k": 10**12}, {"top_p": 0.9}, {"top_p": 1e-9}, {"top_p": 0.999}, {"min_p": 0.05}, {"min_p": 1.0},
    {"min_p": 1e-6}, {"top_p": 0.95, "min_p": 0.02}, {"top_k": 100, "top_p": 0.8, "min_p": 0.1},
)  # fmt: skip
LAST_U = 1 - 2.0**-53
US = (0.0, 0.07, 0.31, 0.62, 0.94, 0.9999, LAST_U)


@functools.cache
def _passes(isa: str) -> Passes:
    return Passes(Library(SAMPLE_KERNELS, RUNNABLE[isa]), max(VOCABS))


def compiled(logits: np.ndarray, isa: str = BEST) -> CpuDistribution:
    return CpuDistribution(_passes(isa), logits)


def rows(vocab: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(vocab)
    plain = rng.normal(0, 3, vocab)
    masked = np.where(rng.random(vocab) < 0.95, -np.inf, plain)
    masked[rng.integers(vocab)] = 2.0
    one = np.full(vocab, -np.inf)
    one[vocab // 2] = -7.0
    peaked = np.where(rng.random(vocab) < 0.01, plain + 20, plain)
    made = {
        "plain": plain, "peaked": peaked, "ties": np.round(plain), "two values": np.sign(plain), "masked": masked, "one finite": one,
        "all equal": np.zeros(vocab), "huge": plain * 1e37, "tiny": plain * 1e-40,
    }  # fmt: skip
    return {name: row.astype(np.float32) for name, row in made.items()}


def _slack(vocab: int) -> float:
    """How far a share may differ between two float64 sums of the weights, relative to itself.

    Each sum: at most vocab roundings. Each exponential: 2 ulps, which are 4 roundings. The compiled one's argument x: 3 roundings
    of |x|, whose mean under the weights is at most log(vocab), since the entropy is that plus the log of the sum. 8 for the rest.
    """
    return (2 * vocab + 2 * 4 + 3 * math.log(vocab) + 8) * 2.0**-53


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("vocab", VOCABS)
def test_every_token_is_the_definitions_unless_u_is_within_rounding_of_an_edge(isa: str, vocab: int) -> None:
    temperatures, filters = ((0.0, *TEMPERATURES), FILTERS) if isa == BEST else ((0.0, 5e-324, 0.8, 50.0), FILTERS[::3])
    for name, logits in rows(vocab).items():
        one, other, rank = compiled(logits, isa), Distribution(logits), np.argsort(np.argsort(-logits, kind="stable"))
        for temperature, kept, u in product(temperatures, filters, US if vocab < 5000 else US[::3]):
            got, want = one.sample(u, temperature, **kept), other.sample(u, temperature, **kept)
            if got != want:
                assert u == LAST_U, (name, temperature, kept, u)  # no other is near an edge
                first, last = (other.sample(v, temperature, **kept) for v in (u - _slack(vocab), u + _slack(vocab)))
                assert rank[first] <= rank[got] <= rank[last], (name, temperature, kept)


@pytest.mark.parametrize("vocab", VOCABS)
def test_the_filtered_tokens_are_the_same_and_so_within_rounding_are_their_probabilities(vocab: int) -> None:
    for logits in rows(vocab).values():
        one, other = compiled(logits), Distribution(logits)
        for temperature, kept in product(TEMPERATURES, FILTERS):
            ids, p = one.probabilities(temperature, **kept)
            want, q = other.probabilities(temperature, **kept)
            assert ids.tolist() == want.tolist()
            np.testing.assert_allclose(p, q, rtol=_slack(vocab), atol=0)


@pytest.mark.parametrize("vocab", VOCABS)
def test_the_most_likely_are_in_order_whatever_their_number(vocab: int) -> None:
    for logits in rows(vocab).values():
        order = np.argsort(-logits, kind="stable")
        for count in (0, 1, 2, 30, 64, 512, vocab - 1, vocab, vocab + 1, 1 << 40):
            got = compiled(logits).most_likely(count)
            assert len(got) >= min(count, vocab)
            np.testing.assert_array_equal(got, order[: len(got)])
            np.testing.assert_array_equal(Distribution(logits).most_likely(count), order[:count])


@pytest.mark.parametrize("vocab", VOCABS)
def test_log_probabilities_are_the_definitions(vocab: int) -> None:
    for name, logits in rows(vocab).items():
        token = int(np.argmax(logits))
        for count in (0, 1, 5):
            (one, top), (want, best) = compiled(logits).logprobs(token, count), Distribution(logits).logprobs(token, count)
            assert [i for i, _ in top] == [i for i, _ in best], name
            assert len(top) == min(count, vocab)
            np.testing.assert_allclose([one, *(p for _, p in top)], [want, *(p for _, p in best)], rtol=np.finfo(np.float64).eps, atol=_slack(vocab))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 17, 598, 599])
def test_logits_that_are_no_numbers_are_refused_by_both(bad: float, place: int) -> None:
    logits = rows(600)["plain"]
    logits[place] = bad
    for make in (Distribution, compiled):
        with pytest.raises(ModelError, match="not finite numbers"):
            make(logits)
        with pytest.raises(ModelError, match="not finite numbers"):
            make(np.full(600, -np.inf, np.float32))


def test_penalties_give_the_same_distribution_and_leave_this_one_alone() -> None:
    logits = rows(600)["plain"]
    before = logits.copy()
    penalties = np.arange(50), np.arange(20), np.arange(20), 1.3, 0.5, 0.1
    one, other = compiled(logits).penalized(*penalties), Distribution(logits).penalized(*penalties)
    assert type(one) is CpuDistribution
    np.testing.assert_array_equal(one.logits, other.logits)
    np.testing.assert_array_equal(logits, before)
    assert not np.array_equal(one.logits, before)
    assert one.sample(0.4, 1.0) == other.sample(0.4, 1.0)


def test_two_rows_at_once_do_not_disturb_each_other() -> None:
    """As with penalties and log probabilities: the first row is asked again after the second."""
    first = compiled(rows(5003)["plain"])
    want = first.most_likely(40)
    compiled(rows(5003)["peaked"]).most_likely(600)
    np.testing.assert_array_equal(first.most_likely(40), want)


@pytest.mark.parametrize("op", ["embedding", "sample"])
def test_the_cases_of_the_oracle_hold_for_the_kernel_that_dispatch_takes(op: str) -> None:
    def holds(case: Case) -> bool:
        return ORACLES[op].worst(kernel.run(*case.arguments()), *case.arguments()) <= 1

    kernel = dispatch.select(Problem(op, host())).kernel
    assert kernel.name == f"cpu_{op}"
    assert all(map(holds, CASES[op]))


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path: Path = tiny.save_gguf(tiny.model_of("llama"), tmp_path_factory.mktemp("sampling") / "tiny.gguf")
    with LLM(path, device="cpu") as llm:
        yield llm


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.9},
        {"temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "logprobs": 3},
    ],
    ids=["greedy", "plain", "everything"],
)
def test_the_engine_picks_with_the_compiled_passes_what_the_definition_picks(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    made: list[type] = []

    def watched(runner: CpuRunner, logits: np.ndarray) -> Distribution:
        made.append(CpuDistribution)
        return CpuDistribution(runner._passes, logits)

    monkeypatch.setattr(CpuRunner, "distribution", watched)
    sampling = SamplingParams(max_tokens=24, ignore_eos=True, seed=5, **params)
    by_passes = llm.generate("the quick brown fox", sampling)
    assert len(made) == 24
    monkeypatch.setattr(CpuRunner, "distribution", ReferenceRunner.distribution)
    assert llm.generate("the quick brown fox", sampling).token_ids == by_passes.token_ids
