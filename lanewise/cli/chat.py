"""`lanewise chat`: a conversation on the terminal, or one line a turn from a pipe."""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from lanewise.cli import options
from lanewise.cli.terminal import Progress, complain
from lanewise.errors import ContextLengthError

if TYPE_CHECKING:
    from lanewise.engine import Chat, SamplingParams

_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(
    ctx: typer.Context,
    model: options.Model,
    max_tokens: options.MaxTokens = 1024,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    stop_id: options.StopId = None,
    system: options.System = None,
    device: options.Device = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quiet: options.Quiet = False,
) -> None:
    """Talk with a model. The conversation stays in its KV cache from turn to turn."""
    from lanewise.engine import LLM

    params = options.sampling(ctx.params)
    live = sys.stdin.isatty() and sys.stdout.isatty()
    with Progress() as progress, LLM(model, device, threads=threads, context=context, on_progress=progress) as llm, closing(llm.chat(system)) as talk:
        options.note_all(llm, quiet)
        if live and not quiet:
            typer.echo(_HELP, err=True)
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
            typer.echo()
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
