"""`quant_linear`: y = act(rms_norm(x) @ w.T + bias) + residual on torch tensors, with w in a block format of GGUF, packed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise import dispatch
from lanewise.errors import ShapeError
from lanewise.kernels.gpu.quant import problem
from lanewise.kernels.gpu.quant_pack import QuantWeight
from lanewise.ops.checks import of, require_behind, require_one_place, require_tensors, require_types, wants_gradient

__all__ = ["quant_linear"]


def quant_linear(
    x: Tensor,
    w: QuantWeight,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    out: torch.dtype | None = None,
    constant_w: bool = False,
) -> Tensor:
    """y[..., n] = act(rms_norm(x)[..., k] @ w[n,k].T + bias) + residual; w as `quant_pack.pack` makes it, and gated where it was packed so.

    bias:     [n], or a row for each of x's m; x's type or float32. Of gated w it is 2n: n for the gates, and then n
    residual: a row of n for each of x's m, added last; x's type or float32
    norm:     [k], the weight of the RMSNorm that x goes through first, with `eps` below its root
    out:      the type of y: x's, which is the default, or float32
    constant_w: a promise that no kernel still in flight on the stream writes w, so that it may be read before the previous one has ended

    Where few tokens meet a kernel, x is rounded to int8 as `formats.activations` says, and products are exact up to their scales; otherwise w is
    expanded and rounded once to x's type. Where that is done without a kernel, on a CPU for one, a warning says so once. Raises ShapeError,
    FormatError and DeviceError for operands that do not fit together.

    >>> from warnings import simplefilter; simplefilter("ignore")  # here no kernel reads packed weights, which it would say
    >>> from lanewise.kernels.gpu.quant_pack import pack
    >>> raw = torch.tensor([[0, 56] + [2] * 32, [0, 52] + [4] * 32], dtype=torch.uint8)  # Q8_0: d = 0.5 and q = 2, d = 0.25 and q = 4
    >>> quant_linear(torch.ones(1, 32), pack(raw, "Q8_0"), torch.tensor([0.0, 1.0]))
    tensor([[32., 33.]])
    """
    if torch.compiler.is_compiling():
        return _OP(x, w.tiles, w.format, w.n, w.k, w.gated, bias, residual, norm, eps, out, constant_w)
    if not isinstance(w, QuantWeight):
        raise ShapeError(f"w is a {type(w).__name__}; quant_linear takes a QuantWeight, which quant_pack.pack makes of a file's bytes")
    require_tensors("quant_linear", ("x",), x=x, bias=bias, residual=residual, norm=norm)
    if wants_gradient(x, bias, residual, norm):
        return _run(x, w, bias, residual, norm, eps, out, constant_w, grad=True)
    with torch._C._AutoDispatchBelowAutograd():  # spares a way through Python: nobody wants a gradient
        return _OP(x, w.tiles, w.format, w.n, w.k, w.gated, bias, residual, norm, eps, out, constant_w)


def _run(
    x: Tensor,
    w: QuantWeight,
    bias: Tensor | None,
    residual: Tensor | None,
    norm: Tensor | None,
    eps: float,
    out: torch.dtype | None,
    constant_w: bool,
    grad: bool = False,
) -> Tensor:
    _shape(x, w, bias, residual, norm, out)
    asked = problem(x, w, bias, residual, norm, out, grad)
    result: Tensor = dispatch.run(asked, x, w, bias, residual, norm, eps, out=out, constant_w=constant_w, asked=asked)
    return result


def _called(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool = False, *others: Any) -> Tensor:  # noqa: A002
    return _run(x, QuantWeight(format, n, k, gated, tiles), *_in_full(*others))


def _fake(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool = False, *others: Any) -> Tensor:  # noqa: A002
    bias, residual, norm, _, out, _ = _in_full(*others)
    return x.new_empty(_shape(x, QuantWeight(format, n, k, gated, tiles), bias, residual, norm, out), dtype=out)


def _differentiable(x: Tensor, tiles: Tensor, format: str, n: int, k: int, gated: bool = False, *others: Any) -> Tensor:  # noqa: A002
    if wants_gradient(x, *others):
        return _run(x, QuantWeight(format, n, k, gated, tiles), *_in_full(*others), grad=True)
    with torch._C._AutoDispatchBelowAutograd():
        return _OP(x, tiles, format, n, k, gated, *others)


def _in_full(
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    out: torch.dtype | None = None,
    constant_w: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, float, torch.dtype | None, bool]:
    """What the operator takes behind its weights, of which torch leaves out whatever is its default."""
    return bias, residual, norm, eps, out, constant_w


def _shape(x: Tensor, w: QuantWeight, bias: Tensor | None, residual: Tensor | None, norm: Tensor | None, out: torch.dtype | None) -> tuple[int, ...]:
    """The shape of y. Raises ShapeError or DeviceError, in words, for operands that do not fit together."""
    if w.tiles.dim() == 4:  # also where there are no experts: a kernel would read past the end of nothing
        raise ShapeError(f"w has {w.experts} experts; quant_linear multiplies by one weight, and grouped_linear by experts")
    if x.dim() < 1 or x.shape[-1] != w.k:
        raise ShapeError(f"x is {of(x)} and w {w.format} [{w.rows}, {w.k}]; they have to be [..., k] and [n, k] with one k")
    require_types(x, out)
    lead = require_behind(x, w.rows, w.n, bias, residual, norm)
    require_one_place("quant_linear", x, w=w.tiles, bias=bias, residual=residual, norm=norm)
    return (*lead, w.n)


_LIBRARY = torch.library.Library("lanewise", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "quant_linear(Tensor x, Tensor tiles, str format, int n, int k, bool gated=False, Tensor? bias=None, Tensor? residual=None, Tensor? norm=None, "
    "float eps=1e-6, ScalarType? out=None, bool constant_w=False) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("quant_linear", _called, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
_LIBRARY.impl("quant_linear", _differentiable, "Autograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("lanewise::quant_linear", _fake, lib=_LIBRARY)
_OP: Callable[..., Tensor] = torch.ops.lanewise.quant_linear.default
