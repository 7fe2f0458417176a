"""A record holds everything that its figures come from; a profile accounts for the work of a step; a plan refuses nonsense."""

import copy
import json
import subprocess

import numpy as np
import pytest
from support.small import PROBE, SMALL

from lanewise.backends import backend_for
from lanewise.backends.cpu.profile import Profiler
from lanewise.bench import Plan, bench_model, figures, random_model
from lanewise.bench.machine import commit, last_level_cache
from lanewise.bench.model import _batches, prompt_ids
from lanewise.engine.witness import token_digest
from lanewise.errors import ContextLengthError, DeviceError, LanewiseError, SettingError
from lanewise.evidence.record import check_record
from lanewise.models import spec_of

PLAN = Plan(prompts=(3, 20), tokens=2, rounds=2, threads=1, chunk=16, probe=PROBE, profile=True)


@pytest.fixture(scope="module")
def record():
    with random_model(SMALL, "Q4_K_M") as model:
        return bench_model(model, PLAN, ["lanewise", "bench", "model"])


def test_a_record_says_what_ran_where(record):
    assert (record["schema"], record["schema_version"]) == ("lanewise.bench.model", 2)
    assert record["command"] == ["lanewise", "bench", "model"]
    assert record["began"] < record["ended"]
    assert {"lanewise", "python", "numpy", "llvmlite", "llvm"} == set(record["versions"])
    assert record["machine"]["cpu"]
    assert record["machine"]["row"]
    assert record["settings"]["LANEWISE_PREFILL_CHUNK"] == 512
    run = record["run"]
    assert (run["device"], run["threads"], run["chunk"], run["probe"]) == ("cpu", 1, 16, PROBE)
    assert run["peak_memory"] > record["model"]["weight_bytes"]
    assert record["model"]["random"]


def test_a_record_keeps_every_sample_and_the_order_of_each_round(record):
    forward = ["read", "read_at_size", "int8", "pp3", "pp20", "tg2"]
    assert [r["order"] for r in record["rounds"]] == [forward, forward[::-1]]
    for one in record["rounds"]:
        steps = {name: len(phase["seconds"]) for name, phase in one["phases"].items()}
        assert steps == {"pp3": 1, "pp20": 2, "tg2": 2}  # 20 tokens are a step of 16 and one of 4
        assert all(seconds > 0 for part in ("phases", "probes") for phase in one[part].values() for seconds in phase["seconds"])
        assert len(one["before"]["load"]) == 3


def test_a_record_has_hashes_of_the_tokens_that_went_in_and_came_out_and_is_refused_with_others(record):
    clean = copy.deepcopy(record) | {"commit": {"id": "0" * 40, "dirty": False}}
    assert check_record(clean) == []
    assert clean["run"]["prompt"]["pp3"] == token_digest([prompt_ids(SMALL.vocab, 20)[:3].tolist()])
    assert len({one["phases"]["tg2"]["output"] for one in clean["rounds"]}) == 1
    for change, code in (
        (lambda r: r["run"]["prompt"].update(pp3="0" * 64), "inputs"),
        (lambda r: r["run"].update(vocab=SMALL.vocab - 1), "inputs"),
        (lambda r: r["run"]["prompt"].pop("pp3"), "inputs"),
        (lambda r: r["rounds"][1]["phases"]["tg2"].update(output="0" * 64), "exact"),
        (lambda r: [one["phases"]["tg2"].update(output="x") for one in r["rounds"]], "exact"),
    ):
        made = copy.deepcopy(clean)
        change(made)
        assert {reason.code for reason in check_record(made)} == {code}


def test_figures_can_be_computed_again_from_a_record_that_was_written(record):
    again = json.loads(json.dumps(record, allow_nan=False))
    assert figures(again) == again["figures"]


def test_sizes_are_those_of_the_weights_that_a_token_meets(record):
    with random_model(SMALL, "Q4_K_M") as model:
        assert record["model"]["weight_bytes"] == model.nbytes  # tied: the embedding is the head
        matrices = sum(t.elements for t in model.tensors.values() if len(t.shape) == 2)
    assert record["model"]["layer_macs"] + record["model"]["head_macs"] == matrices


