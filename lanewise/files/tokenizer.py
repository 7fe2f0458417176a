"""A model's tokenizer: text to ids, ids to text (at once or as a stream), and the chat template that turns messages into text.

>>> from lanewise.files import Metadata
>>> keys = {"model": "gpt2", "pre": "gpt-2", "tokens": ["h", "i", "hi", "<|im_end|>"], "merges": ["h i"], "token_type": [1, 1, 1, 3]}
>>> tokenizer = from_gguf(Metadata("m.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()}))
>>> tokenizer.encode("hi<|im_end|>"), tokenizer.decode([2, 3]), tokenizer.eos_ids
([2, 3], 'hi', frozenset({3}))
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lanewise.errors import TemplateError, TokenizerError
from lanewise.files import gguf_vocab, textstream, tokenizer_json
from lanewise.files.metadata import Metadata
from lanewise.files.model_file import ModelFile
from lanewise.files.template import ChatTemplate
from lanewise.files.textstream import TextStream
from lanewise.files.vocab import Encoder, Vocab

__all__ = ["TextStream", "Tokenizer", "from_directory", "from_gguf", "load_tokenizer"]


class Tokenizer:
    """Encodes and decodes for one model. Immutable; any number of threads may use it.

    vocab_size: ids go from 0 to vocab_size - 1. A model may have more output rows than that (padding); no token has their ids.
    bos_id:     the beginning-of-sequence token, or None
    eos_ids:    every id that ends a generation: those the files name, and well-known end-of-turn tokens that are control tokens
    add_bos:    whether `encode` puts bos_id first
    templates:  the chat templates by name
    """

    __slots__ = ("_encoder", "_vocab", "add_bos", "bos_id", "eos_ids", "templates", "vocab_size")

    def __init__(self, vocab: Vocab, encoder: Encoder, templates: Mapping[str, str]) -> None:
        self._vocab, self._encoder = vocab, encoder
        self.vocab_size = len(vocab.texts)
        self.bos_id = vocab.bos
        self.eos_ids = vocab.eos_ids
        self.add_bos = vocab.bos is not None and vocab.bos in vocab.head
        self.templates = {name: ChatTemplate(source, name) for name, source in templates.items()}

    @property
    def longest_piece(self) -> int:
        """The most characters that one token can stand for."""
        return max(len(text) for text in self._vocab.texts if text is not None)

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template used when none is named; None where the model has none."""
        return self.templates.get("default")

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The ids of a text.

        add_special:   put the model's beginning (and, where it wants one, end) token round them. One that the text already has there is
                       not doubled, so a rendered template that starts with the token's text may be encoded like any other text.
        parse_special: take the text of a control token for that token. With False no text can become a control token: use it for
                       text that a stranger wrote.

        A byte that the vocabulary has no token for (SmolLM2: U+0004 and five more control characters, F1 and F2) is left out, as in
        transformers and llama.cpp; a SentencePiece vocabulary gives its unknown token. Raises TokenizerError for what is not Unicode text.
        """
        ids = self._encoder.encode(text, parse_special)
        if not add_special:
            return ids
        head, tail = list(self._vocab.head), list(self._vocab.tail)
        if ids[: len(head)] != head:
            ids = head + ids
        return ids if tail and ids[-len(tail) :] == tail else ids + tail

    def decode(self, ids: Iterable[int], *, skip_special: bool = True, after: int | None = None) -> str:
        """The text of ids. `after` is the id in front of them, for a part of a longer sequence (see TextStream).

        The one space that the encoder of a SentencePiece model adds is taken off again. Bytes that form no character become U+FFFD.
        Raises TokenizerError for an id outside the vocabulary.
        """
        return textstream.decode(self._vocab, ids, skip_special=skip_special, after=after)

    def stream(self, *, skip_special: bool = True, after: int | None = None) -> TextStream:
        """A detokenizer for ids that come one by one; all it gives out together is `decode` of the same ids and arguments."""
        return TextStream(self._vocab, skip_special=skip_special, after=after)

    def token_text(self, token: int) -> str:
        """One token for display: its text, with U+FFFD for bytes that are no character on their own. Raises TokenizerError."""
        return self._vocab.piece(token).decode("utf-8", "replace")

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **extra: Any) -> str:
        """The prompt text of a conversation. `extra` goes to the template (tools=..., enable_thinking=..., whatever it reads).

        With tools, the template named "tool_use" is taken where there is one (as transformers does). Raises TemplateError when the model
        has no template, or the template fails, is refused, or runs out of its limits.
        """
        name = "tool_use" if extra.get("tools") and "tool_use" in self.templates else "default"
        template = self.templates.get(name)
        if template is None:
            known = f"; it has {', '.join(sorted(self.templates))}" if self.templates else ""
            raise TemplateError(f"this model has no default chat template{known}; give a prompt as plain text instead of messages")
        names = {**self._vocab.names(), "tools": None, "documents": None, **extra}
        return template.render(messages, add_generation_prompt=add_generation_prompt, **names)


def load_tokenizer(model: ModelFile) -> Tokenizer:
    """The tokenizer of an open model. Raises TokenizerError or ModelFileError, in one line."""
    if model.kind == "gguf":
        return from_gguf(model.metadata)
    if model.kind == "safetensors":
        return from_directory(model.path, model.metadata)
    raise TokenizerError(f"{model.path}: no tokenizer is known for a model of kind {model.kind!r}; gguf and safetensors are")


def from_gguf(metadata: Metadata) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata holds."""
    vocab, encoder = gguf_vocab.read(metadata)
    prefix = "tokenizer.chat_template"
    keys = {key: key.removeprefix(prefix).removeprefix(".") or "default" for key in metadata if key == prefix or key.startswith(prefix + ".")}
    return Tokenizer(vocab, encoder, {name: metadata.string(key) for key, name in keys.items()})


def from_directory(directory: Path, config: Metadata) -> Tokenizer:
    """The tokenizer of a Hugging Face directory; `config` is its config.json."""
    directory = Path(directory)
    vocab, encoder = tokenizer_json.read(directory, config)
    return Tokenizer(vocab, encoder, tokenizer_json.templates(directory))
