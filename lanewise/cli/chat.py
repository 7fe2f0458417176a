"""`lanewise chat`: a conversation on the terminal, or one line a turn from a pipe."""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli import options
from lanewise.cli.terminal import Progress, complain
from lanewise.errors import ContextLengthError

if TYPE_CHECKING:
    from lanewise.engine import Chat, SamplingParams

_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


@click.command()
@options.model
@options.sampling(max_tokens=1024)
@options.system
@options.device
@options.threads
@options.context
@options.quiet
def chat(model: str, system: str | None, device: str | None, threads: int | None, context: int | None, quiet: bool, **sampling: Any) -> None:
    """Talk with a model. MODEL is a .gguf file or a directory; the conversation stays in its KV cache from turn to turn."""
    from lanewise.engine import LLM, SamplingParams

    params = SamplingParams(**sampling)
    live = sys.stdin.isatty() and sys.stdout.isatty()
    with Progress() as progress, LLM(model, device, threads=threads, context=context, on_progress=progress) as llm, closing(llm.chat(system)) as talk:
        options.note_all(llm, quiet)
        if live and not quiet:
            click.echo(_HELP, err=True)
        for text in _typed() if live else _piped():
            if text == "/exit":
                break
            if text == "/clear":
                talk.clear()
            elif text:
                _answer(talk, text, params, live)


def _typed() -> Iterator[str]:
    """What the user types, until Ctrl-D. Ctrl-C here is KeyboardInterrupt, which ends the command."""
    import readline  # noqa: F401  (input() then has line editing and a history)

    while True:
        try:
            text = input("> ")
        except EOFError:
            click.echo()
            return
        except UnicodeDecodeError:
            complain("error", "that was not UTF-8 text")
            continue
        yield text.strip()


def _piped() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield options.decoded(line, f"line {number} of stdin").strip()


def _answer(talk: "Chat", text: str, params: "SamplingParams", live: bool) -> None:
    """Print one answer. On a terminal Ctrl-C and a full context end the answer, not the conversation."""
    reason = None
    try:
        with closing(talk.stream(text, params)) as chunks:
            for chunk in chunks:
                options.emit(chunk.text)
                reason = chunk.finish_reason
    except KeyboardInterrupt:
        if not live:
            raise
    except ContextLengthError as error:
        if not live:
            raise
        complain("error", f"{error}; /clear starts again")
        return
    options.emit("\n")
    if reason in ("length", "context"):
        limit = f"--max-tokens is {params.max_tokens}" if reason == "length" else "the context is full; /clear starts again"
        complain("note", f"the answer was cut: {limit}")
