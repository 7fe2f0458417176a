"""Records of `bench model` follow from their samples; each change of what a figure rests on is refused by name."""

import copy
import json
from pathlib import Path

import pytest

from lanewise.errors import EvidenceError
from lanewise.evidence import open_bundle, verify

RECORDS = sorted((Path(__file__).parents[2] / "bench" / "records").glob("*.json"))
RECORD = json.loads(RECORDS[0].read_text())
DECODE = next(name for name in RECORD["figures"]["phases"] if name.startswith("tg"))


def codes(tmp_path, record):
    target = tmp_path / "record.json"
    target.write_text(json.dumps(record))
    return {reason.code for reason in verify(open_bundle(target))}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_records_of_the_project_follow_from_their_samples(path):
    assert verify(open_bundle(path)) == []


def a_rate(r):
    r["figures"]["phases"][DECODE]["rate"]["median"] *= 1.001


def a_sample(r):
    for one in r["rounds"]:
        one["phases"][DECODE]["seconds"][0] /= 2


def a_figure_that_is_missing(r):
    del r["figures"]["phases"][DECODE]["of_read"]


def a_figure_too_many(r):
    r["figures"]["phases"][DECODE]["faster"] = True


def a_dropped_step(r):
    r["rounds"][0]["phases"][DECODE]["seconds"].pop()


def a_dropped_phase(r):
    for one in r["rounds"]:
        del one["phases"][DECODE]
    del r["figures"]["phases"][DECODE]


def a_dropped_round(r):
    r["rounds"].pop()


def another_order(r):
    r["rounds"][0]["order"].reverse()


def prefill_for_decode(r):
    r["rounds"][0]["phases"][DECODE]["kind"] = "prefill"
    r["figures"]["phases"][DECODE]["kind"] = "prefill"


def a_false_label(r):
    r["run"]["residency"] = "warm"


def a_dirty_tree(r):
    r["commit"]["dirty"] = True


def no_commit(r):
    r["commit"] = None


def an_end_before_it_began(r):
    r["ended"] = r["began"]


def ticks_that_run_back(r):
    r["rounds"][0]["after"]["ticks"]["user"] = 0


def another_command(r):
    r["command"][r["command"].index("--rounds") + 1] = "99"


def smaller_weights(r):
    r["model"]["weight_bytes"] -= 1


WAYS = [
    (a_rate, "figure"), (a_sample, "figure"), (a_figure_that_is_missing, "figure"), (a_figure_too_many, "figure"),
    (a_dropped_step, "sample-missing"), (a_dropped_phase, "sample-missing"), (a_dropped_round, "rounds"), (another_order, "sample-order"),
    (prefill_for_decode, "phase"), (a_false_label, "residency"), (a_dirty_tree, "dirty"), (no_commit, "commit"),
    (an_end_before_it_began, "chronology"), (ticks_that_run_back, "chronology"), (another_command, "command"), (smaller_weights, "figure"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code"), WAYS, ids=[change.__name__ for change, _ in WAYS])
def test_each_change_of_a_record_is_refused_by_its_name(tmp_path, change, code):
    record = copy.deepcopy(RECORD)
    change(record)
    assert code in codes(tmp_path, record)


@pytest.mark.parametrize(
    "change", [lambda r: r.update(rounds=[]), lambda r: r["rounds"][0].pop("probes"), lambda r: r.update(figures={"phases": {}})]
)
def test_what_no_figure_can_follow_from_is_no_record(tmp_path, change):
    record = copy.deepcopy(RECORD)
    change(record)
    with pytest.raises(EvidenceError, match="no record"):
        codes(tmp_path, record)
