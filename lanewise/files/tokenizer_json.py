"""A Hugging Face directory's tokenizer: tokenizer.json, with what tokenizer_config.json and generation_config.json say about its ids.

The `tokenizers` library runs the file; what is not covered here (another model than BPE, a decoder that does not spell ids one by one)
is refused, since ids that decode to almost the right text are worse than none.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.errors import TokenizerError
from lanewise.files.json_file import read_object
from lanewise.files.metadata import Metadata
from lanewise.files.vocab import END_OF_TURN, SPACE, Alphabet, Encoder, Prefix, Role, Vocab, rust_errors

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

__all__ = ["read", "templates"]

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
# The largest published tokenizer.json (262k tokens with spelled-out merges) has 33 MB.
_MOST_BYTES = 256 << 20
# An id beyond this is a mistake: no vocabulary has a tenth of it, and every id below it costs memory.
_MOST_IDS = 1 << 22


def read(directory: Path, config: Metadata) -> tuple[Vocab, Encoder]:
    """The vocabulary and encoder of a directory. `config` is its config.json.

    Raises TokenizerError for a tokenizer that is missing, broken or of a kind that is not known, ModelFileError for broken configs beside it.
    """
    file = directory / "tokenizer.json"
    tokenizer = _load(file)
    words: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    if not words or max(words.values()) >= _MOST_IDS:
        raise TokenizerError(f"{file}: {len(words)} tokens with ids up to {max(words.values(), default=0)}; 1 to {_MOST_IDS} ids are expected")
    texts: list[str | None] = [None] * (max(words.values()) + 1)
    for text, i in words.items():
        texts[i] = text
    alphabet, strips, falls_back = _decoder(file, tokenizer)
    roles = _roles(texts, tokenizer.get_added_tokens_decoder(), falls_back)
    settings = _config(directory, "tokenizer_config.json")
    named = {name: _named(file, settings, name, words) for name in ("bos", "eos", "unk", "pad")}
    head, tail = _around(file, tokenizer)
    ends = _ends(directory, config, len(texts)) | {named["eos"]} - {None}
    ends |= {i for i, text in enumerate(texts) if roles[i] == Role.CONTROL and text in END_OF_TURN}
    vocab = Vocab(
        texts,
        roles,
        alphabet,
        _prefix(tokenizer) if strips else Prefix.NEVER,
        named["bos"] if named["bos"] is not None else _ids(config, "bos_token_id", len(texts))[0],
        named["eos"],
        named["unk"],
        named["pad"],
        frozenset(i for i in ends if i is not None),
        head,
        tail,
    )
    return vocab, Encoder(tokenizer, _plain(file, tokenizer))


def templates(directory: Path) -> dict[str, str]:
    """The chat templates by name; the main one is "default". chat_template.jinja goes before tokenizer_config.json, as in transformers."""
    found: dict[str, str] = {}
    settings = _config(directory, "tokenizer_config.json")
    given = settings.get("chat_template")
    if isinstance(given, list):
        for entry in given:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not isinstance(entry.get("template"), str):
                raise TokenizerError(f"{settings.file}: an entry of chat_template is not an object with a name and a template, both strings")
            found[entry["name"]] = entry["template"]
    elif given is not None:
        found["default"] = settings.string("chat_template")
    for path in (directory / "chat_template.jinja", *sorted(directory.glob("additional_chat_templates/*.jinja"))):
        if path.is_file():
            found["default" if path.parent == directory else path.stem] = _text(path)
    return found


def _load(file: Path) -> "RustTokenizer":
    from tokenizers import Tokenizer, models

    if not file.is_file():
        raise TokenizerError(f"{file.parent} has no tokenizer.json; one made of tokenizer.model or vocab.json can be saved again with transformers")
    text = _text(file)
    with rust_errors(f"{file} is not a tokenizer that the tokenizers library reads"):
        tokenizer = Tokenizer.from_str(text)
        # truncation and padding are for training batches; a prompt is never cut or filled up
        tokenizer.no_truncation()
        tokenizer.no_padding()
    if not isinstance(tokenizer.model, models.BPE):
        raise TokenizerError(f"{file}: its model is {type(tokenizer.model).__name__}; BPE (byte-level or SentencePiece's) is supported")
    _check_added(file, text, tokenizer)
    return tokenizer


def _check_added(file: Path, text: str, tokenizer: "RustTokenizer") -> None:
    """The library renumbers added tokens that do not follow the vocabulary and only logs it; the model would then see other ids than it learned."""
    start = text.find('"added_tokens"')
    array = text.find("[", start)
    if start < 0 or array < 0:
        return
    try:
        added = json.JSONDecoder().raw_decode(text, array)[0]
        wrong = [entry for entry in added if tokenizer.token_to_id(entry["content"]) != entry["id"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise TokenizerError(f"{file}: added_tokens is not a list of objects with an id and a content") from None
    if wrong:
        raise TokenizerError(f"{file}: added token {wrong[0]['content'][:80]!r} has id {wrong[0]['id']}, which is not the next free one")


def _plain(file: Path, tokenizer: "RustTokenizer") -> "RustTokenizer":
    """The same model and steps with special tokens taken for plain text."""
    from tokenizers import Tokenizer

    with rust_errors(str(file)):
        plain = Tokenizer(tokenizer.model)
        if tokenizer.normalizer is not None:
            plain.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            plain.pre_tokenizer = tokenizer.pre_tokenizer
        added = tokenizer.get_added_tokens_decoder()
        for i in sorted(added):
            (plain.add_special_tokens if added[i].special else plain.add_tokens)([added[i]])
        plain.encode_special_tokens = True
    return plain


def _decoder(file: Path, tokenizer: "RustTokenizer") -> tuple[Alphabet, bool, bool]:
    """How ids are spelled, whether a space at the very start is taken off, and whether <0xNN> tokens are bytes."""
    steps = _steps(tokenizer.decoder, "decoders")
    kinds = {step.get("type") for step in steps}
    if kinds == {"ByteLevel"}:
        return Alphabet.BYTES, False, False
    if kinds == {"Metaspace"} and steps[0].get("replacement") == SPACE:
        return Alphabet.SPACES, _scheme(steps[0]) is not Prefix.NEVER, False
    replaces = any(step.get("type") == "Replace" and step.get("pattern") == {"String": SPACE} and step.get("content") == " " for step in steps)
    strips = [step for step in steps if step.get("type") == "Strip"]
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip"} and replaces and all(s.get("content") == " " and s.get("stop") == 0 for s in strips):
        return Alphabet.SPACES, any(s.get("start") for s in strips), "ByteFallback" in kinds
    name = " + ".join(str(step.get("type")) for step in steps)[:120] or "missing"
    raise TokenizerError(f"{file}: its decoder is {name}; ByteLevel, Metaspace or Replace + ByteFallback + Fuse + Strip on {SPACE} are supported")


def _prefix(tokenizer: "RustTokenizer") -> Prefix:
    """Where the encoder adds the space that the decoder takes off."""
    if any(step.get("type") == "Prepend" for step in _steps(tokenizer.normalizer, "normalizers")):
        return Prefix.EVERY
    for step in _steps(tokenizer.pre_tokenizer, "pretokenizers"):
        if step.get("type") == "Metaspace":
            return _scheme(step)
    return Prefix.FIRST


def _scheme(metaspace: dict[str, Any]) -> Prefix:
    scheme = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space", True) else "never")
    return {"always": Prefix.EVERY, "first": Prefix.FIRST}.get(scheme, Prefix.NEVER)


def _steps(part: Any, members: str) -> list[dict[str, Any]]:
    """A part of the tokenizer as a flat list of what it is made of, in the file's own words."""
    if part is None:
        return []
    state = json.loads(part.__getstate__())
    return list(_flat(state, members))


