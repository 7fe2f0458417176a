"""GGUF's `tokenizer.ggml.*` keys to a Vocab and an Encoder: byte-level BPE (model gpt2) and SentencePiece BPE (model llama).

The model that merges run in holds no control and no user-defined token, so plain text can never become one.
Sources: the GGUF specification for the keys, llama.cpp's src/llama-vocab.cpp for defaults that files leave out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import TokenizerError
from lanewise.files import pretokenize
from lanewise.files.vocab import END_OF_TURN, SPACE, Alphabet, Encoder, Prefix, Role, Vocab, rust_errors

if TYPE_CHECKING:
    from lanewise.files.metadata import Metadata

__all__ = ["KINDS", "read"]

# What `tokenizer.ggml.model` may be, and what to call it.
KINDS = {"gpt2": "byte-level BPE", "llama": "SentencePiece BPE"}
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
# The splits of all pieces together, in characters copied: the largest real vocabulary (262k pieces) needs 1.1e7.
_MOST_SPLITTING = 2**28
_MATCHED_WHOLE = (Role.UNKNOWN, Role.CONTROL, Role.USER)


def read(metadata: "Metadata") -> tuple[Vocab, Encoder]:
    """The vocabulary and encoder of a GGUF file's metadata.

    Raises ModelFileError for a key that is missing, of the wrong type or out of range, TokenizerError for keys that contradict each other
    and for a kind or pre-tokenizer that is not known.
    """
    kind = metadata.string("tokenizer.ggml.model")
    if kind not in KINDS:
        known = ", ".join(f"{name} ({what})" for name, what in KINDS.items())
        raise TokenizerError(f"{metadata.file}: tokenizer kind {kind[:80]!r} is not supported; known kinds: {known}")
    build = _byte_level if kind == "gpt2" else _sentencepiece
    return build(metadata, _tokens(metadata, kind))


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The checked columns of the vocabulary, and the ids that have a purpose."""

    texts: list[str]
    roles: bytes
    ids: dict[str, int | None]


def _tokens(metadata: "Metadata", kind: str) -> _Tokens:
    file, texts = metadata.file, metadata.strings("tokenizer.ggml.tokens")
    if not texts:
        raise TokenizerError(f"{file}: tokenizer.ggml.tokens is empty; a vocabulary is expected")
    # llama.cpp takes empty tokens, as padding that no text can reach
    if len(set(texts)) != len(texts) - max(texts.count("") - 1, 0):
        seen: dict[str, int] = {}
        for i, text in enumerate(texts):
            if text and seen.setdefault(text, i) != i:
                raise TokenizerError(f"{file}: token {text[:80]!r} stands twice in tokenizer.ggml.tokens, as {seen[text]} and {i}; each may once")
    ids = {name: _id(metadata, key, len(texts)) for name, key in _IDS.items()}
    if kind == "llama":
        # SentencePiece's own numbering, for files that leave it out
        for i, (name, text) in enumerate((("unk", "<unk>"), ("bos", "<s>"), ("eos", "</s>"))):
            ids[name] = i if ids[name] is None and texts[i : i + 1] == [text] else ids[name]
    return _Tokens(texts, _roles(metadata, texts, ids, kind), ids)


_IDS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "eot": "tokenizer.ggml.eot_token_id",
    "eom": "tokenizer.ggml.eom_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
}


def _id(metadata: "Metadata", key: str, size: int) -> int | None:
    return metadata.integer(key, None, most=size - 1)


def _roles(metadata: "Metadata", texts: list[str], ids: dict[str, int | None], kind: str) -> bytes:
    given = metadata.integers("tokenizer.ggml.token_type", None, most=max(Role))
    if given is None:
        roles = bytearray([Role.NORMAL]) * len(texts)
        if kind == "llama":
            for i, text in enumerate(texts):
                if _BYTE.fullmatch(text):
                    roles[i] = Role.BYTE
        for name in ("bos", "eos", "eot", "eom"):
            token = ids[name]
            if token is not None:
                roles[token] = Role.CONTROL
        return bytes(roles)
    _same_length(metadata, "tokenizer.ggml.token_type", len(given), len(texts))
    # 0 is "undefined": nothing special is known of the token
    roles = bytearray(given).replace(b"\0", bytes([Role.NORMAL]))
    for i in np.flatnonzero(np.frombuffer(roles, np.uint8) == Role.BYTE).tolist():
        if not _BYTE.fullmatch(texts[i]):
            raise TokenizerError(f"{metadata.file}: token {i} is marked as a byte but reads {texts[i][:80]!r}; <0x00> to <0xFF> are expected")
    for i in _matched(roles):
        # some converters mark them user-defined (Phi-3's </s>), and then plain text could end a turn
        roles[i] = Role.CONTROL if texts[i] in END_OF_TURN else roles[i]
    return bytes(roles)


