"""Guards that several kernels on torch tensors have, and how a call becomes what they see."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from lanewise.contract import Guard, Problem
from lanewise.kernels.gpu import device

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["GPU", "GRAD", "OUT", "TENSORS", "TRITON", "X_INNER", "described", "on"]

GPU = Guard("gpu", lambda p: p.arch.is_gpu, lambda p: f"{p.arch} is no GPU of AMD or NVIDIA; the kernel is written for theirs")
TRITON = Guard("triton", lambda p: p.arch.triton, lambda p: f"Triton does not compile for {p.arch}, as far as is known")
OUT = Guard("out", lambda p: p.out in (p.dtype, "f32"), lambda p: f"y is {p.out}; the kernel stores {p.dtype} or f32")
X_INNER = Guard("x_inner", lambda p: p.x_inner == 1, lambda p: f"neighbours in a row of x lie {p.x_inner} elements apart; the kernel needs 1")
GRAD = Guard("gradient", lambda p: not p.grad, "a gradient is wanted; the kernel has no backward")
TENSORS = Guard("torch", lambda p: bool(p.torch), "operands are numpy arrays; this kernel takes torch tensors")


def described(
    op: str,
    x: "Tensor",
    n: int,
    k: int,
    *,
    out: "torch.dtype | None",
    fused: dict[str, bool],
    grad: bool,
    format: str | None = None,  # noqa: A002  (as Problem has it)
    w_inner: int = 1,
) -> Problem:
    """A call's Problem, with the target and the card of x's own device; `fused` says of each part whether it is wanted."""
    name, card = device.named(x.device)
    return Problem(
        op,
        device.row(name),
        x.numel() // k if k else x.shape[:-1].numel(),
        n,
        k,
        _name(x.dtype),
        format,
        out=_name(out or x.dtype),
        # where there is one element, its stride means nothing
        x_inner=x.stride(-1) if k > 1 else 1,
        w_inner=w_inner if k > 1 else 1,
        fused=tuple(part for part, wanted in fused.items() if wanted),
        grad=grad,
        torch=True,
        card=card,
    )


def on(x: "Tensor") -> AbstractContextManager[object]:
    """Makes x's device the current one, to which a launch goes, where it is another."""
    import torch

    return torch.cuda.device(x.device) if x.is_cuda and x.device.index != torch.cuda.current_device() else nullcontext()


def _name(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")
