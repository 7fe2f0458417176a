"""Broken and hostile GGUF vocabularies: one line that says what, and never another exception."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tokenizer_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import LanewiseError, ModelFileError, TokenizerError
from lanewise.files import Metadata
from lanewise.files.tokenizer import from_gguf, load_tokenizer
from lanewise.files.vocab import rust_errors

BPE = {"tokens": ["a", "b", "ab", "<x>"], "merges": ["a b"], "token_type": [1, 1, 1, 3], "bos_token_id": 3, "eos_token_id": 3}
SPM = {"tokens": ["<unk>", "<s>", "</s>", "a", "▁"], "scores": [0.0, 0.0, 0.0, -1.0, -2.0], "token_type": [2, 3, 3, 1, 1]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "bert"}, r"tokenizer kind 'bert' is not supported; known kinds: gpt2 \(byte-level BPE\), llama \(SentencePiece BPE\)"),
        ({"model": "rwkv"}, "tokenizer kind 'rwkv'"),
        ({"model": "x" * 10**6}, "tokenizer kind 'xxx"),
        ({"model": None}, "tokenizer.ggml.model' is missing"),
        ({"model": 3}, "a string is expected"),
        ({"pre": None}, "tokenizer.ggml.pre is missing, so how text is cut into words is unknown; known"),
        ({"pre": ""}, "unknown pre-tokenizer ''"),
        ({"pre": "default"}, "unknown pre-tokenizer 'default'"),
        ({"pre": 7}, "a string is expected"),
        ({"tokens": None}, "tokenizer.ggml.tokens' is missing"),
        ({"tokens": []}, "tokenizer.ggml.tokens is empty"),
        ({"tokens": "abc"}, "a list of strings is expected"),
        ({"tokens": ["a", 3, "ab", "<x>"]}, "a list of strings is expected"),
        ({"tokens": ["a", "b", "ab", "a"]}, "token 'a' stands twice in tokenizer.ggml.tokens, as 0 and 3"),
        ({"tokens": ["a", "b", "ab", "\ud800"]}, "special tokens"),
        ({"token_type": [1, 1, 1]}, "tokenizer.ggml.token_type has 3 entries for 4 tokens"),
        ({"token_type": [1, 1, 1, 7]}, r"token_type\[3\]' is 7; a list of integers from 0 to 6"),
        ({"token_type": [1, 1, 1, 6]}, "token 3 is marked as a byte but reads '<x>'"),
        ({"merges": None}, "tokenizer.ggml.merges' is missing"),
        ({"merges": [3]}, "a list of strings is expected"),
        ({"merges": ["ab"]}, r"tokenizer.ggml.merges\[0\] is 'ab'; two tokens and one space"),
        ({"merges": ["a b", "a b b"]}, r"tokenizer.ggml.merges\[1\] is 'a b b'; two tokens and one space"),
        ({"merges": ["b a"]}, "tokenizer.ggml.merges has 'b' with 'a', which together are no token"),
        ({"merges": ["ab ab"]}, "tokenizer.ggml.merges has 'ab' with 'ab', which together are no token"),
        ({"tokens": ["a", "b", "ab", "qab"], "token_type": [1, 1, 1, 1], "merges": ["q ab"]}, "tokenizer.ggml.merges: .*Token `q` out of vocabulary"),
        ({"bos_token_id": 4}, "bos_token_id' is 4; an integer from 0 to 3"),
        ({"eos_token_id": -1}, "eos_token_id' is -1; an integer from 0 to 3"),
        ({"eot_token_id": 2**40}, "eot_token_id' is 1099511627776; an integer from 0 to 3"),
        ({"unknown_token_id": "0"}, "an integer from 0 to 3"),
        ({"add_bos_token": 1}, "true or false is expected"),
        ({"add_bos_token": True, "bos_token_id": None}, "add_bos_token is true, but tokenizer.ggml.bos_token_id is missing"),
        ({"add_eos_token": True, "eos_token_id": None}, "add_eos_token is true, but tokenizer.ggml.eos_token_id is missing"),
    ],
)
def test_a_byte_level_vocabulary_that_cannot_be_used_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((TokenizerError, ModelFileError), match=words) as caught:
        cases.ours(cases.byte_level("gpt-2", **{**BPE, **changes}))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": None}, "tokenizer.ggml.scores' is missing"),
        ({"scores": [0.0] * 4}, "tokenizer.ggml.scores has 4 entries for 5 tokens"),
        ({"scores": [0.0, 0.0, 0.0, float("nan"), 0.0]}, "finite"),
        ({"scores": ["x"] * 5}, "finite"),
        ({"add_space_prefix": "no"}, "true or false is expected"),
        ({"tokens": ["<unk>", "<s>", "</s>", "a", "b" * 20_000]}, "tokens of up to 20000 characters are too long to split"),
    ],
)
def test_a_sentencepiece_vocabulary_that_cannot_be_used_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((TokenizerError, ModelFileError), match=words) as caught:
        cases.ours(cases.sentencepiece(**{**SPM, **changes}))
    assert "\n" not in str(caught.value)


def test_the_smallest_vocabularies_are_taken() -> None:
    shape = {"tokens": ["<unk>", "a"], "scores": [0.0, 0.0], "token_type": [2, 1], "add_space_prefix": False}
    tokenizer = cases.ours(cases.sentencepiece(**shape))
    assert (tokenizer.encode("aab"), tokenizer.bos_id, tokenizer.add_bos) == ([1, 1, 0], None, False)


def test_a_vocabulary_that_cannot_spell_every_text_is_refused() -> None:
    with pytest.raises(TokenizerError, match="neither a token for every byte nor an unknown token"):
        cases.ours(cases.sentencepiece(tokens=["a", "b", "c"], scores=[0.0, 0.0, 0.0], token_type=[1, 1, 1]))


def test_only_the_librarys_errors_are_reworded() -> None:
    for kind in (TokenizerError, KeyboardInterrupt, SystemExit):
        with pytest.raises(kind), rust_errors("x"):
            raise kind("as it was")
    with pytest.raises(TokenizerError, match=r"^x: as it was$"), rust_errors("x"):
        raise Exception("as\nit was")


def test_empty_tokens_are_padding_and_may_repeat() -> None:
    tokenizer = cases.ours(cases.byte_level("gpt-2", **{**BPE, "tokens": ["a", "b", "ab", "<x>", "", ""], "token_type": [1, 1, 1, 3, 1, 3]}))
    assert (tokenizer.encode("ab<x>"), tokenizer.decode([4, 2, 5]), tokenizer.vocab_size) == ([2, 3], "ab", 6)


def test_numpy_columns_are_taken_as_the_reader_gives_them() -> None:
    keys = cases.sentencepiece()
    for key, kind in (("scores", np.float32), ("token_type", np.int32)):
        keys[f"tokenizer.ggml.{key}"] = np.array(keys[f"tokenizer.ggml.{key}"], kind)
    assert cases.ours(keys).encode("the") == cases.ours(cases.sentencepiece()).encode("the")


def test_a_kind_of_model_without_a_tokenizer_is_refused() -> None:
    class Other:
        kind, path = "onnx", "m.onnx"

    with pytest.raises(TokenizerError, match=r"m\.onnx: no tokenizer is known for a model of kind 'onnx'"):
        load_tokenizer(Other())  # type: ignore[arg-type]


_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["gpt2", "llama", "gpt-2", "a b", "a", "<0x0A>"]),
    ),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=6,
)
_KEYS = (
    "model",
    "pre",
    "tokens",
    "merges",
    "scores",
    "token_type",
    "bos_token_id",
    "eos_token_id",
    "unknown_token_id",
    "add_bos_token",
    "add_space_prefix",
)


@given(
    base=st.sampled_from([("gpt2", BPE), ("llama", SPM)]),
    changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=4),
    text=st.text(max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_whatever_the_keys_hold_only_lanewise_errors_come_out(base: tuple[str, dict[str, Any]], changes: dict[str, Any], text: str) -> None:
    keys = {"model": base[0], "pre": "gpt-2", **base[1], **changes}
    with suppress(LanewiseError):
        tokenizer = from_gguf(Metadata("m.gguf", cases.gguf_keys(keys)))
        tokenizer.decode(tokenizer.encode(text))
        tokenizer.decode(range(tokenizer.vocab_size))
