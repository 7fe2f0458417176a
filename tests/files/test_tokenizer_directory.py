"""tokenizer.json and its neighbours: the same ids and text as transformers has from the same directory."""

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizer_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Rust

from lanewise.errors import LanewiseError, ModelFileError, TokenizerError
from lanewise.files import Metadata
from lanewise.files.tokenizer import Tokenizer, from_directory, from_gguf, load_tokenizer

KINDS = ("byte-level", "llama", "metaspace", "gemma")


def _build(kind: str) -> Rust:
    if kind == "byte-level":
        made = cases.published(cases.byte_level("qwen2"))
        made.decoder = decoders.ByteLevel()
        return made
    tokens, _ = cases.pieces()
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [(piece[:cut], piece[cut:]) for piece in tokens[259:] for cut in range(1, len(piece)) if piece[:cut] in vocab and piece[cut:] in vocab]
    made = Rust(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "llama":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps.append(decoders.Strip(" ", 1, 0))
    elif kind == "metaspace":
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence(steps)
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>", "<|im_end|>")])
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return made


def _save(folder: Path, made: Rust, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def _load(folder: Path, **config: Any) -> Tokenizer:
    return from_directory(folder, Metadata(folder / "config.json", config))


_LOADED: dict[str, tuple[Tokenizer, Rust]] = {}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Rust]]:
    for kind in KINDS:
        folder = _save(tmp_path_factory.mktemp("directory") / kind, _build(kind))
        _LOADED[kind] = (_load(folder), _build(kind))
    return _LOADED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*cases.TORTURE, cases.LONG], ids=cases.label)
def test_ids_and_text_are_those_of_the_library(loaded: dict[str, tuple[Tokenizer, Rust]], kind: str, text: str) -> None:
    tokenizer, theirs = loaded[kind]
    ids = tokenizer.encode(text)
    # a beginning token that the text has is not doubled
    assert ids == theirs.encode(text, add_special_tokens=kind == "byte-level" or not text.startswith("<s>")).ids
    assert tokenizer.encode(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids
    if not any(special in text for special in ("<|im_end|>", "<tool>", "<s>", "</s>")):
        # where special tokens stand inside a text, the library keeps the spaces that it added after them
        assert tokenizer.decode(ids) == theirs.decode(ids)
    theirs.encode_special_tokens = True
    assert tokenizer.encode(text, add_special=False, parse_special=False) == theirs.encode(text, add_special_tokens=False).ids
    theirs.encode_special_tokens = False


@given(text=cases.TEXTS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_ids_and_text_are_those_of_the_library_for_any_text(loaded: dict[str, tuple[Tokenizer, Rust]], text: str, data: st.DataObject) -> None:
    for kind, (tokenizer, theirs) in loaded.items():
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text).ids, kind
        plain = [
            i for i in data.draw(st.lists(st.integers(259 if kind != "byte-level" else 1, 600), max_size=12)) if tokenizer.token_text(i)[:1] != "<"
        ]
        assert tokenizer.decode(plain) == theirs.decode(plain), kind


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "qwen35", "smollm"])
def test_a_gguf_file_and_a_directory_of_one_model_give_the_same_ids_and_text(pre: str, tmp_path: Path) -> None:
    keys = cases.byte_level(pre)
    made = cases.published(keys)
    made.decoder = decoders.ByteLevel()
    settings_ = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "add_bos_token": False}
    directory, gguf = _load(_save(tmp_path, made, tokenizer_config=settings_)), cases.ours(keys)
    assert (directory.vocab_size, directory.bos_id, directory.eos_ids, directory.add_bos) == (
        gguf.vocab_size,
        gguf.bos_id,
        gguf.eos_ids,
        gguf.add_bos,
    )
    for text in cases.TORTURE:
        for parse in (True, False):
            ids = gguf.encode(text, parse_special=parse)
            assert directory.encode(text, parse_special=parse) == ids
            assert directory.decode(ids, skip_special=False) == gguf.decode(ids, skip_special=False)


