"""grouped_linear on packed experts, proven case by case: `python -m lanewise.prove --op grouped_linear`, on a card or in Triton's interpreter.

A row of y is a row of quant_linear with its expert: exact where a case is, within the derived bound of every other, with the bits that `quant_gemv`
gives for that expert alone, in any cut of one body, in order or not, and in every run. Rows of an id that is no expert's are no numbers.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lanewise.errors import KernelFaultError, LanewiseError
from lanewise.prove import emulated, grouped_op
from lanewise.prove.bodies import poisoned
from lanewise.prove.grouped_bodies import CUTS, MODULES, Alone, GroupedBody, alone_by, by_default, grouped_with
from lanewise.prove.grouped_cases import CASES, INTERPRETED, SMALL, GroupedCase
from lanewise.prove.grouped_op import GroupedOpRun
from lanewise.prove.grouped_operands import Routed, broken, enclosure, routed
from lanewise.prove.quant_bodies import target
from lanewise.prove.quant_checks import activations, differing, same, within
from lanewise.prove.result import Result, attempted

__all__ = ["GroupedRun", "guarded", "prove", "runs"]


@dataclass(frozen=True, slots=True)
class GroupedRun:
    """A case, the bodies that it is run through, all of which have to give the same bits, and what gives those of one expert."""

    case: GroupedCase
    through: str
    bodies: tuple[GroupedBody, ...]
    alone: Alone | None = None

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"


def runs(device: torch.device, interpret: bool) -> Iterator[GroupedRun | GroupedOpRun]:
    """Everything that is proven: on a card all of the list, in the interpreter a part in which every pair of its axes' values occurs."""
    if not interpret:
        yield from grouped_op.runs(device)
        if device.type == "cpu":
            return
    if device.type == "cpu":
        for turn, case in enumerate(INTERPRETED):
            order = ("pair by pair", "in order")[turn % 2]
            yield GroupedRun(case, f"grouped by default, {order}", (by_default(turn % 2 > 0),), alone_by(None) if turn % 3 == 0 else None)
    else:
        for case in CASES:
            several = case.experts > 5 or case.device_only  # elsewhere only what is fast is compiled: the order is tried at one k of every format
            bodies = (by_default(), by_default(False), by_default(True)) if several else (by_default(),)
            yield GroupedRun(case, "grouped by default", bodies, alone_by(None) if several else None)
    for turn, (body, cuts) in enumerate(CUTS.items()):
        if body == "tiles" and not target(device).mma16:
            continue
        here = [case for case in SMALL if not case.device_only]
        for i, case in enumerate(SMALL if device.type != "cpu" else here[turn :: len(CUTS)]):
            # there every cut is tried on one case, beside the first
            chosen = cuts if device.type != "cpu" else (cuts[0], *[c for c in cuts[1:] if c[0].warps > 1][i::2])
            yield GroupedRun(case, f"grouped {body}, {len(chosen)} cuts", tuple(grouped_with(*cut) for cut in chosen), alone_by(chosen[-1][0]))


def prove(run: GroupedRun, device: torch.device) -> Result:
    """y within its enclosure, the same bits from whatever else, nothing else written to, nothing that may not be read reaching y."""
    began, case = time.perf_counter(), run.case
    operands = routed(case, device)
    lost = broken(case, operands)
    first: torch.Tensor | None = None
    problem = ""
    for number, body in enumerate(run.bodies):
        y, wrong = called(body, case, operands)
        if y is not None and not wrong:
            first = y if first is None else first
            wrong = "" if same(y, first) else differing(y, first, lost, "those of the first")
        problem = problem or (f"{f'cut {number}: ' if number else ''}{wrong}" if wrong else "")
    worst, nonzero = 0.0, 0.0
    if not problem and first is not None and not emulated.repeats():  # which is one thread
        again, _ = called(run.bodies[0], case, operands)
        problem = "" if again is not None and same(again, first) else "two runs differ"
    if not problem and first is not None:
        flat = case.alone
        q, d, _ = activations(flat, Routed({**operands.arguments, "x": _flat(operands.arguments["x"], case.k), "norm": None}, operands.raw))
        problem, worst, nonzero = within(first, enclosure(case, operands, q, d), lost)
    if not problem and first is not None and run.alone is not None:
        problem = differing(first, _by_expert(run.alone, case, operands), lost, "its expert alone gives")
    return Result(str(case), run.through, problem, "", worst, nonzero, time.perf_counter() - began)


def guarded(run: GroupedRun | GroupedOpRun, device: torch.device) -> Result:
    """`prove`, where whatever a body raises is a problem in words and not the end of the list."""
    return attempted(prove if isinstance(run, GroupedRun) else type(run).proven, run, device)


def called(body: GroupedBody, case: GroupedCase, operands: Routed, **more: Any) -> tuple[torch.Tensor | None, str]:
    """(y[pairs,n], what is wrong with its form or with memory)."""
    with poisoned(operands.arguments["x"].device, *MODULES) as made:
        try:
            y = body(**operands.arguments, **more)
        except KernelFaultError:
            raise  # no refusal
        except LanewiseError as error:
            return None, f"refused, and may not: {error}"
    want = (case.tokens, case.top, case.n)
    if tuple(y.shape) != want or y.dtype is not operands.arguments["out"]:
        return None, f"y is {y.dtype}{list(y.shape)}, not {operands.arguments['out']}{list(want)}"
    return y.reshape(case.pairs, case.n), next((words for guard in made if (words := guard.overrun())), "") or operands.broken()


def _by_expert(alone: Alone, case: GroupedCase, operands: Routed) -> torch.Tensor:
    """y[pairs,n] of one expert after the other, times the router's weights as the unfused chain multiplies."""
    given = operands.arguments
    x, w, out = _flat(given["x"], case.k), given["w"], given["out"]
    y = torch.full((case.pairs, case.n), float("nan"), dtype=out, device=x.device)
    for e, pairs, rows in operands.chosen(case) if case.n else ():
        mine = x[torch.from_numpy(rows).to(x.device)]
        y[torch.from_numpy(pairs).to(x.device)] = alone(mine, type(w)(w.format, w.n, w.k, w.gated, w.tiles[e]), out)
    return y if given["weights"] is None else (y.float() * given["weights"].reshape(-1, 1).float()).to(out)


def _flat(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.reshape(int(np.prod(x.shape[:-1])), k)
