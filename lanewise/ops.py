"""What people call on torch tensors. Each call asks the tensors' own device for its target, and dispatch for a kernel.

`linear` is also `torch.ops.lanewise.linear`, an operator with a fake implementation: under torch.compile it stays one node of the graph,
and whatever dispatch chooses runs when the graph does. There is no workspace and nothing is remembered between calls.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from lanewise import dispatch
from lanewise.contract import dtype as known
from lanewise.errors import DeviceError, ShapeError

try:
    import torch
    from torch import Tensor
    from torch.autograd import forward_ad
except ImportError:
    raise DeviceError("lanewise.ops works on torch tensors, and torch is not installed; pip install 'lanewise[gpu]'") from None

from lanewise.kernels.gpu.linear import problem

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
    _require_tensors(x=x, w=w, bias=bias, residual=residual, norm=norm)
    if _wants_gradient(x, w, bias, residual, norm):
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
    if _wants_gradient(*args, *named.values()):
        return _run(*args, **(named | {"grad": True}))
    with torch._C._AutoDispatchBelowAutograd():
        return _OP(*args, **named)


def _wants_gradient(*args: Any) -> bool:
    """Backward or, inside `dual_level` and `torch.func.jvp`, forward."""
    forward = forward_ad._current_level >= 0
    return forward or (torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in args))


def _require_tensors(**operands: Any) -> None:
    for name, t in operands.items():
        if not isinstance(t, Tensor) and (t is not None or name in ("x", "w")):
            raise ShapeError(f"{name} is a {type(t).__name__}; linear takes torch tensors")


def _shape(
    x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, norm: Tensor | None, gated: bool, out: torch.dtype | None
) -> tuple[int, ...]:
    """The shape of y. Raises ShapeError or DeviceError, in words, for operands that do not fit together."""
    if w.dim() != 2 or x.dim() < 1 or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"x is {_of(x)} and w {_of(w)}; they have to be [..., k] and [n, k] with one k")
    if x.dtype is not w.dtype:
        raise ShapeError(f"x is {x.dtype} and w {w.dtype}; they have to be of one type")
    known(str(x.dtype).removeprefix("torch."))
    if out not in (None, x.dtype, torch.float32):
        raise ShapeError(f"out is {out}; y is {x.dtype} like x, or torch.float32")
    rows = w.shape[0]
    if gated and rows % 2:
        raise ShapeError(f"w is {_of(w)}; a gated w has as many rows for the gate as for what it lets through")
    lead, n = tuple(x.shape[:-1]), rows // 2 if gated else rows
    for name, t, single, width in (("bias", bias, True, rows), ("residual", residual, False, n), ("norm", norm, True, w.shape[1])):
        if t is None:
            continue
        if not (single and t.dim() == 1 and t.shape[0] == width) and (name == "norm" or not _is_row_each(t.shape, lead, width)):
            allowed = " or ".join([f"[{width}]"] * single + [f"[{', '.join(map(str, (*lead, width)))}]"] * (name != "norm"))
            raise ShapeError(f"{name} is {_of(t)}; it has to be {allowed}")
        if t.dtype not in (x.dtype, torch.float32):
            raise ShapeError(f"{name} is {t.dtype}; it has to be {x.dtype} like x, or torch.float32")
    for name, t in (("x", x), ("w", w), ("bias", bias), ("residual", residual), ("norm", norm)):
        if t is not None and t.layout is not torch.strided:
            raise ShapeError(f"{name} is laid out as {t.layout}; linear takes strided tensors")
        if t is not None and t.device != x.device:
            raise DeviceError(f"{name} is on {t.device} and x on {x.device}; they have to be on one device")
    return (*lead, n)


def _is_row_each(shape: Sequence[int], lead: tuple[int, ...], width: int) -> bool:
    """Whether it is [*lead, width] or [m, width]. Sizes are compared in their places alone: a compiled graph keeps what is compared as a guard."""
    if len(shape) == len(lead) + 1 and shape[-1] == width and all(a == b for a, b in zip(shape, lead, strict=False)):
        return True
    return len(shape) == 2 and shape[1] == width and shape[0] == prod(lead)


def _of(t: Tensor) -> str:
    return f"[{', '.join(map(str, t.shape))}]"


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
