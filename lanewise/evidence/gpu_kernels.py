"""Descriptions of compiled kernels, read without trust."""

from collections.abc import Sequence
from typing import Any

from lanewise.bench.gpu_code import constants_of

__all__ = ["FUSED", "STORED", "described_kernels"]

STORED = {"bf16": "bf16", "f16": "fp16"}  # as Triton calls them
FUSED = ("NORM", "BIAS", "RESIDUAL", "GATED")


def described_kernels(compiled: Sequence[Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(function without its module, signature, constants) of each. Raises ValueError for what is no description."""
    try:
        return [(str(one["function"]).rpartition(":")[2], dict(one["signature"]), constants_of(one)) for one in compiled]
    except (LookupError, TypeError) as error:
        raise ValueError(f"no description of a kernel: {type(error).__name__}") from None
