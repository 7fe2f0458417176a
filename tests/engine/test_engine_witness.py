"""LANEWISE_WITNESS: a line for each model that says which kernels ran, in which phases, and what went in and came out."""

import json
from collections import Counter

import pytest
from support.small import PROBE, SMALL

from lanewise import LLM, SamplingParams
from lanewise.backends import backend_for
from lanewise.bench import Plan, bench_model, random_model
from lanewise.bench.model import _batches
from lanewise.engine.witness import token_digest, watching
from lanewise.errors import SettingError
from lanewise.kernels.cpu.isa import selected
from lanewise.models import spec_of
from lanewise.witness import package_digest, sources

IDS = [5, 6, 7, 8]


def watched(device, path, monkeypatch):
    """What the file says of a prompt of three tokens and a step behind it."""
    import numpy as np

    monkeypatch.setenv("LANEWISE_WITNESS", str(path))
    with random_model(SMALL, "Q8_0") as model:
        runner = backend_for(device).lower(spec_of(model), model, threads=1)
        runner.allocate(2, 16)
        witness = watching(runner, device)
        for batch in (*_batches(np.array(IDS[:3], np.int32), 8, every=False), *_batches(np.array(IDS[:1], np.int32), 1, every=True)):
            runner.step(batch)
        witness.answered(IDS[:3], IDS[3:])
        witness.close()
        witness.close()
        runner.close()
    return json.loads(path.read_text())


def test_nothing_is_watched_unless_it_is_asked_for():
    assert watching(object(), "cpu") is None


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_witness_names_the_kernels_that_ran_in_both_phases_and_the_tokens(tmp_path, monkeypatch, device):
    said = watched(device, tmp_path / "witness", monkeypatch)
    assert said["steps"] == {"decode": 1, "prefill": 1}
    assert (said["prompt"], said["tokens"]) == (token_digest([IDS[:3]]), token_digest([IDS[3:]]))
    assert (said["prompt_tokens"], said["output_tokens"]) == (3, 1)
    assert said["package"] == package_digest(sources())
    kernels = Counter(said["kernels"])
    if device == "cpu":
        assert (said["isa"], said["threads"], len(said["code"])) == (selected().name, 1, 64)
        assert kernels["embed_Q8_0"] == 2
        assert kernels["matmul_Q8_0"] % 2 == 0
    else:
        assert (said["isa"], said["threads"], said["code"]) == (None, None, None)
        assert kernels["reference_embedding"] == 2


def test_a_second_model_adds_a_line_and_a_file_that_cannot_be_written_is_refused_first(tmp_path, monkeypatch):
    path = tmp_path / "witness"
    watched("reference", path, monkeypatch)
    path.rename(tmp_path / "first")
    (tmp_path / "both").write_text((tmp_path / "first").read_text())
    with pytest.raises(json.JSONDecodeError, match="Extra data"):
        watched("reference", tmp_path / "both", monkeypatch)
    with pytest.raises(SettingError, match="cannot be written: No such file or directory"):
        watched("reference", tmp_path / "gone" / "witness", monkeypatch)


@pytest.mark.parametrize("profile", [False, True])
def test_a_model_that_is_measured_says_what_came_out_too(tmp_path, monkeypatch, profile):
    path = tmp_path / "witness"
    monkeypatch.setenv("LANEWISE_WITNESS", str(path))
    with random_model(SMALL, "Q8_0") as model:
        bench_model(model, Plan(prompts=(3,), tokens=2, rounds=2, threads=1, probe=PROBE, profile=profile))
    said = json.loads(path.read_text())
    assert (said["prompt_tokens"], said["output_tokens"]) == (2 * (3 + 2), 2 * (1 + 2))


def test_an_llm_says_which_tokens_went_in_and_came_out_when_it_is_closed(tmp_path, monkeypatch, tiny_gguf):
    path = tmp_path / "witness"
    monkeypatch.setenv("LANEWISE_WITNESS", str(path))
    with LLM(tiny_gguf) as llm:
        params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
        done = [llm.generate(ids, params) for ids in (IDS[:2], IDS)]
        assert path.read_text() == ""
    said = json.loads(path.read_text())
    assert said["prompt"] == token_digest([IDS[:2], IDS])
    assert said["tokens"] == token_digest([one.token_ids for one in done])
    assert said["steps"]["decode"] == 2 * 4
