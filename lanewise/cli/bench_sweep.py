"""`lanewise bench sweep`: a GPU's kernels against BLAS at many shapes, an evidence bundle each."""

from pathlib import Path
from typing import Any

import click

from lanewise.cli.evidence_out import print_means, share
from lanewise.cli.options import numbers, shapes_of
from lanewise.cli.terminal import as_json, complain, print_json, print_table
from lanewise.errors import LanewiseError

__all__ = ["sweep"]


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--format", "fmt", help="Formats of quantized weights, with commas, or `all`: quant_linear in the place of linear.")
@click.option("--experts", type=int, help="With --format: grouped_linear with so many experts in the place of quant_linear.")
@click.option("--top", type=int, help="With --experts: how many a token has.", show_default="8")
@click.option("--shapes", help="Weights as NxK, with commas.", show_default="those of Qwen3 models; of quantized weights see below")
@click.option("--m", help="Tokens, with commas.", show_default="1,2,3,4,8,16; of quantized weights see below")
@click.option("--dtype", default="bf16", help="Types, with commas.")
@click.option("--device", default="cuda", help="The GPU: cuda, or cuda:1.")
@click.option("--pairs", default=15, help="Pairs of samples, at least 15; two are a round.")
@click.option("--seed", type=int, help="Same seed, same inputs and order.", show_default="a new one for each")
@as_json
def sweep(
    folder: str,
    fmt: str | None,
    experts: int | None,
    top: int | None,
    shapes: str | None,
    m: str | None,
    dtype: str,
    device: str,
    pairs: int,
    seed: int | None,
    as_json: bool,
) -> None:
    """Compare the skinny kernel with BLAS at many shapes, and write a bundle of each to new directories in DIR.

    With --format it is the quantized kernels beside BLAS on weights that were expanded before. Without --shapes and --m each format is measured at
    4096x14336 with m 1, 4 and 8; Q6_K also at 151936x1024, and Q4_K at 24576x4096, at 12288x4096 with m 1, 32, 512 and 2048, and as 128 experts of
    768x2048, 8 for a token, with m 1, 4 and 16.
    """
    from lanewise.bench import sweep as measured
    from lanewise.kernels.gpu.quant_layout import LAYOUTS, layout_of

    chosen, tokens = shapes_of(shapes) if shapes is not None else None, numbers("--m", m) if m is not None else None
    dtypes = [name.strip() for name in dtype.split(",")]
    if (top is not None and experts is None) or (experts is not None and fmt is None):
        raise LanewiseError("--top says how many of --experts a token has, and --experts which quantized weights of --format there are")
    if fmt is not None:
        names = tuple(LAYOUTS) if fmt.strip().lower() == "all" else tuple(layout_of(name.strip()).format for name in fmt.split(","))
        routed = () if experts is None else (experts, 8 if top is None else top)
        make = measured.grouped_calls if routed else measured.quantized_calls
        calls = [call for one in dtypes for call in make(names, chosen, tokens, one, *routed)]
    else:
        calls = measured.calls_of(chosen or measured.SHAPES, tokens or measured.ROWS, dtypes)
    told = lambda words: complain("note", words)  # noqa: E731
    runs = measured.sweep(Path(folder), calls, device, pairs, seed, told)
    rows: list[dict[str, Any]] = []
    for path, found in runs:
        problem, figures = found["problem"], found["figures"]
        one = {"bundle": path.name, **{name: problem[name] for name in ("format", "dtype", "m", "n", "k") if name in problem}, **figures["ratio"]}
        one |= {"operations_per_second": {arm: figures[arm]["operations_per_second"] for arm in "ab"}}
        one |= {"us": {arm: figures[arm]["seconds"] and 1e6 * figures[arm]["seconds"] for arm in "ab"}, "of_read": figures["a"]["of_read"]}
        rows.append(one | {"verdict": figures["verdict"], "left_out": figures["left_out"]})
        complain("note", f"{path.name}: b / a {_ratio(figures['ratio'])}, {figures['verdict']}")
    if as_json:
        print_json(rows)
        return
    _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    from lanewise.evidence.tabled import means

    head = ("type", "m", "n x k", "us", "blas us", "ratio", "of read", "verdict")
    lines = []
    for row in rows:
        times = ("-" if one is None else f"{one:.2f}" for one in row["us"].values())
        lines.append(
            (row.get("format") or row["dtype"], row["m"], f"{row['n']}x{row['k']}", *times, _ratio(row), share(row["of_read"]), row["verdict"])
        )
    print_table(head, lines, right=("m", "us", "blas us", "of read"))
    print_means(means([{"type": row.get("format") or row["dtype"], "m": row["m"], "ratio": row} for row in rows if row["median"]]))


def _ratio(one: dict[str, Any]) -> str:
    return "-" if one["median"] is None else f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
