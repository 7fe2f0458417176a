"""What came of a run, and how a run ends that ends badly."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Result", "attempted"]

_MOST_WORDS = 400


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run: `problem` in words, or empty; `refused` in words; the worst error in units of what is allowed."""

    case: str
    through: str
    problem: str
    refused: str
    worst: float
    nonzero: float  # share of y that is not 0
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.problem


def attempted(prove: Callable[[Any, Any], Result], run: Any, device: Any) -> Result:
    """prove(run, device), where whatever it raises is a problem in words and not the end of the list."""
    try:
        return prove(run, device)
    except Exception as error:  # noqa: BLE001 - a broken body may raise anything
        words = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_WORDS]
        return Result(str(run.case), run.through, words, "", math.inf, 0.0, 0.0)
