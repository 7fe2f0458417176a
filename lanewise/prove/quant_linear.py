"""quant_linear on packed weights, proven case by case: `python -m lanewise.prove --op quant_linear`, on a card or in Triton's interpreter.

The activations of a case are act_quant's definition or, behind a norm, what act_quant gave and `activations.allowed` lets it give. From there on y is
integer sums and scales: exact where a case is, within the derived bound of every other, and the same bits for a token in any company, in any cut
of one body, and in every run.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.errors import LanewiseError
from lanewise.formats import get
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.oracle.chain import Enclosure
from lanewise.prove import dequantized, interpreter
from lanewise.prove.activations import allowed, wrong
from lanewise.prove.bodies import poisoned
from lanewise.prove.dequantized import WeightRun
from lanewise.prove.quant_bodies import CONFIGS, MODULES, QuantBody, gemv_by_default, gemv_with, target
from lanewise.prove.quant_cases import CASES, INTERPRETED, SMALL, QuantCase
from lanewise.prove.quant_exact import quantized
from lanewise.prove.quant_operands import Given, enclosure, expected_broken, given
from lanewise.prove.result import Result, attempted

__all__ = ["QuantRun", "guarded", "prove", "runs"]


@dataclass(frozen=True, slots=True)
class QuantRun:
    """A case and the bodies that it is run through one after the other, all of which have to give the same bits."""

    case: QuantCase
    through: str
    bodies: tuple[QuantBody, ...]

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"


def runs(device: torch.device, interpret: bool) -> Iterator[QuantRun | WeightRun]:
    """Everything that is proven: on a card all of the list, in the interpreter a part in which every pair of its axes' values occurs."""
    if device.type == "cpu" and not interpret:
        return
    for case in CASES if device.type != "cpu" else INTERPRETED:
        if device.type == "cpu" and case.device_only:
            continue
        yield QuantRun(case, "quant_gemv by default", (gemv_by_default,))
    for turn, (body, configs) in enumerate(CONFIGS.items()):
        if body == "tiles" and not target(device).mma16:
            continue
        cases = SMALL if device.type != "cpu" else SMALL[turn :: len(CONFIGS)]
        for i, case in enumerate(cases):
            # there each cut that is not long is tried on one case, beside the first
            cuts = configs if device.type != "cpu" else (configs[0], *[c for c in configs[1:] if _quick(c)][i :: len(cases)])
            yield QuantRun(case, f"quant_gemv {body}, {len(cuts)} cuts", tuple(gemv_with(config) for config in cuts))
    yield from dequantized.runs(device)


def _quick(config: QuantConfig) -> bool:
    """Whether the interpreter, which works on one word of all lanes and warps at a time, is soon through with it."""
    return config.warps > 1 and config.tokens <= 16 and config.splits <= 4


def prove(run: QuantRun, device: torch.device) -> Result:
    """y within its enclosure at the largest m, the same bits wherever else, nothing else written to, nothing that may not be read reaching y."""
    began, case = time.perf_counter(), run.case
    operands = given(case, device)
    q, d, problem = _activations(case, operands)
    reached: dict[int, torch.Tensor] = {}
    for number, body in enumerate(run.bodies):
        for m in sorted(case.m, reverse=True)[: 1 if number and interpreter.on() else None]:
            y, wrong_here = _called(body, case, operands, m)
            if not wrong_here and y is not None:
                whole = reached.setdefault(0, y)
                wrong_here = "" if _same(y, whole[:m]) else _apart(y, whole[:m], case)
            problem = problem or (f"m={m}{f', cut {number}' if number else ''}: {wrong_here}" if wrong_here else "")
    worst, nonzero = 0.0, 0.0
    if not problem and not interpreter.on():  # which is one thread, and a third of the time
        again, _ = _called(run.bodies[0], case, operands, case.tokens)
        problem = "" if again is not None and _same(again, reached[0]) else "two runs differ"
    if not problem:
        problem, worst, nonzero = _compared(case, reached[0], enclosure(case, operands, q, d))
    return Result(str(case), run.through, problem, "", worst, nonzero, time.perf_counter() - began)


def guarded(run: QuantRun | WeightRun, device: torch.device) -> Result:
    """`prove`, where whatever a body raises is a problem in words and not the end of the list."""
    return attempted(prove if isinstance(run, QuantRun) else WeightRun.proven, run, device)


def _activations(case: QuantCase, operands: Given) -> tuple[NDArray[np.int8], NDArray[np.float32], str]:
    """(q, d, what is wrong with them) of the case's x."""
    x, norm = operands.host("x"), operands.host("norm")
    kind = get(case.format).activation
    assert x is not None
    if norm is None:
        return *quantized(x.astype(np.float32), kind), ""
    from lanewise.kernels.gpu.act_quant import act_quant, plain

    arguments = operands.arguments
    made = act_quant(arguments["x"], kind, norm=arguments["norm"], eps=arguments["eps"], arch=target(arguments["x"].device))
    q, d, _ = (part.cpu().numpy() for part in plain(made))
    q, d = np.ascontiguousarray(q), np.ascontiguousarray(d)
    return q, d, wrong(q, d, allowed(x, kind, norm, arguments["eps"], case.dtype))


def _called(body: QuantBody, case: QuantCase, operands: Given, m: int) -> tuple[torch.Tensor | None, str]:
    """(y[m,n], what is wrong with its form or with memory)."""
    x = operands.arguments["x"]
    with poisoned(x.device, *MODULES) as made:
        try:
            y = body(**operands.first(m))
        except LanewiseError as error:
            return None, f"refused, and may not: {error}"
    if tuple(y.shape) != (m, case.n):
        return None, f"y is {list(y.shape)}, not {[m, case.n]}"
    if y.dtype is not operands.arguments["out"]:
        return None, f"y is {y.dtype}, not {operands.arguments['out']}"
    return y, next((words for guard in made if (words := guard.overrun())), "") or operands.broken()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = torch.int32 if a.dtype is torch.float32 else torch.int16
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def _apart(a: torch.Tensor, b: torch.Tensor, case: QuantCase) -> str:
    """Where the same rows have other bits; empty where those alone differ that are no numbers."""
    broken = torch.from_numpy(expected_broken(case)[: len(a)]).to(a.device)
    differ = torch.nonzero((a != b) & ~broken)
    if not len(differ):
        return ""
    at = tuple(int(i) for i in differ[0])
    return f"{len(differ)} elements have other bits than the same rows at the largest m; y{list(at)} is {float(a[at])!r} and {float(b[at])!r}"


def _compared(case: QuantCase, y: torch.Tensor, may_be: Enclosure) -> tuple[str, float, float]:
    """(what is wrong in words, the worst error, the share of y that is not 0)."""
    got = y.double().cpu().numpy()
    broken = expected_broken(case)
    finite = np.isfinite(got) & broken
    if finite.any():
        return f"y{np.argwhere(finite)[0].tolist()} is a number, and what it comes from is none", math.inf, 1.0
    got, want, low, high = (np.where(broken, 0.0, part) for part in (got, may_be.want, may_be.low, may_be.high))
    may_be = Enclosure(want, low, high, np.where(broken, 1.0, may_be.step))
    nonzero = float((got[~broken] != 0).mean()) if (~broken).any() else 1.0
    worst = may_be.worst(got)
    if worst <= 1:
        return "", worst, nonzero
    outside = may_be.outside(got)
    at = tuple(int(i) for i in outside[0])
    between = f"{float(low[at])!r}..{float(high[at])!r}"
    return f"{len(outside)} of {got.size} elements are outside; y{list(at)} is {float(got[at])!r}, allowed {between}", worst, nonzero
