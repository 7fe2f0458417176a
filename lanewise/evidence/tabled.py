"""Many bundles of one question as one table: for the terminal, as JSON, or as Markdown whose every figure carries its mark."""

from collections.abc import Sequence
from math import exp, log
from typing import Any

from lanewise.errors import EvidenceError
from lanewise.evidence.bundle import Bundle

__all__ = ["markdown", "means", "row"]


def row(bundle: Bundle) -> dict[str, Any]:
    """What a kernel's bundle adds to a table. floor: seconds that its bytes take at the read bandwidth of the same rounds.

    Raises EvidenceError for a bundle of something else, and for one of which no round was kept.
    """
    found, figures = bundle.manifest, bundle.figures
    if bundle.is_record or found["kind"] != "kernel":
        raise EvidenceError(f"{bundle.id} is no bundle of a kernel's A/B run; a table has rows of those")
    if figures["ratio"]["median"] is None:
        raise EvidenceError(f"{bundle.id}: every round was left out; there is nothing to show")
    problem, a = found["problem"], figures["a"]
    return {
        "bundle": bundle.id,
        "type": problem.get("format") or problem["dtype"],
        **{name: problem[name] for name in ("op", "m", "n", "k")},
        "a": found["arms"]["a"]["label"],
        "b": found["arms"]["b"]["label"],
        "seconds": {arm: figures[arm]["seconds"] for arm in "ab"},
        "ratio": dict(figures["ratio"]),
        "floor": a["seconds"] * a["of_read"],
        "of_read": a["of_read"],
        "phase": problem["phase"],
        "operations": {arm: figures[arm]["operations_per_second"] for arm in "ab"},
        "verdict": figures["verdict"],
    }


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each type and m the geometric mean of the ratios, the least of them, and how many there are."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for one in rows:
        groups.setdefault((one["type"], one["m"]), []).append(one["ratio"]["median"])
    return [
        {"type": kind, "m": m, "mean": exp(sum(map(log, ratios)) / len(ratios)), "least": min(ratios), "count": len(ratios)}
        for (kind, m), ratios in groups.items()
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A table for a document: `evidence verify --docs` finds every figure in its bundle again.

    Prompts, which wait for products and not for weights, have a table of their own, with what both arms compute a second.
    """
    tables = [_table([one for one in rows if one["phase"] == phase], phase) for phase in ("decode", "prefill")]
    return "\n".join(table for table in tables if table)


def _table(rows: Sequence[dict[str, Any]], phase: str) -> str:
    if not rows:
        return ""
    a, b = (rows[0][arm] for arm in ("a", "b"))
    last = "of read" if phase == "decode" else f"{a} computes | {b} computes"
    head = f"| type | m | n x k | {a} | {b} | ratio | interval | {last} |"
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for one in rows:
        name, ratio = one["bundle"], one["ratio"]
        times = (f"{1e6 * one['seconds'][arm]:.2f} us{_mark(name, f'{arm}.seconds')}" for arm in "ab")
        ends = " to ".join(f"{ratio[end]:.3f}{_mark(name, f'ratio.{end}')}" for end in ("low", "high"))
        share = f"{100 * one['of_read']:.0f} %{_mark(name, 'a.of_read')}"
        rates = (f"{one['operations'][arm] / 1e12:.0f} TOP/s{_mark(name, f'{arm}.operations_per_second')}" for arm in "ab")
        cells = (
            one["type"],
            one["m"],
            f"{one['n']}x{one['k']}",
            *times,
            f"{ratio['median']:.3f}{_mark(name, 'ratio.median')}",
            ends,
            *((share,) if phase == "decode" else rates),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _mark(name: str, field: str) -> str:
    return f"<!-- evidence: {name}.{field} -->"
