"""Bodies of linear that are wrong in one way each, on torch tensors: what the cases must catch."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from lanewise.kernels.gpu import skinny

Body = Callable[..., torch.Tensor]


def steps(**other: Callable[..., Any]) -> Body:
    """The unfused chain in single ops of torch, y[m,n] with sums in float32 on any device, with some of its steps replaced."""

    def body(*, x, w, bias, residual, norm, eps, gated, out, constant_w):
        to = out or x.dtype
        lead, x = x.shape[:-1], x.flatten(0, -2)
        if norm is not None:
            x = other.get("norm", lambda x, w: functional.rms_norm(x.float(), x.shape[-1:], w.float(), eps).to(x.dtype))(x, norm)
        y = other.get("dot", lambda x, w: x.float() @ w.float().T)(x, w)
        y = y if bias is None else y + bias.float()
        y = other.get("round", lambda y, to: y.to(to))(y, to)
        if gated:
            y = other.get("gate", lambda g, u: functional.silu(g) * u)(*y.chunk(2, dim=1))
        return (y if residual is None else y + residual).to(to).view(*lead, len(w) // (1 + gated))

    return body


chain = steps()


def changed(**changes: Callable[[dict[str, Any]], Any]) -> Body:
    """The chain with some of its arguments replaced."""
    return lambda **a: chain(**(a | {name: change(a) for name, change in changes.items() if a[name] is not None}))


def cut(y: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Towards zero, as bfloat16 from the upper half of a float32."""
    return y.to(to) if to != torch.bfloat16 else (y.contiguous().view(torch.int32) & -65536).view(torch.float32).to(to)


def in_parts(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The sum of 16 parts, rounded to x's dtype after each."""
    total = torch.zeros(len(x), len(w), dtype=x.dtype)
    for a, b in zip(x.chunk(16, dim=1), w.chunk(16, dim=1), strict=True):
        total = (total.float() + a.float() @ b.float().T).to(x.dtype)
    return total.float()


def past_the_end(**a: Any) -> torch.Tensor:
    y = chain(**a)
    made = skinny._new(tuple(y.shape), y.dtype, y.device)
    made.copy_(y)
    made.as_strided((y.numel() + 1,), (1,))[-1] = 1
    return made


def half_written(**a: Any) -> torch.Tensor:
    y = chain(**a)
    made = skinny._new(tuple(y.shape), y.dtype, y.device)
    made[:, :-1] = y[:, :-1]
    return made


def into_x(**a: Any) -> torch.Tensor:
    y = chain(**a)
    a["x"].view(-1)[:1] = 1
    return y


def between_rows(**a: Any) -> torch.Tensor:
    y = chain(**a)
    w = a["w"]
    if w.stride(0) > w.shape[1] and w.numel():
        w.as_strided((1,), (1,), w.storage_offset() + w.shape[1])[:] = 1
    return y


def packed(t: torch.Tensor) -> torch.Tensor:
    """The rows as if nothing lay between them."""
    return t if t.dim() != 2 else t.as_strided(t.shape, (t.shape[1], 1))


def wrapped(t: torch.Tensor) -> torch.Tensor:
    """The rows where a product in 32 bits finds them."""
    stride = t.stride(0) & 0xFFFFFFFF
    return t.as_strided(t.shape, (stride if stride < 1 << 31 else 64, t.stride(1)))


def later(t: torch.Tensor) -> torch.Tensor:
    return t.as_strided(t.shape, t.stride(), t.storage_offset() + 1)


def interleaved(a: dict[str, Any]) -> torch.Tensor:
    if not a["gated"]:
        return a["w"]
    n = len(a["w"]) // 2
    return a["w"][torch.arange(2 * n).view(n, 2).t().flatten()]


MUTANTS: dict[str, Body] = {
    "the bias is dropped": lambda **a: chain(**(a | {"bias": None})),
    "the first row of a 2-D bias serves all": changed(bias=lambda a: a["bias"][:1] if a["bias"].dim() == 2 else a["bias"]),
    "the residual is dropped": lambda **a: chain(**(a | {"residual": None})),
    "the tail of k is skipped": changed(x=lambda a: a["x"][..., : a["x"].shape[-1] // 16 * 16], w=lambda a: a["w"][:, : a["w"].shape[1] // 16 * 16]),
    "the rows of w are taken as packed": changed(w=lambda a: packed(a["w"])),
    "the rows of x are taken as packed": changed(x=lambda a: packed(a["x"])),
    "w is read one element late": changed(w=lambda a: later(a["w"])),
    "x is read one element late": changed(x=lambda a: later(a["x"])),
    "a row's address is made in 32 bits": changed(w=lambda a: wrapped(a["w"])),
    "x of the neighbouring token is read": changed(x=lambda a: a["x"].roll(1, 0)),
    "w of the neighbouring row is read": changed(w=lambda a: a["w"].roll(1, 0)),
    "gate and up are swapped": changed(w=lambda a: a["w"].roll(len(a["w"]) // 2, 0) if a["gated"] else a["w"]),
    "gate and up are taken in turns": changed(w=interleaved),
    "y is cut and not rounded": steps(round=cut),
    "the sum passes through 16 bits": steps(dot=in_parts),
    "products are rounded to x's dtype": steps(dot=lambda x, w: (x[:, None] * w[None]).float().sum(-1)),
    "the norm has no eps": changed(eps=lambda a: 0.0),
    "the norm has no weight": changed(norm=lambda a: torch.ones_like(a["norm"])),
    "the normalised x is not rounded": steps(norm=lambda x, w: functional.rms_norm(x.float(), x.shape[-1:], w.float(), 1e-6)),
    "the normalised x is rounded before its weight": steps(
        norm=lambda x, w: (functional.rms_norm(x.float(), x.shape[-1:], None, 1e-6).to(x.dtype).float() * w.float()).to(x.dtype)
    ),
    "silu is not rounded": steps(gate=lambda g, u: functional.silu(g.float()) * u.float()),
    "silu is left out": steps(gate=lambda g, u: g * u),
    "t is not rounded before the residual": steps(round=lambda y, to: y),
    "one element behind y is written": past_the_end,
    "the last column is not written": half_written,
    "x is written to": into_x,
    "padding of w is written to": between_rows,
    "y has another dtype": lambda **a: chain(**a).double(),
    "y has another shape": lambda **a: chain(**a).t(),
    "an infinite y is clamped": lambda **a: chain(**a).nan_to_num(),
    "subnormal numbers are flushed": steps(round=lambda y, to: torch.where(y.abs() < torch.finfo(to).smallest_normal, 0.0, y).to(to)),
}
