"""Ids to text: decode undoes encode, and a stream gives out decode's text in whole characters."""

import time

import pytest
import tokenizer_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.files.tokenizer import Tokenizer
from lanewise.files.vocab import Alphabet, Encoder, Prefix, Role, Vocab

KINDS = ("bytes", "spaces", "spaces without prefix")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*cases.TORTURE, cases.LONG], ids=cases.label)
def test_decode_undoes_encode(kind: str, text: str) -> None:
    tokenizer = _tokenizer(kind)
    # sentencepiece cannot tell ▁ from a space, and takes <unk> for a character that it does not know
    text = text if kind == "bytes" else text.replace("▁", " ").replace("<unk>", "")
    for parse in (True, False):
        ids = tokenizer.encode(text, add_special=False, parse_special=parse)
        assert tokenizer.decode(ids, skip_special=False) == text


@given(text=cases.TEXTS)
@settings(max_examples=100, deadline=None)
def test_decode_undoes_encode_for_any_text(text: str) -> None:
    for kind in KINDS:
        tokenizer = _tokenizer(kind)
        assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == (text if kind == "bytes" else text.replace("▁", " "))


def _ids(kind: str) -> st.SearchStrategy[list[int]]:
    """Ids at random, many of them pieces of characters."""
    size = _tokenizer(kind).vocab_size
    partial = [i for i in range(size) if "�" in _tokenizer(kind).token_text(i)]
    split = _tokenizer(kind).encode("日本👍🏽é한" if kind == "bytes" else "日本👍🏽語☃", add_special=False)
    return st.lists(st.one_of(st.integers(0, size - 1), st.sampled_from(partial), st.sampled_from(split)), max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), skip=st.booleans(), continues=st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_stream_gives_out_the_text_of_decode_in_whole_characters(kind: str, data: st.DataObject, skip: bool, continues: bool) -> None:
    tokenizer, ids = _tokenizer(kind), data.draw(_ids(kind))
    after = data.draw(st.integers(0, tokenizer.vocab_size - 1)) if continues else None
    stream = tokenizer.stream(skip_special=skip, after=after)
    pushed = [stream.push(i) for i in ids]
    rest = stream.finish()
    assert "".join(pushed) + rest == tokenizer.decode(ids, skip_special=skip, after=after)
    # nothing that was given out would have read differently with what came later: each prefix is one of the text of all ids
    assert rest in ("", "�")


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_decoded_text_is_the_bytes_of_the_pieces(data: st.DataObject) -> None:
    ids = data.draw(_ids("bytes"))
    keys = cases.byte_level("smollm")
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    back = {character: byte for byte, character in _characters().items()}
    raw = b"".join(bytes(back[c] for c in tokens[i]) if types[i] == 1 else tokens[i].encode() for i in ids)
    assert _tokenizer("bytes").decode(ids, skip_special=False) == raw.decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["👍🏽", "日本語", "👨‍👩‍👧‍👦", "é", "𝐀"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_never_given_out(kind: str, text: str) -> None:
    tokenizer = _tokenizer(kind)
    ids = _spelled(tokenizer, text)
    stream, given_out = tokenizer.stream(after=tokenizer.encode("a", add_special=False)[-1]), ""
    for i in ids:
        given_out += stream.push(i)
        assert text.startswith(given_out)
    assert (given_out, stream.finish()) == (text, "")


def test_bytes_become_a_replacement_character_as_soon_as_they_cannot_be_completed() -> None:
    tokenizer = _tokenizer("spaces")
    byte = {value: 3 + value for value in range(256)}
    stream = tokenizer.stream()
    assert stream.push(byte[0xF0]) == ""
    assert stream.push(byte[0x9F]) == ""
    assert stream.push(byte[0x41]) == "�A"
    assert stream.push(byte[0xFF]) == "�"
    assert stream.push(byte[0xE2]) == ""
    assert stream.finish() == "�"
    assert stream.finish() == ""


def test_a_stream_starts_anew_after_it_finished() -> None:
    tokenizer = _tokenizer("spaces")
    ids = tokenizer.encode("the fox", add_special=False)
    stream = tokenizer.stream()
    for _ in range(2):
        assert "".join(map(stream.push, ids)) + stream.finish() == "the fox"


def test_the_space_that_the_encoder_added_is_taken_off_and_no_other() -> None:
    tokenizer = _tokenizer("spaces")
    one, two = tokenizer.encode("the", add_special=False), tokenizer.encode(" the", add_special=False)
    assert tokenizer.decode(one) == "the"
    assert tokenizer.decode(two) == " the"
    assert tokenizer.decode(one + one) == "the the"
    assert tokenizer.decode(one, after=one[-1]) == " the"
    assert tokenizer.decode(one, after=1) == "the"
    assert tokenizer.decode([1, *one, 2, *one], skip_special=False) == "<s>the</s>the"
    assert _tokenizer("spaces without prefix").decode(one) == " the"


def test_a_prefix_only_at_the_start_is_taken_off_only_there() -> None:
    vocab = Vocab(["<s>", "▁a", ""], bytes([Role.CONTROL, Role.NORMAL, Role.NORMAL]), Alphabet.SPACES, prefix=Prefix.FIRST)
    tokenizer = Tokenizer(vocab, Encoder(None, None), {})  # type: ignore[arg-type]
    assert tokenizer.decode([0, 2, 1, 0, 1]) == "a a"


def test_special_tokens_are_left_out_unless_asked_for() -> None:
    tokenizer = _tokenizer("bytes")
    ids = tokenizer.encode("a<|im_end|>b<tool>")
    assert tokenizer.decode(ids) == "ab<tool>"
    assert tokenizer.decode(ids, skip_special=False) == "a<|im_end|>b<tool>"


def test_token_text_shows_one_token() -> None:
    tokenizer = _tokenizer("spaces")
    assert [tokenizer.token_text(i) for i in (2, 3 + 0x41, 3 + 0xE2)] == ["</s>", "A", "�"]
    assert tokenizer.token_text(tokenizer.encode("the", add_special=False)[0]).startswith(" ")


def test_a_token_in_letters_outside_the_byte_alphabet_is_its_own_text() -> None:
    shape = {"tokens": ["a", "中 x"], "merges": [], "token_type": None, "bos_token_id": None, "eos_token_id": None}
    assert cases.ours(cases.byte_level("gpt-2", **shape)).decode([0, 1]) == "a中 x"


def test_a_token_costs_a_stream_no_more_after_many_others() -> None:
    tokenizer = _tokenizer("bytes")
    ids = tokenizer.encode("the quick 👍 fox ") * 400
    stream = tokenizer.stream()

    def half(part: list[int]) -> float:
        start = time.process_time()
        for i in part:
            stream.push(i)
        return time.process_time() - start

    half(ids[:200])
    first, last = half(ids), min(half(ids) for _ in range(6))
    # re-decoding everything would make the last pass at least twelve times the first
    assert last < 4 * first


_TOKENIZERS: dict[str, Tokenizer] = {}


def _tokenizer(kind: str) -> Tokenizer:
    if kind not in _TOKENIZERS:
        keys = cases.byte_level("smollm") if kind == "bytes" else cases.sentencepiece(add_space_prefix=kind == "spaces")
        _TOKENIZERS[kind] = cases.ours(keys)
    return _TOKENIZERS[kind]


def _spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text as one token a byte."""
    characters = _characters()
    ids = {tokenizer._vocab.texts[i]: i for i in range(tokenizer.vocab_size)}
    return [ids.get(f"<0x{byte:02X}>", ids.get(characters[byte])) for byte in text.encode()]


def _characters() -> dict[int, str]:
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in shown else next(others)) for byte in range(256)}
