"""y[m,n] = act(rms_norm(x)[m,k] @ w[n,k].T + bias) + residual on torch tensors: what the skinny kernel needs, and the BLAS behind it.

Importing this loads neither torch nor triton: a machine without them can still ask what would run.
"""

from typing import TYPE_CHECKING, Any

from lanewise import dispatch
from lanewise.contract import Guard, Kernel, Problem
from lanewise.kernels.gpu.guards import GPU, GRAD, OUT, TENSORS, TRITON, X_INNER, described, on
from lanewise.kernels.gpu.table import Choice, choose

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["MOST_ROWS", "problem"]

MOST_ROWS = 16
_TYPES = ("bf16", "f16")

_DTYPE = Guard("dtype", lambda p: p.dtype in _TYPES, lambda p: f"x and w are {p.dtype}; the kernel multiplies {' or '.join(_TYPES)}")
_W_INNER = Guard("w_inner", lambda p: p.w_inner == 1, lambda p: f"neighbours in a row of w lie {p.w_inner} elements apart; the kernel needs 1")
_ROWS = Guard("rows", lambda p: p.m <= MOST_ROWS, lambda p: f"m={p.m}; the kernel takes up to {MOST_ROWS} rows, which share one pass over w")
_EXTENT = Guard("extent", lambda p: max(p.n, p.k) < 2**29, lambda p: f"n={p.n}, k={p.k}; the kernel counts rows and columns of w in 32 bits")
_TABLE = Guard("table", lambda p: _choice(p).config.body != "blas", lambda p: f"BLAS is the faster one here ({_choice(p).source})")


def problem(
    x: "Tensor",
    w: "Tensor",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    gated: bool = False,
    out: "torch.dtype | None" = None,
    grad: bool = False,
) -> Problem:
    """The call as guards see it, with the target and the card of x's own device."""
    n, k = w.shape
    fused = {"norm": norm is not None, "bias": bias is not None, "gated": gated, "residual": residual is not None}
    return described("linear", x, n // 2 if gated else n, k, out=out, fused=fused, grad=grad, w_inner=w.stride(-1))


def _choice(p: Problem) -> Choice:
    # an empty product has no row in a table, and runs nothing
    return choose(p.arch, p.dtype, max(p.m, 1), max(p.n, 1), max(p.k, 1), p.card)


def _note(p: Problem) -> str:
    choice = _choice(p)
    return f"{choice.config} ({choice.source})"


def _skinny(
    x: "Tensor",
    w: "Tensor",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """y[m,n] on x's own device and that device's current stream."""
    from lanewise.kernels.gpu.skinny import skinny

    asked = asked or problem(x, w, bias, residual, norm, gated, out)
    m = asked.m
    with on(x):
        y = skinny(
            x if x.dim() == 2 else x.reshape(m, asked.k),
            w,
            bias if bias is None or bias.dim() == 1 else bias.reshape(m, w.shape[0]),
            residual=residual if residual is None else residual.reshape(m, asked.n),
            norm=norm if norm is None else norm.contiguous(),
            eps=eps,
            gated=gated,
            out=out,
            constant_w=constant_w,
            config=_choice(asked).config,
            arch=asked.arch,
        )
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], asked.n)


def _blas(*operands: Any, constant_w: bool = False, asked: Problem | None = None) -> "Tensor":
    """y[m,n] by torch's own functions on x's own device; differentiable."""
    from lanewise.kernels.gpu.chain import chain

    return chain(*operands)


_GUARDS = (GPU, TRITON, _DTYPE, OUT, X_INNER, _W_INNER, _ROWS, _EXTENT, GRAD, _TABLE)
# They are asked first, whichever room was imported first.
_rest = dispatch.kernels("linear")
dispatch.register(Kernel("blas", "linear", _blas, (TENSORS,), body="blas"), before=_rest[0].name if _rest else None)
dispatch.register(Kernel("skinny", "linear", _skinny, _GUARDS, "SKINNY", "gpu", _note), before="blas")
