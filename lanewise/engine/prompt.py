"""What a caller may pass as a prompt, and how it becomes token ids."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from lanewise.errors import ContextLengthError, PromptError
from lanewise.files.tokenizer import Tokenizer

__all__ = ["Messages", "Prompt", "is_batch", "prompt_ids"]

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Messages
"""A text to continue, token ids, or chat messages such as [{"role": "user", "content": "Hello"}]."""


def is_batch(prompt: "Prompt | Sequence[Prompt]") -> "TypeGuard[Sequence[Prompt]]":
    """Whether this is several prompts: a list whose first item is itself a prompt, or a list of none."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return len(prompt) == 0 or (isinstance(prompt[0], str | Sequence) and not isinstance(prompt[0], bytes))


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer, vocab: int, context: int) -> list[int]:
    """The prompt's token ids. Raises PromptError for what is no prompt, ContextLengthError when the context has no room for it."""
    if isinstance(prompt, str):
        ids = tokenizer.encode(_short_enough(prompt, tokenizer, context))
    elif _is_messages(prompt):
        ids = tokenizer.encode(_short_enough(tokenizer.render(prompt), tokenizer, context), add_special=False)
    else:
        ids = _integers(prompt)
    for token in ids:
        if not 0 <= token < vocab:
            raise PromptError(f"token id {token} is outside the model's vocabulary of 0 to {vocab - 1}")
    if not ids:
        if tokenizer.bos_id is None:
            raise PromptError("the prompt is empty and the model has no begin-of-text token; give at least one token")
        ids = [tokenizer.bos_id]
    if len(ids) >= context:
        raise ContextLengthError(f"the prompt has {len(ids)} tokens; the context has {context}, and at least one must be left for the answer")
    return ids


def _is_messages(prompt: Any) -> TypeGuard[Messages]:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and all(isinstance(item, Mapping) for item in prompt)


def _short_enough(text: str, tokenizer: Tokenizer, context: int) -> str:
    """The text, unless it is so long that no tokenization fits: encoding a file of many megabytes would take a minute to say so."""
    if len(text) > _LONG:
        least = len(text) // tokenizer.longest_piece
        if least > context:
            raise ContextLengthError(f"the prompt has {len(text)} characters, at least {least} tokens; the context has {context}")
    return text


_LONG = 1 << 20  # characters; below it, encoding takes about a second at most


def _integers(items: Any) -> list[int]:
    """Token ids from a list, a tuple or a one-dimensional array of integers."""
    if isinstance(items, bytes | bytearray | Mapping) or not (isinstance(items, Sequence) or getattr(items, "ndim", 0) == 1):
        raise PromptError(f"the prompt is of type {type(items).__name__}; {_ACCEPTED}")
    ids: list[int] = []
    for item in items:
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            raise PromptError(f"the prompt holds {item!r}; {_ACCEPTED}")
        ids.append(int(operator.index(item)))
    return ids


_ACCEPTED = "it is a text, a list of token ids, or a list of messages with role and content"
