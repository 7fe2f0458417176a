"""One request while it runs: what is prefilled, what was generated, and whether it is over."""

import time
from dataclasses import dataclass

from lanewise.backends import Distribution
from lanewise.engine.pages import SequenceCache
from lanewise.engine.params import SamplingParams
from lanewise.engine.sampler import Sampler, TokenLogprob
from lanewise.engine.stops import StopFilter
from lanewise.files.tokenizer import Tokenizer

__all__ = ["Chunk", "Completion", "Request"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer.

    text:            without the stop string or the end-of-text token
    token_ids:       every generated token, those that ended it included
    finish_reason:   "stop" (end of text, stop string or stop id), "length" (max_tokens) or "context" (the context is full)
    prompt_tokens:   length of the prompt; cached_tokens of them were in the KV cache already
    prefill_seconds: from the first step to the first token; decode_seconds: from there to the last
    logprobs:        one entry a token, where asked for
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    prefill_seconds: float
    decode_seconds: float
    logprobs: tuple[TokenLogprob, ...] | None = None

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second, those in the cache left out."""
        return (self.prompt_tokens - self.cached_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens a second, the first (which the prefill made) left out."""
        return (len(self.token_ids) - 1) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream: whole characters of text, and the tokens since the last piece. The last one has the completion."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    completion: Completion | None = None


class Request:
    """A prompt on its way to a completion.

    cache: where its keys and values go; it may already hold a prefix of the prompt, and outlives the request when `keep_cache`
    """

    def __init__(
        self, prompt: list[int], params: SamplingParams, tokenizer: Tokenizer, cache: SequenceCache, context: int, vocab: int, *, keep_cache: bool
    ) -> None:
        self.prompt, self.params, self.cache = prompt, params, cache
        self.cached = cache.keep_prefix(prompt)
        self.limit = min(context, len(prompt) + params.max_tokens)
        self.finish_reason: str | None = None
        self.generated: list[int] = []
        self._ends = frozenset(params.stop_ids) | (frozenset() if params.ignore_eos else tokenizer.eos_ids)
        self._sampler = Sampler(params, prompt, vocab)
        self._spelled = tokenizer.vocab_size  # a model may be padded with ids that spell nothing
        self._stream = tokenizer.stream(after=prompt[-1] if prompt[-1] < self._spelled else None)
        self._stops = StopFilter(params.stop)
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._context = context
        self._keep_cache = keep_cache
        self._started = self._first = self._last = 0.0

    @property
    def pending(self) -> list[int]:
        """Tokens that are known and not yet in the cache: the rest of the prompt, or the newest generated token."""
        written = len(self.cache.tokens)
        return self.generated[written - len(self.prompt) :] if self.generated else self.prompt[written:]

    def start(self) -> None:
        """Reserve the cache and start the clock."""
        self.cache.reserve(self.limit)
        self._started = time.perf_counter()

    def end(self) -> None:
        """Give the cache back, unless it is to be kept. May be called again."""
        if not self._keep_cache:
            self.cache.release()

    def written(self, tokens: list[int]) -> None:
        """The runner has put these tokens' keys and values into the cache."""
        self.cache.tokens += tokens

    def accept(self, distribution: Distribution) -> Chunk:
        """Sample what comes behind the last pending token, and say what that adds to the stream."""
        token, logprob = self._sampler.pick(distribution)
        self._last = time.perf_counter()
        if not self.generated:
            self._first = self._last
        self.generated.append(token)
        if logprob:
            self._logprobs.append(logprob)
        text = "" if token in self._ends or token >= self._spelled else self._stops.push(self._stream.push(token))
        if token in self._ends or self._stops.stopped:
            self.finish_reason = "stop"
        elif len(self.generated) >= self.params.max_tokens:
            self.finish_reason = "length"
        elif len(self.prompt) + len(self.generated) >= self._context:
            self.finish_reason = "context"
        if self.finish_reason and not self._stops.stopped:
            text += self._stops.push(self._stream.finish())
            text += self._stops.finish()
        self._text.append(text)
        return Chunk(text, (token,), self.finish_reason, self._completion() if self.finish_reason else None)

    def _completion(self) -> Completion:
        return Completion(
            text="".join(self._text),
            token_ids=tuple(self.generated),
            finish_reason=str(self.finish_reason),
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached,
            prefill_seconds=self._first - self._started,
            decode_seconds=self._last - self._first,
            logprobs=None if self.params.logprobs is None else tuple(self._logprobs),
        )
