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
    if isinstance(prompt, str):
        return False
    return len(prompt) == 0 or (isinstance(prompt[0], str | Sequence) and not isinstance(prompt[0], Mapping))


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer, vocab: int, context: int) -> list[int]:
    """The prompt's token ids. Raises PromptError for what is no prompt, ContextLengthError when the context has no room for it."""
    if isinstance(prompt, str):
        ids = tokenizer.encode(prompt)
    elif _is_messages(prompt):
        ids = tokenizer.encode(tokenizer.render(prompt), add_special=False)
    else:
        ids = _checked(prompt, vocab)
    if not ids:
        if tokenizer.bos_id is None:
            raise PromptError("the prompt is empty and the model has no begin-of-text token; give at least one token")
        ids = [tokenizer.bos_id]
    if len(ids) >= context:
        raise ContextLengthError(f"the prompt has {len(ids)} tokens; the context has {context}, and at least one must be left for the answer")
    return ids


def _is_messages(prompt: Sequence[Any]) -> TypeGuard[Messages]:
    return len(prompt) > 0 and all(isinstance(item, Mapping) for item in prompt)


def _checked(items: Sequence[Any], vocab: int) -> list[int]:
    ids: list[int] = []
    for item in items:
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            raise PromptError(f"the prompt holds {item!r}; it is a text, a list of token ids, or a list of messages with role and content")
        ids.append(int(operator.index(item)))
        if not 0 <= ids[-1] < vocab:
            raise PromptError(f"token id {ids[-1]} is outside the vocabulary of 0 to {vocab - 1}")
    return ids
