"""The engine's front door on a tiny model: streams, batches, stops, seeds, limits and refusals."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lanewise import LLM, SamplingParams
from lanewise.dispatch import witness
from lanewise.errors import ContextLengthError, DeviceError, LanewiseError, NoKernelError, SettingError, TemplateError

PROMPT = "the quick brown fox"
LONG = SamplingParams(max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_gguf: Path) -> Iterator[LLM]:
    with LLM(tiny_gguf) as llm:
        yield llm


@pytest.fixture(autouse=True)
def _no_page_is_lost(llm: LLM) -> Iterator[None]:
    before = llm._pool.free
    yield
    assert llm._pool.free == before


def test_the_pieces_of_a_stream_are_the_completion(llm: LLM) -> None:
    chunks = list(llm.stream(PROMPT, LONG))
    whole = llm.generate(PROMPT, LONG)
    assert "".join(c.text for c in chunks) == whole.text
    assert tuple(i for c in chunks for i in c.token_ids) == whole.token_ids
    assert [c.finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].completion is not None
    assert chunks[-1].completion.text == whole.text
    assert whole.finish_reason == "length"
    assert whole.prompt_tokens == len(llm.tokenizer.encode(PROMPT))
    assert whole.prefill_rate > 0
    assert whole.decode_rate > 0


def test_text_ids_and_messages_are_all_prompts(llm: LLM) -> None:
    ids = llm.tokenizer.encode(PROMPT)
    assert llm.generate(ids, LONG).token_ids == llm.generate(PROMPT, LONG).token_ids
    messages = [{"role": "user", "content": "hi"}]
    rendered = llm.tokenizer.encode(llm.tokenizer.render(messages), add_special=False)
    assert llm.generate(messages, LONG).token_ids == llm.generate(rendered, LONG).token_ids


def test_several_prompts_in_one_call_give_what_each_gives_alone(llm: LLM) -> None:
    prompts = [PROMPT, "a", [5, 6, 7], "one two three four five six seven eight nine ten " * 3]
    together = llm.generate(prompts, LONG)
    assert [c.token_ids for c in together] == [llm.generate(p, LONG).token_ids for p in prompts]  # type: ignore[arg-type]


def test_more_prompts_than_the_batch_or_the_cache_holds_wait_their_turn(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = llm.generate(PROMPT, LONG).token_ids
    monkeypatch.setenv("LANEWISE_MAX_BATCH", "2")
    monkeypatch.setenv("LANEWISE_PREFILL_CHUNK", "3")
    assert {c.token_ids for c in llm.generate([PROMPT] * 5, LONG)} == {alone}
    spare = llm._pool.take(llm._pool.free - 4)  # room for one request at a time
    monkeypatch.setenv("LANEWISE_MAX_BATCH", "8")
    assert {c.token_ids for c in llm.generate([PROMPT] * 3, LONG)} == {alone}
    llm._pool.give(spare)


def test_each_prompt_may_have_parameters_of_its_own(llm: LLM) -> None:
    short, long = llm.generate([PROMPT, PROMPT], [SamplingParams(max_tokens=2, ignore_eos=True), LONG])
    assert long.token_ids[:2] == short.token_ids
    with pytest.raises(LanewiseError, match="2 prompts were given with 1 sampling parameters"):
        llm.generate([PROMPT, PROMPT], [LONG])


def test_the_same_seed_gives_the_same_text_alone_or_in_company(llm: LLM) -> None:
    def sampled(seed: int) -> SamplingParams:
        return SamplingParams(max_tokens=24, temperature=1.0, seed=seed, ignore_eos=True)

    one = llm.generate(PROMPT, sampled(1))
    assert llm.generate(PROMPT, sampled(1)).token_ids == one.token_ids
    assert llm.generate([PROMPT, PROMPT], [sampled(2), sampled(1)])[1].token_ids == one.token_ids
    assert llm.generate(PROMPT, sampled(2)).token_ids != one.token_ids


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    text = llm.generate(PROMPT, LONG).text
    stop = text[5:8]
    got = llm.generate(PROMPT, SamplingParams(max_tokens=24, stop=(stop,), ignore_eos=True))
    assert got.finish_reason == "stop"
    assert got.text == text[: text.index(stop)]


def test_a_stop_id_ends_the_text_and_is_left_out(llm: LLM) -> None:
    whole = llm.generate(PROMPT, LONG)
    stop = whole.token_ids[4]
    first = whole.token_ids.index(stop)
    got = llm.generate(PROMPT, SamplingParams(max_tokens=24, stop_ids=(stop,), ignore_eos=True))
    assert got.finish_reason == "stop"
    assert got.token_ids == whole.token_ids[: first + 1]
    assert got.text == llm.tokenizer.decode([i for i in whole.token_ids[:first] if i < llm.tokenizer.vocab_size])


def test_log_probabilities_come_one_a_token(llm: LLM) -> None:
    got = llm.generate(PROMPT, SamplingParams(max_tokens=5, logprobs=3, ignore_eos=True))
    assert got.logprobs is not None
    assert [entry.token for entry in got.logprobs] == list(got.token_ids)
    assert all(entry.top[0][0] == entry.token and len(entry.top) == 3 for entry in got.logprobs)  # greedy takes the first
    assert llm.generate(PROMPT, LONG).logprobs is None


def test_the_context_ends_a_text_that_would_outgrow_it(tiny_gguf: Path) -> None:
    with LLM(tiny_gguf, context=16) as small:
        got = small.generate([1, 2, 3, 4], SamplingParams(max_tokens=100, ignore_eos=True))
    assert got.finish_reason == "context"
    assert got.prompt_tokens + len(got.token_ids) == 16


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(tiny_gguf: Path) -> None:
    with LLM(tiny_gguf, context=16) as small, pytest.raises(ContextLengthError, match=r"30 tokens; the context has 16"):
        small.generate([1] * 30)


def test_closing_a_stream_early_gives_its_cache_back(llm: LLM) -> None:
    before = llm._pool.free
    stream = llm.stream(PROMPT, LONG)
    next(stream)
    assert llm._pool.free < before
    stream.close()
    assert llm._pool.free == before


def test_an_interrupt_in_a_step_leaves_the_model_usable(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    want = llm.generate(PROMPT, LONG).token_ids

    def interrupted(batch: object) -> np.ndarray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm._runner, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPT, LONG)
    assert llm.generate(PROMPT, LONG).token_ids == want


def test_two_streams_can_be_read_in_turns(llm: LLM) -> None:
    want = llm.generate(PROMPT, LONG).token_ids
    one, two = llm.stream(PROMPT, LONG), llm.stream(PROMPT, LONG)
    pairs = list(zip(one, two, strict=True))
    assert tuple(a.token_ids[0] for a, _ in pairs) == want
    assert tuple(b.token_ids[0] for _, b in pairs) == want


def test_progress_is_told_while_loading_and_prefilling(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    monkeypatch.setenv("LANEWISE_PREFILL_CHUNK", "4")
    with LLM(tiny_gguf, on_progress=lambda *step: told.append(step)) as llm:
        llm.generate(list(range(10)), SamplingParams(max_tokens=2))
    load = [t for t in told if t[0] == "load"]
    assert load[-1][1] == load[-1][2]
    assert [t[1:] for t in told if t[0] == "prefill"] == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([5, 384], "token id 384 is outside the model's vocabulary of 0 to 383"),
        ([-1], "token id -1 is outside"),
        ([1.5], r"the prompt holds 1\.5"),
        ([True], "the prompt holds True"),
    ],
)
def test_what_is_no_prompt_is_refused_with_words(llm: LLM, prompt: list[int], words: str) -> None:
    with pytest.raises(LanewiseError, match=words):
        llm.generate(prompt)


def test_an_empty_prompt_starts_from_the_begin_of_text_token(llm: LLM) -> None:
    assert llm.generate("", LONG).token_ids == llm.generate([0], LONG).token_ids


def test_no_prompts_give_no_completions(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_what_a_model_runs_is_seen_by_a_witness_and_obeys_its_switch(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(tiny_gguf, "reference") as llm, witness() as ran:
        llm.generate(PROMPT, SamplingParams(max_tokens=2, ignore_eos=True))
    assert ran["reference_attention"] == 2 * len(llm.spec.layers)
    assert ran["reference_linear"] == 2 * (7 * len(llm.spec.layers) + 1)
    monkeypatch.setenv("LANEWISE_REFERENCE", "0")
    with pytest.raises(NoKernelError, match="LANEWISE_REFERENCE has switched it off"):
        LLM(tiny_gguf, "reference")


def test_stream_takes_one_prompt_only(llm: LLM) -> None:
    with pytest.raises(LanewiseError, match="stream takes one prompt"):
        llm.stream(["a", "b"])  # type: ignore[arg-type,list-item]


def test_devices_and_contexts_that_do_not_exist_are_refused(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="'cuda:0' is not available; available: reference, cpu; models do not run on GPUs yet"):
        LLM(tiny_gguf, "cuda:0")
    with pytest.raises(ContextLengthError, match="a context of 257 was asked for; this model takes 2 to 256 tokens"):
        LLM(tiny_gguf, context=257)
    monkeypatch.setenv("LANEWISE_CONTEXT", "many")
    with pytest.raises(SettingError, match="LANEWISE_CONTEXT is 'many'; it takes a positive number"):
        LLM(tiny_gguf)


def test_a_model_that_does_not_fit_in_memory_is_refused_with_the_numbers(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.backends.memory.available", lambda: 1000)
    with pytest.raises(DeviceError, match=r"need .* GB of memory; 0\.0 GB are available"):
        LLM(tiny_gguf)


def test_a_chat_prefills_only_what_a_turn_adds(llm: LLM) -> None:
    chat = llm.chat("be brief")
    first = [c.completion for c in chat.stream("hello", LONG)][-1]
    second = [c.completion for c in chat.stream("and again", LONG)][-1]
    assert first is not None
    assert second is not None
    assert first.cached_tokens == 0
    assert second.cached_tokens >= first.prompt_tokens
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert chat.messages[2]["content"] == first.text
    fresh = llm.generate(chat.messages[:-1], LONG)
    assert fresh.token_ids == second.token_ids
    chat.clear()
    assert [m["role"] for m in chat.messages] == ["system"]
    chat.close()


def test_a_chat_that_no_longer_fits_is_refused_and_unchanged(tiny_gguf: Path) -> None:
    with LLM(tiny_gguf, context=64) as small:
        chat = small.chat()
        list(chat.stream("hello", SamplingParams(max_tokens=4, ignore_eos=True)))
        before = list(chat.messages)
        with pytest.raises(ContextLengthError, match="the context has 64"):
            list(chat.stream("word " * 200, LONG))
        assert chat.messages == before
        chat.close()


def test_a_model_without_a_template_refuses_to_chat(tmp_path: Path) -> None:
    from support import tiny

    path = tiny.save_gguf(tiny.model_of("llama"), tmp_path / "plain.gguf", template=None)
    with LLM(path) as llm, pytest.raises(TemplateError, match="no chat template"):
        llm.chat()
