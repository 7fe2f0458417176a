"""The bundle in bench/records that compares two instruction sets, as it is and tampered with in 20 ways: each is refused with its reason.

Its forger makes figures and seal again, and no checkout is asked.
"""

import contextlib
import copy
import json
from pathlib import Path

import pytest
from support.bundles import refigured, written

from lanewise.evidence import CODES, open_bundle, verify

COMMITTED = Path(__file__).parents[2] / "bench/records/q4k_gemv_isa"
MANIFEST = json.loads((COMMITTED / "manifest.json").read_text())


def a_better_ratio(m):
    m["figures"]["ratio"]["median"] *= 1.2


def the_other_winner(m):
    verdict = m["figures"]["verdict"]
    m["figures"]["verdict"] = ("b" if verdict[0] == "a" else "a") + verdict[1:]


def a_sample_gone(m):
    del m["rounds"][1]["samples"][0]


def a_sample_twice(m):
    m["rounds"][1]["samples"][3] = dict(m["rounds"][1]["samples"][0])


def samples_out_of_order(m):
    samples = m["rounds"][1]["samples"]
    samples[0], samples[1] = samples[1], samples[0]


def a_round_gone(m):
    del m["rounds"][2]


def one_round_more(m):
    last = copy.deepcopy(m["rounds"][-1])
    m["rounds"].append(last | {"number": last["number"] + 1})


def an_unbalanced_round(m):
    m["rounds"][1]["order"] = list("aabb")
    m["rounds"][1]["samples"].sort(key=lambda sample: sample["arm"])


def a_control_of_both_arms(m):
    m["rounds"][1]["control"][1]["arm"] = "b" if m["rounds"][1]["control"][0]["arm"] == "a" else "a"


def a_slow_round_left_out(m):
    next(one for one in m["rounds"] if one["left_out"] is None)["left_out"] = "others used 0.50 of a core"


def a_neighbour_kept(m):
    one = next(one for one in m["rounds"] if one["left_out"] is None)
    one["after"]["neighbours"] = [*one["after"]["neighbours"], {"pid": 4_000_000, "parent": 1, "name": "a process", "cpu_seconds": 1e4}]


def a_dirty_tree(m):
    m["commit"]["dirty"] = True


def no_commit(m):
    m["commit"] = None


def one_code_for_both(m):
    m["arms"]["b"]["artifact"] = m["arms"]["a"]["artifact"]


def a_switch_without_effect(m):
    m["arms"]["b"]["witness"]["isa"] = m["arms"]["a"]["witness"]["isa"]


def another_body_than_claimed(m):
    m["arms"]["b"]["witness"] |= {"kernel": "reference_quant_linear", "body": "reference", "isa": "numpy"}


def decode_called_prefill(m):
    m["problem"]["phase"] = "prefill"


def a_larger_problem(m):
    m["problem"]["n"] *= 2


def a_cold_that_is_none(m):
    m["plan"]["residency"] = "cold" if m["plan"]["residency"] == "warm" else "warm"


def another_question(m):
    m["question"] = m["question"].replace("Q4_K", "Q6_K")


WAYS = {
    a_better_ratio: "figure", the_other_winner: "verdict", a_sample_gone: "sample-missing", a_sample_twice: "sample-duplicate",
    samples_out_of_order: "sample-order", a_round_gone: "rounds", one_round_more: "rounds", an_unbalanced_round: "balance",
    a_control_of_both_arms: "control", a_slow_round_left_out: "kept-left-out", a_neighbour_kept: "left-out-kept", a_dirty_tree: "dirty",
    no_commit: "commit", one_code_for_both: "arms-equal", a_switch_without_effect: "switch", another_body_than_claimed: "witness",
    decode_called_prefill: "phase", a_larger_problem: "problem", a_cold_that_is_none: "residency", another_question: "question",
}  # fmt: skip


def test_the_committed_bundle_holds_and_twenty_ways_are_tried():
    assert verify(open_bundle(COMMITTED)) == []
    assert len(WAYS) == 20


@pytest.mark.parametrize(("change", "code"), WAYS.items(), ids=[change.__name__ for change in WAYS])
def test_the_committed_bundle_is_refused_once_it_is_tampered_with(tmp_path, change, code):
    manifest = copy.deepcopy(MANIFEST)
    change(manifest)
    if code not in ("figure", "verdict"):
        with contextlib.suppress(KeyError, IndexError, ValueError):  # from some samples no figure follows
            manifest = refigured(manifest)
    reasons = verify(open_bundle(written(tmp_path / "run", manifest)))
    (fitting, *_) = [reason for reason in reasons if reason.code == code] or [None]
    assert fitting is not None, [str(reason) for reason in reasons]
    assert str(fitting).startswith(f"{code}: {fitting.where}: {CODES[code]}; expected {fitting.expected}, found {fitting.found}")
    assert not {"digest"} & {reason.code for reason in reasons}


def test_without_a_new_seal_every_way_is_seen_by_the_seal_too(tmp_path):
    folder = written(tmp_path / "run", MANIFEST)
    for change in WAYS:
        manifest = copy.deepcopy(MANIFEST)
        change(manifest)
        assert "digest" in {reason.code for reason in verify(open_bundle(written(folder, manifest, sealed=False)))}, change.__name__
