"""ops.grouped_linear as people call it: whichever kernel dispatch takes, y lies where that kernel's own definition puts it.

`grouped_quant` multiplies int8 activations; `grouped_blas` multiplies x as it is by each expert rounded to x's type, as `linear` does.
An id that is no expert's raises, and without the check its rows are no numbers.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lanewise import dispatch, ops
from lanewise.errors import ShapeError
from lanewise.formats import get
from lanewise.oracle.chain import Enclosure, linear_chain
from lanewise.prove.grouped_bodies import GroupedBody
from lanewise.prove.grouped_cases import OPERATOR, GroupedCase
from lanewise.prove.grouped_operands import Routed, broken, enclosure, routed, weighted
from lanewise.prove.operands import DTYPES, products
from lanewise.prove.quant_checks import within
from lanewise.prove.quant_exact import quantized
from lanewise.prove.result import Result

__all__ = ["GroupedOpRun", "runs"]


@dataclass(frozen=True, slots=True)
class GroupedOpRun:
    """A case of the op."""

    case: GroupedCase
    through: str
    body: GroupedBody

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"

    def proven(self, device: torch.device) -> Result:
        """What ran, y within that kernel's enclosure, operands as they were, and a word about ids that are no expert's."""
        began, case = time.perf_counter(), self.case
        operands = routed(case, device)
        given = {**operands.arguments, "expert_ids": operands.arguments["ids"]}
        del given["ids"]
        with dispatch.witness() as ran:
            y = self.body(**given, check=False)
        problem = self._unsaid(given, operands)
        if (tuple(y.shape), y.dtype) != ((case.tokens, case.top, case.n), given["out"]):
            problem = problem or f"y is {y.dtype}{list(y.shape)}"
        worst, nonzero = 0.0, 1.0
        if not problem:
            allowed = _integer(case, operands) if "grouped_quant" in ran else _expanded(case, operands)
            problem, worst, nonzero = within(y.reshape(case.pairs, case.n), allowed, broken(case, operands))
        return Result(str(case), f"{self.through} -> {', '.join(ran)}", problem or operands.broken(), "", worst, nonzero, time.perf_counter() - began)

    def _unsaid(self, given: dict[str, Any], operands: Routed) -> str:
        """What is wrong with the check of ids: one that is no expert's raises, and any other does not."""
        assert operands.ids is not None
        bad = bool(((operands.ids < 0) | (operands.ids >= self.case.experts)).any())
        try:
            self.body(**given)
        except ShapeError as error:
            return "" if bad and "expert ids run from" in str(error) else f"refused, and may not: {error}"
        return "an id that is no expert's was not refused" if bad else ""


def runs(device: torch.device) -> Iterator[GroupedOpRun]:
    """The cases that the op takes."""
    for case in OPERATOR:
        yield GroupedOpRun(case, "ops.grouped_linear", ops.grouped_linear)


def _integer(case: GroupedCase, operands: Routed) -> Enclosure:
    x = operands.host("x")
    assert x is not None
    q, d = quantized(x.reshape(case.alone.tokens, case.k).astype(np.float32), get(case.format).activation)
    return enclosure(case, operands, q, d)


def _expanded(case: GroupedCase, operands: Routed) -> Enclosure:
    """As `linear` with an expert rounded to x's type, expert by expert."""
    x = operands.host("x")
    assert x is not None
    device, flat = operands.arguments["x"].device, x.reshape(case.alone.tokens, case.k)
    sums = "matrix" if device.type != "cpu" else "any" if case.values in ("bytes", "extreme") else "random"
    parts = np.full((4, case.pairs, case.n), np.nan)
    parts[3] = 1.0
    for e, pairs, rows in operands.chosen(case):
        w = torch.from_numpy(get(case.format).dequantize(operands.raw[e])).to(device, DTYPES[case.dtype])
        with np.errstate(invalid="ignore", over="ignore"):
            one = linear_chain(flat[rows], w, gated=case.gated, dtype=case.dtype, out=case.out, sums=sums, multiply=products)
        for part, mine in zip(parts, (one.want, one.low, one.high, one.step), strict=True):
            part[pairs] = mine
    return weighted(Enclosure(*parts), operands.host("weights"), case.out)
