"""A conversation: messages so far, and the KV cache of what they share with the next turn."""

import weakref
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from lanewise.engine.pages import SequenceCache
from lanewise.engine.params import SamplingParams
from lanewise.engine.request import Chunk
from lanewise.errors import PromptError, TemplateError

if TYPE_CHECKING:
    from lanewise.engine.llm import LLM

__all__ = ["Chat"]


class Chat:
    """Turns with one model. Only what a turn adds is prefilled; everything before it is already in the cache.

    messages: the conversation so far, as the chat template takes it; may be read at any time
    """

    def __init__(self, llm: "LLM", system: str | None = None) -> None:
        if llm.tokenizer.template is None:
            raise TemplateError("this model has no chat template; use generate with a plain prompt")
        self._llm = llm
        self._cache = SequenceCache(llm._pool)
        self._answering = False
        self._finalizer = weakref.finalize(self, self._cache.release)  # a conversation that is dropped gives its pages back
        self._system = system
        self.messages: list[dict[str, str]] = []
        self.clear()

    def stream(self, text: str, params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """The answer to `text`, a piece at a time. What was answered when the iterator is closed early stays in the conversation.

        Raises ContextLengthError when the conversation no longer fits the context; it is then as it was before.
        """
        if self._answering:
            raise PromptError("this conversation is still answering; read its stream to the end, or close it")
        asked = [*self.messages, {"role": "user", "content": text}]
        request = self._llm._request(asked, params, self._cache)
        answer: list[str] = []
        self._answering = True
        try:
            for chunk in self._llm._chunks(request):
                answer.append(chunk.text)
                yield chunk
        finally:
            self._answering = False
            if request.generated:
                self.messages = [*asked, {"role": "assistant", "content": "".join(answer)}]

    def clear(self) -> None:
        """Forget the conversation, the system message apart."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def close(self) -> None:
        """Give the conversation's KV cache back; dropping the conversation does so too."""
        self._cache.release()

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
