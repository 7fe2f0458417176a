"""What a tokenizer's ids mean, wherever it was read from: the text of each id, its role, and the ids with a purpose of their own.

>>> v = Vocab(["<s>", "▁a", "<0x0A>"], bytes([Role.CONTROL, Role.NORMAL, Role.BYTE]), Alphabet.SPACES, prefix=Prefix.EVERY)
>>> [v.piece(i) for i in range(3)]
[b'<s>', b' a', b'\\n']
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from lanewise.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

__all__ = ["END_OF_TURN", "SPACE", "Alphabet", "Encoder", "Prefix", "Role", "Vocab", "rust_errors"]

# SentencePiece writes a space as this character (U+2581).
SPACE = "▁"
# Tokens that end a turn or a text when a vocabulary has them as control tokens; files often name only one of theirs.
# Source: the end-of-generation list in llama.cpp's src/llama-vocab.cpp.
END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)


class Role(IntEnum):
    """What a token is for, numbered as GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER = 4
    UNUSED = 5
    BYTE = 6


class Alphabet(Enum):
    """How a normal token's text spells bytes: GPT-2's one printable character a byte, or plain text with ▁ for a space."""

    BYTES = "byte-level"
    SPACES = "SentencePiece"


class Prefix(Enum):
    """Where the encoder puts a space that is not in the text: nowhere, at the start, or at the start and after every special token."""

    NEVER = "never"
    FIRST = "first"
    EVERY = "every"


def _byte_alphabet() -> dict[int, int]:
    """Code point to byte. GPT-2's encoder.py: printable Latin-1 stands for itself, the other bytes follow from U+0100 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: byte for byte in printable} | {0x100 + i: byte for i, byte in enumerate(rest)}


_BYTES = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class Vocab:
    """The meaning of ids 0..n-1.

    texts:   as the file writes them; None where no token has that id
    roles:   one Role an id
    bos, eos, unk, pad: ids, or None
    eos_ids: every id that ends a generation
    head, tail: what encoding with `add_special` puts before and after the text's own ids
    """

    texts: Sequence[str | None]
    roles: bytes
    alphabet: Alphabet
    prefix: Prefix = Prefix.NEVER
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    pad: int | None = None
    eos_ids: frozenset[int] = frozenset()
    head: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    _pieces: dict[int, bytes] = field(default_factory=dict, repr=False, compare=False)

    def check(self, token: int) -> int:
        """The id itself. Raises TokenizerError when the vocabulary does not have it."""
        if not 0 <= token < len(self.texts):
            raise TokenizerError(f"token id {token} is outside the vocabulary; ids go from 0 to {len(self.texts) - 1}")
        return token

    def special(self, token: int) -> bool:
        """Whether the token steers the model (control, unknown) and is left out of text that people read."""
        return self.roles[self.check(token)] in (Role.CONTROL, Role.UNKNOWN)

    def piece(self, token: int) -> bytes:
        """The UTF-8 bytes that a token stands for; they need not end on a character's edge. Raises TokenizerError."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._spell(self.check(token))
        return known

    def names(self) -> dict[str, str]:
        """The texts that chat templates know by name: bos_token, eos_token, unk_token, pad_token."""
        ids = {"bos_token": self.bos, "eos_token": self.eos, "unk_token": self.unk, "pad_token": self.pad}
        return {name: self.texts[i] or "" for name, i in ids.items() if i is not None}

    def _spell(self, token: int) -> bytes:
        text, role = self.texts[token] or "", self.roles[token]
        if role == Role.BYTE:
            return bytes([int(text[3:5], 16)])
        if self.alphabet is Alphabet.SPACES:
            return (text if role in (Role.CONTROL, Role.UNKNOWN) else text.replace(SPACE, " ")).encode()
        if role in (Role.NORMAL, Role.UNUSED) and all(ord(c) in _BYTES for c in text):
            return bytes(_BYTES[ord(c)] for c in text)
        return text.encode()


@dataclass(frozen=True, slots=True)
class Encoder:
    """Text to ids: one tokenizer that finds special tokens in the text and one that takes them for plain text, over one model.

    ids: the file's id for each of theirs; None where they are the same
    """

    parsing: "RustTokenizer"
    plain: "RustTokenizer"
    ids: list[int] | None = None

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """The text's own ids. Raises TokenizerError for what is not text."""
        if not isinstance(text, str):
            raise TokenizerError(f"text is a {type(text).__name__}; a str is expected")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = error.start
            raise TokenizerError(f"text has a lone surrogate U+{ord(text[at]):04X} at character {at}; that is not Unicode text") from None
        with rust_errors("text cannot be tokenized"):
            found: list[int] = (self.parsing if parse_special else self.plain).encode(text, add_special_tokens=False).ids
        return found if self.ids is None else [self.ids[i] for i in found]


@contextmanager
def rust_errors(what: str) -> Iterator[None]:
    """Turn whatever the `tokenizers` library raises into a TokenizerError. It raises bare Exception, and its panics are not even that."""
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {str(error)[:200]}") from None
