"""What commands that run a model have in common: their options, the prompt texts, and the words about a completion."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lanewise.cli.terminal import complain, printable
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.engine import LLM, Completion

__all__ = [
    "context", "decoded", "device", "emit", "model", "note_all", "numbers", "quiet", "sampling", "shapes_of", "speed", "system", "threads",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])

model = click.argument("model", metavar="MODEL")
system = click.option("--system", help="The system message.")
device = click.option("--device", help="Where to run: reference or cpu.", show_default="LANEWISE_DEVICE, else cpu")
threads = click.option("--threads", type=int, help="Threads of the cpu device.", show_default="LANEWISE_THREADS, else the physical cores")
context = click.option("--context", type=int, help="Most tokens of prompt and answer together.", show_default="the model's, at most LANEWISE_CONTEXT")
quiet = click.option("--quiet", "-q", is_flag=True, help="No remarks and no speeds on stderr.")

# Each is named after the field of SamplingParams that it sets.
_SAMPLING = (
    click.option("--temperature", default=0.0, help="0 takes the most likely token each time."),
    click.option("--top-k", default=0, help="Keep this many tokens; 0 keeps all."),
    click.option("--top-p", default=1.0, help="Keep the most likely tokens that together reach this probability."),
    click.option("--min-p", default=0.0, help="Drop tokens less likely than this share of the most likely one."),
    click.option("--repetition-penalty", default=1.0, help="Above 1 makes tokens of the prompt and the output less likely."),
    click.option("--presence-penalty", default=0.0, help="Subtracted from the logit of every token that the output has."),
    click.option("--frequency-penalty", default=0.0, help="Subtracted once for each time that the output has a token."),
    click.option("--seed", type=int, help="Same seed, same text.", show_default="a new one each time"),
    click.option("--stop", multiple=True, help="A text that ends the output. May be repeated."),
    click.option("--stop-id", "stop_ids", type=int, multiple=True, help="A token id that ends the output. May be repeated."),
)


def sampling(max_tokens: int) -> Callable[[_F], _F]:
    """The options that become SamplingParams, by the names of its fields; `max_tokens` is the default of that one."""

    def add(command: _F) -> _F:
        for option in reversed(_SAMPLING):
            command = option(command)
        return click.option("--max-tokens", "-n", default=max_tokens, help="Most tokens to generate.")(command)

    return add


def numbers(option: str, text: str) -> tuple[int, ...]:
    """`1,2,4` as numbers. Raises LanewiseError, naming the option, for anything else."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise LanewiseError(f"{option} is {text[:64]!r}; it takes numbers with commas between, such as 1,2,4") from None


def shapes_of(text: str) -> tuple[tuple[int, int], ...]:
    """`4096x4096,1024x2048` as (n, k). Raises LanewiseError for anything else."""
    try:
        pairs = [tuple(int(number) for number in word.lower().split("x")) for word in text.split(",")]
        return tuple((n, k) for n, k in pairs)
    except ValueError:
        raise LanewiseError(f"--shapes is {text[:64]!r}; it takes shapes with commas between, such as 4096x4096,1024x2048") from None


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
