"""What a case of quant_linear is run through: the kernels with one configuration, or the weights dequantized."""

from collections.abc import Callable
from typing import Any

import torch

from lanewise.arch import TARGETS, Arch
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu.quant_config import QuantConfig, default
from lanewise.prove import emulated

__all__ = ["CONFIGS", "MODULES", "QuantBody", "gemv_by_default", "gemv_with", "target"]

QuantBody = Callable[..., torch.Tensor]
MODULES = ("act_quant", "quant_gemv", "quant_gemm")  # whose `_new` gives guarded memory

# Each way of cutting, by body: warps, tiles held ahead with and without some left over for the loop, tokens of a program, splits of k.
# Those of one body have to give the same bits.
CONFIGS: dict[str, tuple[QuantConfig, ...]] = {
    body: tuple(QuantConfig(body, warps=warps, ahead=ahead, tokens=tokens, splits=splits) for warps, ahead, tokens, splits in cuts)
    for body, cuts in {
        "tiles": ((8, 2, 8, 1), (4, 1, 8, 1), (2, 4, 16, 1), (1, 16, 8, 1), (1, 8, 32, 1), (8, 1, 64, 1), (4, 1, 8, 2), (2, 2, 16, 4), (1, 1, 8, 8)),
        "dots": ((8, 1, 1, 1), (4, 2, 2, 1), (2, 1, 4, 1), (1, 8, 8, 1), (4, 1, 1, 2), (2, 1, 4, 4), (1, 1, 2, 8)),
    }.items()
}


def gemv_with(config: QuantConfig) -> QuantBody:
    """The quantized kernels alone, act_quant in front."""

    def body(*, x: torch.Tensor, w: Any, norm: torch.Tensor | None, eps: float, **arguments: Any) -> torch.Tensor:
        from lanewise.kernels.gpu.act_quant import act_quant  # Triton has to be told of its interpreter before
        from lanewise.kernels.gpu.quant_gemv import quant_gemv

        arch = target(x.device)
        a = act_quant(x, w.layout.activation, norm=norm, eps=eps, arch=arch)
        return quant_gemv(a, w, arguments.pop("bias"), **arguments, config=config, arch=arch)

    return body


def gemv_by_default(**arguments: Any) -> torch.Tensor:
    """The same with what a target runs without a table; where that is BLAS, one of the kernel."""
    x, w = arguments["x"], arguments["w"]
    arch = target(x.device)
    config = default(arch, w.format, len(x), w.n, w.k)
    if config.body == "blas":
        config = QuantConfig("tiles", tokens=32) if arch.mma16 else QuantConfig("dots", tokens=4)
    return gemv_with(config)(**arguments)


def target(device: torch.device) -> Arch:
    """The row of a card; for the interpreter that of one with an int8 matrix unit."""
    if device.type == "cpu":
        return emulated.row() or next(row for row in TARGETS.values() if row.mma16)
    return devices.row(devices.named(device)[0])
