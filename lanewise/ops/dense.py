"""`linear`: y = act(rms_norm(x) @ w.T + bias) + residual on torch tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise import dispatch
from lanewise.errors import ShapeError
from lanewise.kernels.gpu.linear import problem
from lanewise.ops.checks import of, require_behind, require_one_place, require_tensors, require_types, wants_gradient

__all__ = ["linear"]


def linear(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: torch.dtype | None = None,
    constant_w: bool = False,
) -> Tensor:
    """y[..., n] = act(rms_norm(x)[..., k] @ w[n,k].T + bias) + residual, summed in float32.

    bias:     [n], or a row for each of x's m; x's type or float32
    residual: a row of n for each of x's m, added last; x's type or float32
    norm:     [k], the weight of the RMSNorm that x goes through first, with `eps` below its root
    gated:    w is [2n,k] (and bias 2n): SiLU of the first n features times the others
    out:      the type of y: x's, which is the default, or float32
    constant_w: a promise that no kernel still in flight on the stream writes w, so that it may be read before the previous one has ended

    Where a gradient is wanted torch's own functions run. Raises ShapeError and DeviceError for operands that do not fit together.

    >>> linear(torch.ones(1, 3), torch.ones(2, 3), torch.tensor([0.0, 1.0]))
    tensor([[3., 4.]])
    """
    if torch.compiler.is_compiling():
        return _OP(x, w, bias, residual, norm, eps, gated, out, constant_w)
    require_tensors("linear", ("x", "w"), x=x, w=w, bias=bias, residual=residual, norm=norm)
    if wants_gradient(x, w, bias, residual, norm):
        return _run(x, w, bias, residual, norm, eps, gated, out, constant_w, grad=True)
    with torch._C._AutoDispatchBelowAutograd():  # spares a way through Python: nobody wants a gradient
        return _OP(x, w, bias, residual, norm, eps, gated, out, constant_w)


def _run(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: torch.dtype | None = None,
    constant_w: bool = False,
    grad: bool = False,
) -> Tensor:
    _shape(x, w, bias, residual, norm, gated, out)
    asked = problem(x, w, bias, residual, norm, gated, out, grad)
    result: Tensor = dispatch.run(asked, x, w, bias, residual, norm, eps, gated, out, constant_w=constant_w, asked=asked)
    return result


def _fake(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: torch.dtype | None = None,
    constant_w: bool = False,
) -> Tensor:
    return x.new_empty(_shape(x, w, bias, residual, norm, gated, out), dtype=out)


def _differentiable(*args: Any, **named: Any) -> Tensor:
    if wants_gradient(*args, *named.values()):
        return _run(*args, **(named | {"grad": True}))
    with torch._C._AutoDispatchBelowAutograd():
        return _OP(*args, **named)


def _shape(
    x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, norm: Tensor | None, gated: bool, out: torch.dtype | None
) -> tuple[int, ...]:
    """The shape of y. Raises ShapeError or DeviceError, in words, for operands that do not fit together."""
    if w.dim() != 2 or x.dim() < 1 or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"x is {of(x)} and w {of(w)}; they have to be [..., k] and [n, k] with one k")
    if x.dtype is not w.dtype:
        raise ShapeError(f"x is {x.dtype} and w {w.dtype}; they have to be of one type")
    require_types(x, out)
    rows = w.shape[0]
    if gated and rows % 2:
        raise ShapeError(f"w is {of(w)}; a gated w has as many rows for the gate as for what it lets through")
    n = rows // 2 if gated else rows
    lead = require_behind(x, rows, n, bias, residual, norm)
    require_one_place("linear", x, w=w, bias=bias, residual=residual, norm=norm)
    return (*lead, n)


_LIBRARY = torch.library.Library("lanewise", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "linear(Tensor x, Tensor w, Tensor? bias=None, Tensor? residual=None, Tensor? norm=None, float eps=1e-6, bool gated=False, "
    "ScalarType? out=None, bool constant_w=False) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("linear", _run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
_LIBRARY.impl("linear", _differentiable, "Autograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("lanewise::linear", _fake, lib=_LIBRARY)
_OP: Callable[..., Tensor] = torch.ops.lanewise.linear.default
