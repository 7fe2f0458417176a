"""`LLM`: a model file, loaded and ready to generate."""

from collections.abc import Generator, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, overload

from lanewise import settings
from lanewise.backends import Progress, backend_for
from lanewise.engine.chat import Chat
from lanewise.engine.pages import PAGE_SIZE, PagePool, SequenceCache, pages_for
from lanewise.engine.params import SamplingParams
from lanewise.engine.prompt import Prompt, is_batch, prompt_ids
from lanewise.engine.request import Chunk, Completion, Request
from lanewise.engine.scheduler import Scheduler
from lanewise.engine.witness import watching
from lanewise.errors import ContextLengthError, ModelError, PromptError, SamplingError
from lanewise.files import open_model
from lanewise.files.tokenizer import load_tokenizer
from lanewise.models import spec_of

__all__ = ["LLM"]

_POOL_TOKENS = 16384  # what the KV cache holds for several sequences of a short context together


class LLM:
    """A loaded model. Not safe to use from two threads at once.

    path:        a .gguf file (any part of a split one), or a directory with config.json, tokenizer.json and *.safetensors
    device:      "reference" or "cpu"; LANEWISE_DEVICE when None
    threads:     how many work on the cpu device; LANEWISE_THREADS, else the physical cores, when None. The reference device
                 leaves it to numpy and says so in `notes`
    context:     most tokens of prompt and answer together; the model's own, but at most LANEWISE_CONTEXT, when None
    on_progress: called as (what, done, total) while loading ("load", bytes) and prefilling ("prefill", tokens)

    Raises ModelFileError, UnsupportedModelError, TokenizerError, DeviceError, SettingError or ContextLengthError, each in one line.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        device: str | None = None,
        *,
        threads: int | None = None,
        context: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.device = device or settings.get("DEVICE")
        self._closed = False
        backend = backend_for(self.device)
        with open_model(path) as file:
            self.spec = spec_of(file)
            self.context = _context(context, self.spec.context)
            self.tokenizer = load_tokenizer(file)
            self._runner = backend.lower(self.spec, file, on_progress, threads)
        self.notes = self._runner.notes
        self._progress = on_progress
        pages = pages_for(max(self.context, min(self.context * settings.get("MAX_BATCH"), _POOL_TOKENS)))
        self._runner.allocate(pages, PAGE_SIZE)
        self._witness = watching(self._runner, self.device)
        self._pool = PagePool(pages)

    @overload  # a text is also a sequence of texts: the first signature is the one that is meant
    def generate(self, prompt: Prompt, params: SamplingParams | None = None) -> Completion: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None) -> list[Completion]: ...
    def generate(
        self, prompt: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> Completion | list[Completion]:
        """The completion of a prompt, or of each of a list of prompts, which then share the steps.

        A prompt is a text, token ids, or messages (rendered with the model's chat template). `params` may be one for all
        prompts or one for each. Raises ContextLengthError for a prompt that does not fit.
        """
        prompts = list(prompt) if is_batch(prompt) else [prompt]
        each = list(params) if isinstance(params, list | tuple) else [params] * len(prompts)
        if len(each) != len(prompts):
            raise PromptError(f"{len(prompts)} prompts were given with {len(each)} sampling parameters; give one, or one for each")
        requests = [self._request(p, q) for p, q in zip(prompts, each, strict=True)]  # type: ignore[arg-type]
        done = {id(request): chunk.completion for request, chunk in self._run(requests) if chunk.completion}
        completions = [done[id(request)] for request in requests]
        return completions if is_batch(prompt) else completions[0]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """The completion of one prompt, a piece at a time. Closing the iterator stops the work and frees its cache."""
        if is_batch(prompt):
            raise PromptError("stream takes one prompt; generate takes several")
        request = self._request(prompt, params)
        return self._chunks(request)

    def chat(self, system: str | None = None) -> Chat:
        """A conversation that keeps its KV cache from turn to turn. Raises TemplateError when the model has no chat template."""
        return Chat(self, system)

    def close(self) -> None:
        """Give the model's memory back. May be called again; generating afterwards raises ModelError."""
        self._closed = True
        if self._witness:
            self._witness.close()
        self._runner.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _request(self, prompt: Prompt, params: SamplingParams | None, cache: SequenceCache | None = None) -> Request:
        if self._closed:
            raise ModelError("this model was closed; load it again to generate")
        if params is None:
            params = SamplingParams()
        if not isinstance(params, SamplingParams):
            raise SamplingError(f"the sampling parameters are of type {type(params).__name__}; they are SamplingParams")
        ids = prompt_ids(prompt, self.tokenizer, self.spec.vocab, self.context)
        keep = cache is not None
        return Request(ids, params, self.tokenizer, cache or SequenceCache(self._pool), self.context, self.spec.vocab, keep_cache=keep)

    def _chunks(self, request: Request) -> Generator[Chunk, None, None]:
        with closing(self._run([request])) as pieces:
            for _, chunk in pieces:
                yield chunk

    def _run(self, requests: list[Request]) -> Generator[tuple[Request, Chunk], None, None]:
        scheduler = Scheduler(self._runner, settings.get("MAX_BATCH"), settings.get("PREFILL_CHUNK"), self._progress)
        try:
            yield from scheduler.run(requests)
        finally:
            for request in requests:
                request.end()
                if self._witness:
                    self._witness.answered(request.prompt, request.generated)


def _context(asked: int | None, trained: int) -> int:
    if asked is None:
        return min(trained, int(settings.get("CONTEXT")))
    if isinstance(asked, bool) or not isinstance(asked, int) or not 2 <= asked <= trained:
        raise ContextLengthError(f"a context of {asked!r} was asked for; this model takes 2 to {trained} tokens")
    return asked
