"""What `bench kernel` measures: one call of an op, what it moves and computes, and fresh random inputs for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise import formats
from lanewise.arch import Arch
from lanewise.bench.shapes import random_rows
from lanewise.contract import OPS, Problem, dtype
from lanewise.errors import LanewiseError, ShapeError, UnknownOpError

__all__ = ["MEASURED", "Call", "amounts", "phase_of"]

MEASURED = ("quant_linear", "linear", "attention")
_MOST_DECODE = 16  # rows: more than one sequence decodes at a time, and no prompt is as short
_KV_BYTES = 2  # of an element of the cache, float16
_PAGE = 16  # positions


@dataclass(frozen=True, slots=True)
class Call:
    """One call. m: tokens; n, k: as in the op's formula, of attention the positions that are cached and the size of a head.

    fmt: of the weights of quant_linear. Raises LanewiseError for what is not measured, and for sizes that make no sense.
    """

    op: str
    m: int
    n: int
    k: int
    fmt: str | None = None
    dtype: str = "f32"
    heads: int = 32
    kv_heads: int = 8

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise UnknownOpError(f"unknown op {self.op!r}; measured are {', '.join(MEASURED)}")
        if self.op not in MEASURED:
            raise UnknownOpError(f"{self.op} is not measured on its own; measured are {', '.join(MEASURED)}")
        if min(self.m, self.n, self.k, self.heads, self.kv_heads) < 1:
            raise ShapeError(f"m={self.m}, n={self.n}, k={self.k}, heads={self.heads}, kv_heads={self.kv_heads}; sizes are 1 or more")
        if (self.op == "quant_linear") != (self.fmt is not None):
            raise LanewiseError(f"{self.op} with format {self.fmt}; quant_linear has a format, such as Q4_K, and no other op has")
        object.__setattr__(self, "dtype", dtype(self.dtype).name)
        if self.fmt is not None:
            object.__setattr__(self, "fmt", formats.get(self.fmt).name)
            formats.get(self.fmt).row_bytes(self.k)
        if self.op == "attention" and (self.heads % self.kv_heads or self.m > self.n):
            raise ShapeError(
                f"attention of m={self.m} tokens over n={self.n} positions with {self.heads} heads and {self.kv_heads} key heads; "
                "the tokens are the last of the positions, and each key head serves a whole number of heads"
            )

    @property
    def weights(self) -> str:
        """The format of w; of attention that of the cache."""
        return self.fmt or "F32"

    def problem(self, arch: Arch) -> Problem:
        """The call as guards see it."""
        return Problem(self.op, arch, self.m, self.n, self.k, self.dtype, self.fmt)

    def facts(self) -> dict[str, Any]:
        """The manifest's `problem`."""
        found: dict[str, Any] = {"op": self.op, "m": self.m, "n": self.n, "k": self.k}
        found |= {"format": self.fmt} if self.fmt else {"dtype": self.dtype}
        found |= {"heads": self.heads, "kv_heads": self.kv_heads} if self.op == "attention" else {}
        nbytes, operations = amounts(found)
        return {**found, "phase": phase_of(self.m), "bytes": nbytes, "operations": operations}

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """x[m,k] and w[n,row bytes]; of attention q[m,heads,k], and keys and values [pages,16,kv_heads,k] in float16."""
        rng = np.random.default_rng(seed)
        if self.op != "attention":
            x = rng.standard_normal((self.m, self.k), np.float32)
            return {"x": x, "w": random_rows(formats.get(self.weights), self.n, self.k, rng)}
        cache = (-(-self.n // _PAGE), _PAGE, self.kv_heads, self.k)
        found: dict[str, NDArray[Any]] = {"q": rng.standard_normal((self.m, self.heads, self.k), np.float32)}
        return found | {name: rng.standard_normal(cache, np.float32).astype(np.float16) for name in ("keys", "values")}

    def __str__(self) -> str:
        weights = f" {self.fmt}" if self.fmt else f" {self.dtype}"
        heads = f" heads={self.heads} kv_heads={self.kv_heads}" if self.op == "attention" else ""
        return f"{self.op} m={self.m} n={self.n} k={self.k}{heads}{weights}"


def phase_of(m: int) -> str:
    """Decode for up to 16 tokens, each of a sequence of its own; more are a prompt's."""
    return "decode" if m <= _MOST_DECODE else "prefill"


def amounts(problem: Mapping[str, Any]) -> tuple[int, int]:
    """(bytes, operations) of a manifest's `problem`: each operand once, weights as a file has them, and a product and its sum as two.

    >>> amounts({"op": "quant_linear", "m": 1, "n": 4096, "k": 4096, "format": "Q4_K"})
    (9469952, 33554432)
    """
    m, n, k = (problem[name] for name in ("m", "n", "k"))
    if problem["op"] != "attention":
        return n * formats.get(problem.get("format", "F32")).row_bytes(k) + 4 * m * (k + n), 2 * m * n * k
    heads, kv_heads = problem["heads"], problem["kv_heads"]
    seen = m * (n - m) + m * (m + 1) // 2  # the i-th of the last m tokens sees n - m + i positions
    return 2 * n * kv_heads * k * _KV_BYTES + 2 * m * heads * k * 4, 4 * heads * k * seen
