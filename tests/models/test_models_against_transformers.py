"""Every family, from both kinds of file, against `transformers`: logits within the derived bound, greedy tokens equal."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny
from support.bounds import logit_bound, logits64
from support.run import logits_of

from lanewise import LLM, SamplingParams

IDS = [5, 17, 300, 42, 42, 7, 383, 12, 99, 100, 3, 250, 8, 8, 31, 64, 128, 2, 77, 210, 11, 19, 23]
STEPS = 64
SCALINGS: dict[str, dict[str, Any]] = {
    "none": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 500.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0},
}
CASES = [("llama", kind) for kind in SCALINGS] + [("qwen3", "none"), ("qwen3", "yarn"), ("qwen2", "none"), ("qwen2", "linear")]


@cache
def _model(family: str, scaling: str) -> Any:
    return tiny.model_of(family, rope_parameters=SCALINGS[scaling])


@cache
def _expected(family: str, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    model = _model(family, scaling)
    want = logits64(model, IDS)
    return want, logit_bound(model, IDS, want)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path, Path]:
    family, scaling = request.param
    folder = tmp_path_factory.mktemp(f"{family}-{scaling}")
    model = _model(family, scaling).float()
    return family, scaling, tiny.save_directory(model, folder / "hf"), tiny.save_gguf(model, folder / "tiny.gguf")


def _assert_close(path: Path, family: str, scaling: str, chunks: list[int] | None = None) -> None:
    want, bound = _expected(family, scaling)
    assert np.all(np.abs(logits_of(path, IDS, chunks) - want) <= bound)


def test_logits_of_a_safetensors_directory_agree_with_transformers(case: tuple[str, str, Path, Path]) -> None:
    family, scaling, directory, _ = case
    _assert_close(directory, family, scaling)


def test_logits_of_a_gguf_file_agree_with_transformers(case: tuple[str, str, Path, Path]) -> None:
    family, scaling, _, gguf = case
    _assert_close(gguf, family, scaling)


def test_prefill_in_chunks_and_token_by_token_gives_the_same_logits(case: tuple[str, str, Path, Path]) -> None:
    family, scaling, _, gguf = case
    _assert_close(gguf, family, scaling, [7, 1, 1, 9, 5])
    _assert_close(gguf, family, scaling, [1] * len(IDS))


def test_greedy_tokens_agree_with_transformers_over_64_steps(case: tuple[str, str, Path, Path]) -> None:
    import torch

    family, scaling, directory, gguf = case
    with torch.no_grad():
        out = _model(family, scaling).double().generate(torch.tensor([IDS]), max_new_tokens=STEPS, do_sample=False, eos_token_id=None)
    want = out[0, len(IDS) :].tolist()
    for path in (directory, gguf):
        with LLM(path, "reference") as llm:  # float32 throughout, as the oracle is float64
            assert list(llm.generate(IDS, SamplingParams(max_tokens=STEPS, ignore_eos=True)).token_ids) == want


def test_the_bound_is_tight_enough_to_see_a_wrong_rotation() -> None:
    want, bound = _expected("llama", "none")
    other = logits64(_model("llama", "linear"), IDS)
    assert not np.all(np.abs(other - want) <= bound)
