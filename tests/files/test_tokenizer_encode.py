"""Text to ids: against published tokenizer definitions, and against merging written out naively."""

import math
import unicodedata
from collections.abc import Callable

import pytest
import regex
import tokenizer_cases as cases
from hypothesis import given, settings

from lanewise.errors import TokenizerError
from lanewise.files.pretokenize import PRETOKENIZERS, find

PUBLISHED = ("gpt-2", "qwen2", "qwen35", "smollm")


@pytest.mark.parametrize("pre", PUBLISHED)
@pytest.mark.parametrize("text", [*cases.TORTURE, cases.LONG], ids=cases.label)
def test_byte_level_ids_are_those_of_the_published_tokenizer(pre: str, text: str) -> None:
    keys = cases.byte_level(pre)
    assert cases.ours(keys).encode(text) == cases.published(keys).encode(text).ids


@given(text=cases.TEXTS)
@settings(max_examples=60, deadline=None)
def test_byte_level_ids_are_those_of_the_published_tokenizer_for_any_text(text: str) -> None:
    for pre, (mine, theirs) in _pairs().items():
        assert mine.encode(text) == theirs.encode(text).ids, pre


@pytest.mark.parametrize("pre", cases.PRES)
@pytest.mark.parametrize("text", cases.TORTURE, ids=cases.label)
def test_byte_level_ids_are_those_of_regex_and_naive_merging(pre: str, text: str) -> None:
    keys = cases.byte_level(pre)
    assert cases.ours(keys).encode(text, add_special=False, parse_special=False) == _naive_byte_level(keys, text)


@pytest.mark.parametrize("space", [True, False])
@pytest.mark.parametrize("text", cases.TORTURE, ids=cases.label)
def test_sentencepiece_ids_are_those_of_naive_merging(text: str, space: bool) -> None:
    keys = cases.sentencepiece(add_space_prefix=space)
    plain = text.replace("<tool>", "")
    assert cases.ours(keys).encode(plain, add_special=False, parse_special=False) == _naive_sentencepiece(keys, plain, space)


@given(text=cases.TEXTS)
@settings(max_examples=60, deadline=None)
def test_sentencepiece_ids_are_those_of_naive_merging_for_any_text(text: str) -> None:
    keys = cases.sentencepiece()
    assert _sentencepiece().encode(text, add_special=False, parse_special=False) == _naive_sentencepiece(keys, text, True)


def test_merges_follow_scores_and_not_the_order_of_tokens() -> None:
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc"]
    types, low = [2, 3, 3, 1, 1, 1, 1, 1], [0.0, 0.0, 0.0, -9.0, -9.0, -9.0]
    keys = {"tokens": tokens, "token_type": types, "add_space_prefix": False}
    assert cases.ours(cases.sentencepiece(**keys, scores=[*low, -2.0, -1.0])).encode("abc", add_special=False) == [3, 7]
    assert cases.ours(cases.sentencepiece(**keys, scores=[*low, -1.0, -2.0])).encode("abc", add_special=False) == [6, 5]


def test_a_word_that_is_a_token_is_taken_whole_only_where_merges_are_ignored() -> None:
    # "abc" is a token that no merges lead to
    shape = {"tokens": ["a", "b", "c", "ab", "abc"], "merges": ["a b"], "token_type": None, "bos_token_id": None, "eos_token_id": None}
    assert cases.ours(cases.byte_level("llama-bpe", **shape)).encode("abc") == [4]
    assert cases.ours(cases.byte_level("gpt-2", **shape)).encode("abc") == [3, 2]


def test_characters_without_a_piece_become_their_bytes() -> None:
    tokenizer = cases.ours(cases.sentencepiece())
    ids = tokenizer.encode("☃", add_special=False)
    assert [tokenizer.decode([i], after=3) for i in ids[1:]] == ["�"] * 3
    assert [i - 3 for i in ids[1:]] == list("☃".encode())


def test_without_byte_tokens_an_unknown_run_becomes_one_unknown_token() -> None:
    shape = {"tokens": ["<unk>", "<s>", "</s>", "▁", "a"], "scores": [0.0, 0.0, 0.0, -1.0, -2.0], "token_type": [2, 3, 3, 1, 1]}
    assert cases.ours(cases.sentencepiece(**shape)).encode("a☃☃a", add_special=False) == [3, 4, 0, 4]


def test_a_byte_without_a_token_is_left_out() -> None:
    shape = {"tokens": ["a", "b"], "merges": [], "token_type": None, "bos_token_id": None, "eos_token_id": None}
    assert cases.ours(cases.byte_level("gpt-2", **shape)).encode("a\x04b") == [0, 1]