def _flat(state: dict[str, Any], members: str) -> Iterable[dict[str, Any]]:
    if state.get("type") != "Sequence":
        yield state
    for member in state.get(members, ()):
        yield from _flat(member, members)


def _roles(texts: list[str | None], added: dict[int, Any], falls_back: bool) -> bytes:
    roles = bytearray([Role.NORMAL]) * len(texts)
    if falls_back:
        for i, text in enumerate(texts):
            if text is None:
                roles[i] = Role.UNUSED
            elif text.startswith("<0x") and _BYTE.fullmatch(text):
                roles[i] = Role.BYTE
    for i, token in added.items():
        roles[i] = Role.CONTROL if token.special else Role.USER
    return bytes(roles)


def _around(file: Path, tokenizer: "RustTokenizer") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the post_processor puts before and after a text. transformers too goes by it alone, and not by add_bos_token beside it."""
    with rust_errors(f"{file}: post_processor"):
        for probe in ("a", "e", "1", " ", "."):
            bare: list[int] = tokenizer.encode(probe, add_special_tokens=False).ids
            whole: list[int] = tokenizer.encode(probe).ids
            for start in range(len(whole) - len(bare) + 1):
                if bare and whole[start : start + len(bare)] == bare:
                    return tuple(whole[:start]), tuple(whole[start + len(bare) :])
            if bare:
                break
    if whole:
        raise TokenizerError(f"{file}: its post_processor changes the ids of a text; only ids before and after them are supported")
    return (), ()


def _named(file: Path, settings: Metadata, name: str, words: dict[str, int]) -> int | None:
    """The id of tokenizer_config.json's bos_token and so on: a string, or an object with a content."""
    key = f"{name}_token"
    given = settings.get(key)
    text = given.get("content") if isinstance(given, dict) else given
    if text is None:
        return None
    if not isinstance(text, str):
        raise TokenizerError(f"{settings.file}: {key} is a {type(text).__name__}; a string, or an object with a content, is expected")
    if text not in words:
        raise TokenizerError(f"{settings.file}: {key} is {text[:80]!r}, which {file.name} has no id for")
    return words[text]


def _ends(directory: Path, config: Metadata, size: int) -> set[int | None]:
    """eos_token_id of generation_config.json and config.json: an id or a list of ids."""
    return {i for source in (config, _config(directory, "generation_config.json")) for i in _ids(source, "eos_token_id", size)}


def _ids(source: Metadata, key: str, size: int) -> list[int | None]:
    if isinstance(source.get(key), list):
        return [*source.integers(key, most=size - 1)] or [None]
    return [source.integer(key, None, most=size - 1)]


def _config(directory: Path, name: str) -> Metadata:
    path = directory / name
    return Metadata(path, read_object(path, "JSON") if path.is_file() else {})


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise TokenizerError(f"{path} has {size} bytes; at most {_MOST_BYTES} are read")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TokenizerError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
