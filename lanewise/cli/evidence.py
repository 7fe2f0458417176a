"""`lanewise evidence`: verify what a bundle claims, show it, compare two."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.terminal import as_json, complain, print_json, print_table, printable
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.evidence import Bundle, Reason

__all__ = ["app"]


@click.group(name="evidence")
def app() -> None:
    """Verify, show and compare evidence bundles and records."""


@app.command()
@click.argument("bundle")
@click.option("--repo", help="A git checkout: check commit and sources, compile and draw the inputs again.")
@click.option("--docs", multiple=True, help="A document whose figures are checked too. May be repeated.")
@click.option("--run-commits", is_flag=True, help="Let the Lanewise of an arm's commit compile its own kernels: this runs code of the checkout.")
@as_json
@click.argument("more", nargs=-1, metavar="[DOCUMENT]...")
def verify(bundle: str, repo: str | None, docs: tuple[str, ...], run_commits: bool, as_json: bool, more: tuple[str, ...]) -> None:
    """Recompute every figure of BUNDLE from its samples, and list every reason to refuse it.

    BUNDLE is a directory or .zip with manifest.json, or a record of `lanewise bench model`. Names behind --docs FILE are documents too.
    """
    if more and not docs:
        raise LanewiseError(f"{more[0][:64]!r} is one name too many; documents follow --docs")
    if run_commits and repo is None:
        raise LanewiseError("--run-commits needs --repo, where the commits are")
    found = _opened(bundle)
    reasons = _verified(found, repo, (*docs, *more), run_commits)
    if as_json:
        listed = [{"code": r.code, "where": r.where, "expected": r.expected, "found": r.found, "words": str(r)} for r in reasons]
        print_json({"bundle": found.id, "ok": not reasons, "reasons": listed, "figures": found.figures})
    elif reasons:
        for reason in reasons:
            click.echo(printable(str(reason)))
        complain("error", f"{bundle} is refused: {len(reasons)} reason{'' if len(reasons) == 1 else 's'}")
    else:
        checked = ", ".join(["every figure", *(["commit, sources and machine code"] if repo else []), *(["documents"] if docs else [])])
        click.echo(f"ok: {printable(found.id)}: {checked}")
    if reasons:
        raise click.exceptions.Exit(1)


@app.command()
@click.argument("bundle")
@click.option("--html", help="Write one self-contained page to this file.")
@as_json
def show(bundle: str, html: str | None, as_json: bool) -> None:
    """Show what BUNDLE holds: in the terminal, or as a page with --html."""
    from lanewise.evidence import page

    found = _opened(bundle)
    reasons = _verified(found, None, ())
    if html is not None:
        _write(html, page(found, reasons))
        complain("note", f"page written: {html}")
    elif as_json:
        print_json({"bundle": found.id, "refused": [str(reason) for reason in reasons], "manifest": found.manifest})
    else:
        _print(found, reasons)


@app.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@as_json
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare two bundles, or two records: what differs, and how their figures do."""
    from lanewise.evidence import compare as compared

    one, other = _opened(first), _opened(second)
    found = compared(one, other)
    if as_json:
        figures = [dict(zip(("name", "a", "b", "b_over_a"), row, strict=True)) for row in found.figures]
        print_json({"differences": found.differences, "figures": figures, "ratio": found.ratio, "verdict": found.verdict})
        return
    click.echo(f"A: {printable(one.id)}\nB: {printable(other.id)}\n")
    for line in found.differences or ("the same question, problem, machine, commit and settings",):
        click.echo(printable(line))
    click.echo()
    rows = [(name, _number(a), _number(b), _number(ratio)) for name, a, b, ratio in found.figures]
    print_table(("figure", "A", "B", "B / A"), rows, right=("A", "B", "B / A"))
    if found.ratio:
        click.echo(f"\nratio of ratios: {found.ratio['median']:.4f} ({found.ratio['low']:.4f} to {found.ratio['high']:.4f})")
    click.echo(found.verdict)


def _opened(name: str) -> "Bundle":
    from lanewise.evidence import open_bundle

    return open_bundle(Path(name))


def _verified(found: "Bundle", repo: str | None, docs: tuple[str, ...], run_commits: bool = False) -> "list[Reason]":
    from lanewise.evidence import verify

    return verify(found, Path(repo) if repo is not None else None, [Path(name) for name in docs], run_commits=run_commits)


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LanewiseError(f"{name} cannot be written: {error.strerror}") from None


def _print(found: "Bundle", reasons: "list[Reason]") -> None:
    from lanewise.evidence import summary

    click.echo(printable(summary.title(found)))
    click.echo(f"{'refused: ' if reasons else ''}{printable(summary.headline(found))}\n")
    head, rows = summary.phases(found) if found.is_record else summary.arms(found)
    print_table(head, rows, right=tuple(name for name in head if name not in ("arm", "label", "what ran", "phase", "kind")))
    click.echo()
    print_table(("", ""), summary.about(found))
    click.echo()
    if reasons:
        click.echo(f"refused: {len(reasons)} reason{'' if len(reasons) == 1 else 's'}; lanewise evidence verify lists them")
    else:
        click.echo("every figure follows from the samples")


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else "-" if value is None else str(value)
