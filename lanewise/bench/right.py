"""Whether what a GPU kernel gave is right: beside float64 sums of the same operands, within the bound that its dtype and k give."""

from typing import Any

import numpy as np

from lanewise.contract import Tolerance
from lanewise.prove.operands import products

__all__ = ["worst"]


def worst(y: Any, x: Any, w: Any, dtype: str) -> float:
    """The largest error of y[m,n] as a share of what is allowed: right up to 1; inf where y holds what is no number."""
    want, magnitude = products(x.double().cpu().numpy(), w)
    share = np.abs(y.double().cpu().numpy() - want) / Tolerance.dot(x.shape[1], out=dtype).bound(want, magnitude)
    return float(np.where(np.isfinite(share), share, np.inf).max(initial=0.0))
