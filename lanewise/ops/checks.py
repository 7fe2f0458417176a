"""What every op on torch tensors asks of its operands, in words, and whether a gradient is wanted of them."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lanewise.contract import dtype as known
from lanewise.errors import DeviceError, ShapeError

__all__ = ["of", "require_behind", "require_one_place", "require_tensors", "require_types", "wants_gradient"]


def wants_gradient(*args: Any) -> bool:
    """Backward or, inside `dual_level` and `torch.func.jvp`, forward."""
    forward = forward_ad._current_level >= 0
    return forward or (torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in args))


def require_tensors(op: str, needed: Sequence[str], **operands: Any) -> None:
    """Raises ShapeError for an operand that is no tensor, or a nested one; those that are not `needed` may be None."""
    for name, t in operands.items():
        if not isinstance(t, Tensor) and (t is not None or name in needed):
            raise ShapeError(f"{name} is a {type(t).__name__}; {op} takes torch tensors")
        if isinstance(t, Tensor) and t.is_nested:  # torch asks those for a kernel of their own, in front of every other check
            raise ShapeError(f"{name} is a nested tensor; {op} takes strided tensors")


def require_types(x: Tensor, out: torch.dtype | None) -> None:
    """Raises ShapeError for an x that is no float, or a y that is neither x's type nor float32."""
    known(str(x.dtype).removeprefix("torch."))
    if out not in (None, x.dtype, torch.float32):
        raise ShapeError(f"out is {out}; y is {x.dtype} like x, or torch.float32")


def require_behind(x: Tensor, rows: int, n: int, bias: Tensor | None, residual: Tensor | None, norm: Tensor | None) -> tuple[int, ...]:
    """The sizes of x in front of its last. Raises ShapeError for a bias that is not of w's `rows`, a residual not of `n`, a norm not of x's last."""
    lead, k = tuple(x.shape[:-1]), x.shape[-1]
    for name, t, single, width in (("bias", bias, True, rows), ("residual", residual, False, n), ("norm", norm, True, k)):
        if t is None:
            continue
        if not (single and t.dim() == 1 and t.shape[0] == width) and (name == "norm" or not _is_row_each(t.shape, lead, width)):
            allowed = " or ".join([f"[{width}]"] * single + [f"[{', '.join(map(str, (*lead, width)))}]"] * (name != "norm"))
            raise ShapeError(f"{name} is {of(t)}; it has to be {allowed}")
        if t.dtype not in (x.dtype, torch.float32):
            raise ShapeError(f"{name} is {t.dtype}; it has to be {x.dtype} like x, or torch.float32")
    return lead


def require_one_place(op: str, x: Tensor, **operands: Tensor | None) -> None:
    """Raises ShapeError for a tensor without strides, and DeviceError for one that is not on x's device."""
    for name, t in {"x": x, **operands}.items():
        if t is not None and t.layout is not torch.strided:
            raise ShapeError(f"{name} is laid out as {t.layout}; {op} takes strided tensors")
        if t is not None and t.device != x.device:
            raise DeviceError(f"{name} is on {t.device} and x on {x.device}; they have to be on one device")


def _is_row_each(shape: Sequence[int], lead: tuple[int, ...], width: int) -> bool:
    """Whether it is [*lead, width] or [m, width]. Sizes are compared in their places alone: a compiled graph keeps what is compared as a guard."""
    if len(shape) == len(lead) + 1 and shape[-1] == width and all(a == b for a, b in zip(shape, lead, strict=False)):
        return True
    return len(shape) == 2 and shape[1] == width and shape[0] == prod(lead)


def of(t: Tensor) -> str:
    """A tensor's shape as a message has it."""
    return f"[{', '.join(map(str, t.shape))}]"
