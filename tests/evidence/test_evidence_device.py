"""Bundles of `ab` beside a GPU: a good one holds, its device is one everywhere, and rounds are left out by the GPU's rule again."""

import copy
import re

import pytest
import test_evidence_leaves as leaves
from support.bundles import changed, good_command, refigured, written
from support.gpu_bundles import good_gpu_command

from lanewise.bench import manifest as schema
from lanewise.evidence import open_bundle, verify
from lanewise.evidence.page import page

GOOD = good_gpu_command()


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


def test_a_good_bundle_beside_a_gpu_holds_and_shows_its_device(tmp_path):
    assert schema.complaints(GOOD) == []
    assert codes(tmp_path, GOOD) == set()
    shown = page(open_bundle(tmp_path / "run"))
    assert "NVIDIA H200" in shown
    assert "cuda:0" in shown


def test_rounds_are_left_out_by_what_was_on_the_gpu(tmp_path):
    manifest = good_gpu_command(neighbour=(2,), slow=(4,))
    left = [one["left_out"] for one in manifest["rounds"]]
    assert (left[2], left[4]) == ("another process computed on the GPU", "the GPU was slowed down: power cap")
    assert manifest["figures"]["left_out"] == 2
    assert codes(tmp_path, manifest) == set()


def test_a_bundle_from_before_there_was_a_choice_was_beside_the_processor(tmp_path):
    manifest = good_command()
    del manifest["plan"]["device"]
    at = manifest["command"].index("--device")
    del manifest["command"][at : at + 2]
    assert codes(tmp_path, manifest) == set()
    manifest["command"] += ["--device", "cuda"]
    assert codes(tmp_path, manifest) == {"command"}


def a_neighbour_kept(m):
    m["rounds"][3]["after"]["gpu"]["processes"] = [{"pid": 5, "memory": None}]


def a_held_down_gpu_kept(m):
    m["rounds"][3]["before"]["gpu"]["throttle"] = ["heat"]


def a_quiet_round_left_out(m):
    m["rounds"][3]["left_out"] = "another process computed on the GPU"


def readings_dropped(m):
    del m["rounds"][3]["before"]["gpu"]


def all_readings_dropped(m):
    for one in m["rounds"]:
        del one["before"]["gpu"], one["after"]["gpu"]


def readings_hidden(m):
    m["rounds"][3]["before"]["gpu"]["processes"] = None


def no_rule_about_neighbours(m):
    m["plan"]["rule"]["alone"] = False


def no_card(m):
    del m["machine"]["gpu"]


def a_card_that_is_none(m):
    m["machine"]["gpu"] = "H200"


def a_card_of_another_vendor(m):
    m["machine"]["gpu"]["name"] = "AMD Instinct MI300X"


def called_the_processor(m):
    m["plan"]["device"] = "cpu"
    m["command"][m["command"].index("cuda:0")] = "cpu"


def no_device(m):
    del m["plan"]["device"]
    at = m["command"].index("--device")
    del m["command"][at : at + 2]


def another_device_in_the_command(m):
    m["command"][m["command"].index("cuda:0")] = "cuda:1"


def a_device_that_nobody_watches(m):
    m["plan"]["device"] = "CUDA:0"
    m["command"][m["command"].index("cuda:0")] = "CUDA:0"


WAYS = [
    (a_neighbour_kept, "left-out-kept"), (a_held_down_gpu_kept, "left-out-kept"), (a_quiet_round_left_out, "kept-left-out"),
    (readings_dropped, "machine"), (all_readings_dropped, "machine"), (readings_hidden, "machine"), (no_rule_about_neighbours, "plan"),
    (no_card, "machine"), (a_card_that_is_none, "machine"), (a_card_of_another_vendor, "machine"), (called_the_processor, "machine"),
    (no_device, "machine"), (another_device_in_the_command, "command"), (a_device_that_nobody_watches, "plan"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code"), WAYS, ids=[change.__name__ for change, _ in WAYS])
def test_each_way_to_mislead_beside_a_gpu_is_refused_by_its_name(tmp_path, change, code):
    manifest = copy.deepcopy(GOOD)
    change(manifest)
    assert code in codes(tmp_path, refigured(manifest))


@pytest.mark.parametrize("path", ["rounds[3].after.gpu", "machine.gpu"])
def test_a_run_beside_the_processor_has_nothing_of_a_gpu(tmp_path, path):
    where, _, name = path.rpartition(".")
    manifest = good_command()
    place = changed(GOOD, path, None)  # the path is there
    assert place
    target, source = manifest, GOOD
    for step in re.findall(r"\w+", where):
        target, source = (one[int(step) if step.isdecimal() else step] for one in (target, source))
    target[name] = source[name]
    reasons = {reason.where: reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}
    assert reasons[path] == "machine"


OF_GPU = [(path, value) for path, value in leaves.paths(GOOD) if "gpu" in path or path.startswith("plan.")]
SEALED_ONLY = [
    r"machine\.gpu\.(name|multiprocessors|memory|driver)",
    r"plan\.(warmup|rule\.busy|rule\.clock)",  # a stricter rule, that these rounds pass too
    r"rounds\[\d+\]\.(before|after)\.gpu\.(clock_mhz|memory_clock_mhz|temperature|power)",
]


@pytest.mark.parametrize(("path", "value"), [pytest.param(*one, id=one[0]) for one in OF_GPU])
def test_no_changed_leaf_of_a_gpu_slips(path, value):
    made = changed(GOOD, path, "power cap" if ".throttle[" in path else leaves.other(path, value))
    found = leaves.judged(made, leaves.sealed(GOOD))
    if found != {leaves.UNREADABLE} and not any(re.fullmatch(row, path) for row in SEALED_ONLY):
        assert found > {"digest"}, found
