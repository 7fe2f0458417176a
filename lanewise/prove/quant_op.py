"""ops.quant_linear as people call it: whichever kernel dispatch takes, y lies where that kernel's own definition puts it.

`quant_gemv` multiplies int8 activations; what expands the weights multiplies x as it is by w rounded to x's type, as `linear` does.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from lanewise import dispatch, ops
from lanewise.formats import get
from lanewise.oracle.chain import Enclosure, linear_chain
from lanewise.prove.operands import DTYPES, EPS, products
from lanewise.prove.quant_bodies import QuantBody
from lanewise.prove.quant_cases import OPERATOR, QuantCase
from lanewise.prove.quant_checks import activations, called, compared
from lanewise.prove.quant_operands import Given, enclosure, given
from lanewise.prove.result import Result

__all__ = ["OpRun", "runs"]


@dataclass(frozen=True, slots=True)
class OpRun:
    """A case of the op, at each of its m."""

    case: QuantCase
    through: str
    body: QuantBody

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"

    def proven(self, device: torch.device) -> Result:
        """What ran at each m, and y within that kernel's enclosure."""
        began, case = time.perf_counter(), self.case
        operands = given(case, device)
        allowed: dict[bool, Enclosure] = {}
        problems, worst, nonzero, took = [], 0.0, 1.0, dict[str, None]()
        for m in case.m:
            with dispatch.witness() as ran:
                y, problem = called(self.body, case, operands, m)
            took |= dict.fromkeys(ran)
            if y is not None and not problem:
                integers = "quant_gemv" in ran
                if integers not in allowed:
                    allowed[integers] = _integer(case, operands) if integers else _expanded(case, operands)
                problem, share, nonzero = compared(replace(case, m=(m,)), y, _first(allowed[integers], m))
                worst = max(worst, share)
            problems += [f"m={m}: {problem}"] if problem else []
        through = f"{self.through} -> {', '.join(took)}"
        return Result(str(case), through, (problems or [""])[0], "", worst, nonzero, time.perf_counter() - began)


def runs() -> Iterator[OpRun]:
    """The cases that the op takes; those of broken numbers at one m, since which token is the last is part of them."""
    for case in OPERATOR:
        yield OpRun(replace(case, m=case.m[:1]) if case.values == "broken x" else case, "ops.quant_linear", ops.quant_linear)


def _integer(case: QuantCase, operands: Given) -> Enclosure:
    q, d, problem = activations(case, operands)
    if problem:
        raise ValueError(problem)
    return enclosure(case, operands, q, d)


def _expanded(case: QuantCase, operands: Given) -> Enclosure:
    """As `linear` with w rounded to x's type."""
    x, bias, residual, norm = (operands.host(name) for name in ("x", "bias", "residual", "norm"))
    device = operands.arguments["x"].device
    w = torch.from_numpy(get(case.format).dequantize(operands.raw)).to(device, DTYPES[case.dtype])
    assert x is not None
    sums = "any" if case.values in ("bytes", "extreme") else "random"
    with np.errstate(invalid="ignore", over="ignore"):
        return linear_chain(
            x, w, bias, residual=residual, norm=norm, eps=EPS, gated=case.gated, dtype=case.dtype, out=case.out,
            sums="matrix" if device.type != "cpu" else sums, multiply=products,
        )  # fmt: skip


def _first(allowed: Enclosure, m: int) -> Enclosure:
    return Enclosure(*(part[:m] for part in (allowed.want, allowed.low, allowed.high, allowed.step)))