@pytest.mark.parametrize(
    "flags", [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True}, {"add_bos_token": True, "add_eos_token": True}]
)
@pytest.mark.parametrize("kind", ["llama", "byte-level"])
def test_what_is_put_round_a_text_is_what_transformers_puts(kind: str, flags: dict[str, bool], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    words = ("<s>", "</s>") if kind == "llama" else ("<|im_start|>", "<|im_end|>")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": words[0], "eos_token": words[1], **flags}
    folder = _save(tmp_path, _build(kind), tokenizer_config=config)
    theirs = AutoTokenizer.from_pretrained(folder)
    tokenizer = _load(folder)
    assert tokenizer.encode("the fox") == theirs("the fox")["input_ids"]
    assert tokenizer.bos_id == theirs.bos_token_id
    assert theirs.eos_token_id in tokenizer.eos_ids
    assert tokenizer.add_bos is (tokenizer.encode("a")[0] == tokenizer.bos_id)


def test_truncation_and_padding_are_not_applied(tmp_path: Path) -> None:
    made = _build("byte-level")
    want = made.encode(cases.LONG).ids
    made.enable_truncation(5)
    made.enable_padding(length=7)
    tokenizer = _load(_save(tmp_path, made))
    assert tokenizer.encode(cases.LONG) == want
    assert tokenizer.encode("") == []


def test_generation_ends_at_the_ids_of_all_three_files(tmp_path: Path) -> None:
    folder = _save(
        tmp_path, _build("llama"), tokenizer_config={"eos_token": {"content": "</s>", "lstrip": False}}, generation_config={"eos_token_id": [5, 6]}
    )
    im_end = _build("llama").token_to_id("<|im_end|>")
    assert _load(folder, eos_token_id=7).eos_ids == {2, 5, 6, 7, im_end}
    assert _load(folder, eos_token_id=[8, 9]).eos_ids == {2, 5, 6, 8, 9, im_end}
    assert _load(folder, eos_token_id=None, bos_token_id=1).bos_id == 1


def test_templates_come_from_their_file_first(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    folder = _save(tmp_path, _build("llama"), tokenizer_config={"chat_template": named, "bos_token": "<s>"})
    message = [{"role": "user", "content": "x"}]
    assert {name: t.source for name, t in _load(folder).templates.items()} == {"default": "one", "tool_use": "two"}
    (folder / "chat_template.jinja").write_text("{{ bos_token }}three ü", encoding="utf-8")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("four")
    assert set(_load(folder).templates) == {"default", "tool_use", "rag"}
    assert _load(folder).render(message) == "<s>three ü"
    _save(folder, _build("llama"), tokenizer_config={"chat_template": "five"})
    (folder / "chat_template.jinja").unlink()
    assert _load(folder).render(message) == "five"
    assert _load(_save(tmp_path / "none", _build("llama"))).template is None


def test_either_kind_of_model_is_loaded_through_one_door(tmp_path: Path) -> None:
    folder = _save(tmp_path, _build("llama"))
    config, keys = Metadata(folder / "config.json", {"eos_token_id": 2}), Metadata("m.gguf", cases.sentencepiece())
    for model in (
        SimpleNamespace(kind="safetensors", path=folder, metadata=config),
        SimpleNamespace(kind="gguf", path=Path("m.gguf"), metadata=keys),
    ):
        assert load_tokenizer(model).encode("the fox") == from_gguf(keys).encode("the fox")  # type: ignore[arg-type]


def test_a_metaspace_decoder_takes_its_space_off(tmp_path: Path) -> None:
    made = Rust(models.BPE({"▁": 0, "a": 1, "▁a": 2}, [("▁", "a")]))
    for scheme, want in (("always", "a a"), ("first", "a a"), ("never", " a a")):
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        made.decoder = decoders.Metaspace(prepend_scheme=scheme)
        tokenizer = _load(_save(tmp_path, made))
        assert tokenizer.decode([2, 2]) == made.decode([2, 2]) == want


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.files.tokenizer_json._MOST_BYTES", 100)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json has \d+ bytes; at most 100 are read"):
        _load(_save(tmp_path, _build("llama")))


def test_ids_without_a_token_spell_nothing(tmp_path: Path) -> None:
    made = Rust(models.BPE({"a": 0, "b": 5}, []))
    made.decoder = decoders.ByteLevel()
    tokenizer = _load(_save(tmp_path, made))
    assert (tokenizer.vocab_size, tokenizer.decode([0, 3, 5]), tokenizer.token_text(3)) == (6, "ab", "")


# --- refusals


NEW = {"id": 9999, "content": "<new>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def _edit(folder: Path, **changes: Any) -> Path:
    state = json.loads((folder / "tokenizer.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = state
        for name in parents:
            part = part[name]
        part[last] = value
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__type": "Nope"}, "not a tokenizer that the tokenizers library reads"),
        ({"model__vocab": {}}, "not a tokenizer|0 tokens"),
        ({"model__vocab": [1, 2]}, "not a tokenizer"),
        ({"model__vocab": {"<unk>": 0, "a": 2**23}, "model__merges": [], "added_tokens": []}, "ids up to 8388608; 1 to 4194304 ids are expected"),
        ({"model__merges": [["zz", "qq"]]}, "not a tokenizer.*out of vocabulary"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "its model is WordLevel; BPE"),
        ({"model": None}, "not a tokenizer"),
        ({"decoder": None}, "its decoder is missing; ByteLevel, Metaspace or Replace"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "its decoder is WordPiece"),
        ({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]}}, "its decoder is Fuse"),
        ({"added_tokens": [NEW]}, "added token '<new>' has id 9999"),
        ({"added_tokens": 3}, "not a tokenizer"),
        ({"post_processor": {"type": "Sequence", "processors": []}}, None),
    ],
)  # fmt: skip
def test_a_tokenizer_json_that_cannot_be_used_is_refused_in_one_line(changes: dict[str, Any], words: str | None, tmp_path: Path) -> None:
    folder = _edit(_save(tmp_path, _build("llama")), **changes)
    if words is None:
        assert _load(folder).encode("a")[:1] != [1]
        return
    with pytest.raises(TokenizerError, match=words) as caught:
        _load(folder)
    assert "\n" not in str(caught.value)
    assert "tokenizer.json" in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b'{"version":"1.0"}', b"x" * 1000]
)
def test_bytes_that_are_no_tokenizer_are_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError) as caught:
        _load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_directory_without_tokenizer_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json; one made of tokenizer\.model or vocab\.json can be saved again"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"tokenizer_config": {"bos_token": 3}}, "bos_token is a int; a string"),
        ({"tokenizer_config": {"eos_token": "<nope>"}}, r"eos_token is '<nope>', which tokenizer\.json has no id for"),
        ({"tokenizer_config": {"chat_template": 3}}, "a string is expected"),
        ({"tokenizer_config": {"chat_template": [{"name": "default"}]}}, "not an object with a name and a template"),
        ({"tokenizer_config": []}, "object"),
        ({"generation_config": {"eos_token_id": "2"}}, "an integer from 0"),
        ({"generation_config": {"eos_token_id": [2, 10**6]}}, "a list of integers from 0"),
    ],
)
def test_broken_neighbours_are_refused_in_one_line(files: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = _save(tmp_path, _build("llama"), **files)
    with pytest.raises((TokenizerError, ModelFileError), match=words) as caught:
        _load(folder)
    assert "\n" not in str(caught.value)


def test_a_post_processor_that_drops_the_text_is_refused(tmp_path: Path) -> None:
    only_bos = {
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    folder = _edit(_save(tmp_path, _build("llama")), post_processor={"type": "TemplateProcessing", **only_bos})
    with pytest.raises(TokenizerError, match="its post_processor changes the ids of a text"):
        _load(folder)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_mutated_files_give_only_lanewise_errors(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutated"
    folder.mkdir(exist_ok=True)
    text = _small()
    start = data.draw(st.integers(0, len(text) - 1))
    end = start + data.draw(st.integers(0, 8))
    text = text[:start] + data.draw(st.sampled_from(["", "0", "-1", "null", '"', "}", "]", "[", "{}", "true", "1e999", '"a"', ","])) + text[end:]
    (folder / "tokenizer.json").write_text(text)
    with suppress(LanewiseError):
        tokenizer = _load(folder)
        tokenizer.decode(tokenizer.encode("ab <x>"))


def _small() -> str:
    made = Rust(models.BPE({"a": 0, "b": 1, "ab": 2, "▁": 3}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["<x>"])
    made.post_processor = processors.TemplateProcessing(single="<x> $A", special_tokens=[("<x>", 4)])
    return made.to_str()
