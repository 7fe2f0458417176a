"""What commands that run a model have in common: their options, the prompt texts, and the words about a completion."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.terminal import complain, printable
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.engine import LLM, Completion, SamplingParams

__all__ = ["decoded", "emit", "note_all", "sampling", "speed"]

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A .gguf file, or a directory with config.json and *.safetensors.", show_default=False)]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", help="Most tokens to generate.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most likely token each time.")]
TopK = Annotated[int, typer.Option(help="Keep this many tokens; 0 keeps all.")]
TopP = Annotated[float, typer.Option(help="Keep the most likely tokens that together reach this probability.")]
MinP = Annotated[float, typer.Option(help="Drop tokens less likely than this share of the most likely one.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Above 1 makes tokens of the prompt and the output less likely.")]
PresencePenalty = Annotated[float, typer.Option(help="Subtracted from the logit of every token that the output has.")]
FrequencyPenalty = Annotated[float, typer.Option(help="Subtracted once for each time that the output has a token.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same text.", show_default="a new one each time")]
Stop = Annotated[list[str] | None, typer.Option(help="A text that ends the output. May be repeated.", show_default=False)]
StopId = Annotated[list[int] | None, typer.Option(help="A token id that ends the output. May be repeated.", show_default=False)]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's own end of text.")]
System = Annotated[str | None, typer.Option(help="The system message.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="Where to run: reference or cpu.", show_default="LANEWISE_DEVICE, else cpu")]
Threads = Annotated[int | None, typer.Option(help="Threads of the cpu device.", show_default="LANEWISE_THREADS, else the physical cores")]
Context = Annotated[int | None, typer.Option(help="Most tokens of prompt and answer together.", show_default="the model's, at most LANEWISE_CONTEXT")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no speeds on stderr.")]


def sampling(given: Mapping[str, Any]) -> "SamplingParams":
    """The sampling parameters among a command's options, which have the same names; one that was not given keeps its default."""
    from lanewise.engine import SamplingParams

    named = {**given, "stop_ids": given["stop_id"]}
    return SamplingParams(**{f.name: named[f.name] for f in fields(SamplingParams) if named.get(f.name) is not None})


def decoded(raw: bytes, what: str) -> str:
    """Bytes from outside as text. Raises LanewiseError, naming `what`, when they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise LanewiseError(f"{what} is not UTF-8 text: byte {error.start} is 0x{raw[error.start]:02x}") from None


def emit(text: str) -> None:
    """Generated text on stdout at once, unchanged in a pipe; on a terminal without characters that could steer it."""
    sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
    sys.stdout.flush()


def note_all(llm: "LLM", quiet: bool) -> None:
    """What the loaded model has to say about how it runs, on stderr."""
    for note in () if quiet else llm.notes:
        complain("note", note)


def speed(completions: Sequence["Completion"]) -> str:
    """`prompt 31 tokens, 412.0 tok/s; decode 64 tokens, 31.2 tok/s`; with several completions each on its own line and clock."""
    lines = [f"prompt {_rate(c.prompt_tokens, c.prefill_rate)}; decode {_rate(len(c.token_ids), c.decode_rate)}" for c in completions]
    return lines[0] if len(lines) == 1 else "\n".join(f"[{i}] {line}" for i, line in enumerate(lines, 1))


def _rate(tokens: int, rate: float) -> str:
    """A single token has no rate: the first one comes out of the prefill."""
    return f"{tokens} token{'' if tokens == 1 else 's'}" + (f", {rate:.1f} tok/s" if rate else "")
