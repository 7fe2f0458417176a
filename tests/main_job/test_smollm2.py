"""The main job: a real model, SmolLM2-135M-Instruct in Q4_1, writes English, and writes what llama.cpp writes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.int8 import Int8ActivationRunner
from support.run import logits_of, step_logits

from lanewise import LLM, SamplingParams
from lanewise.backends.reference import ReferenceRunner

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at a temperature of",
    "List three primary colours:\n1.",
)
TOKENS = 32
SIGMAS = 3
GOLDEN_CPU = " Paris.\n\nThe"  # llama.cpp's too; the next token is a tie within what rounding to int8 moves
GOLDEN = " Paris.\n\nThe answer is: 2018-01-22 12:1"


@pytest.fixture(scope="module")
def llm(smollm2: Path) -> Iterator[LLM]:
    with LLM(smollm2, "reference", context=512) as llm:
        yield llm


def test_the_greedy_continuation_of_a_fixed_prompt_is_the_golden_text(llm: LLM) -> None:
    assert llm.generate(PROMPTS[0], SamplingParams(max_tokens=24)).text == GOLDEN


@pytest.fixture(scope="module")
def cpu(smollm2: Path) -> Iterator[LLM]:
    with LLM(smollm2, "cpu", context=512) as llm:
        yield llm


def test_the_cpu_kernels_continue_the_fixed_prompt_with_their_golden_text(cpu: LLM) -> None:
    assert cpu.generate(PROMPTS[0], SamplingParams(max_tokens=5)).text == GOLDEN_CPU


def test_the_cpu_kernels_answer_a_chat_prompt(cpu: LLM) -> None:
    answer = cpu.generate([{"role": "user", "content": "Write one short sentence about the sea."}], SamplingParams(max_tokens=64))
    assert "sea" in answer.text
    assert answer.finish_reason == "stop"


def test_a_chat_prompt_gets_a_coherent_answer_that_ends_by_itself(llm: LLM) -> None:
    answer = llm.generate([{"role": "user", "content": "What is the capital of France?"}], SamplingParams(max_tokens=64))
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"


def test_the_backend_says_that_it_expanded_the_weights(llm: LLM) -> None:
    assert any("expanded from" in note and "Q4_1" in note and "float32" in note for note in llm.notes)


def test_a_chunked_prefill_of_the_real_model_gives_the_logits_of_a_whole_one(smollm2: Path, llm: LLM) -> None:
    ids = llm.tokenizer.encode(PROMPTS[1])
    whole, parts = logits_of(smollm2, ids), logits_of(smollm2, ids, [3, 1, len(ids) - 4])
    assert np.array_equal(whole.argmax(-1), parts.argmax(-1))


@pytest.fixture(scope="module")
def llama_cpp(smollm2: Path) -> Any:
    """llama.cpp, through the wheel that the test extra names. It exists for Linux on x86-64 only."""
    if sys.platform != "linux":
        pytest.skip("no llama.cpp wheel for this platform")
    xllamacpp = pytest.importorskip("xllamacpp", reason="no llama.cpp wheel for this processor")
    params = xllamacpp.CommonParams()
    params.model.path = str(smollm2)
    params.n_ctx = 512
    params.cpuparams.n_threads = 1  # its threads spin: with busy neighbours two are slower than one
    return xllamacpp.Server(params)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_agree_with_llama_cpp_or_tie_within_the_rounding_of_int8_activations(llm: LLM, llama_cpp: Any, prompt: str) -> None:
    """Our model is led along llama.cpp's own tokens. Where it would have gone elsewhere, the two tokens must tie: their logits lie
    closer together than rounding the activations to int8, which llama.cpp does and the reference does not, moves them at that place.
    """
    ids = llm.tokenizer.encode(prompt)
    reply = llama_cpp.handle_completions({"prompt": ids, "max_tokens": TOKENS, "temperature": 0, "n_probs": 1, "cache_prompt": False})
    theirs = [entry["id"] for entry in reply["choices"][0]["logprobs"]["content"]]
    assert len(theirs) == TOKENS
    led = [*ids, *theirs[:-1]]
    runner = llm._runner
    assert isinstance(runner, ReferenceRunner)
    ours = step_logits(ReferenceRunner(llm.spec, runner._weights), led)[len(ids) - 1 :]
    rounded = step_logits(Int8ActivationRunner(llm.spec, runner._weights), led)[len(ids) - 1 :]
    agree = ours.argmax(-1) == theirs
    assert agree.mean() >= 0.9  # led along, a model that is right seldom disagrees
    for place in np.flatnonzero(~agree):
        gap = ours[place].max() - ours[place][theirs[place]]
        moved = np.std(rounded[place] - ours[place])
        assert gap <= SIGMAS * np.sqrt(2) * moved  # the difference of two logits moves by sqrt(2) of what one does
