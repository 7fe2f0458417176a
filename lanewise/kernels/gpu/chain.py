"""y[m,n] = act(rms_norm(x)[m,k] @ w[n,k].T + bias) + residual by torch's own functions, one after the other: the definition of what is fused.

It rounds once behind the norm, once behind product and bias, once behind SiLU, its product, and the residual.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["chain"]


def chain(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 1e-6,
    gated: bool = False,
    out: torch.dtype | None = None,
) -> Tensor:
    """y[..., n] of operands as in `ops.linear`, which checks them; of any strides, on any device, differentiable."""
    kind = x.device.type
    # the tensors' types are what was asked for
    with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) else nullcontext():
        if norm is not None and x.shape[-1]:
            x = _normed(x, norm, eps)
        y = _product(x, w, bias, out or x.dtype)
        if gated:
            half = w.shape[0] // 2
            y = functional.silu(y[..., :half]) * y[..., half:]
        return y if residual is None else (y + residual.reshape(y.shape)).to(y.dtype)


def _normed(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    if norm.dtype is x.dtype:
        return functional.rms_norm(x, (x.shape[-1],), norm, eps)
    # torch would multiply by a weight of another type behind the rounding
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * norm.float()).to(x.dtype)


def _product(x: Tensor, w: Tensor, bias: Tensor | None, out: torch.dtype) -> Tensor:
    """x @ w.T + bias with one rounding, to `out`."""
    if out is x.dtype and (bias is None or (bias.dim() == 1 and bias.dtype is x.dtype)):
        return functional.linear(x, w, bias)
    narrow, trained = x.dtype is not torch.float32, torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
    if x.is_cuda and torch.version.cuda and narrow and x.numel() and w.numel() and not trained:  # spares a wide copy of w; has no derivative
        y = torch.mm(x.reshape(-1, x.shape[-1]), w.t(), out_dtype=torch.float32).reshape(*x.shape[:-1], w.shape[0])
    else:
        y = functional.linear(x.float(), w.float())
    if bias is not None:
        y = y + (bias if bias.dim() == 1 else bias.reshape(y.shape))
    return y.to(out)