def test_a_profile_accounts_for_the_work_of_a_step(record):
    sizes = record["model"]
    decode, prefill = record["profile"]["tg2"], record["profile"]["pp20"]
    assert (decode["rows"], prefill["rows"], prefill["context"]) == (1, 4, 20)
    for one, rows in ((decode, 1), (prefill, 4)):
        by_weights = sum(op["macs"] for op in one["ops"] if op["n"])
        assert by_weights == rows * sizes["layer_macs"] + sizes["head_macs"]
        # The packed form pads rows to panels and spells small scales out: a little over the file's size.
        read = sum(op["nbytes"] for op in one["ops"] if op["n"])
        assert sizes["weight_bytes"] * 0.95 < read < sizes["weight_bytes"] * 1.2
        assert all(len(op["seconds"]) == len(one["plain_seconds"]) for op in one["ops"])
        assert all(seconds >= 0 for op in one["ops"] for seconds in op["seconds"])
    # 4 heads of 64, scores and values, over the positions that 4 tokens behind 16 others see, in 2 layers
    assert sum(op["macs"] for op in prefill["ops"] if op["kernel"].startswith("attend")) == 2 * 2 * 4 * 64 * (17 + 18 + 19 + 20)


def test_a_profiled_step_gives_the_bits_of_a_plain_one():
    with random_model(SMALL, "Q4_K_M") as model:
        runner = backend_for("cpu").lower(spec_of(model), model, threads=2)
    runner.allocate(4, 16)
    (batch,) = _batches(np.arange(9, dtype=np.int32), 9, every=True)
    plain = runner.step(batch)
    runner.model.logits[:] = 0
    Profiler(runner).step(batch)
    assert np.array_equal(runner.model.logits[:1, : SMALL.vocab], plain)
    runner.close()


def test_the_reference_device_is_measured_by_its_own_bytes_and_says_that_it_ignores_threads():
    with random_model(SMALL, "Q8_0") as model:
        found = bench_model(model, Plan(prompts=(), tokens=1, rounds=1, device="reference", threads=1, probe=PROBE))
        elements = sum(t.elements for t in model.tensors.values())
    assert found["model"]["weight_bytes"] == 4 * elements
    assert found["run"]["threads"] is None
    assert "1 threads were asked for" in found["run"]["notes"][-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": (0,)}, "prompt lengths are 0"),
        ({"prompts": (8, 8)}, "different positive numbers"),
        ({"prompts": (), "tokens": 0}, "at least one"),
        ({"tokens": -1}, "-1 tokens to decode"),
        ({"rounds": 0}, "at least 1 is needed"),
        ({"profile": True, "device": "reference"}, "a profile needs the cpu device"),
    ],
)
def test_a_plan_without_sense_is_refused(changes, words):
    with pytest.raises(LanewiseError, match=words):
        Plan(**changes)


def test_what_a_model_or_a_machine_does_not_take_is_refused():
    with random_model(SMALL, "Q8_0") as model:
        with pytest.raises(ContextLengthError, match=r"257 tokens were asked for; .* takes 256"):
            bench_model(model, Plan(prompts=(257,)))
        with pytest.raises(SettingError, match="threads is 0"):
            bench_model(model, Plan(prompts=(1,), threads=0))
        with pytest.raises(DeviceError, match="'abacus' is not available"):
            bench_model(model, Plan(device="abacus"))


def test_a_commit_is_named_only_for_a_checkout_of_this_package(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True)

    package, elsewhere = tmp_path / "lanewise", tmp_path / "env" / "lanewise"
    for folder in (package, elsewhere):
        folder.mkdir(parents=True)
    assert commit(package) is None
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "a")
    clean = commit(package)
    assert clean is not None
    assert len(clean["id"]) == 40
    assert not clean["dirty"]
    (tmp_path / "file").write_text("2")
    assert commit(package) == {**clean, "dirty": True}
    assert commit(elsewhere) is None


def test_the_last_level_cache_is_the_highest_that_holds_data(tmp_path):
    for i, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "64K"), (3, "Unified", "2M"), (2, "Unified", "1M")]):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert last_level_cache(tmp_path) == 2 << 20
    assert last_level_cache(tmp_path / "none") is None
