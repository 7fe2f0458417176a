"""The reference ops as kernels in the registry: the last to be asked, and only for CPUs."""

from collections.abc import Callable
from typing import Any

from lanewise.backends import sample
from lanewise.backends.base import NUMPY
from lanewise.backends.reference import ops
from lanewise.contract import Guard, Kernel, Problem
from lanewise.dispatch import register
from lanewise.formats import FORMATS

_HOST = Guard("cpu", lambda p: not p.arch.is_gpu, lambda p: f"{p.arch} is a GPU; the reference is numpy, on a CPU")
_F32 = Guard("float32", lambda p: p.dtype == "f32", lambda p: f"activations are {p.dtype}; the reference computes in f32")
_FORMAT = Guard("known_format", lambda p: p.format in FORMATS, lambda p: f"format {p.format} is not one of {', '.join(FORMATS)}")


def _whole_blocks(p: Problem) -> bool:
    return p.k % FORMATS[str(p.format)].block == 0


_BLOCKS = Guard(
    "whole_blocks", _whole_blocks, lambda p: f"k={p.k} is not a multiple of the {FORMATS[str(p.format)].block} weights in a block of {p.format}"
)


def _quant_linear(x: ops.F32, raw: Any, fmt: str, bias: ops.F32 | None = None) -> ops.F32:
    """y[m,n] = x[m,k] @ dequantize(raw)[n,k].T (+ bias[n])"""
    return ops.linear(x, FORMATS[fmt].dequantize(raw), bias)


_BODIES: dict[str, Callable[..., Any]] = {
    "linear": ops.linear,
    "grouped_linear": ops.grouped_linear,
    "embedding": ops.embedding,
    "rms_norm": ops.rms_norm,
    "rope": ops.rope,
    "attention": ops.attention,
    "silu_mul": ops.silu_mul,
    "sample": sample.sample,
}
for _op, _body in _BODIES.items():
    register(Kernel(f"reference_{_op}", _op, _body, (_HOST, NUMPY, _F32), "REFERENCE"))
register(Kernel("reference_quant_linear", "quant_linear", _quant_linear, (_HOST, NUMPY, _F32, _FORMAT, _BLOCKS), "REFERENCE"))
