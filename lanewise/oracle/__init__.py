"""What is right: every op in float64 or int64, from its formula, and how far a float32 computation of it may be off.

`ORACLES` has a row for every op of the contract. compute and bound take the same arguments; bound also takes the dtype that the result is rounded to.

>>> import numpy as np
>>> x, w = np.ones((1, 3), np.float32), np.full((2, 3), 0.1, np.float32)
>>> ORACLES["linear"].worst(x @ w.T, x, w) <= 1
True
>>> ORACLES["linear"].worst(x @ w.T + 1, x, w) <= 1
False
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lanewise.oracle.attention import attention, attention_bound, write_kv
from lanewise.oracle.chain import linear_chain
from lanewise.oracle.elementwise import rms_norm, rms_norm_bound, rope, rope_bound, silu_mul, silu_mul_bound
from lanewise.oracle.linear import embedding, embedding_bound, grouped_linear, grouped_linear_bound, linear, linear_bound
from lanewise.oracle.quant import quant_linear, quant_linear_bound
from lanewise.oracle.rounding import F64, worst
from lanewise.oracle.sample import penalize, penalize_bound, sample, sample_bound, sample_candidates

__all__ = [
    "ORACLES",
    "Oracle",
    "attention",
    "attention_bound",
    "embedding",
    "embedding_bound",
    "grouped_linear",
    "grouped_linear_bound",
    "linear",
    "linear_bound",
    "linear_chain",
    "penalize",
    "penalize_bound",
    "quant_linear",
    "quant_linear_bound",
    "rms_norm",
    "rms_norm_bound",
    "rope",
    "rope_bound",
    "sample",
    "sample_bound",
    "sample_candidates",
    "silu_mul",
    "silu_mul_bound",
    "worst",
    "write_kv",
]


@dataclass(frozen=True, slots=True)
class Oracle:
    """One op: `compute(...)` in float64 and `bound(..., out=dtype)`, the allowed |got - compute(...)| at each element.

    `choices(...)`, for an op whose result is an id: all ids that rounding may lead to.
    """

    op: str
    compute: Callable[..., F64 | int]
    bound: Callable[..., F64]
    choices: Callable[..., set[int]] | None = None

    def worst(self, got: ArrayLike, *args: Any, **kwargs: Any) -> float:
        """The largest error of a float32 result, in units of its bound: right when at most 1. Raises ShapeError when the shapes differ."""
        want = np.asarray(self.compute(*args, **kwargs), dtype=np.float64)
        if self.choices is None:
            return worst(got, want, self.bound(*args, **kwargs))
        return min(worst(got, want, want * 0), 1.0 if np.asarray(got).item() in self.choices(*args, **kwargs) else np.inf)


ORACLES: dict[str, Oracle] = {
    row.op: row
    for row in (
        Oracle("linear", linear, linear_bound),
        Oracle("quant_linear", quant_linear, quant_linear_bound),
        Oracle("grouped_linear", grouped_linear, grouped_linear_bound),
        Oracle("embedding", embedding, embedding_bound),
        Oracle("rms_norm", rms_norm, rms_norm_bound),
        Oracle("rope", rope, rope_bound),
        Oracle("attention", attention, attention_bound),
        Oracle("silu_mul", silu_mul, silu_mul_bound),
        Oracle("sample", sample, sample_bound, sample_candidates),
    )
}
