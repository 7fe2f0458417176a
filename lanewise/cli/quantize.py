"""`lanewise quantize`: write a model again with its weights in another format."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lanewise.cli.terminal import Progress, as_json, complain, print_json, printable, size

if TYPE_CHECKING:
    from lanewise.files.quantize import Change, QuantizeReport


@click.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--type", "type_name", required=True, help="Such as Q4_K_M, Q8_0 or F16; an unknown one lists all.")
@click.option("--overwrite", is_flag=True, help="Replace OUT when it is there already.")
@as_json
def quantize(source: str, target: str, type_name: str, overwrite: bool, as_json: bool) -> None:
    """Quantize the weights of a GGUF file. IN is read (any part of a split one will do), OUT is written."""
    from lanewise.files.quantize import quantize_file

    with Progress() as bar:
        report = quantize_file(source, target, type_name, lambda done, total, _: bar("quantize", done, total), overwrite=overwrite)
    for note in _notes(report):
        complain("note", note)
    if as_json:
        sizes = {"bytes_before": report.bytes_before, "bytes_after": report.bytes_after}
        print_json({**asdict(report), "source": str(report.source), "target": str(report.target), **sizes})
        return
    for (before, after), count in _counted((c.before, c.after) for c in report.changes):
        click.echo(f"{count:>6} tensor{'' if count == 1 else 's'} {before} {'kept' if before == after else f'-> {after}'}")
    before, after = size(report.bytes_before), size(report.bytes_after)
    click.echo(f"{printable(str(report.target))}: {report.type_name}, {before} -> {after} in {report.seconds:.1f} s")


def _notes(report: "QuantizeReport") -> list[str]:
    """What the user may not expect of the result."""
    notes = [
        f"{count} tensors are {after}: their rows are not whole blocks of {wanted}" for (wanted, after), count in _given_instead(report.fallbacks)
    ]
    if report.requantized:
        notes.append(f"{len(report.requantized)} tensors were quantized before; a file of the original weights would lose less")
    if report.dropped:
        notes.append(f"keys with an empty array were left out: {', '.join(report.dropped)}")
    return notes


def _given_instead(fallbacks: "Iterable[Change]") -> list[tuple[tuple[str, str], int]]:
    return _counted((str(change.wanted), change.after) for change in fallbacks)


def _counted(pairs: Iterable[tuple[str, str]]) -> list[tuple[tuple[str, str], int]]:
    return Counter(pairs).most_common()
