"""What a case of linear is run through: the whole op, or the skinny kernel with one configuration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from lanewise import ops
from lanewise.arch import TARGETS, Arch
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.table import choose
from lanewise.prove import emulated
from lanewise.prove.linear_cases import LinearCase
from lanewise.prove.memory import Guarded

__all__ = ["CONFIGS", "Body", "config_for", "configs", "dispatched", "poisoned", "skinny_with"]

Body = Callable[..., torch.Tensor]
_PROGRAMS = 16

# Each way of cutting: rows per program, several tiles and none left over, tiles held ahead, splits of k, pipeline depths.
CONFIGS: tuple[Config, ...] = (
    *(Config("lanes", rows, 64, 1, ahead, splits) for rows, ahead, splits in ((1, 1, 1), (2, 0, 1), (4, 2, 1), (2, 3, 2), (8, 1, 4), (1, 2, 3))),
    *(Config("lanes", rows, 64, 1, 4, splits, groups=groups) for rows, splits, groups in ((2, 1, 3), (4, 2, 5))),
    *(Config("lanes", 4, tile, 4, ahead, 1, stages) for tile, ahead, stages in ((16, 0, 2), (512, 1, 1), (1024, 1, 3), (256, 9, 1))),
    *(Config("mma", 2, 256, 2, ahead, splits, groups=groups) for ahead, splits, groups in ((1, 1, 2), (2, 2, 4), (8, 1, 2))),
    *(Config("mma", rows, 512, 2, 1, 1, stages, groups=2) for rows, stages in ((1, 3), (4, 1))),
    *(
        Config("fragments", 16, 32 * warps, warps, ahead, splits, 2, groups)
        for warps, ahead, splits, groups in ((1, 2, 1, 1), (2, 8, 2, 3), (4, 0, 1, 1))
    ),
    *(Config("matrix", rows, 32, 1, ahead, splits) for rows, ahead, splits in ((8, 0, 1), (16, 1, 1), (16, 2, 2), (32, 3, 4))),
    *(Config("matrix", 16, tile, 4, 1, 1, stages) for tile, stages in ((16, 2), (128, 3), (512, 1))),
)


def dispatched(**arguments: Any) -> torch.Tensor:
    """The op itself, which chooses its kernel."""
    return ops.linear(**arguments)


def skinny_with(config: Config) -> Body:
    """The skinny kernel alone. It takes x[m,k] and inner strides of 1, which `reached_by_skinny` asks for."""

    def body(*, x: torch.Tensor, **arguments: Any) -> torch.Tensor:
        from lanewise.kernels.gpu.skinny import skinny  # Triton has to be told of its interpreter before

        y = skinny(x=x.flatten(0, -2), **arguments, config=config, arch=_target(x.device))
        return y.view(*x.shape[:-1], y.shape[1])

    return body


def configs() -> tuple[Config, ...]:
    """CONFIGS, and on AMD those of bodies that there are."""
    row = emulated.row()
    bodies = ("lanes", "matrix") if row and row.dot_by_matrix else ("lanes",)
    return tuple(config for config in CONFIGS if row is None or config.body in bodies)


def config_for(case: LinearCase) -> Config:
    """What dispatch has for the target; a configuration for the interpreter, whose cost is by call, has few programs with much each."""
    if row := emulated.row():
        return choose(row, case.dtype, case.m, case.n, case.k, None).config
    rows = min(1024, max(8, _power(case.weights // _PROGRAMS)))
    tile = min(4096, max(16, _power(case.k // 2)), max(16, (1 << 20) // rows))
    return Config("lanes" if case.m <= 4 else "matrix", rows, tile, ahead=1 + case.k % 3 // 2)


@contextmanager
def poisoned(device: torch.device, *modules: str) -> Iterator[list[Guarded]]:
    """While this is open, what kernels write to lies in guarded memory, which is collected, and all other new memory is NaN.

    modules: those of `kernels.gpu` whose `_new` is replaced; where none is named, skinny.
    """
    kernels: list[Any] = [import_module(f"lanewise.kernels.gpu.{name}") for name in modules or ("skinny",)]
    made: list[Guarded] = []

    def new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        strides = [1]
        for size in shape[:0:-1]:
            strides.insert(0, strides[0] * size)
        made.append(Guarded(shape, strides, dtype, device))
        return made[-1].tensor

    memory: Any = torch.utils.deterministic
    old = [kernel._new for kernel in kernels]
    before, filled = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    for kernel in kernels:
        kernel._new = new
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = True
    try:
        yield made
    finally:
        for kernel, made_by in zip(kernels, old, strict=True):
            kernel._new = made_by
        torch.use_deterministic_algorithms(before, warn_only=warn)
        memory.fill_uninitialized_memory = filled


def _target(device: torch.device) -> Arch:
    if device.type == "cpu":  # the interpreter: as on a card whose fp16 is multiplied in pairs
        return emulated.row() or next(row for row in TARGETS.values() if row.dot2_f16)
    return devices.row(devices.named(device)[0])


def _power(number: int) -> int:
    """The largest power of two that is at most number, and 1."""
    return 1 << max(0, number.bit_length() - 1)
