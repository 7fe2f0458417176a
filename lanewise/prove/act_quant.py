"""act_quant, proven case by case against formats/activations.py: `python -m lanewise.prove --op act_quant`, on a card or in Triton's interpreter."""

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.formats.activations import ZERO_BELOW
from lanewise.prove.act_cases import CASES, ActCase
from lanewise.prove.activations import GROUPS, allowed, laid_out, sums_of, wrong
from lanewise.prove.bodies import poisoned
from lanewise.prove.memory import FAR, Guarded
from lanewise.prove.operands import DTYPES, EPS
from lanewise.prove.quant_bodies import MODULES, target
from lanewise.prove.result import Result, attempted

__all__ = ["ActBody", "ActRun", "guarded", "prove", "runs", "x_of"]

ActBody = Callable[..., Any]
_PAD = 40
_LARGEST = {"bf16": (2 - 2.0**-7) * 2.0**127, "f16": 65504.0, "f32": (2 - 2.0**-23) * 2.0**127}
_TINY = {"bf16": 2.0**-133, "f16": 2.0**-24, "f32": 2.0**-149}


@dataclass(frozen=True, slots=True)
class ActRun:
    """A case and the body that it is run through."""

    case: ActCase
    through: str
    body: ActBody

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"


def runs(device: torch.device, interpret: bool) -> Iterator[ActRun]:
    """The whole list on a card, and in the interpreter all that is not too long for it."""
    for case in CASES if interpret or device.type != "cpu" else ():
        if not (device.type == "cpu" and case.device_only):
            yield ActRun(case, "act_quant", kernel)


def prove(run: ActRun, device: torch.device) -> Result:
    """Codes, scales and sums bit for bit and each in its place, nothing else written to; behind a norm, what its rounding leaves open."""
    from lanewise.kernels.gpu.act_quant import plain

    began, case = time.perf_counter(), run.case
    x, x_guard = _x(case, device)
    norm, norm_guard = _norm(case, device)
    guards = {"x": x_guard, "norm": norm_guard}
    with poisoned(device, *MODULES) as made:
        a = run.body(x, case.kind, norm=norm, eps=EPS, arch=target(device))
    problem = next((words for guard in made if (words := guard.overrun())), "")
    problem = problem or next((f"{name}: {words}" for name, guard in guards.items() if guard and (words := guard.broken())), "")
    numbers = x.double().cpu().numpy()
    q, d, sums = (np.ascontiguousarray(part.cpu().numpy()) for part in plain(a))
    may_be = allowed(numbers, case.kind, None if norm is None else norm.double().cpu().numpy(), EPS, case.dtype)
    problem = problem or _form(case, q, d) or wrong(q, d, may_be) or _misplaced(case, a, q, d, sums)
    nonzero = float((q != 0).mean()) if q.size else 1.0
    return Result(str(case), run.through, problem, "", 0.0, nonzero, time.perf_counter() - began)


def guarded(run: ActRun, device: torch.device) -> Result:
    """`prove`, where whatever a body raises is a problem in words and not the end of the list."""
    return attempted(prove, run, device)


def kernel(*operands: Any, **named: Any) -> Any:
    from lanewise.kernels.gpu.act_quant import act_quant  # Triton has to be told of its interpreter before

    return act_quant(*operands, **named)


