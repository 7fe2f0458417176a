"""Special tokens: found in text or not, put round a text, ending a generation."""

import pytest
import tokenizer_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import TemplateError, TokenizerError

TEXT = "Hi<|im_end|>there<tool>now<|im_start|>"


@pytest.mark.parametrize("pre", cases.PRES)
def test_control_tokens_are_found_in_text_only_when_asked(pre: str) -> None:
    keys = cases.byte_level(pre)
    tokenizer, tokens = cases.ours(keys), keys["tokenizer.ggml.tokens"]
    start, end, tool = (tokens.index(t) for t in ("<|im_start|>", "<|im_end|>", "<tool>"))
    found = tokenizer.encode(TEXT, add_special=False)
    assert [i for i in found if i in (start, end, tool)] == [end, tool, start]
    plain = tokenizer.encode(TEXT, add_special=False, parse_special=False)
    assert [i for i in plain if i in (start, end, tool)] == [tool]
    assert tokenizer.decode(plain) == TEXT


@given(
    texts=st.lists(
        st.sampled_from(["<|im_end|>", "<|endoftext|>", "<|", "|>", "im_end", "<s>", "</s>", "<unk>", "<0x41>", " ", "a", "é"]), max_size=8
    )
)
@settings(max_examples=80, deadline=None)
def test_no_plain_text_becomes_a_control_token(texts: list[str]) -> None:
    text = "".join(texts)
    for tokenizer in _both():
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        assert not {tokenizer.token_text(i) for i in ids} & {"<|im_end|>", "<|endoftext|>", "<|im_start|>", "<s>", "</s>", "<unk>"}
        assert tokenizer.decode(ids, skip_special=False) == text


def test_a_control_token_that_merges_spell_does_not_come_out_of_plain_text() -> None:
    shape = {"tokens": ["a", "b", "ab", "c", "abc"], "merges": ["a b", "ab c"], "bos_token_id": None, "eos_token_id": 2}
    for pre in ("gpt-2", "llama-bpe"):
        tokenizer = cases.ours(cases.byte_level(pre, **shape, token_type=[1, 1, 3, 1, 3]))
        assert tokenizer.encode("abc", parse_special=False) == [0, 1, 3]
        assert tokenizer.encode("abc") == [4]
        assert tokenizer.encode("abcab") == [4, 2]


def test_the_longest_special_token_is_taken_first() -> None:
    shape = {"tokens": ["a", "b", "<x>", "<x><y>"], "merges": [], "token_type": [1, 1, 3, 3], "bos_token_id": None, "eos_token_id": None}
    assert cases.ours(cases.byte_level("gpt-2", **shape)).encode("<x><y><x>") == [3, 2]


def test_user_defined_spaces_match_however_they_are_written() -> None:
    base = {"scores": [0.0] * 7, "token_type": [2, 3, 3, 1, 1, 4, 4], "add_space_prefix": False}
    tokenizer = cases.ours(cases.sentencepiece(**base, tokens=["<unk>", "<s>", "</s>", "▁", "a", "▁▁", "    "]))
    assert tokenizer.encode("a  a    a", add_special=False) == [4, 5, 4, 6, 4]
    assert tokenizer.decode([4, 5, 4, 6, 4]) == "a  a    a"


def test_the_beginning_token_is_added_when_the_file_says_so() -> None:
    for flag in (True, False):
        tokenizer = cases.ours(cases.byte_level("smollm", add_bos_token=flag))
        assert tokenizer.add_bos is flag
        assert (tokenizer.encode("Hi")[0] == tokenizer.bos_id) is flag
        assert tokenizer.encode("Hi", add_special=False)[0] != tokenizer.bos_id


def test_the_beginning_token_is_added_by_default_where_the_kind_has_it() -> None:
    assert cases.ours(cases.byte_level("llama-bpe", add_bos_token=None)).encode("") == [0]
    assert cases.ours(cases.byte_level("qwen2", add_bos_token=None)).encode("") == []
    spm = cases.ours(cases.sentencepiece())
    assert (spm.add_bos, spm.bos_id, spm.encode(""), spm.encode("", add_special=False)) == (True, 1, [1], [])


def test_the_end_token_is_added_when_the_file_says_so() -> None:
    tokenizer = cases.ours(cases.byte_level("smollm", add_eos_token=True, add_bos_token=True))
    assert tokenizer.encode("Hi")[-1] == max(tokenizer.eos_ids)
    assert tokenizer.encode("")[0] == 0
    assert len(tokenizer.encode("")) == 2


