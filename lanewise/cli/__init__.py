"""The command line: one file per command, and here what they share on the way in and out.

Exit codes: 0 done, 1 a check failed, 2 the user's input was wrong, 130 interrupted. Commands import numpy, the tokenizer and the
engine inside their functions, so that `lanewise --help` stays quick.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lanewise import __version__
from lanewise.cli import bench, chat, explain, generate, inspect, quantize, targets
from lanewise.cli.terminal import complain
from lanewise.errors import LanewiseError

__all__ = ["app", "main"]

_COMMANDS: tuple[Callable[..., None], ...] = (
    generate.generate,
    chat.chat,
    inspect.inspect,
    quantize.quantize,
    explain.explain,
    targets.targets,
)


# What the option parser raises for wrong usage, wherever this version of typer keeps it.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class _Group(TyperGroup):
    """Turns what a command raises into one line and an exit code; anything it does not know is a bug and keeps its traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **options: Any) -> Any:
        try:
            code = super().main(args, *rest, **{**options, "standalone_mode": False})
        except _UsageError as error:
            message = error.format_message()
            if "\n" in message:  # no command at all: the message is the help
                typer.echo(message, err=True)
            else:
                complain("error", f"{message.rstrip('.')}; see lanewise --help")
            code = 2
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        try:
            value = super().invoke(ctx)
            sys.stdout.flush()
            return value
        except LanewiseError as error:
            complain("error", str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            _abandon_output()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.filename is not None or error.filename2 is not None:  # a file, and no command lets that through
                raise
            _abandon_output()
            complain("error", f"cannot write the output: {error.strerror or error}")
            raise typer.Exit(2) from None


def _abandon_output() -> None:
    """The reader has gone or the disk is full: whatever is still buffered must not fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(cls=_Group, name="lanewise", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lanewise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")] = False,
) -> None:
    """Run quantized language models, and ask what would run them."""


for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The `lanewise` program."""
    # A stream that was closed before we started (`<&-`) is None: read nothing from it, write nothing to it.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (open as long as the process)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character gets a "?" and not a traceback
            stream.reconfigure(errors="replace")
    app()
