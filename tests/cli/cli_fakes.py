"""A model that answers at once: what the command line sees of the engine, without weights."""

import json
from collections.abc import Iterator
from typing import Any

from typer.testing import CliRunner

from lanewise.cli import app
from lanewise.engine import Chunk, Completion, SamplingParams, TokenLogprob
from lanewise.errors import ContextLengthError


def lanewise(*args: str, stdin: str | bytes = ""):
    """Run the command line in this process: .exit_code, .stdout, .stderr."""
    return CliRunner().invoke(app, list(args), input=stdin)


def read(result) -> Any:
    """What a command with --json printed; nothing else may stand on stdout."""
    return json.loads(result.stdout)


class FakeLLM:
    """Answers word by word with `answer`; remembers everything that it was asked. `fail` is raised after the first word."""

    answer = "Hello there, world."
    notes: tuple[str, ...] = ("reference backend: weights expanded",)
    fail: BaseException | None = None
    finish = "stop"
    made: "list[FakeLLM]" = []  # noqa: RUF012

    def __init__(self, path, device=None, *, context=None, on_progress=None):
        self.path, self.device, self.asked_context, self.closed = path, device, context, False
        self.context = context or 4096
        self.prompts: list[Any] = []
        self.params: list[SamplingParams] = []
        self.made.append(self)
        on_progress("load", 1, 2)
        on_progress("load", 2, 2)

    def generate(self, prompts, params):
        return [list(self.stream(p, params))[-1].completion for p in prompts]

    def stream(self, prompt, params) -> Iterator[Chunk]:
        self.prompts.append(prompt)
        self.params.append(params)
        words = [w + " " for w in self.answer.split(" ")]
        words[-1] = words[-1][:-1]
        logprobs = None if params.logprobs is None else (TokenLogprob(7, float("-inf"), ((7, -0.5),)),)
        done = Completion(self.answer, tuple(range(len(words))), self.finish, 31, 0, 0.1, 2.0, logprobs)
        for i, word in enumerate(words):
            if i == 1 and self.fail is not None:
                raise self.fail
            last = i == len(words) - 1
            yield Chunk(word, (i,), self.finish if last else None, done if last else None)

    def chat(self, system=None):
        return FakeChat(self, system)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True


class FakeChat:
    """A conversation: `turns` since the last clear."""

    made: "list[FakeChat]" = []  # noqa: RUF012

    def __init__(self, llm, system):
        self.llm, self.system, self.turns, self.cleared, self.closed = llm, system, [], 0, False
        self.made.append(self)

    def stream(self, text, params):
        self.turns.append(text)
        if text == "too long":
            raise ContextLengthError("the prompt has 5000 tokens; the context has 4096")
        return self.llm.stream(text, params)

    def clear(self):
        self.cleared += 1

    def close(self):
        self.closed = True
