"""Whether what a GPU kernel gave is right: beside float64 sums of the same operands, within the bound that its dtype and k give."""

from typing import Any

import numpy as np

from lanewise.contract import Tolerance
from lanewise.errors import EvidenceError

__all__ = ["require_right", "worst"]

_AT_ONCE = 1 << 27  # numbers of w that are widened at a time


def worst(y: Any, x: Any, w: Any, dtype: str) -> float:
    """The largest error of y[m,n] as a share of what is allowed: right up to 1; inf where y holds what is no number."""
    tolerance, found = Tolerance.dot(x.shape[1], out=dtype), 0.0
    step = max(1, _AT_ONCE // max(1, x.shape[1]))
    wide = x.double()
    for row in range(0, w.shape[0], step):
        part = w[row : row + step].double().T
        want, magnitude = ((a @ b).cpu().numpy() for a, b in ((wide, part), (wide.abs(), part.abs())))
        got = y[:, row : row + step].double().cpu().numpy()
        share = np.abs(got - want) / tolerance.bound(want, magnitude)
        found = max(found, float(np.where(np.isfinite(share), share, np.inf).max(initial=0.0)))
    return found


def require_right(y: Any, x: Any, w: Any, dtype: str, what: str) -> None:
    """Raises EvidenceError where y is wrong: how fast that is, nobody needs to know."""
    share = worst(y, x, w, dtype)
    if not share <= 1:
        raise EvidenceError(f"{what} gives a wrong result: {share:.3g} times the error that is allowed; it is not measured")
