"""Compare what a bundle says with what follows from its samples, leaf by leaf."""

import math
from collections.abc import Iterator
from typing import Any

from lanewise.evidence.reasons import Reason

__all__ = ["differing", "leaves", "shown"]

# The logarithms of two math libraries may differ in their last bits; a figure is never written to so many digits.
_LAST_BITS = 2.0**-40


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is neither an object nor a list; `a.b[0].c`."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from leaves(one, f"{where}[{i}]")
    else:
        yield where, value


def differing(follows: Any, claimed: Any) -> list[Reason]:
    """A reason for each figure that is missing, too many or another than the one that follows."""
    right, said = dict(leaves(follows, "figures")), dict(leaves(claimed, "figures"))
    return [
        Reason("figure", where, shown(right[where]) if where in right else "no such figure", shown(said[where]) if where in said else "nothing")
        for where in [*right, *(where for where in said if where not in right)]
        if where not in right or where not in said or not _same(right[where], said[where])
    ]


def _same(right: Any, said: Any) -> bool:
    if isinstance(right, float) and isinstance(said, int | float) and not isinstance(said, bool):
        return math.isclose(right, said, rel_tol=_LAST_BITS)
    return type(right) is type(said) and bool(right == said)


def shown(value: Any) -> str:
    """A value from a bundle in an error: short, and in one line."""
    text = repr(value) if not isinstance(value, float) else f"{value:.12g}"
    return text if len(text) <= 100 else text[:100] + "..."
