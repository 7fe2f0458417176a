"""y[m,n] = act(rms_norm(x)[m,k] @ w[n,k].T + bias) + residual with packed weights, on torch tensors: what each kernel needs.

`quant_gemv` multiplies int8 activations by the packed codes; `quant_gemm` unpacks w by a kernel, in front of BLAS; `quant_blas` does so by torch's
own functions, wherever the tensors are, and warns. Importing this loads neither torch nor triton: a machine without them can still ask what runs.
"""

import warnings
from typing import TYPE_CHECKING

from lanewise import dispatch
from lanewise.arch import Arch
from lanewise.contract import Guard, Kernel, Problem
from lanewise.errors import DeviceError
from lanewise.formats import FORMATS
from lanewise.kernels.gpu.guards import GPU, GRAD, OUT, TENSORS, TRITON, X_INNER, described, on
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_table import QuantChoice, choose_quant

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lanewise.kernels.gpu.quant_pack import QuantWeight

__all__ = ["problem", "require_format"]

_MOST_N, _MOST_K = 2**29, 2**23  # rows are counted in 32 bits, and the blocks of a row of x lie along the short side of a grid
_EXPANDED: set[tuple[str, str, str]] = set()


def _layout(p: Problem) -> str:
    if p.format is None:
        return "the problem names no format of the weights"
    kind = "is no block format, and linear multiplies it" if p.format in FORMATS and FORMATS[p.format].block == 1 else "has no packed layout"
    return f"{p.format} {kind}; the kernel takes {', '.join(LAYOUTS)}"


def _blocks(p: Problem) -> str:
    return f"k={p.k} is not a whole number of blocks of {FORMATS[str(p.format)].block} weights, as {p.format} has them"


_FORMAT = Guard("format", lambda p: p.format in LAYOUTS, _layout)
_BLOCKS = Guard("blocks", lambda p: p.k % FORMATS[str(p.format)].block == 0, _blocks)
_SOME = Guard("reduction", lambda p: p.k > 0, "k=0; the kernel adds up at least one block")
_EXTENT = Guard(
    "extent",
    lambda p: p.n < _MOST_N and p.k <= _MOST_K,
    lambda p: f"n={p.n}, k={p.k}; the kernel takes n below {_MOST_N} and k up to {_MOST_K}",
)
_TABLE = Guard("table", lambda p: _choice(p).config.body != "blas", lambda p: f"BLAS is the faster one here ({_choice(p).source})")


def problem(
    x: "Tensor",
    w: "QuantWeight",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    out: "torch.dtype | None" = None,
    grad: bool = False,
) -> Problem:
    """The call as guards see it, with the target and the card of x's own device."""
    fused = {"norm": norm is not None, "bias": bias is not None, "gated": w.gated, "residual": residual is not None}
    return described("quant_linear", x, w.n, w.k, out=out, fused=fused, grad=grad, format=w.format)


def require_format(arch: Arch, fmt: str, n: int, k: int) -> None:
    """For whoever loads a model: raises DeviceError, naming the format and what there is, unless a GPU kernel takes w[n,k] in this format.

    A kernel that a setting has switched off counts as there: who switches it off asks for the path that expands.

    >>> from lanewise import arch
    >>> require_format(arch.parse("gfx1100"), "Q4_K", 4096, 4096)
    >>> require_format(arch.parse("gfx1100"), "F16", 8, 64)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lanewise.errors.DeviceError: no kernel on gfx1100 takes weights [8, 64] in F16: F16 is no block format, and linear multiplies it; ...
    """
    reasons = _reasons(arch, fmt, n, k)
    if reasons:
        there = [name for name in LAYOUTS if not _reasons(arch, name, n, FORMATS[name].block)]
        words = f"no kernel on {arch} takes weights [{n}, {k}] in {fmt}: {'; '.join(reasons)}"
        raise DeviceError(f"{words}; formats with a kernel there: {', '.join(there) or 'none'}")


def _reasons(arch: Arch, fmt: str, n: int, k: int) -> list[str]:
    """Why no GPU kernel takes one token by such weights, each reason once; empty where one does."""
    asked, reasons = Problem("quant_linear", arch, 1, n, k, "bf16", fmt, torch=True), []
    for kernel in (kernel for kernel in dispatch.kernels("quant_linear") if kernel.body == "gpu"):
        failed = next((guard for guard in kernel.guards if not guard.holds(asked)), None)
        if failed is None:
            return []
        reasons.append(failed.words(asked))
    return list(dict.fromkeys(reasons))


