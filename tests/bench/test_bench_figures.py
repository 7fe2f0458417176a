"""Figures follow from samples: medians, bests and spreads, rates, and shares of the limits of the same rounds."""

import copy

import pytest

from lanewise.bench.figures import figures, limits, residency, spread


def a_round(read, decode, prefill):
    probes = {
        "read": {"amount": 100, "seconds": read},
        "read_at_size": {"amount": 50, "seconds": [1.0, 0.25]},
        "int8": {"amount": 4000, "seconds": [2.0]},
    }
    phases = {
        "pp4": {"kind": "prefill", "tokens": 4, "seconds": prefill},
        "tg2": {"kind": "decode", "tokens": 2, "seconds": decode},
    }
    return {"probes": probes, "phases": phases}


RECORD = {
    "model": {"weight_bytes": 20, "layer_macs": 100, "head_macs": 40},
    "rounds": [
        a_round([2.0, 1.0], [0.5, 0.5], [1.0, 1.0]),
        a_round([0.5, 1.0], [0.25, 0.25], [2.0, 2.0]),
        a_round([4.0, 4.0], [1.0, 1.0], [0.5, 0.5]),
    ],
}


def test_a_spread_is_the_range_over_the_median():
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "best": 3.0, "spread": 1.0}
    assert spread([5.0]) == {"median": 5.0, "best": 5.0, "spread": 0.0}


def test_a_limit_is_the_median_over_rounds_of_each_rounds_best_pass():
    found = limits(RECORD["rounds"])
    assert found["read"] == {"median": 100.0, "best": 200.0, "spread": 1.75}
    assert found["read_at_size"]["median"] == 200.0


def test_decode_is_in_bytes_of_weights_and_their_share_of_what_is_read():
    phase = figures(RECORD)["phases"]["tg2"]
    assert phase["rate"] == {"median": 2.0, "best": 4.0, "spread": 1.5}
    assert (phase["bytes_per_second"], phase["of_read"], phase["of_read_at_size"]) == (40.0, 0.4, 0.2)


def test_prefill_is_in_multiplications_the_logits_of_the_last_token_included_once():
    phase = figures(RECORD)["phases"]["pp4"]
    assert phase["rate"]["median"] == 2.0
    assert phase["macs_per_second"] == (4 * 100 + 40) / 2.0
    assert phase["of_int8"] == 220.0 / 2000.0


@pytest.mark.parametrize(("where", "phase"), [("tg2", "tg2"), ("pp4", "pp4")])
def test_another_sample_gives_another_figure(where, phase):
    changed = copy.deepcopy(RECORD)
    for one in changed["rounds"]:
        one["phases"][where]["seconds"][-1] *= 1.5
    assert figures(changed)["phases"][phase] != figures(RECORD)["phases"][phase]


@pytest.mark.parametrize(
    ("nbytes", "cache", "word"), [(100, 100, "warm"), (101, 100, "mixed"), (399, 100, "mixed"), (400, 100, "cold"), (1, None, "unknown")]
)
def test_weights_are_cold_only_when_no_cache_could_help(nbytes, cache, word):
    assert residency(nbytes, cache) == word
