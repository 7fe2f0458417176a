"""`lanewise evidence table`: many bundles as one table or picture."""

from pathlib import Path

import click

from lanewise.cli.evidence_out import print_means, share
from lanewise.cli.terminal import as_json, complain, print_json, print_table
from lanewise.errors import LanewiseError

__all__ = ["table"]


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...")
@click.option("--markdown", is_flag=True, help="Print Markdown, each figure with its mark.")
@click.option("--plot", help="Write a picture of all ratios to this file (.svg, .png, .pdf).")
@as_json
def table(bundles: tuple[str, ...], markdown: bool, plot: str | None, as_json: bool) -> None:
    """Show bundles of `bench kernel` in one table, with the geometric mean of each m. A bundle that does not hold is refused."""
    from lanewise.bench.plots import plot_many, require_matplotlib
    from lanewise.evidence import open_bundle, tabled, verify

    if plot is not None:
        require_matplotlib()
    rows = []
    for name in bundles:
        found = open_bundle(Path(name))
        if reasons := verify(found):
            raise LanewiseError(f"{name} does not hold: {reasons[0]}")
        rows.append(tabled.row(found))
    rows.sort(key=lambda one: (one["type"], one["m"]))
    means = tabled.means(rows)
    if as_json:
        print_json({"rows": rows, "means": means})
    elif markdown:
        click.echo(tabled.markdown(rows), nl=False)
    else:
        lines = []
        for one in rows:
            ratio, taken = one["ratio"], one["seconds"]
            times = (f"{1e6 * seconds:.2f}" for seconds in (taken["a"], taken["b"], one["floor"]))
            words = f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
            lines.append((one["type"], one["m"], f"{one['n']}x{one['k']}", *times, words, share(one["of_read"]), one["verdict"]))
        head = ("type", "m", "n x k", "a us", "b us", "floor us", "b / a", "of read", "verdict")
        print_table(head, lines, right=("m", "a us", "b us", "floor us", "of read"))
        print_means(means)
    if plot is not None:
        plot_many(rows, Path(plot))
        complain("note", f"picture written: {plot}")
