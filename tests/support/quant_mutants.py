"""Bodies of quant_linear and act_quant that are wrong in one way each, on torch tensors: what the cases must catch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lanewise.formats import get
from lanewise.formats.activations import quantize_q8_0
from lanewise.kernels.gpu import act_quant, quant_gemv
from lanewise.kernels.gpu.quant_pack import QuantWeight, unpack
from lanewise.oracle.blocks import decode
from lanewise.prove.activations import GROUPS, Words, laid_out
from lanewise.prove.quant_exact import quantized

Body = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Parts:
    """a [m,g,j] and its scale d [m,g]; q [n,g,j], scale and least [n,g]; the groups are those of the weights."""

    a: Any
    d: Any
    q: Any
    scale: Any
    least: Any

    def sums(self) -> Any:
        with np.errstate(invalid="ignore", over="ignore"):
            x = self.d[..., None] * self.a
            w = self.scale[..., None] * self.q - self.least[..., None]
            return x.reshape(len(x), x[:1].size or w[:1].size) @ w.reshape(len(w), w[:1].size or x[:1].size).T


def right(x: torch.Tensor, w: QuantWeight) -> Parts:
    q, d = quantized(x.float().numpy(), get(w.format).activation)
    read = decode(unpack(w).numpy(), w.format)
    groups, group = read.q.shape[1:]
    a = q.astype(np.float64).reshape(len(q), groups, group)
    return Parts(a, d.astype(np.float64).repeat(max(1, groups // max(1, d.shape[1])), axis=1), read.q, read.scale, read.least)


def steps(parts: Callable[[Parts], Parts] = lambda p: p, sums: Callable[[Parts], Any] = Parts.sums, **other: Callable[..., Any]) -> Body:
    """The definition in float64 and the chain behind it in torch, with some of its steps replaced."""

    def body(*, x, w, bias, residual, norm, eps, out, constant_w):
        assert norm is None
        y = torch.from_numpy(sums(parts(right(x, w)))).float()
        if bias is not None:
            y = y + other.get("bias", lambda b: b)(bias).float()
        y = other.get("round", lambda y, to: y.to(to))(y, out)
        if w.gated:
            y = other.get("gate", lambda g, u: functional.silu(g) * u)(*y.chunk(2, dim=1))
        return (y if residual is None else y + residual).to(out)

    return body


chain = steps()


def mistaken(name: str, change: Callable[[Any], Any]) -> Body:
    """One of the parts is another."""
    return steps(lambda p: replace(p, **{name: change(getattr(p, name))}))


def cut(y: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Towards zero, as bfloat16 from the upper half of a float32."""
    return y.to(to) if to != torch.bfloat16 else (y.contiguous().view(torch.int32) & -65536).view(torch.float32).to(to)


def in_16_bits(p: Parts) -> Any:
    """Integer sums of 32 that wrap."""
    x, w = p.a.reshape(len(p.a), 1, p.a.shape[1], -1), p.q[None]
    dots = (x * w).sum(axis=3).astype(np.int64).astype(np.int16).astype(np.float64)
    return (p.d[:, None] * (p.scale[None] * dots - p.least[None] * x.sum(axis=3))).sum(axis=2)


def without_last(a: Any) -> Any:
    a = a.copy()
    a[:, -1] = 0
    return a


def other_code(q: Any) -> Any:
    """The lowest bit of one weight."""
    q = q.copy()
    q[0, 0, 3] ^= 1
    return q


def in_company(**a: Any) -> torch.Tensor:
    """A token alone is summed in another order."""
    y = chain(**a)
    return y if len(y) > 1 else (y.double() * (1 + 2.0**-22)).to(y.dtype)


def new_memory(y: torch.Tensor) -> torch.Tensor:
    made = quant_gemv._new(tuple(y.shape), y.dtype, y.device)
    return made.copy_(y)


def past_the_end(**a: Any) -> torch.Tensor:
    made = new_memory(chain(**a))
    made.as_strided((made.numel() + 1,), (1,))[-1] = 1
    return made


def half_written(**a: Any) -> torch.Tensor:
    y = chain(**a)
    made = quant_gemv._new(tuple(y.shape), y.dtype, y.device)
    made[:, :-1] = y[:, :-1]
    return made


