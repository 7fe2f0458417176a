"""The compiled CPU kernels in the registry, in front of the reference: which processors, types and formats they take.

Importing this loads no compiler; what runs a kernel is imported when it is called.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.arch import Arch
from lanewise.backends.base import NUMPY
from lanewise.contract import Guard, Kernel, Problem
from lanewise.dispatch import register, select
from lanewise.errors import DeviceError
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.isa import ISAS

__all__ = ["require_kernel"]

F32 = NDArray[np.float32]
LANES = 16

_CPU = Guard("cpu", lambda p: p.arch.name in ISAS, lambda p: f"{p.arch} is no CPU; these kernels are compiled for {', '.join(ISAS)}")
_F32 = Guard("float32", lambda p: p.dtype == "f32", lambda p: f"activations are {p.dtype}; they come as f32 and are quantized here")
_FORMAT = Guard("known_format", lambda p: p.format in FORMATS, lambda p: f"format {p.format} is not one of {', '.join(FORMATS)}")
_BLOCKS = Guard(
    "whole_blocks",
    lambda p: p.k % FORMATS[str(p.format)].block == 0,
    lambda p: f"k={p.k} is not a multiple of the {FORMATS[str(p.format)].block} weights in a block of {p.format}",
)
_HEAD = Guard("head_size", lambda p: p.k % LANES == 0, lambda p: f"head size k={p.k} is not a multiple of {LANES} lanes")


def require_kernel(op: str, arch: Arch, **sizes: Any) -> None:
    """Raise DeviceError, with every refusal, unless a compiled kernel is the one that dispatch takes for this problem."""
    selection = select(Problem(op, arch, **sizes))
    if selection.kernel.body != "cpu":
        reasons = "; ".join(map(str, selection.refusals))
        raise DeviceError(f"the cpu device does not run this model: {reasons}; --device reference does")


def _quant_linear(x: F32, raw: NDArray[np.uint8], fmt: str, bias: F32 | None = None) -> F32:
    """y[m,n] = x[m,k] @ dequantize(raw)[n,k].T (+ bias[n]), x quantized as the format asks."""
    from lanewise.backends.cpu.single import product

    return product(x, raw, fmt, bias)


def _linear(x: F32, w: F32, bias: F32 | None = None) -> F32:
    """y[m,n] = x[m,k] @ w[n,k].T (+ bias[n])"""
    return _quant_linear(x, np.ascontiguousarray(w, np.float32).view(np.uint8), "F32", bias)


def _attention(*arguments: Any) -> F32:
    """y[m,heads,dim] of `reference.ops.attention`, over the cache rounded to float16."""
    from lanewise.backends.cpu.single import attention

    return attention(*arguments)


def _embedding(*arguments: Any) -> F32:
    """y[m,n] = w[token[m],n]"""
    from lanewise.backends.cpu.single import embedding

    return embedding(*arguments)


def _sample(*arguments: Any) -> int:
    """The token that `backends.sample` picks."""
    from lanewise.backends.cpu.single import sample

    return sample(*arguments)


register(Kernel("cpu_linear", "linear", _linear, (_CPU, NUMPY, _F32), "CPU_KERNELS", "cpu"), before="reference_linear")
register(
    Kernel("cpu_quant_linear", "quant_linear", _quant_linear, (_CPU, NUMPY, _F32, _FORMAT, _BLOCKS), "CPU_KERNELS", "cpu"),
    before="reference_quant_linear",
)
register(Kernel("cpu_attention", "attention", _attention, (_CPU, _F32, _HEAD), "CPU_KERNELS", "cpu"), before="reference_attention")
register(Kernel("cpu_embedding", "embedding", _embedding, (_CPU, _F32), "CPU_KERNELS", "cpu"), before="reference_embedding")
register(Kernel("cpu_sample", "sample", _sample, (_CPU, _F32), "CPU_KERNELS", "cpu"), before="reference_sample")