def _form(case: ActCase, q: NDArray[np.int8], d: NDArray[np.float32]) -> str:
    shapes = (case.m, case.k), (case.m, case.k // GROUPS[case.kind])
    return "" if (q.shape, d.shape) == shapes else f"q and d are {q.shape} and {d.shape}, not {shapes[0]} and {shapes[1]}"


def _misplaced(case: ActCase, a: Any, q: NDArray[np.int8], d: NDArray[np.float32], sums: NDArray[Any]) -> str:
    """Which word is not where the layout has it, or no sum of what was found to be right; what slots of no token hold is nobody's concern."""
    want = laid_out(q, d, case.kind)
    for name in ("q", "d", "sums"):
        here = np.ascontiguousarray(getattr(a, name).cpu().numpy()).view(np.int32)
        there = np.ascontiguousarray(getattr(want, name)).view(np.int32)
        if here.shape != there.shape:
            return f"{name} is {list(here.shape)}, not {list(there.shape)}"
        differ = here != there
        if case.m % 8:
            np.moveaxis(differ, want.of_tokens(name, case.kind), 0)[case.m % 8 :, -1] = False
        if differ.any():
            at = tuple(int(i) for i in np.argwhere(differ)[0])
            return f"{int(differ.sum())} words of {name} differ; {name}{list(at)} is {int(here[at]):#x}, not {int(there[at]):#x}"
    return "" if np.array_equal(sums, sums_of(q, d, case.kind)) else "plain gives other sums"


def _x(case: ActCase, device: torch.device) -> tuple[torch.Tensor, Guarded]:
    rows = 1 if case.layout == "one token repeated" else case.m
    stride = FAR if case.layout == "far rows" else case.k + (_PAD if case.layout in ("padded", "one token repeated") else 0)
    guard = Guarded((rows, case.k), (max(1, stride), 1), DTYPES[case.dtype], device, 1 if case.layout == "off by one" else 0)
    guard.tensor.copy_(torch.from_numpy(x_of(case, rows)))
    guard.seal()
    return guard.tensor if rows == case.m else guard.tensor.expand(case.m, case.k), guard


def _norm(case: ActCase, device: torch.device) -> tuple[torch.Tensor | None, Guarded | None]:
    if not case.norm:
        return None, None
    guard = Guarded((case.k,), (1,), DTYPES[case.norm], device)
    guard.tensor.copy_(torch.from_numpy(1 + 0.25 * _rng(case).standard_normal(case.k, dtype=np.float32)))
    guard.seal()
    return guard.tensor, guard


def _rng(case: ActCase) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(str(case).encode()))


def x_of(case: ActCase, rows: int) -> NDArray[np.float32]:
    """x[rows,k] of a case, before it is rounded to its dtype."""
    rng, shape = _rng(case), (rows, case.k)
    group = GROUPS[case.kind]
    x = rng.standard_normal(shape, dtype=np.float32)
    grouped = x.reshape(rows, case.k // group, group)
    place = rng.integers(0, group, grouped.shape[:2])[..., None]
    largest = np.float32(_LARGEST[case.dtype])
    if case.values == "normal":
        x = np.clip(x, -1, 1) * np.float32(case.size) if case.size != 1 else x
    elif case.values == "zeros":
        x = np.copysign(np.float32(0), x)
    elif case.values == "spike":
        spiked = np.zeros(grouped.shape, np.float32)
        np.put_along_axis(spiked, place, np.take_along_axis(grouped, place, axis=2) * np.float32(case.size), axis=2)
        x = spiked
    elif case.values == "halves":
        whole = rng.integers(-127, 127, grouped.shape) + 0.5
        np.put_along_axis(whole, place, rng.choice([-127.0, 127.0], place.shape), axis=2)
        x = (whole * 2.0 ** rng.integers(-3, 4, place.shape)).astype(np.float32)
    elif case.values == "subnormal":
        # from a few of the smallest numbers up to past the threshold, group by group
        x = rng.uniform(-1, 1, grouped.shape) * _TINY[case.dtype] * 2.0 ** rng.integers(0, 12, place.shape)
        edge = rng.choice([ZERO_BELOW, ZERO_BELOW * (1 - 2.0**-8), ZERO_BELOW * (1 + 2.0**-7), 0.0], place.shape)
        np.put_along_axis(x, place, np.where(edge > 0, edge, np.take_along_axis(x, place, axis=2)), axis=2)
    elif case.values == "huge":
        x = np.clip(grouped, -1, 1) * (largest * 2.0 ** rng.integers(-4, 1, place.shape).astype(np.float32))
        here = np.take_along_axis(x, place, axis=2)
        np.put_along_axis(x, place, np.where(here > 0, largest, here), axis=2)
    elif case.values == "next to halves":
        most = rng.uniform(1, 2, place.shape).astype(np.float32)
        near = ((rng.integers(-127, 127, grouped.shape) + 0.5) * most.astype(np.float64) / 127).astype(np.float32)
        x = np.nextafter(near, rng.choice([-np.inf, np.inf], near.shape).astype(np.float32))
        np.put_along_axis(x, place, most, axis=2)
    elif case.values == "of many sizes":
        x = grouped * 2.0 ** rng.uniform(-20, 12, place.shape).astype(np.float32)
    elif case.values == "broken" and x.size:
        x[0, case.k // 3], x[-1, case.k - 1], x[rows // 2, 0] = np.nan, -np.inf, np.inf
    return np.asarray(np.clip(x, -largest, largest) if case.values != "broken" else x, np.float32).reshape(shape)