def _byte_level(metadata: "Metadata", tokens: _Tokens) -> tuple[Vocab, Encoder]:
    from tokenizers import Tokenizer, models, normalizers

    name = metadata.string("tokenizer.ggml.pre", None)
    if name is None:
        known = ", ".join(pretokenize.PRETOKENIZERS)
        raise TokenizerError(
            f"{metadata.file}: tokenizer.ggml.pre is missing, so how text is cut into words is unknown; known pre-tokenizers: {known}"
        )
    row = pretokenize.find(name)
    vocab, ids = _mergeable(tokens, ())
    merges = _merges(metadata, tokens, vocab)
    with rust_errors(f"{metadata.file}: tokenizer.ggml.merges"):
        model = models.BPE(vocab, merges, ignore_merges=row.ignore_merges)

    def make() -> Any:
        made = Tokenizer(model)
        made.pre_tokenizer = row.build()
        if row.nfc:
            made.normalizer = normalizers.NFC()
        return made

    return _vocab(metadata, tokens, Alphabet.BYTES, Prefix.NEVER, row.add_bos), _encoder(make, tokens, vocab, ids, Alphabet.BYTES)


def _merges(metadata: "Metadata", tokens: _Tokens, vocab: dict[str, int]) -> Any:
    """The pairs of tokenizer.ggml.merges, each of which makes a token."""
    key = "tokenizer.ggml.merges"
    merges = [tuple(merge.split(" ")) for merge in metadata.strings(key)]
    if set(map(len, merges)) - {2}:
        i = next(i for i, merge in enumerate(merges) if len(merge) != 2)
        raise TokenizerError(f"{metadata.file}: {key}[{i}] is {' '.join(merges[i])[:80]!r}; two tokens and one space are expected")
    if not all(left + right in vocab for left, right in merges):
        # a token that is only ever matched whole is not reached, or passed, by merging
        whole = {tokens.texts[i] for i in _matched(tokens.roles)}
        merges = [(left, right) for left, right in merges if not whole & {left, right, left + right}]
        # the library ends in a panic, with words on stderr, for some of these
        for left, right in merges:
            if left + right not in vocab:
                raise TokenizerError(f"{metadata.file}: {key} has {left[:80]!r} with {right[:80]!r}, which together are no token of the vocabulary")
    return merges


def _sentencepiece(metadata: "Metadata", tokens: _Tokens) -> tuple[Vocab, Encoder]:
    from tokenizers import Tokenizer, models, normalizers

    unk = tokens.ids["unk"]
    vocab, ids = _mergeable(tokens, () if unk is None else (unk,))
    if unk is None and not all(f"<0x{byte:02X}>" in vocab for byte in range(256)):
        raise TokenizerError(f"{metadata.file}: the vocabulary has neither a token for every byte nor an unknown token; one of them is expected")
    scores = metadata.numbers("tokenizer.ggml.scores")
    _same_length(metadata, "tokenizer.ggml.scores", len(scores), len(tokens.texts))
    space = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    merges = _merges_by_score(metadata, tokens, scores, vocab)
    with rust_errors(f"{metadata.file}: the vocabulary"):
        model = models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token=None if unk is None else tokens.texts[unk])

    def make() -> Any:
        made = Tokenizer(model)
        steps: list[Any] = [normalizers.Prepend(SPACE)] if space else []
        made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
        return made

    prefix = Prefix.EVERY if space else Prefix.NEVER
    return _vocab(metadata, tokens, Alphabet.SPACES, prefix, True), _encoder(make, tokens, vocab, ids, Alphabet.SPACES)


