"""quant_linear on packed weights, proven case by case: `python -m lanewise.prove --op quant_linear`, on a card or in Triton's interpreter.

The activations of a case are act_quant's definition or, behind a norm, what act_quant gave and `activations.allowed` lets it give. From there on y is
integer sums and scales: exact where a case is, within the derived bound of every other, and the same bits for a token in any company, in any cut
of one body, and in every run.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.prove import dequantized, emulated, quant_op
from lanewise.prove.dequantized import WeightRun
from lanewise.prove.quant_bodies import CONFIGS, QuantBody, gemv_by_default, gemv_with, target
from lanewise.prove.quant_cases import CASES, INTERPRETED, SMALL, QuantCase
from lanewise.prove.quant_checks import activations, apart, called, compared, same
from lanewise.prove.quant_op import OpRun
from lanewise.prove.quant_operands import enclosure, given
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


def runs(device: torch.device, interpret: bool) -> Iterator[QuantRun | WeightRun | OpRun]:
    """Everything that is proven: on a card all of the list, in the interpreter a part in which every pair of its axes' values occurs."""
    if not interpret:
        yield from quant_op.runs()
        if device.type == "cpu":
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
    q, d, problem = activations(case, operands)
    reached: dict[int, torch.Tensor] = {}
    for number, body in enumerate(run.bodies):
        for m in sorted(case.m, reverse=True)[: 1 if number and emulated.repeats() else None]:
            y, wrong_here = called(body, case, operands, m)
            if not wrong_here and y is not None:
                whole = reached.setdefault(0, y)
                wrong_here = "" if same(y, whole[:m]) else apart(y, whole[:m], case)
            problem = problem or (f"m={m}{f', cut {number}' if number else ''}: {wrong_here}" if wrong_here else "")
    worst, nonzero = 0.0, 0.0
    if not problem and not emulated.repeats():  # which is one thread, and a third of the time
        again, _ = called(run.bodies[0], case, operands, case.tokens)
        problem = "" if again is not None and same(again, reached[0]) else "two runs differ"
    if not problem:
        problem, worst, nonzero = compared(case, reached[0], enclosure(case, operands, q, d))
    return Result(str(case), run.through, problem, "", worst, nonzero, time.perf_counter() - began)


def guarded(run: QuantRun | WeightRun | OpRun, device: torch.device) -> Result:
    """`prove`, where whatever a body raises is a problem in words and not the end of the list."""
    return attempted(prove if isinstance(run, QuantRun) else type(run).proven, run, device)
