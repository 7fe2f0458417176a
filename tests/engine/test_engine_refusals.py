"""What the engine refuses, each in words: things that are no prompts, closed models, broken numbers, conversations out of turn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny

from lanewise import LLM, SamplingParams
from lanewise.errors import ContextLengthError, DeviceError, ModelError, ModelFileError, PromptError, SamplingError

SHORT = SamplingParams(max_tokens=2, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_gguf: Path) -> Iterator[LLM]:
    with LLM(tiny_gguf) as llm:
        yield llm


@pytest.mark.parametrize(
    "prompt",
    [None, 5, {1, 2}, b"hello", [b"hello"], (i for i in [5]), {"role": "user"}, ["a", 5], ["a", None], np.ones((2, 2), int), [[5, "a"]]],
    ids=lambda prompt: type(prompt).__name__,
)
def test_what_is_no_prompt_is_refused_in_one_line(llm: LLM, prompt: Any) -> None:
    with pytest.raises(PromptError, match="it is a text, a list of token ids, or a list of messages") as caught:
        llm.generate(prompt, SHORT)
    assert "\n" not in str(caught.value)


def test_an_array_of_ids_is_a_prompt(llm: LLM) -> None:
    assert llm.generate(np.array([5, 6, 7]), SHORT).token_ids == llm.generate([5, 6, 7], SHORT).token_ids  # type: ignore[call-overload]


@pytest.mark.parametrize("params", [{"max_tokens": 3}, [None, 5], 5])
def test_sampling_parameters_are_sampling_parameters(llm: LLM, params: Any) -> None:
    with pytest.raises(SamplingError, match="they are SamplingParams"):
        llm.generate(["a", "b"], params)


def test_a_closed_model_says_so(tiny_gguf: Path) -> None:
    llm = LLM(tiny_gguf)
    chat = llm.chat()
    llm.close()
    llm.close()
    for use in (lambda: llm.generate("a"), lambda: llm.stream("a"), lambda: next(chat.stream("a"))):
        with pytest.raises(ModelError, match="was closed"):
            use()


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("params", [SHORT, SamplingParams(temperature=1.0, seed=1)], ids=["greedy", "sampled"])
def test_logits_that_are_no_numbers_are_no_answer(tmp_path: Path, params: SamplingParams, device: str) -> None:
    import torch

    model = tiny.model_of("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[0, 0] = float("nan")
    with LLM(tiny.save_gguf(model, tmp_path / "nan.gguf"), device) as llm, pytest.raises(ModelError, match="not finite numbers"):
        llm.generate("hello", params)


def test_a_token_that_the_model_has_no_row_for_is_refused(tmp_path: Path) -> None:
    path = tiny.save_gguf(tiny.model_of("llama", vocab_size=300), tmp_path / "v300.gguf")
    with LLM(path) as llm, pytest.raises(PromptError, match="outside the model's vocabulary of 0 to 299"):
        llm.generate("zebra seven eight nine ten", SHORT)


def test_a_prompt_of_megabytes_is_refused_before_it_is_tokenized(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(llm.tokenizer), "encode", lambda *_, **__: pytest.fail("it was tokenized"))
    with pytest.raises(ContextLengthError, match="characters, at least"):
        llm.generate("a b" * (1 << 20), SHORT)


def test_conversations_that_are_dropped_give_their_cache_back(llm: LLM) -> None:
    before = llm._pool.free
    for _ in range(3):
        list(llm.chat().stream("hello", SHORT))
    assert llm._pool.free == before
    with llm.chat() as chat:
        list(chat.stream("hello", SHORT))
        assert llm._pool.free < before
    assert llm._pool.free == before


def test_a_conversation_answers_one_question_at_a_time(llm: LLM) -> None:
    chat = llm.chat()
    first = chat.stream("hello", SamplingParams(max_tokens=5, ignore_eos=True))
    next(first)
    with pytest.raises(PromptError, match="still answering"):
        next(chat.stream("and you", SHORT))
    list(first)
    assert len(list(chat.stream("and you", SHORT))) == 2


@pytest.mark.parametrize("path", [None, 5, b"m.gguf", ["m.gguf"]], ids=str)
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ModelFileError, match="the model's path"):
        LLM(path)


def test_devices_and_contexts_of_a_wrong_type_are_refused(tiny_gguf: Path) -> None:
    for device in (5, ["cpu"]):
        with pytest.raises(DeviceError, match="is not available"):
            LLM(tiny_gguf, device)  # type: ignore[arg-type]
    for context in ("abc", 2.5, True):
        with pytest.raises(ContextLengthError, match="was asked for"):
            LLM(tiny_gguf, context=context)  # type: ignore[arg-type]
