"""The statistics of A/B runs: known answers, an interval that covers what it says, invariances, and claims that need their evidence."""

import json
from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from support.runs import SEED, manifest_of, round_of, rounds_of

from lanewise.bench import manifest as manifests
from lanewise.bench import stats

CLOSE = 1e-12  # log and exp, a few roundings each
TABLE = 0.5e-4  # half a unit of the last digit that tables print


def verdict(rounds, **how):
    return manifest_of(rounds, **how)["figures"]["verdict"]


def test_an_arm_that_always_takes_twice_as_long_has_a_ratio_of_two():
    figures = manifest_of(rounds_of([(1.0, 2.0)] * 8))["figures"]
    assert figures["ratio"] == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.0}, rel=CLOSE)
    assert figures["control"] == {"median": 1.0, "low": 1.0, "high": 1.0, "spread": 0.0}
    assert (figures["verdict"], figures["pairs"], figures["left_out"]) == ("a is faster", 16, 0)


def test_the_ratio_is_the_median_of_the_pairs_and_not_of_the_arms():
    """Medians of the arms are 2 and 3; the pairs' ratios are 4, 3/2 and 1."""
    figures = manifest_of(rounds_of([(1.0, 4.0), (2.0, 3.0), (3.0, 3.0)]))["figures"]
    assert figures["ratio"]["median"] == pytest.approx(1.5, rel=CLOSE)
    assert (figures["a"]["seconds"], figures["b"]["seconds"]) == (2.0, 3.0)


def test_rates_follow_from_the_problem_and_shares_from_the_probes():
    """The probes read 10 GB/s and form 100 G products a second: the best pass of each round."""
    found = manifest_of(rounds_of([(1e-3, 2e-3)] * 8))
    a, problem = found["figures"]["a"], found["problem"]
    assert a["bytes_per_second"] == pytest.approx(problem["bytes"] / 1e-3, rel=CLOSE)
    assert a["of_read"] == pytest.approx(problem["bytes"] / 1e-3 / 1e10, rel=CLOSE)
    assert a["of_int8"] == pytest.approx(problem["operations"] / 1e-3 / 2e11, rel=CLOSE)


def test_products_of_floats_are_not_compared_with_the_int8_peak():
    found = manifest_of(rounds_of([(1.0, 2.0)] * 8))
    for problem in ({**found["problem"], "format": "F16"}, {**found["problem"], "op": "attention"}):
        assert stats.figures({**found, "problem": problem})["a"]["of_int8"] is None


def test_the_interval_is_the_exact_one_of_all_resamples():
    """Five groups have 3125 resamples; 10000 drawn ones give the same quantiles of a median that takes five values."""
    values = [0.0, 1.0, 2.0, 4.0, 8.0]
    medians = np.sort([np.median(picked) for picked in product(values, repeat=5)])
    tail = stats._tail(0.8, 5)
    low, high = (medians[int(share * len(medians))] for share in (tail, 1 - tail))
    assert stats.bootstrap([[v] for v in values], 10_000, 0, 0.8) == (2.0, low, high)


def test_few_groups_leave_out_less_of_the_tails():
    """Student's t for 7 degrees of freedom at 95 % is 2.3646 (any table); the normal's tail at that times sqrt(8/7)."""
    assert stats._tail(0.95, 8) == pytest.approx(stats.NormalDist().cdf(-2.3646 * sqrt(8 / 7)), abs=TABLE)
    assert stats._tail(0.95, 10**6) == pytest.approx(0.025, abs=TABLE)


@pytest.mark.parametrize("shared", [0.0, 0.02])
def test_the_interval_covers_the_truth_as_often_as_it_says(shared):
    """95 % of 400 data sets, less four standard deviations of that share; pairs of a round are alike where `shared` is not 0."""
    rng, sets, truth = np.random.default_rng(1), 400, 0.05
    hits = 0
    for seed in range(sets):
        logs = truth + rng.normal(0, shared, (15, 1)) + rng.normal(0, 0.005 if shared else 0.02, (15, 2))
        _, low, high = stats.bootstrap(logs.tolist(), 400, seed, 0.95)
        hits += low <= truth <= high
    assert hits / sets >= 0.95 - 4 * sqrt(0.95 * 0.05 / sets)


def test_figures_are_the_same_every_time_and_after_json():
    rng = np.random.default_rng(0)
    found = manifest_of(rounds_of([(1.0, float(b)) for b in rng.uniform(0.9, 1.3, 12)]))
    again = json.loads(manifests.text_of(found))
    assert stats.figures(again) == found["figures"]


def test_raw_words_of_philox_are_what_they_were():
    """Figures of old bundles must stay: this numpy draws the words that the first one drew."""
    assert [stats.schedule(7, n) for n in range(4)] == [(("b", "a", "a", "b"), "b"), (("a", "b", "b", "a"), "b"),
                                                        (("b", "a", "a", "b"), "a"), (("a", "b", "b", "a"), "a")]  # fmt: skip