def _choice(p: Problem) -> QuantChoice:
    # an empty product has no row in a table, and runs nothing
    return choose_quant(p.arch, str(p.format), max(p.m, 1), max(p.n, 1), max(p.k, 1), p.card)


def _note(p: Problem) -> str:
    choice = _choice(p)
    return f"{choice.config} ({choice.source})"


def _gemv(
    x: "Tensor",
    w: "QuantWeight",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    eps: float = 1e-6,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """y[m,n] on x's own device and that device's current stream: x as int8, then the product."""
    from lanewise.kernels.gpu.act_quant import act_quant
    from lanewise.kernels.gpu.quant_gemv import quant_gemv

    asked = asked or problem(x, w, bias, residual, norm, out)
    m, rows = asked.m, 2 * w.n if w.gated else w.n
    with on(x):
        flat = x if x.dim() == 2 else x.reshape(m, w.k)
        a = act_quant(flat, LAYOUTS[w.format].activation, norm=norm if norm is None else norm.contiguous(), eps=eps, arch=asked.arch)
        y = quant_gemv(
            a,
            w,
            bias if bias is None or bias.dim() == 1 else bias.reshape(m, rows),
            residual=residual if residual is None else residual.reshape(m, w.n),
            out=out or x.dtype,
            constant_w=constant_w,
            config=_choice(asked).config,
            arch=asked.arch,
        )
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], w.n)


def _gemm(
    x: "Tensor",
    w: "QuantWeight",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    eps: float = 1e-6,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """y[m,n] by BLAS, of w unpacked into memory that goes back to torch behind the call: every layer on a stream, or in a graph, gets the same."""
    from lanewise.kernels.gpu.chain import chain
    from lanewise.kernels.gpu.quant_gemm import dequantize

    asked = asked or problem(x, w, bias, residual, norm, out)
    with on(x):
        return chain(x, dequantize(w, x.dtype, arch=asked.arch), bias, residual, norm, eps, w.gated, out)


def _blas(
    x: "Tensor",
    w: "QuantWeight",
    bias: "Tensor | None" = None,
    residual: "Tensor | None" = None,
    norm: "Tensor | None" = None,
    eps: float = 1e-6,
    out: "torch.dtype | None" = None,
    constant_w: bool = False,
    asked: Problem | None = None,
) -> "Tensor":
    """y[m,n] by torch's own functions on x's own device; differentiable in all but w. Says once for a target and format that it expands w."""
    from lanewise.kernels.gpu.chain import chain
    from lanewise.kernels.gpu.quant_expand import expand

    _warn(asked or problem(x, w, bias, residual, norm, out))
    return chain(x, expand(w, x.dtype), bias, residual, norm, eps, w.gated, out)


def _warn(asked: Problem) -> None:
    """Say why no kernel reads the packed weights, the first time that it is so for a target and a format."""
    key = (asked.op, str(asked.arch), str(asked.format))
    if key in _EXPANDED:
        return
    refusals = (kernel.refusal(asked) for kernel in dispatch.kernels(asked.op) if kernel.body == "gpu")
    reasons = "; ".join(dict.fromkeys(refusal.why for refusal in refusals if refusal))
    warnings.warn(f"{asked.op} expands {asked.format} weights to {asked.dtype} at every call on {asked.arch}: {reasons}", stacklevel=2)
    _EXPANDED.add(key)  # behind the words: where they are an error, the call fails every time


_GUARDS = (GPU, TRITON, _FORMAT, _BLOCKS, OUT, _EXTENT, GRAD)
# They are asked first, whichever room was imported first.
_rest = dispatch.kernels("quant_linear")
dispatch.register(Kernel("quant_blas", "quant_linear", _blas, (TENSORS, _FORMAT, _BLOCKS, OUT), body="blas"), before=_rest[0].name if _rest else None)
dispatch.register(Kernel("quant_gemm", "quant_linear", _gemm, _GUARDS, "QUANT_GEMM", "gpu"), before="quant_blas")
dispatch.register(Kernel("quant_gemv", "quant_linear", _gemv, (*_GUARDS, _SOME, X_INNER, _TABLE), "QUANT_GEMV", "gpu", _note), before="quant_gemm")
