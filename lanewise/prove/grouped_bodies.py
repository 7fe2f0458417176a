"""What a case of grouped_linear is run through: the kernel with one cut, pairs put in order or not; and an expert at a time as what it is held to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from lanewise.kernels.gpu.grouped_config import default
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.prove.quant_bodies import target

__all__ = ["CUTS", "MODULES", "Alone", "GroupedBody", "alone_by", "by_default", "grouped_with"]

GroupedBody = Callable[..., torch.Tensor]
Alone = Callable[[torch.Tensor, QuantWeight, torch.dtype], torch.Tensor]  # y[m,n] of x[m,k] and one expert
MODULES = ("act_quant", "grouped")  # whose `_new` gives guarded memory

# Each way of cutting, by body: warps, tiles held ahead with and without some left over, tokens of a program; in order, or pair by pair.
CUTS: dict[str, tuple[tuple[QuantConfig, bool], ...]] = {
    body: tuple((QuantConfig(body, warps=warps, ahead=ahead, tokens=tokens), bool(ordered)) for warps, ahead, tokens, ordered in cuts)
    for body, cuts in {
        "tiles": ((8, 2, 8, 0), (4, 2, 8, 1), (2, 4, 8, 0), (1, 16, 8, 1), (4, 1, 8, 0), (1, 8, 8, 0), (2, 1, 8, 1), (8, 1, 8, 1)),
        "dots": ((8, 1, 1, 0), (4, 2, 4, 1), (2, 1, 2, 1), (1, 8, 8, 1), (4, 1, 4, 0), (8, 1, 1, 1)),
    }.items()
}


def grouped_with(config: QuantConfig, ordered: bool) -> GroupedBody:
    """The kernel alone, act_quant in front."""

    def body(*, x: torch.Tensor, w: QuantWeight, ids: torch.Tensor, weights: torch.Tensor | None, **named: Any) -> torch.Tensor:
        from lanewise.kernels.gpu.grouped import grouped  # Triton has to be told of its interpreter before

        return grouped(x, w, ids, weights, ordered=ordered, config=config, arch=target(x.device), **named)

    return body


def by_default(ordered: bool | None = None) -> GroupedBody:
    """The same with what a target runs without a table; in order or not where that is said."""

    def body(**arguments: Any) -> torch.Tensor:
        w, ids = arguments["w"], arguments["ids"]
        config = default(target(ids.device), ids.numel(), w.experts, w.k)
        return grouped_with(config.cut, config.ordered if ordered is None else ordered)(**arguments)

    return body


def alone_by(config: QuantConfig | None) -> Alone:
    """One expert by `quant_gemv`, cut so, or as the default of a target has it."""

    def call(x: torch.Tensor, w: QuantWeight, out: torch.dtype) -> torch.Tensor:
        from lanewise.kernels.gpu.act_quant import act_quant
        from lanewise.kernels.gpu.quant_gemv import quant_gemv

        arch = target(x.device)
        cut = config or default(arch, 1, 1, w.k).cut
        a = act_quant(x, w.layout.activation, arch=arch)
        return quant_gemv(a, w, out=out, constant_w=False, config=replace(cut, tokens=8 if cut.body == "tiles" else 1), arch=arch)

    return call