def into(name: str) -> Body:
    def body(**a: Any) -> torch.Tensor:
        y = chain(**a)
        operand = a[name].tiles if name == "w" else a[name]
        operand.as_strided((1,), (1,), operand.storage_offset())[:] = 1
        return y

    return body


class Unsteady:
    """Gives other bits every second time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **a: Any) -> torch.Tensor:
        self.calls += 1
        y = chain(**a)
        return y if self.calls % 2 or not y.numel() else torch.nextafter(y.float(), torch.tensor(np.inf)).to(y.dtype)


def spread(**a: Any) -> torch.Tensor:
    """What is no number reaches every token."""
    y = chain(**a)
    return torch.full_like(y, float("nan")) if bool(y.isnan().any()) else y


MUTANTS: dict[str, Body] = {
    "the scale of the next group": mistaken("scale", lambda s: np.roll(s, 1, axis=1)),
    "the scale of the next row": mistaken("scale", lambda s: np.roll(s, 1, axis=0)),
    "the neighbour's minimum": mistaken("least", lambda s: np.roll(s, 1, axis=1)),
    "no minima": mistaken("least", lambda s: 0 * s),
    "minima are added": mistaken("least", lambda s: -s),
    "the last group is dropped": mistaken("a", without_last),
    "the first of a group is left out of sums": steps(sums=lambda p: p.sums() + (p.d * p.a[..., 0]) @ p.least.T),
    "activations without their sign": mistaken("a", np.abs),
    "activations of the next token": mistaken("a", lambda a: np.roll(a, 1, axis=0)),
    "the activations' scale of the next token": mistaken("d", lambda d: np.roll(d, 1, axis=0)),
    "the activations' scale of the next group": mistaken("d", lambda d: np.roll(d, 1, axis=1)),
    "halves of a group are swapped": mistaken("a", lambda a: np.roll(a, a.shape[2] // 2, axis=2)),
    "one code has another lowest bit": mistaken("q", other_code),
    "codes are one too large": mistaken("q", lambda q: q + 1),
    "the lowest code is one too large": mistaken("q", lambda q: np.maximum(q, -127)),
    "scales are rounded to bf16": mistaken("scale", lambda s: torch.from_numpy(s).to(torch.bfloat16).double().numpy()),
    "scales lose what is subnormal": mistaken("scale", lambda s: np.where(np.abs(s) < np.finfo(np.float16).smallest_normal, 0, s)),
    "scales are without sign": mistaken("scale", np.abs),
    "integer sums wrap in 16 bits": steps(sums=in_16_bits),
    "what is no number is hidden": steps(sums=lambda p: np.nan_to_num(p.sums(), posinf=0, neginf=0)),
    "what is no number reaches every token": spread,
    "the sum passes through 16 bits": steps(sums=lambda p: torch.from_numpy(p.sums()).to(torch.bfloat16).double().numpy()),
    "the bias is dropped": lambda **a: chain(**(a | {"bias": None})),
    "the first row of a 2-D bias serves all": steps(bias=lambda b: b[:1] if b.dim() == 2 else b),
    "the residual is dropped": lambda **a: chain(**(a | {"residual": None})),
    "gate and up are swapped": steps(gate=lambda g, u: functional.silu(u) * g),
    "silu is left out": steps(gate=lambda g, u: g * u),
    "silu is not rounded": steps(gate=lambda g, u: functional.silu(g.float()) * u.float()),
    "y is cut and not rounded": steps(round=cut),
    "t is not rounded before the residual": steps(round=lambda y, to: y),
    "a token alone has other bits than in company": in_company,
    "two runs differ": Unsteady(),
    "one element behind y is written": past_the_end,
    "the last column is not written": half_written,
    "x is written to": into("x"),
    "w is written to": into("w"),
    "y has another dtype": lambda **a: chain(**a).double(),
    "y has another shape": lambda **a: chain(**a).t(),
}


def activations(quantize: Callable[..., Any] = quantized, words: Callable[[Words], Words] = lambda w: w) -> Callable[..., Any]:
    """act_quant by definition, with its codes and scales or the words that they become replaced."""

    def body(x: torch.Tensor, kind: str, *, norm: Any, eps: float, arch: Any) -> act_quant.Activations:
        if norm is not None:
            x = functional.rms_norm(x.float(), x.shape[-1:], norm.float(), eps).to(x.dtype)
        q, d = quantize(x.float().numpy(), kind)
        made = words(laid_out(np.ascontiguousarray(q), np.ascontiguousarray(d, np.float32), kind))
        return act_quant.Activations(kind, *x.shape, *(torch.from_numpy(np.ascontiguousarray(part)) for part in (made.q, made.d, made.sums)))

    return body


def with_codes(change: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """q = change(x, d, amax), in groups as [m, groups, group]; what the definition makes zero stays so."""

    def quantize(x: Any, kind: str) -> Any:
        q, d = quantized(x, kind)
        groups = x.reshape(len(x), x.shape[1] // GROUPS[kind], GROUPS[kind])
        amax = np.abs(groups).max(axis=2, initial=0)[..., None]
        with np.errstate(all="ignore"):
            codes = np.nan_to_num(change(groups, d[..., None], amax), posinf=0, neginf=0)
        plain = np.isfinite(d) & (d > 0)
        return np.where(plain[..., None], np.clip(codes, -127, 127), 0).astype(np.int8).reshape(q.shape), d

    return quantize


def with_scales(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def quantize(x: Any, kind: str) -> Any:
        q, d = quantized(x, kind)
        groups = np.abs(x).reshape(len(x), x.shape[1] // GROUPS[kind], GROUPS[kind])
        return q, change(d, groups.max(axis=2, initial=0))

    return quantize


def without_threshold(x: Any, kind: str) -> Any:
    q, d = quantized(x * np.float32(2.0**20), kind)
    return q, d / np.float32(2.0**20)


F = np.float32
ACT_MUTANTS: dict[str, Callable[..., Any]] = {
    "q by x / d": activations(with_codes(lambda x, d, amax: np.rint(x / d))),
    "q by 1 / d": activations(with_codes(lambda x, d, amax: np.rint(x * (F(1) / d)))),
    "halves away from zero": activations(with_codes(lambda x, d, amax: np.copysign(np.floor(np.abs(x * (F(127) / amax)) + F(0.5)), x))),
    "q is cut": activations(with_codes(lambda x, d, amax: np.trunc(x * (F(127) / amax)))),
    "d by a reciprocal": activations(with_scales(lambda d, amax: np.where(d > 0, amax * (F(1) / F(127)), d).astype(F))),
    "d passes through fp16": activations(with_scales(lambda d, amax: d.astype(np.float16).astype(F))),
    "another NaN": activations(with_scales(lambda d, amax: np.where(np.isnan(d), np.array(0x7FFFFFFF, np.uint32).view(F), d))),
    "Inf stays Inf": activations(with_scales(lambda d, amax: np.where(np.isinf(amax), amax, d))),
    "NaN is hidden": activations(with_scales(lambda d, amax: np.nan_to_num(d, posinf=0))),
    "no threshold": activations(without_threshold),
    "-0 as a scale": activations(with_scales(lambda d, amax: np.where(d == 0, F(-0.0), d))),
    "scales of 32 for 256": activations(lambda x, kind: (quantize_q8_0(x).q, quantized(x, kind)[1])),
    "units are swapped": activations(words=lambda w: replace(w, q=w.q[:, :, ::-1])),
    "tokens of an octet are reversed": activations(words=lambda w: replace(w, q=w.q[:, :, :, ::-1])),
    "scales of a neighbour": activations(words=lambda w: replace(w, d=np.roll(w.d, 1, axis=1))),
    "sums of a neighbour": activations(words=lambda w: replace(w, sums=np.roll(w.sums, 1, axis=1))),
    "no sums": activations(words=lambda w: replace(w, sums=np.zeros_like(w.sums))),
    "the norm is left out": lambda x, kind, **a: activations()(x, kind, **(a | {"norm": None})),
    "the norm has no eps": lambda x, kind, **a: activations()(x, kind, **(a | {"eps": 0.0})),
}
right_activations = activations()
