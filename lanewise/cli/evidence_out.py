"""What commands that measure two arms have in common: where the bundle and the picture go, and the lines that every run prints."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from lanewise.cli.terminal import complain, print_json, printable, size
from lanewise.errors import LanewiseError

__all__ = ["destination", "plotted", "print_means", "print_run", "rate", "share", "written"]

_PICTURES = (".svg", ".png", ".pdf")


def destination(name: str | None) -> Path | None:
    """Where the bundle goes; refused before minutes are spent on what it would hold."""
    if name is None:
        return None
    path = Path(name)
    if path.exists():
        raise LanewiseError(f"{name} is there already; a bundle is written to a new directory")
    if not path.parent.is_dir():
        raise LanewiseError(f"{name}: there is no directory {str(path.parent)!r}")
    return path


def print_means(means: Sequence[dict[str, Any]]) -> None:
    """A line for each of `lanewise.evidence.tabled.means`."""
    for one in means:
        click.echo(f"{one['type']} m={one['m']}: geometric mean {one['mean']:.3f}, least {one['least']:.3f} of {one['count']}")


def plotted(name: str | None) -> Callable[[dict[str, Any]], None] | None:
    """What will draw the picture; a wrong name, or matplotlib that is missing, is refused before anything is measured."""
    if name is None:
        return None
    from lanewise.bench.plots import plot, require_matplotlib

    path = Path(name)
    if path.suffix not in _PICTURES:
        raise LanewiseError(f"--plot is {name[:64]!r}; the name of a picture ends in {', '.join(_PICTURES)}")
    if not path.parent.is_dir():
        raise LanewiseError(f"{name}: there is no directory {str(path.parent)!r}")
    require_matplotlib()

    def draw(found: dict[str, Any]) -> None:
        plot(found, path)
        complain("note", f"picture written: {name}")

    return draw


def written(found: dict[str, Any], where: Path | None) -> None:
    """Write the bundle, where one was asked for."""
    from lanewise.bench.manifest import write

    if where is not None:
        complain("note", f"bundle written: {write(where, found).parent}")


def print_run(found: dict[str, Any], as_json: bool, arms: Callable[[dict[str, Any]], None]) -> None:
    """The whole run: JSON, or what was asked, on what, `arms` with a line for each, and what the samples show."""
    if as_json:
        print_json(found)
        return
    commit, plan, host = found["commit"], found["plan"], found["machine"]
    known = "unknown" if commit is None else commit["id"][:12] + (", with changes" if commit["dirty"] else "")
    click.echo(f"question: {printable(found['question'])}")
    click.echo(f"machine:  {printable(host['cpu'])}, {host['usable_cores']} cores, {size(host['memory'])}; commit {known}")
    arms(found)
    figures = found["figures"]
    kept = f"{figures['pairs']} pairs of {2 * len(found['rounds'])}"
    click.echo(f"\nratio:    b / a {_interval(figures['ratio'])} from {kept}, {100 * plan['bootstrap']['level']:g} % interval")
    click.echo(f"control:  {_interval(figures['control'])}, two samples of one arm")
    for alike in _alike([r["left_out"] for r in found["rounds"] if r["left_out"] is not None]):
        such = ", such as" if len(set(alike)) > 1 else ""
        click.echo(f"left out: {len(alike)} round{'' if len(alike) == 1 else 's'}{such}: {alike[0]}")
    click.echo(f"verdict:  {figures['verdict']}{_factor(figures)}")


def rate(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value / 1e9:.1f} {unit}"


def share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _alike(reasons: Sequence[str]) -> list[list[str]]:
    """Reasons that differ in their numbers alone, together."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(re.sub(r"[\d.]+", "", reason), []).append(reason)
    return list(groups.values())


def _interval(one: dict[str, float | None]) -> str:
    middle, low, high = (one[key] for key in ("median", "low", "high"))
    return "nothing" if middle is None else f"{middle:.4f} ({low:.4f} to {high:.4f})"


def _factor(figures: dict[str, Any]) -> str:
    """How many times, where a difference is shown."""
    middle = figures["ratio"]["median"]
    return f", {max(middle, 1 / middle):.3f} times" if figures["verdict"].startswith(("a ", "b ")) else ""
