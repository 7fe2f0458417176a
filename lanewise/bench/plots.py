"""A run as a picture: its pairs, the ratio with its interval beside the control's, and for a kernel the roofline.

matplotlib comes with `pip install 'lanewise[plots]'`; nothing else needs it.
"""

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

from lanewise.bench import stats
from lanewise.errors import EvidenceError

__all__ = ["plot", "plot_many", "require_matplotlib"]

_A, _B, _QUIET = "#0072b2", "#d55e00", "#777777"  # Okabe and Ito: apart for every kind of colour vision


def require_matplotlib() -> None:
    """Raise EvidenceError, saying how to get it, where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise EvidenceError("plots need matplotlib, which is not installed; pip install 'lanewise[plots]' brings it") from None


def plot(manifest: Mapping[str, Any], path: Path) -> None:
    """Write the picture; its format follows from the name (.svg, .png, .pdf). Raises EvidenceError for one that cannot be written."""
    require_matplotlib()
    from matplotlib.figure import Figure

    if not stats.kept(manifest["rounds"]):
        raise EvidenceError("every round was left out; there is nothing to plot")
    kernel = manifest["kind"] == "kernel"
    figure = Figure(figsize=(15 if kernel else 10, 4.5), layout="constrained")
    axes = figure.subplots(1, 3 if kernel else 2)
    _pairs(axes[0], manifest)
    _ratio(axes[1], manifest)
    if kernel:
        _roofline(axes[2], manifest)
    figure.suptitle(manifest["question"], fontsize=10, wrap=True)
    _save(figure, path)


def plot_many(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Rows of `lanewise.evidence.tabled`: the ratio of each shape with its interval, a colour for each m, and the share of the read bandwidth.

    Of quantized weights a shape in each format is a line of its own.

    Raises EvidenceError for a picture that cannot be written.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    shapes, groups = list(dict.fromkeys(map(_line, rows))), list(dict.fromkeys(map(_group, rows)))
    figure = Figure(figsize=(12, 1.5 + 0.12 * len(shapes) * (len(groups) + 1)), layout="constrained")
    ratio, read = figure.subplots(1, 2, sharey=True)
    for number, group in enumerate(groups):
        alike = [one for one in rows if _group(one) == group]
        places = [shapes.index(_line(one)) + 0.8 * ((number + 0.5) / len(groups) - 0.5) for one in alike]
        colour = f"C{number % 10}"
        for place, one in zip(places, alike, strict=True):
            ratio.plot([one["ratio"]["low"], one["ratio"]["high"]], [place, place], "-", color=colour, lw=1)
        ratio.plot([one["ratio"]["median"] for one in alike], places, "o", color=colour, ms=4, label=group)
        read.plot([100 * one["of_read"] for one in alike], places, "o", color=colour, ms=4)
    ratio.axvline(1, color=_QUIET, lw=0.8)
    read.axvline(100, color=_QUIET, lw=0.8)
    ratio.set(xscale="log", xlabel=f"{rows[0]['b']} / {rows[0]['a']}, interval", yticks=range(len(shapes)), yticklabels=shapes)
    for kind in ("major", "minor"):
        getattr(ratio.xaxis, f"set_{kind}_formatter")("{x:g}")
    ratio.invert_yaxis()
    read.set(xlabel=f"{rows[0]['a']}: % of the read bandwidth of its rounds")
    figure.legend(loc="outside upper center", ncols=6, fontsize=8)
    _save(figure, path)


def _line(row: Mapping[str, Any]) -> str:
    shape = f"{row['n']}x{row['k']}"
    return f"{row['type']} {shape}" if row["op"] in ("quant_linear", "grouped_linear") else shape


def _group(row: Mapping[str, Any]) -> str:
    return f"m={row['m']}" if row["op"] in ("quant_linear", "grouped_linear") else f"{row['type']} m={row['m']}"


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise EvidenceError(f"{path} cannot be written: {words}") from None


def _pairs(axes: Any, manifest: Mapping[str, Any]) -> None:
    rounds = manifest["rounds"]
    for chosen, label, filled in ((stats.kept(rounds), "pair b / a", True), ([r for r in rounds if r["left_out"]], "left out", False)):
        numbers = [r["number"] for r in chosen for _ in range(2)]
        ratios = [exp(v) for pair in stats.pair_logs(chosen) for v in pair]
        if numbers:
            axes.plot(numbers, ratios, "o" if filled else "x", color=_B if filled else _QUIET, ms=5, label=label)
    kept = stats.kept(rounds)
    axes.plot([r["number"] for r in kept], [exp(v[0]) for v in stats.control_logs(kept)], "s", mfc="none", color=_QUIET, ms=5, label="control")
    axes.axhline(1, color=_QUIET, lw=0.8)
    axes.axhline(manifest["figures"]["ratio"]["median"], color=_B, lw=1.2, label="median")
    axes.set(xlabel="round", ylabel="ratio", title="pairs")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend(fontsize=8)


def _ratio(axes: Any, manifest: Mapping[str, Any]) -> None:
    figures = manifest["figures"]
    for row, (name, label, colour) in enumerate((("control", "control, a/a and b/b", _QUIET), ("ratio", "b / a", _B))):
        one = figures[name]
        axes.plot([one["low"], one["high"]], [row, row], "-", color=colour, lw=2)
        axes.plot([one["median"]], [row], "o", color=colour)
        words = f"{label}: {one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
        axes.text(0.5, row + 0.12, words, ha="center", fontsize=9, transform=axes.get_yaxis_transform())
    axes.axvline(1, color=_QUIET, lw=0.8)
    axes.set(xlabel="ratio, 95 % interval" if manifest["plan"]["bootstrap"]["level"] == 0.95 else "ratio", title=figures["verdict"])
    axes.set(ylim=(-0.5, 1.6), yticks=[])
    axes.margins(x=0.3)


def _roofline(axes: Any, manifest: Mapping[str, Any]) -> None:
    """Operations a second over operations for each byte, under what the probes of the same rounds gave."""
    problem, figures, rounds = manifest["problem"], manifest["figures"], stats.kept(manifest["rounds"])
    intensity = problem["operations"] / problem["bytes"]
    name = "float" if "float" in rounds[0]["probes"] else "int8"
    read, top = stats.peak(rounds, "read", "bytes"), 2 * stats.peak(rounds, name, "macs")
    span = [min(intensity, top / read) / 8, max(intensity, top / read) * 8]
    axes.plot([span[0], top / read], [read * span[0], top], "-", color=_QUIET, label=f"read, {read / 1e9:.1f} GB/s")
    axes.plot([top / read, span[1]], [top, top], "--", color=_QUIET, label=f"{name}, {top / 1e9:.0f} Gop/s")
    for arm, colour, mark in (("a", _A, "o"), ("b", _B, "s")):
        axes.plot([intensity], [figures[arm]["operations_per_second"]], mark, color=colour, label=f"{arm}: {manifest['arms'][arm]['label']}")
    axes.set(xscale="log", yscale="log", xlabel="operations / byte", ylabel="operations / s", title=f"roofline, {manifest['plan']['residency']}")
    axes.legend(fontsize=8)
