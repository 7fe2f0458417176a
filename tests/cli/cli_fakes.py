"""A model that answers at once: what the command line sees of the engine, without weights."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from lanewise.cli import app
from lanewise.engine import Chunk, Completion, SamplingParams, TokenLogprob
from lanewise.errors import ContextLengthError


def lanewise(*args: str, stdin: str | bytes = ""):
    """Run the command line in this process: .exit_code, .stdout, .stderr."""
    return CliRunner().invoke(app, list(args), input=stdin)


def read(result) -> Any:
    """What a command with --json printed; nothing else may stand on stdout."""
    return json.loads(result.stdout)


# The start of a program that runs the command line with the fake model, as a script. A test may run where ^C is ignored: the
# program takes it all the same. With a terminal as stdin, that becomes the one whose ^C it gets.
PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
if os.isatty(0):
    import fcntl, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import cli_fakes, lanewise.engine
class Slow(cli_fakes.FakeLLM):
    def stream(self, prompt, params):
        for chunk in super().stream(prompt, params):
            yield chunk
            time.sleep(60 if prompt == "slow" else 0)
lanewise.engine.LLM = Slow
from lanewise.cli import main
main()
"""


@contextmanager
def started(*args: str, **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    """The command line with the fake model in a process of its own, which does not outlive the block."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TERM": "dumb"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *args], text=True, env=env, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class FakeLLM:
    """Answers word by word with `answer`; remembers everything that it was asked. `fail` is raised after the first word."""

    answer = "Hello there, world."
    notes: tuple[str, ...] = ("reference backend: weights expanded",)
    fail: BaseException | None = None
    finish = "stop"
    made: "list[FakeLLM]" = []  # noqa: RUF012

    def __init__(self, path, device=None, *, threads=None, context=None, on_progress=None):
        self.path, self.device, self.threads, self.asked_context, self.closed = path, device, threads, context, False
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
