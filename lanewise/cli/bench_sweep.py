"""`lanewise bench sweep`: the skinny kernel against BLAS at many shapes, an evidence bundle each."""

from pathlib import Path
from typing import Any

import click

from lanewise.cli.evidence_out import print_means, share
from lanewise.cli.options import numbers, shapes_of
from lanewise.cli.terminal import as_json, complain, print_json, print_table

__all__ = ["sweep"]


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--shapes", help="Weights as NxK, with commas.", show_default="those of Qwen3 models")
@click.option("--m", default="1,2,3,4,8,16", help="Tokens, with commas.")
@click.option("--dtype", default="bf16", help="Types, with commas.")
@click.option("--device", default="cuda", help="The GPU: cuda, or cuda:1.")
@click.option("--pairs", default=15, help="Pairs of samples, at least 15; two are a round.")
@click.option("--seed", type=int, help="Same seed, same inputs and order.", show_default="a new one for each")
@as_json
def sweep(folder: str, shapes: str | None, m: str, dtype: str, device: str, pairs: int, seed: int | None, as_json: bool) -> None:
    """Compare the skinny kernel with BLAS at many shapes, and write a bundle of each to new directories in DIR."""
    from lanewise.bench import sweep as measured

    chosen = measured.SHAPES if shapes is None else shapes_of(shapes)
    dtypes = [name.strip() for name in dtype.split(",")]
    told = lambda words: complain("note", words)  # noqa: E731
    runs = measured.sweep(Path(folder), chosen, numbers("--m", m), dtypes, device, pairs, seed, told)
    rows: list[dict[str, Any]] = []
    for path, found in runs:
        problem, figures = found["problem"], found["figures"]
        one = {"bundle": path.name, **{name: problem[name] for name in ("dtype", "m", "n", "k")}, **figures["ratio"]}
        one |= {"us": {arm: figures[arm]["seconds"] and 1e6 * figures[arm]["seconds"] for arm in "ab"}, "of_read": figures["a"]["of_read"]}
        rows.append(one | {"verdict": figures["verdict"], "left_out": figures["left_out"]})
        complain("note", f"{path.name}: b / a {_ratio(figures['ratio'])}, {figures['verdict']}")
    if as_json:
        print_json(rows)
        return
    _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    from lanewise.evidence.tabled import means

    head = ("dtype", "m", "n x k", "us", "blas us", "ratio", "of read", "verdict")
    lines = []
    for row in rows:
        times = ("-" if one is None else f"{one:.2f}" for one in row["us"].values())
        lines.append((row["dtype"], row["m"], f"{row['n']}x{row['k']}", *times, _ratio(row), share(row["of_read"]), row["verdict"]))
    print_table(head, lines, right=("m", "us", "blas us", "of read"))
    print_means(means([{"type": row["dtype"], "m": row["m"], "ratio": row} for row in rows if row["median"]]))


def _ratio(one: dict[str, Any]) -> str:
    return "-" if one["median"] is None else f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