@pytest.mark.parametrize("pre", ["qwen2", "qwen35"])
def test_qwen_composes_its_text_first(pre: str) -> None:
    tokenizer = cases.ours(cases.byte_level(pre))
    assert tokenizer.encode("e\u0301a\u0308") == tokenizer.encode("éä")
    assert cases.ours(cases.byte_level("smollm")).encode("e\u0301") != cases.ours(cases.byte_level("smollm")).encode("é")


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "I'm 12345!?  ok\n\n x", ["I", "'m", " 12345", "!?", " ", " ok", "\n\n", " x"]),
        ("smollm", "a 123 b", ["a", " ", "1", "2", "3", " b"]),
        ("llama-bpe", "I'LL pay 12345!\n\n (x)", ["I", "'LL", " pay", " ", "123", "45", "!\n\n", " (", "x", ")"]),
        ("qwen2", "pay 123\u0928\u094d.", ["pay", " ", "1", "2", "3", "\u0928", "\u094d."]),
        ("qwen35", "pay 123\u0928\u094d.", ["pay", " ", "1", "2", "3", "\u0928\u094d", "."]),
        ("deepseek-llm", "Hi 中文12, \u0628  ", ["Hi", " ", "中文", "12", ",", " \u0628", "  "]),
        ("deepseek-llm", "a\r\n\nb", ["a", "\r", "\n", "\n", "b"]),
    ],
)
def test_words_are_cut_where_the_model_learned_them_cut(pre: str, text: str, words: list[str]) -> None:
    cut = find(pre).build().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == words


def test_aliases_name_the_same_row() -> None:
    assert find("llama3") is find("llama-v3") is find("llama-bpe")
    assert set(cases.PRES) <= set(PRETOKENIZERS)


def test_an_unknown_pre_tokenizer_is_refused_with_what_is_known() -> None:
    with pytest.raises(TokenizerError, match=r"'tekken'.*gpt-2, llama-bpe, llama3, llama-v3, qwen2, qwen35, smollm, deepseek-llm"):
        cases.ours(cases.byte_level("tekken"))


def test_text_that_is_not_unicode_is_refused_with_its_place() -> None:
    tokenizer = cases.ours(cases.byte_level("gpt-2"))
    with pytest.raises(TokenizerError, match=r"U\+D800 at character 2"):
        tokenizer.encode("ab\ud800")
    with pytest.raises(TokenizerError, match="bytes; a str is expected"):
        tokenizer.encode(b"ab")  # type: ignore[arg-type]


# --- oracles


_PAIRS: dict[str, tuple] = {}


def _pairs() -> dict[str, tuple]:
    if not _PAIRS:
        _PAIRS.update({pre: (cases.ours(cases.byte_level(pre)), cases.published(cases.byte_level(pre))) for pre in PUBLISHED})
    return _PAIRS


_SPM: list = []


def _sentencepiece():
    if not _SPM:
        _SPM.append(cases.ours(cases.sentencepiece()))
    return _SPM[0]


def _naive_byte_level(keys: dict, text: str) -> list[int]:
    """Every step of the table run by the `regex` module, then the lowest-ranked pair merged again and again."""
    row = find(keys["tokenizer.ggml.pre"])
    tokens, merges = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.merges"]
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    found = []
    for part in regex.split("(<tool>)", text):
        if part == "<tool>":
            found.append(ids[part])
            continue
        words = [unicodedata.normalize("NFC", part) if row.nfc else part]
        for step in row.steps:
            words = [piece for word in words for piece in _isolate(step, word)]
        for word in words:
            spelled = "".join(_CHARACTERS[byte] for byte in word.encode())
            if row.ignore_merges and spelled in ids:
                found.append(ids[spelled])
            else:
                merged = _merge(list(spelled), lambda a, b: ranks.get((a, b), math.inf))
                found += [ids[symbol] for symbol in merged]
    return found


def _isolate(step: str, word: str) -> list[str]:
    pieces, end = [], 0
    for match in regex.finditer(step, word):
        if match.end() > match.start():
            pieces += [word[end : match.start()], match[0]]
            end = match.end()
    return [piece for piece in [*pieces, word[end:]] if piece]


def _naive_sentencepiece(keys: dict, text: str, space: bool) -> list[int]:
    tokens, scores, types = (keys[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type"))
    score = {token: value for token, value, kind in zip(tokens, scores, types, strict=True) if kind == 1}
    ids = {token: i for i, token in enumerate(tokens) if types[i] in (1, 6)}
    found = []
    for part in regex.split("(<tool>)", text):
        if part == "<tool>":
            found.append(tokens.index(part))
        elif part:
            merged = _merge(list((("▁" if space else "") + part).replace(" ", "▁")), lambda a, b: -score.get(a + b, -math.inf))
            for symbol in merged:
                found += [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return found


def _merge(symbols: list[str], cost: Callable[[str, str], float]) -> list[str]:
    """The cheapest neighbours, the first of them where several cost the same, joined until none can be."""
    while len(symbols) > 1:
        best = min(range(len(symbols) - 1), key=lambda i: cost(symbols[i], symbols[i + 1]))
        if cost(symbols[best], symbols[best + 1]) == math.inf:
            break
        symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
    return symbols


def _characters() -> dict[int, str]:
    """GPT-2's character for every byte."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in shown else next(others)) for byte in range(256)}


_CHARACTERS = _characters()