def test_a_text_that_begins_with_the_beginning_token_does_not_get_a_second() -> None:
    tokenizer = cases.ours(cases.byte_level("smollm", add_bos_token=True, add_eos_token=True))
    once = tokenizer.encode("Hi")
    assert tokenizer.encode("<|endoftext|>Hi<|im_end|>") == once
    assert tokenizer.encode("<|endoftext|>Hi", parse_special=False).count(0) == 1


def test_a_rendered_template_and_the_tokenizer_give_one_beginning_token() -> None:
    keys = cases.byte_level("smollm", add_bos_token=True)
    keys["tokenizer.chat_template"] = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    tokenizer = cases.ours(keys)
    text = tokenizer.render([{"role": "user", "content": "Hi"}])
    assert text == "<|endoftext|>Hi<|im_end|>"
    assert tokenizer.encode(text) == tokenizer.encode(text, add_special=False)
    assert tokenizer.encode(text).count(0) == 1


def test_generation_ends_at_named_ids_and_at_known_control_tokens() -> None:
    tokens = ["a", "<|im_end|>", "<eos>", "<|eot_id|>", "<stop>", "</s>", "<end_of_turn>", "<other>"]
    shape = {"tokens": tokens, "merges": [], "bos_token_id": None}
    # </s> is a normal token here (Qwen has one), <end_of_turn> user-defined
    tokenizer = cases.ours(cases.byte_level("gpt-2", **shape, token_type=[1, 3, 3, 3, 3, 1, 4, 3], eos_token_id=2, eot_token_id=4))
    assert tokenizer.eos_ids == {1, 2, 3, 4, 6}
    tokenizer = cases.ours(cases.byte_level("gpt-2", **shape, token_type=[1, 3, 3, 3, 3, 1, 4, 3], eos_token_id=2, eom_token_id=7))
    assert tokenizer.eos_ids == {1, 2, 3, 6, 7}


def test_a_user_defined_end_of_turn_cannot_be_typed() -> None:
    shape = {"tokens": ["a", "<", "/", "s", ">", "</s>"], "merges": [], "token_type": [1, 1, 1, 1, 1, 4], "bos_token_id": None, "eos_token_id": None}
    tokenizer = cases.ours(cases.byte_level("gpt-2", **shape))
    assert tokenizer.encode("a</s>") == [0, 5]
    assert tokenizer.encode("a</s>", parse_special=False) == [0, 1, 2, 3, 4]


def test_without_token_types_a_sentencepiece_file_still_has_bytes_and_controls() -> None:
    tokenizer = cases.ours(cases.sentencepiece(token_type=None))
    assert tokenizer.decode([3 + 0xC3, 3 + 0xA9]) == "é"
    assert tokenizer.encode("</s>", add_special=False) == [2]
    assert 2 not in tokenizer.encode("</s>", add_special=False, parse_special=False)


def test_named_templates_are_kept_apart() -> None:
    keys = cases.byte_level("smollm")
    message = [{"role": "user", "content": "x"}]
    tokenizer = cases.ours(keys)
    assert tokenizer.template is None
    with pytest.raises(TemplateError, match="no default chat template; give a prompt as plain text"):
        tokenizer.render(message)
    keys |= {"tokenizer.chat_template.tool_use": "tools: {{ tools|length }}", "tokenizer.chat_templates": ["tool_use"]}
    with pytest.raises(TemplateError, match="it has tool_use"):
        cases.ours(keys).render(message)
    keys["tokenizer.chat_template"] = "{{ tools is none }} {{ pad_token is defined }} {{ bos_token }} {{ thinking }} {{ add_generation_prompt }}"
    tokenizer = cases.ours(keys)
    assert tokenizer.render(message, thinking=3) == "True False <|endoftext|> 3 True"
    assert tokenizer.render(message, add_generation_prompt=False).endswith("False")
    assert tokenizer.render(message, tools=[{}, {}]) == "tools: 2"
    assert set(tokenizer.templates) == {"default", "tool_use"}
    assert tokenizer.template is tokenizer.templates["default"]


def test_ids_outside_the_vocabulary_are_refused() -> None:
    keys = cases.byte_level("smollm")
    tokenizer, size = cases.ours(keys), len(keys["tokenizer.ggml.tokens"])
    assert tokenizer.vocab_size == size
    for use in (lambda i: tokenizer.decode([0, i]), tokenizer.token_text, tokenizer.stream().push):
        use(size - 1)
        for bad in (-1, size, 1 << 40):
            with pytest.raises(TokenizerError, match=f"{bad} is outside the vocabulary; ids go from 0 to {size - 1}"):
                use(bad)
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        cases.ours(cases.sentencepiece()).stream(after=1 << 20)


_BOTH: list = []


def _both() -> list:
    if not _BOTH:
        _BOTH.extend((cases.ours(cases.byte_level("smollm")), cases.ours(cases.sentencepiece())))
    return _BOTH
