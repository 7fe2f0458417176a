"""Triton kernels that are not the project's, to run as machine code: families of cases, and which target runs which.

A case is a function that launches kernels on CPU tensors and asserts what they gave; whoever calls it stands inside `running(row)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lanewise.arch import TARGETS
from lanewise.emulator.tensors import running

NARROW = ("gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
WIDE = ("gfx908", "gfx90a", "gfx942", "gfx950")
# Roundings, in units of the last place of the result's type.
ONE_ROUNDING = 0.5
APPROXIMATED = 4.0  # what Triton allows its fast functions: one rounding of the hardware's, one of each step around it
UNITS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


@dataclass(frozen=True)
class Case:
    """aborts: targets for which LLVM ends the process where it compiles the case.

    first: targets that have to be the first of a process: Triton's conversions of floats of 8 bits are those of the target that it first compiles
    them for, and other targets do not have that one's instructions.
    """

    name: str
    run: Callable[[Any], None]
    aborts: tuple[str, ...] = ()
    first: tuple[str, ...] = ()

    def on(self, name: str, **options: Any) -> list[Any]:
        row = TARGETS[name]
        with running(row, **options) as ran:
            self.run(row)
        return ran


def family() -> tuple[list[Case], Callable[..., Any]]:
    """A list of cases and the decorator that fills it."""
    cases: list[Case] = []

    def case(run: Any = None, **more: tuple[str, ...]) -> Any:
        if run is None:
            return lambda run: case(run, **more)
        cases.append(Case(run.__name__.replace("_", " "), run, **more))
        return run

    return cases, case


def rotated(cases: list[Case], turn: int = 0) -> list[tuple[Case, str]]:
    """Every case on a target of 32 lanes and on one of 64, and of a family every target: the next one for the next case."""
    pairs = []
    for number, case in enumerate(cases):
        for names in (NARROW, WIDE):
            able = [name for name in names if name not in (*case.aborts, *case.first)]
            pairs.append((case, able[(number + turn) % len(able)]))
    missing = [name for name in (*NARROW, *WIDE) if name not in {name for _, name in pairs}]
    return pairs + [(next(case for case in cases if name not in (*case.aborts, *case.first)), name) for name in missing]


def ids(pairs: list[tuple[Case, str]]) -> list[str]:
    return [f"{name} {case.name}" for case, name in pairs]


def exact(got: torch.Tensor, want: Any) -> None:
    """To the bit; any NaN is any NaN."""
    want = torch.as_tensor(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    same = got == want.to(got.dtype)
    if got.dtype.is_floating_point:
        same |= torch.isnan(got) & torch.isnan(want)
        same &= torch.signbit(got) == torch.signbit(want) if not torch.isnan(want).any() else same
    assert same.all(), (
        f"{int((~same).sum())} of {same.numel()} differ, first at {(~same).nonzero()[0].tolist()}: {got[~same][:4]}, not {want[~same][:4]}"
    )


def near(got: torch.Tensor, want: Any, roundings: float, size: Any = None) -> None:
    """Within so many units of the last place of the result's type at a number of `size` (the result's own without one)."""
    want = torch.as_tensor(np.asarray(want, np.float64))
    unit = UNITS[got.dtype]
    tiny = torch.finfo(got.dtype).tiny
    allowed = roundings * unit * torch.clamp(torch.as_tensor(np.asarray(want.abs() if size is None else size, np.float64)), min=tiny)
    apart = (got.double() - want).abs()
    good = (apart <= allowed) | (got.double() == want) | (torch.isnan(got) & torch.isnan(want))
    worst = torch.where(good, 0.0, apart / allowed).max()
    assert good.all(), (
        f"{int((~good).sum())} of {good.numel()} are wrong, by {float(worst):.3g} times what is allowed: {got[~good][:4]}, not {want[~good][:4]}"
    )


def numbers(shape: Any, dtype: torch.dtype, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed floats, or integers of all sizes."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
    info = torch.iinfo(dtype)
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, (shape,) if isinstance(shape, int) else shape, generator=generator) * 2 + torch.randint(
            0, 2, (shape,) if isinstance(shape, int) else shape, generator=generator
        )
    return torch.randint(info.min, info.max + 1, (shape,) if isinstance(shape, int) else shape, generator=generator, dtype=torch.int64).to(dtype)


def alone(cases: list[Case], name: str) -> None:
    """The cases that a target has to be the first for, in this process."""
    for case in cases:
        if name in case.first:
            case.on(name)
