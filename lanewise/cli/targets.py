"""`lanewise targets`: every target that has a row, and how far Lanewise's kernels have been shown on it."""

import functools
from dataclasses import asdict
from typing import Any

import click

from lanewise import arch
from lanewise.cli.terminal import as_json, print_json, print_table
from lanewise.errors import UnknownTargetError

__all__ = ["LEVELS", "level"]

# Weakest first. `compiled`: compiles and passes the ISA gate; `emulated`: its machine code ran on the emulator and passed;
# `measured`: ran on the card. A level is only ever read from a record of the run that earned it.
LEVELS = ("none yet", "compiled", "emulated", "measured")


@functools.cache
def _measured() -> frozenset[str]:
    """Targets of shipped tables: what `lanewise tune` measured, and found right, on a card."""
    from lanewise.kernels.gpu.table import SHIPPED, read

    return frozenset(read(path).key["target"] for path in SHIPPED.glob("gpu-*.json"))


def level(name: str) -> str:
    """The level that records show for a target."""
    return LEVELS[-1] if name in _measured() else LEVELS[0]


@click.command()
@as_json
def targets(as_json: bool) -> None:
    """List every target and what it has: lanes, LDS, dot and matrix instructions, and its level."""
    try:
        host = arch.host().name
    except UnknownTargetError:  # a processor without a row can still read the table
        host = ""
    if as_json:
        print_json([_machine(row, host) for row in arch.TARGETS.values()])
        return
    head = ("target", "vendor", "wave", "LDS", "int8 dot", "matrix", "Triton", "level")
    print_table(head, (_row(row, host) for row in arch.TARGETS.values()), right=("wave", "LDS"))
    click.echo(
        "\nlevel: how far the kernels of GPUs were shown on the target, by a record of the run. Models run on processors; on GPUs `linear` does."
    )


def _row(row: arch.Arch, host: str) -> tuple[object, ...]:
    lds = f"{row.lds // 1024} KiB" if row.is_gpu else "-"
    name = f"{row.name} (this machine)" if row.name == host else row.name
    triton = ("yes" if row.triton else "no") if row.is_gpu else "-"
    return name, row.vendor, row.wave if row.is_gpu else "-", lds, row.dot4 or "-", row.matrix or "-", triton, level(row.name)


def _machine(row: arch.Arch, host: str) -> dict[str, Any]:
    fields = asdict(row)
    del fields["features"]
    return {**fields, "level": level(row.name), "host": row.name == host}
