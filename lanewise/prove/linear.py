"""linear in bf16 and fp16, proven case by case: `python -m lanewise.prove --device cuda`, or in Triton's interpreter on the CPU."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lanewise import dispatch
from lanewise.errors import KernelFaultError, LanewiseError
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.linear import MOST_ROWS
from lanewise.oracle.chain import Enclosure
from lanewise.prove import emulated
from lanewise.prove.bodies import Body, config_for, configs, dispatched, poisoned, skinny_with
from lanewise.prove.linear_cases import CASES, SMALL, LinearCase
from lanewise.prove.operands import DTYPES, enclosure, operands
from lanewise.prove.result import Result, attempted

__all__ = ["Result", "Run", "guarded", "prove", "reached_by_skinny", "runs"]

_SPLIT_M = 4


@dataclass(frozen=True, slots=True)
class Run:
    """A case and the body that it is run through, by a name that says which."""

    case: LinearCase
    through: str
    body: Body
    sums: str = "random"

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"


def runs(device: torch.device, interpret: bool) -> Iterator[Run]:
    """Everything that is proven: on a CPU in the interpreter, or on a card."""
    for case in CASES:
        if case.device_only and device.type == "cpu":
            continue
        reached = reached_by_skinny(case)
        if not (interpret and reached):
            yield Run(case, "ops.linear", dispatched, "random" if device.type == "cpu" else "matrix")
        if interpret and reached:
            yield _with(case, config_for(case), emulated.row() is not None)
        elif reached and device.type != "cpu":
            yield _with(case, _plain(case), True)
    for case in SMALL if interpret or device.type != "cpu" else ():
        for config in configs():
            yield _with(case, config, not interpret or emulated.row() is not None)


def reached_by_skinny(case: LinearCase) -> bool:
    """Whether the kernel itself takes a case; for all others ops.linear must find another, or refuse."""
    strided = case.layout in ("x transposed", "w transposed", "x element repeated", "w element repeated")
    return case.m <= MOST_ROWS and not strided


def prove(run: Run, device: torch.device) -> Result:
    """Run one body on one case: y within its enclosure, nothing else written to, nothing that may not be read reaching y."""
    began, case = time.perf_counter(), run.case
    given = operands(case, device)
    problem, refused, worst, nonzero = "", "", 0.0, 0.0
    with poisoned(device) as made, dispatch.witness() as ran:
        try:
            y = run.body(**given.arguments)
        except KernelFaultError:
            raise  # no refusal
        except LanewiseError as error:
            refused, y = str(error), None
    if y is None:
        problem = given.broken() or ("" if case.may_refuse else f"refused, and may not: {refused}")
    else:
        overrun = next((words for guard in made if (words := guard.overrun())), "")
        problem = _form(case, given.arguments["x"], y) or overrun or given.broken()
        if not problem:
            problem, worst, nonzero = _compared(case, y, enclosure(case, given.arguments, run.sums))
    through = f"{run.through} -> {', '.join(ran)}" if ran else run.through
    return Result(str(case), through, problem, refused, worst, nonzero, time.perf_counter() - began)


def guarded(run: Run, device: torch.device) -> Result:
    """`prove`, where whatever else a body raises is a problem in words and not the end of the list."""
    return attempted(prove, run, device)


def _compared(case: LinearCase, y: torch.Tensor, allowed: Enclosure) -> tuple[str, float, float]:
    """(what is wrong in words, the worst error, the share of y that is not 0)."""
    got = y.reshape(case.m, case.n).double().cpu().numpy()
    worst, nonzero = allowed.worst(got), float((got != 0).mean()) if got.size else 1.0
    if worst <= 1:
        return "", worst, nonzero
    outside = allowed.outside(got)
    at = tuple(int(i) for i in outside[0])
    between = f"{float(allowed.low[at])!r}..{float(allowed.high[at])!r}"
    return f"{len(outside)} of {got.size} elements are outside; y{list(at)} is {float(got[at])!r}, allowed {between}", worst, nonzero


def _form(case: LinearCase, x: torch.Tensor, y: torch.Tensor) -> str:
    want = (*x.shape[:-1], case.n)
    if tuple(y.shape) != want:
        return f"y is {list(y.shape)}, not {list(want)}"
    return "" if y.dtype == DTYPES[case.out or case.dtype] else f"y is {y.dtype}, not {DTYPES[case.out or case.dtype]}"


def _with(case: LinearCase, config: Config, card: bool) -> Run:
    return Run(
        case,
        f"skinny {config}",
        skinny_with(config),
        "matrix" if card and config.body != "lanes" else "random",
    )


def _plain(case: LinearCase) -> Config:
    return Config("lanes", 4, 512) if case.m <= _SPLIT_M else Config("matrix", 16, 128)
