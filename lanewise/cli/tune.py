"""`lanewise tune`: find the fastest configurations of the GPU kernels on the card that is here."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.options import numbers, shapes_of
from lanewise.cli.terminal import Progress, as_json, complain, print_json, print_table
from lanewise.errors import DeviceError, LanewiseError

if TYPE_CHECKING:
    from lanewise.kernels.gpu.table import Table

__all__ = ["tune"]


@click.command()
@click.option("--device", default="cuda", help="The GPU: cuda, or cuda:1.")
@click.option("--shapes", help="Weights as NxK, with commas.", show_default="those of Qwen3 models")
@click.option("--n", type=int, help="Output features of one shape.")
@click.option("--k", type=int, help="Reduction of one shape.")
@click.option("--m", default="1,2,3,4,8,16", help="Tokens, with commas.")
@click.option("--dtype", help="Types, with commas.", show_default="bf16,f16; of quantized weights bf16")
@click.option("--format", "fmt", help="Formats of quantized weights, with commas, or `all`: quant_linear in the place of linear.")
@click.option("--experts", type=int, help="With --format: grouped_linear with so many experts in the place of quant_linear.")
@click.option("--top", type=int, help="With --experts: how many a token has.", show_default="8")
@click.option("--seconds", default=20.0, help="Most for one shape, m and type, compiling left out.")
@click.option("--write", is_flag=True, help="Write the table into the cache directory, where the op looks for it.")
@click.option("--out", help="Write the table to this file.")
@click.option("--add", is_flag=True, help="Keep what a table that is there has of other shapes; it has to be of this device, driver and Triton.")
@as_json
def tune(
    device: str,
    shapes: str | None,
    n: int | None,
    k: int | None,
    m: str,
    dtype: str | None,
    fmt: str | None,
    experts: int | None,
    top: int | None,
    seconds: float,
    write: bool,
    out: str | None,
    add: bool,
    as_json: bool,
) -> None:
    """Measure candidate configurations of the skinny kernel on a GPU, or with --format of the quantized ones, and BLAS beside them."""
    from lanewise.contract import dtype as known
    from lanewise.kernels.gpu.grouped_table import GROUPED
    from lanewise.kernels.gpu.quant_layout import LAYOUTS
    from lanewise.kernels.gpu.quant_table import QUANT
    from lanewise.kernels.gpu.table import LINEAR, user_path

    if (n is None) != (k is None) or (n is not None and shapes is not None):
        raise LanewiseError("one shape is --n with --k, and several are --shapes 4096x4096,1024x2048")
    found = ((n, k),) if n is not None and k is not None else shapes_of(shapes) if shapes is not None else _usual()
    asked = [name.strip() for name in fmt.split(",")] if fmt is not None else []
    formats = tuple(LAYOUTS) if asked and asked[0].lower() == "all" and len(asked) == 1 else tuple(asked)
    types = dtype or ("bf16" if formats else "bf16,f16")
    rows, dtypes = numbers("--m", m), tuple(known(name.strip()).name for name in types.split(","))
    if (top is not None and experts is None) or (experts is not None and not formats):
        raise LanewiseError("--top says how many of --experts a token has, and --experts which quantized weights of --format there are")
    of = (0, 0) if experts is None else (experts, 8 if top is None else top)
    kind = GROUPED if experts is not None else QUANT if formats else LINEAR
    try:
        from lanewise.bench.tune import TunePlan, added, write_table
        from lanewise.bench.tune import tune as measure
    except ImportError as error:
        raise DeviceError(f"tuning on {device} needs PyTorch and Triton: {error}; pip install 'lanewise[gpu]' brings them") from None
    plan = TunePlan(found, rows, dtypes, device, seconds, formats, *of)
    if write:
        user_path(device, kind)  # whether there is such a place is known before anything is measured
    with Progress() as bar:
        table, notes = measure(plan, bar)
    unwritten = []
    for path in ([user_path(table.key["device"], kind)] if write else []) + ([Path(out)] if out else []):
        try:
            write_table(added(table, path) if add else table, path)
            complain("note", f"table written: {path}")
        except LanewiseError as error:
            unwritten.append(error)
    for note in notes:
        complain("note", note)
    if as_json:
        print_json({"key": table.key, "rows": [asdict(row) for row in table.rows], "notes": notes})
    else:
        _print(table)
    if unwritten:  # behind what was measured, which is not lost
        raise unwritten[0]


def _print(table: "Table") -> None:
    click.echo(", ".join(f"{name} {value}" for name, value in table.key.items()) + "\n")
    rows = []
    for row in table.rows:
        words = (f"{1e6 * row.seconds:.2f}", f"{1e6 * row.blas_seconds:.2f}", f"{row.blas_seconds / row.seconds:.2f}x")
        rows.append((row.name, row.m, f"{row.n}x{row.k}", str(row.config), *words))
    print_table(("type", "m", "n x k", "configuration", "us", "blas us", "ratio"), rows, right=("m", "us", "blas us", "ratio"))


def _usual() -> tuple[tuple[int, int], ...]:
    from lanewise.bench.sweep import SHAPES

    return SHAPES
