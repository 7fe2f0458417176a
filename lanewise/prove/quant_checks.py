"""What is asked of one call of a body of quant_linear: its form, memory around it, its bits beside others', and its numbers."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.errors import KernelFaultError, LanewiseError
from lanewise.formats import get
from lanewise.oracle.chain import Enclosure
from lanewise.prove.activations import allowed, wrong
from lanewise.prove.bodies import poisoned
from lanewise.prove.quant_bodies import MODULES, QuantBody, target
from lanewise.prove.quant_cases import QuantCase
from lanewise.prove.quant_exact import quantized
from lanewise.prove.quant_operands import Given, expected_broken

__all__ = ["activations", "apart", "called", "compared", "differing", "same", "within"]


def activations(case: QuantCase, operands: Given) -> tuple[NDArray[np.int8], NDArray[np.float32], str]:
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


def called(body: QuantBody, case: QuantCase, operands: Given, m: int) -> tuple[torch.Tensor | None, str]:
    """(y[m,n], what is wrong with its form or with memory)."""
    x = operands.arguments["x"]
    with poisoned(x.device, *MODULES) as made:
        try:
            y = body(**operands.first(m))
        except KernelFaultError:
            raise  # no refusal
        except LanewiseError as error:
            return None, f"refused, and may not: {error}"
    if tuple(y.shape) != (m, case.n):
        return None, f"y is {list(y.shape)}, not {[m, case.n]}"
    if y.dtype is not operands.arguments["out"]:
        return None, f"y is {y.dtype}, not {operands.arguments['out']}"
    return y, next((words for guard in made if (words := guard.overrun())), "") or operands.broken()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = torch.int32 if a.dtype is torch.float32 else torch.int16
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def apart(a: torch.Tensor, b: torch.Tensor, case: QuantCase) -> str:
    """Where the same rows have other bits; empty where those alone differ that are no numbers."""
    return differing(a, b, expected_broken(case)[: len(a)], "the same rows at the largest m")


def differing(a: torch.Tensor, b: torch.Tensor, broken: NDArray[np.bool_], beside: str) -> str:
    """Where a has other bits than what it is beside, those apart that are no numbers; or nothing."""
    differ = torch.nonzero((a != b) & ~torch.from_numpy(broken).to(a.device))
    if not len(differ):
        return ""
    at = tuple(int(i) for i in differ[0])
    return f"{len(differ)} elements have other bits than {beside}; y{list(at)} is {float(a[at])!r} and {float(b[at])!r}"


def compared(case: QuantCase, y: torch.Tensor, may_be: Enclosure) -> tuple[str, float, float]:
    """(what is wrong in words, the worst error, the share of y that is not 0)."""
    return within(y, may_be, expected_broken(case))


def within(y: torch.Tensor, may_be: Enclosure, broken: NDArray[np.bool_]) -> tuple[str, float, float]:
    """The same for y[rows,n] of which some elements may not be numbers."""
    got = y.double().cpu().numpy()
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
