"""y[tokens, top_k, n] = act(x @ w[expert_ids[token, slot]].T) * weight of packed experts, on torch tensors: what each kernel needs.

`grouped_quant` multiplies int8 activations by the packed codes; `grouped_blas` expands one expert after the other by torch's own functions, wherever
the tensors are, and warns. A problem's m is the number of pairs. Importing this loads neither torch nor triton.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from lanewise import dispatch
from lanewise.contract import Guard, Kernel, Problem
from lanewise.errors import DeviceError
from lanewise.kernels.gpu.grouped_table import GroupedChoice, choose_grouped
from lanewise.kernels.gpu.guards import GPU, GRAD, OUT, TENSORS, TRITON, X_INNER, described, on
from lanewise.kernels.gpu.quant import _BLOCKS, _FORMAT, _SOME, _warn

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lanewise.kernels.gpu.quant_pack import QuantWeight

__all__ = ["problem"]

_MOST_PAIRS, _MOST_N, _MOST_K = 2**24, 8 * 65535, 2**23  # pairs lie along the long side of a grid, panels of 8 rows or 16 along the short one
_EXTENT = Guard(
    "extent",
    lambda p: p.m < _MOST_PAIRS and p.n <= _MOST_N and p.k <= _MOST_K,
    lambda p: f"m={p.m}, n={p.n}, k={p.k}; the kernel takes m below {_MOST_PAIRS}, n up to {_MOST_N} and k up to {_MOST_K}",
)
_FUSED = Guard(
    "fused",
    lambda p: set(p.fused) <= {"gated"},
    lambda p: f"{', '.join(part for part in p.fused if part != 'gated')} would be fused; grouped_linear has gated weights and the router's",
)


def problem(x: "Tensor", w: "QuantWeight", expert_ids: "Tensor", out: "torch.dtype | None" = None, grad: bool = False) -> Problem:
    """The call as guards see it, with the target and the card of x's own device."""
    asked = described("grouped_linear", x, w.n, w.k, out=out, fused={"gated": w.gated}, grad=grad, format=w.format)
    return replace(asked, m=expert_ids.numel(), experts=w.experts)


def _choice(p: Problem) -> GroupedChoice:
    # an empty product has no row in a table, and runs nothing
    return choose_grouped(p.arch, str(p.format), max(p.m, 1), max(p.n, 1), max(p.k, 1), p.experts, p.card)


def _note(p: Problem) -> str:
    choice = _choice(p)
    return f"{choice.config} ({choice.source})"


def _quant(
    x: "Tensor",
    w: "QuantWeight",
    expert_ids: "Tensor",
    weights: "Tensor | None" = None,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    ids_ready: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """y[tokens, top_k, n] on x's own device and that device's current stream; rows of an id that is no expert's are NaN."""
    from lanewise.kernels.gpu.grouped import grouped

    asked = asked or problem(x, w, expert_ids, out)
    config = _choice(asked).config
    with on(x):
        return grouped(
            x,
            w,
            expert_ids,
            weights,
            out=out or x.dtype,
            constant_w=constant_w,
            ids_ready=ids_ready,
            ordered=config.ordered,
            config=config.cut,
            arch=asked.arch,
        )


def _blas(
    x: "Tensor",
    w: "QuantWeight",
    expert_ids: "Tensor",
    weights: "Tensor | None" = None,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    ids_ready: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """The same by torch's own functions, expert by expert, each expanded while it is needed; differentiable in all but w. It asks for the ids."""
    import torch

    from lanewise.kernels.gpu.chain import chain
    from lanewise.kernels.gpu.quant_expand import expand
    from lanewise.kernels.gpu.quant_pack import QuantWeight

    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise DeviceError("grouped_linear without a kernel has to know the ids, which a graph that is being recorded cannot tell")
    _warn(asked or problem(x, w, expert_ids, out))
    ids, out = expert_ids.reshape(-1), out or x.dtype
    rows, share = x.reshape(x.shape[:-1].numel(), w.k), 1 if x.dim() == 3 else expert_ids.shape[1]
    y = torch.full((len(ids), w.n), torch.nan, dtype=out, device=x.device)
    for e in range(w.experts) if ids.is_meta else torch.unique(ids).tolist():
        if 0 <= e < w.experts:
            pairs = torch.arange(len(ids), device=x.device) if ids.is_meta else torch.nonzero(ids == e).flatten()
            expert = expand(QuantWeight(w.format, w.n, w.k, w.gated, w.tiles[e]), x.dtype)
            y[pairs] = chain(rows[pairs // share], expert, gated=w.gated, out=out)
    y = y.reshape(*expert_ids.shape, w.n)
    return y if weights is None else (y.float() * weights[..., None].float()).to(out)


_GUARDS = (GPU, TRITON, _FORMAT, _BLOCKS, _FUSED, OUT, _EXTENT, GRAD, _SOME, X_INNER)
# They are asked first, whichever room was imported first.
_rest = dispatch.kernels("grouped_linear")
dispatch.register(
    Kernel("grouped_blas", "grouped_linear", _blas, (TENSORS, _FORMAT, _BLOCKS, _FUSED), body="blas"), before=_rest[0].name if _rest else None
)
dispatch.register(Kernel("grouped_quant", "grouped_linear", _quant, _GUARDS, "QUANT_GEMV", "gpu", _note), before="grouped_blas")
