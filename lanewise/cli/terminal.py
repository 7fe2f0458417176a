"""What commands print with: one-line complaints, JSON, tables, a progress bar, and text that cannot steer the terminal.

Results go to stdout; remarks, progress and errors to stderr. A bar is only drawn when stderr is a terminal.
"""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import rich.progress

__all__ = ["Progress", "as_json", "complain", "print_json", "print_table", "printable", "size"]

_IN_BYTES = ("load", "quantize")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for a machine to read.")


def complain(kind: str, message: str) -> None:
    """One line on stderr: `lanewise: error: ...`. `kind` is "error" or "note"."""
    click.echo(f"lanewise: {kind}: {printable(message)}", err=True)


def printable(text: str, keep: str = "") -> str:
    r"""The text with its control characters escaped: a model file must not be able to write escape sequences to a terminal.

    >>> printable("a\x1b[2Jb\n", keep="\n")
    'a\\x1b[2Jb\n'
    """
    return "".join(c if c in keep or unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") else repr(c)[1:-1] for c in text)


def print_json(value: Any) -> None:
    """The value on stdout, as JSON that any parser takes: what is not finite is null."""
    click.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """A table on stdout, as wide as it needs to be; the columns named in `right` are numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console = Console(file=sys.stdout)
    # Lines longer than the terminal wrap; rich would cut the columns short, also in a pipe.
    console.width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table, crop=False)


def size(nbytes: float) -> str:
    """Bytes in words: decimal units, as disks and files are sold.

    >>> size(97_900_000)
    '97.9 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


class Progress:
    """What the engine's `on_progress` calls: a bar on stderr while something is under way, gone when it is done."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if not sys.stderr.isatty() or (self._bar is None and done >= total):
            return
        if what != self._what:
            self.close()
        if self._bar is None:
            self._bar, self._what = self._open(what, total), what
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        if done >= total:
            self.close()

    def _open(self, what: str, total: int) -> "rich.progress.Progress":
        from rich import progress
        from rich.console import Console

        amount = progress.DownloadColumn() if what in _IN_BYTES else progress.MofNCompleteColumn()
        bar = progress.Progress(progress.TextColumn("{task.description}"), progress.BarColumn(), amount, console=Console(stderr=True), transient=True)
        bar.add_task(what, total=total)
        bar.start()
        return bar

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._what = None, ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
