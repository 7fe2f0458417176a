"""Two bundles side by side: what was the same, what differs, and the ratio of their ratios."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

from lanewise.errors import EvidenceError
from lanewise.evidence.bundle import Bundle
from lanewise.evidence.recompute import leaves, shown

__all__ = ["Comparison", "compare"]

# What makes two runs answers to one question; the rest of a manifest says how well it was answered.
_COMPARED = ("question", "kind", "problem", "machine", "commit", "versions", "settings")
_OF_RECORDS = ("model", "machine", "commit", "versions", "settings")
_OF_PLAN = ("residency", "buffers_bytes", "threads", "metric", "better")
_OF_RUN = ("device", "isa", "threads", "residency", "chunk")


@dataclass(frozen=True, slots=True)
class Comparison:
    """differences: in words, one a line; figures: (name, of the first, of the second, second / first)."""

    differences: tuple[str, ...]
    figures: tuple[tuple[str, float | None, float | None, float | None], ...]
    ratio: dict[str, float] | None
    verdict: str


def compare(first: Bundle, second: Bundle) -> Comparison:
    """Compare two bundles or two records. Raises EvidenceError for one of each."""
    if first.is_record != second.is_record:
        raise EvidenceError(f"{first.id} and {second.id}: one is a record of a model and one an A/B bundle; two of a kind are compared")
    names = _OF_RECORDS if first.is_record else _COMPARED
    differences = [line for name in names for line in _differences(name, first.manifest[name], second.manifest[name])]
    inner, fields = ("run", _OF_RUN) if first.is_record else ("plan", _OF_PLAN)
    for name in fields:
        differences += _differences(f"{inner}.{name}", first.manifest[inner].get(name), second.manifest[inner].get(name))
    if not first.is_record:
        for arm in ("a", "b"):
            for name in ("label", "spec", "artifact"):
                differences += _differences(f"arms.{arm}.{name}", first.manifest["arms"][arm][name], second.manifest["arms"][arm][name])
    ratio = None if first.is_record else _ratio(first, second)
    return Comparison(tuple(differences), tuple(_figures(first, second)), ratio, _verdict(ratio, first.is_record))


def _differences(name: str, a: Any, b: Any) -> Iterator[str]:
    one, other = dict(leaves(a, name)), dict(leaves(b, name))
    for where in dict.fromkeys((*one, *other)):
        if one.get(where) != other.get(where):
            yield f"{where}: {shown(one[where]) if where in one else 'nothing'}, then {shown(other[where]) if where in other else 'nothing'}"


def _figures(first: Bundle, second: Bundle) -> Iterator[tuple[str, float | None, float | None, float | None]]:
    one, other = dict(leaves(first.figures)), dict(leaves(second.figures))
    for name in dict.fromkeys((*one, *other)):
        a, b = one.get(name), other.get(name)
        numbers = [value for value in (a, b) if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers:
            yield name, a, b, b / a if len(numbers) == 2 and a else None


def _ratio(first: Bundle, second: Bundle) -> dict[str, float] | None:
    """Second's ratio over the first's. The runs are independent, so that the half widths of their intervals add in squares, in logs."""
    a, b = first.figures["ratio"], second.figures["ratio"]
    if None in (*a.values(), *b.values()):
        return None
    try:
        middle = log(b["median"] / a["median"])
        below = sqrt(log(b["median"] / b["low"]) ** 2 + log(a["high"] / a["median"]) ** 2)
        above = sqrt(log(b["high"] / b["median"]) ** 2 + log(a["median"] / a["low"]) ** 2)
        return {"median": exp(middle), "low": exp(middle - below), "high": exp(middle + above)}
    except (ArithmeticError, ValueError):  # figures that no run gives
        return None


def _verdict(ratio: dict[str, float] | None, records: bool) -> str:
    if ratio is None:
        return "records hold no ratio" if records else "one of the two holds no ratio"
    if ratio["low"] <= 1 <= ratio["high"]:
        return "the two ratios agree within their intervals"
    return f"the ratio b / a {'rose' if ratio['median'] > 1 else 'fell'} from the first to the second, beyond their intervals"