def _merges_by_score(metadata: "Metadata", tokens: _Tokens, scores: "np.ndarray[Any, Any]", vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, best piece first: SentencePiece always merges the pair whose result scores highest.

    Among equal scores the earlier id goes first, and for one piece the longer left half: SentencePiece goes by position in the text, and
    these agree wherever real vocabularies, which score by rank, can tell.
    """
    pieces = [tokens.texts[i] for i in np.argsort(-scores, kind="stable").tolist() if tokens.roles[i] in (Role.NORMAL, Role.UNUSED)]
    if sum(len(piece) ** 2 for piece in pieces) > _MOST_SPLITTING:
        longest = max(map(len, pieces))
        raise TokenizerError(f"{metadata.file}: tokens of up to {longest} characters are too long to split; SentencePiece's have tens at most")
    merges = []
    for piece in pieces:
        for cut in range(len(piece) - 1, 0, -1):
            left = piece[:cut]
            if left in vocab and (right := piece[cut:]) in vocab:
                merges.append((left, right))
    return merges


def _mergeable(tokens: _Tokens, extra: Iterable[int]) -> tuple[dict[str, int], list[int]]:
    """The vocabulary that merges see, numbered from 0 without gaps, and the file's id for each of its numbers."""
    skip = set(_matched(tokens.roles)).difference(extra)
    ids = [i for i, text in enumerate(tokens.texts) if text and i not in skip]
    return {tokens.texts[i]: number for number, i in enumerate(ids)}, ids


def _matched(roles: bytes | bytearray) -> list[int]:
    """Ids of tokens that are found in the text as they stand, before anything else happens to it."""
    found: list[int] = np.flatnonzero(np.isin(np.frombuffer(roles, np.uint8), _MATCHED_WHOLE)).tolist()
    return found


def _encoder(make: Any, tokens: _Tokens, vocab: dict[str, int], ids: list[int], alphabet: Alphabet) -> Encoder:
    """Two tokenizers over one model: user-defined tokens are known to both, control and unknown ones to the first only."""
    from tokenizers import AddedToken

    parsing, plain, numbers = make(), make(), list(ids)
    known: set[str] = set()
    for targets, roles in (((parsing, plain), (Role.USER,)), ((parsing,), (Role.CONTROL, Role.UNKNOWN))):
        contents: dict[str, int] = {}
        for i in _matched(tokens.roles):
            # a user-defined token of spaces is written with ▁ by some converters and with spaces by others
            text = tokens.texts[i].replace(SPACE, " ") if alphabet is Alphabet.SPACES and tokens.roles[i] == Role.USER else tokens.texts[i]
            if tokens.roles[i] in roles and text and text not in known:
                contents.setdefault(text, i)
        with rust_errors("special tokens"):
            for target in targets:
                target.add_tokens([AddedToken(text, normalized=False) for text in contents])
        # the unknown token is in the model too, which numbered it already
        numbers.extend(i for text, i in contents.items() if text not in vocab)
        known.update(contents)
    return Encoder(parsing, plain, None if numbers == list(range(len(numbers))) else numbers)


def _vocab(metadata: "Metadata", tokens: _Tokens, alphabet: Alphabet, prefix: Prefix, add_bos: bool) -> Vocab:
    ids = tokens.ids
    ends = {ids[name] for name in ("eos", "eot", "eom")} - {None}
    controls = [i for i in _matched(tokens.roles) if tokens.roles[i] == Role.CONTROL]
    ends.update(i for i in controls if tokens.texts[i] in END_OF_TURN)
    return Vocab(
        tokens.texts,
        tokens.roles,
        alphabet,
        prefix,
        ids["bos"],
        ids["eos"],
        ids["unk"],
        ids["pad"],
        frozenset(i for i in ends if i is not None),
        head=_added(metadata, "bos", ids["bos"], add_bos),
        tail=_added(metadata, "eos", ids["eos"], False),
    )


def _added(metadata: "Metadata", name: str, token: int | None, default: bool) -> tuple[int, ...]:
    key = f"tokenizer.ggml.add_{name}_token"
    if not metadata.flag(key, default):
        return ()
    if token is None:
        if key in metadata:
            raise TokenizerError(f"{metadata.file}: {key} is true, but tokenizer.ggml.{name}_token_id is missing; it is expected then")
        return ()
    return (token,)


def _same_length(metadata: "Metadata", key: str, length: int, tokens: int) -> None:
    if length != tokens:
        raise TokenizerError(f"{metadata.file}: {key} has {length} entries for {tokens} tokens; one a token is expected")