def test_every_four_rounds_have_each_order_with_each_control_once_and_seeds_shuffle_them():
    for block in range(5):
        assert len({stats.schedule(3, 4 * block + i) for i in range(4)}) == 4
    orders = {tuple(stats.schedule(seed, n) for n in range(8)) for seed in range(20)}
    assert len(orders) > 10


def test_swapping_the_arms_inverts_the_ratio_and_the_verdict():
    rng = np.random.default_rng(2)
    times = [(1.0, float(b)) for b in rng.uniform(1.1, 1.2, 10)]
    one = manifest_of(rounds_of(times))["figures"]
    other = manifest_of(rounds_of([(b, a) for a, b in times]))["figures"]
    assert one["ratio"]["median"] * other["ratio"]["median"] == pytest.approx(1, rel=CLOSE)
    assert one["ratio"]["low"] * other["ratio"]["high"] == pytest.approx(1, rel=CLOSE)
    assert (one["verdict"], other["verdict"]) == ("a is faster", "b is faster")


def test_a_clock_that_runs_twice_as_fast_changes_no_ratio():
    rng = np.random.default_rng(3)
    times = rng.uniform(1.0, 1.2, (10, 2)).tolist()
    one, other = (manifest_of(rounds_of([(c * a, c * b) for a, b in times]))["figures"]["ratio"] for c in (1, 2))
    assert one == pytest.approx(other, rel=CLOSE)


def test_a_machine_that_slows_down_steadily_favours_no_arm():
    drifting = [round_of(n, [exp(0.01 * (6 * n + i)) for i in range(4)]) for n in range(8)]
    figures = manifest_of(drifting)["figures"]
    assert figures["ratio"]["median"] == pytest.approx(1, rel=CLOSE)
    assert figures["verdict"] == stats.NO_DIFFERENCE


def test_a_round_that_was_left_out_does_not_count():
    rounds = rounds_of([(1.0, 2.0)] * 9)
    rounds[4] = round_of(4, [1.0, 1.0, 1.0, 1.0], left_out="throttled: core")
    figures = manifest_of(rounds)["figures"]
    assert figures["ratio"]["low"] == pytest.approx(2.0, rel=CLOSE)
    assert (figures["pairs"], figures["left_out"]) == (16, 1)


def test_a_claim_needs_fifteen_pairs():
    assert verdict(rounds_of([(1.0, 2.0)] * 7)) == stats.NO_DIFFERENCE
    assert verdict(rounds_of([(1.0, 2.0)] * 8)) == "a is faster"


def test_a_claim_needs_an_interval_without_one():
    mixed = [(1.0, 1.5), (1.0, 0.7)] * 6 + [(1.0, 1.5)]
    figures = manifest_of(rounds_of(mixed))["figures"]
    assert figures["ratio"]["median"] == pytest.approx(1.5, rel=CLOSE)
    assert figures["ratio"]["low"] <= 1
    assert figures["verdict"] == stats.NO_DIFFERENCE


@pytest.mark.parametrize(("control", "words"), [((1.0, 1.04), "a is faster"), ((1.0, 1.06), stats.NO_DIFFERENCE), ((1.06, 1.0), stats.NO_DIFFERENCE)])
def test_a_claim_needs_an_effect_beyond_what_one_arm_differs_from_itself(control, words):
    found = manifest_of(rounds_of([(1.0, 1.05)] * 8, control))["figures"]
    assert found["verdict"] == words
    assert found["control"]["spread"] == pytest.approx(max(control) - 1, rel=CLOSE)


@pytest.mark.parametrize("factor", [1.25, 0.8])
def test_the_spread_of_the_control_is_how_far_its_interval_reaches_from_one_on_either_side(factor):
    rounds = [round_of(n, [1.0] * 4, (1.0, factor if n % 3 == 0 else 1.0)) for n in range(9)]
    assert manifest_of(rounds)["figures"]["control"]["spread"] == pytest.approx(0.25, rel=CLOSE)


@pytest.mark.parametrize(("better", "words"), [("lower", "a is better"), ("higher", "b is better")])
def test_of_commands_the_larger_number_wins_only_where_that_was_said(better, words):
    assert verdict(rounds_of([(1.0, 2.0)] * 8), kind="command", better=better) == words


def test_when_every_round_was_left_out_nothing_is_shown_and_nothing_breaks():
    for kind in ("kernel", "command"):
        found = manifest_of([round_of(n, [1.0] * 4, left_out="others used 1.00 of a core") for n in range(3)], kind=kind)
        assert found["figures"]["ratio"] == {"median": None, "low": None, "high": None}
        assert (found["figures"]["verdict"], found["figures"]["pairs"]) == (stats.NO_DIFFERENCE, 0)
        assert manifests.complaints(found) == []


def test_logs_are_of_b_over_a_whatever_the_order():
    for number in range(4):
        order, _ = stats.schedule(SEED, number)
        (one,) = stats.pair_logs([round_of(number, [{"a": 2.0, "b": 6.0}[arm] for arm in order])])
        assert one == pytest.approx([log(3)] * 2, rel=CLOSE)
