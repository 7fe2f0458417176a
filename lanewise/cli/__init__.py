"""The command line: one file per command, and here what they share on the way in and out.

Exit codes: 0 done, 1 a check failed, 2 the user's input was wrong, 130 interrupted. Commands import numpy, the tokenizer and the
engine inside their functions, so that `lanewise --help` stays quick.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from lanewise import __version__
from lanewise.cli import (
    ab,
    bench,
    bench_kernel,
    bench_sweep,
    chat,
    emulate,
    evidence,
    evidence_table,
    explain,
    generate,
    inspect,
    isa,
    quantize,
    targets,
    tune,
)
from lanewise.cli.terminal import complain
from lanewise.errors import LanewiseError

__all__ = ["app", "main"]


class _Group(click.Group):
    """Turns what a command raises into one line and an exit code; anything it does not know is a bug and keeps its traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **options: Any) -> Any:
        try:
            code = super().main(args, *rest, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            message = error.format_message()
            if "\n" in message:  # no command at all: the message is the help
                click.echo(message, err=True)
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
            raise click.exceptions.Exit(2) from None
        except KeyboardInterrupt:
            click.echo(err=True)
            raise click.exceptions.Exit(130) from None
        except BrokenPipeError:
            _abandon_output()
            raise click.exceptions.Exit(0) from None
        except OSError as error:
            if error.filename is not None or error.filename2 is not None:  # a file, and no command lets that through
                raise
            _abandon_output()
            complain("error", f"cannot write the output: {error.strerror or error}")
            raise click.exceptions.Exit(2) from None


def _abandon_output() -> None:
    """The reader has gone or the disk is full: whatever is still buffered must not fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=_Group, name="lanewise", context_settings={"show_default": True})
@click.version_option(__version__, message="lanewise %(version)s")
def app() -> None:
    """Run quantized language models, and ask what would run them."""


_MODELS = (generate.generate, chat.chat, inspect.inspect, quantize.quantize)
for _command in (*_MODELS, explain.explain, targets.targets, isa.isa, emulate.emulate, bench.app, tune.tune, ab.ab, evidence.app):
    app.add_command(_command)
bench.app.add_command(bench_kernel.kernel)
bench.app.add_command(bench_sweep.sweep)
evidence.app.add_command(evidence_table.table)


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
