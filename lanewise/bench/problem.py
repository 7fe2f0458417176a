"""What `bench kernel` measures: one call of an op, what it moves and computes, and fresh random inputs for it."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise import formats
from lanewise.arch import Arch
from lanewise.bench.routing import MOST_DRAWN, active, routings
from lanewise.bench.shapes import random_rows
from lanewise.contract import OPS, Problem, dtype
from lanewise.errors import LanewiseError, ShapeError, UnknownOpError

__all__ = ["MEASURED", "Call", "amounts", "phase_of", "question"]

MEASURED = ("quant_linear", "grouped_linear", "linear", "attention")
_QUANTIZED = ("quant_linear", "grouped_linear")
_MOST_DECODE = 16  # rows: more than one sequence decodes at a time, and no prompt is as short
_KV_BYTES = 2  # of an element of the cache, float16
_ID_BYTES = 4
_PAGE = 16  # positions
_DRAWN = 1 << 22  # numbers at a time
_DENSE = {"f32": "F32", "f16": "F16", "bf16": "BF16"}  # the format that holds weights of a dtype


@dataclass(frozen=True, slots=True)
class Call:
    """One call. m: tokens; n, k: as in the op's formula, of attention the positions that are cached and the size of a head.

    fmt: of the weights of quant_linear and grouped_linear; dtype: of x, and of w where it has no format; experts, top: of grouped_linear, how many
    there are and how many a token has. Raises LanewiseError for what is not measured, and for sizes that make no sense.
    """

    op: str
    m: int
    n: int
    k: int
    fmt: str | None = None
    dtype: str = "f32"
    heads: int = 32
    kv_heads: int = 8
    experts: int = 0
    top: int = 0

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise UnknownOpError(f"unknown op {self.op!r}; measured are {', '.join(MEASURED)}")
        if self.op not in MEASURED:
            raise UnknownOpError(f"{self.op} is not measured on its own; measured are {', '.join(MEASURED)}")
        if min(self.m, self.n, self.k, self.heads, self.kv_heads) < 1:
            raise ShapeError(f"m={self.m}, n={self.n}, k={self.k}, heads={self.heads}, kv_heads={self.kv_heads}; sizes are 1 or more")
        if (self.op in _QUANTIZED) != (self.fmt is not None):
            raise LanewiseError(f"{self.op} with format {self.fmt}; {' and '.join(_QUANTIZED)} have a format, such as Q4_K, and no other op has")
        if not (1 <= self.top <= self.experts if self.op == "grouped_linear" else self.experts == self.top == 0):
            raise ShapeError(
                f"{self.op} with experts={self.experts}, top={self.top}; grouped_linear has 1 to all of them for a token, and no other op has any"
            )
        if self.m * self.experts > MOST_DRAWN:
            raise ShapeError(
                f"m={self.m} tokens over experts={self.experts}; a routing is drawn of at most {MOST_DRAWN} numbers, one for each of both"
            )
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
        return self.fmt or ("F32" if self.op == "attention" else _DENSE[self.dtype])

    @property
    def pairs(self) -> int:
        """Rows of y: of experts one for each that a token has."""
        return self.m * max(1, self.top)

    @property
    def read_bytes(self) -> int:
        """Bytes that one call reads of what rotates: weights as a file has them, of experts those with rows, or the pages of a cache."""
        if self.op == "attention":
            return -(-self.n // _PAGE) * _PAGE * self.kv_heads * self.k * 2 * _KV_BYTES
        several = active(self.m, self.experts, self.top) if self.experts else 1
        return several * self.n * formats.get(self.weights).row_bytes(self.k)

    @property
    def idle_bytes(self) -> int:
        """Of the experts without rows."""
        return (self.experts - active(self.m, self.experts, self.top)) * self.n * formats.get(self.weights).row_bytes(self.k) if self.experts else 0

    def problem(self, arch: Arch) -> Problem:
        """The call as guards see it."""
        return Problem(self.op, arch, self.pairs, self.n, self.k, self.dtype, self.fmt)

    def facts(self) -> dict[str, Any]:
        """The manifest's `problem`."""
        found: dict[str, Any] = {"op": self.op, "m": self.m, "n": self.n, "k": self.k}
        found |= {"format": self.fmt} if self.fmt else {}
        found |= {"dtype": self.dtype} if not self.fmt or self.dtype != "f32" else {}  # as bundles of the CPU have it
        found |= {"heads": self.heads, "kv_heads": self.kv_heads} if self.op == "attention" else {}
        found |= {"experts": self.experts, "top": self.top, "active": active(self.m, self.experts, self.top)} if self.experts else {}
        nbytes, operations = amounts(found)
        return {**found, "phase": phase_of(self.m), "bytes": nbytes, "operations": operations}

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """x[m,k] and w[n,row bytes]; of a linear in 16 bits w[n,k], both as float16 or as the bits of bf16 in uint16, as x of quantized weights is.

        Of experts w[experts,n,row bytes] and ids[calls,m,top], over which calls take turns. Of attention q[m,heads,k], and keys and values
        [pages,16,kv_heads,k] in float16.
        """
        if self.op == "linear" and self.dtype != "f32":
            return {"x": _rounded(seed, 0, self.dtype, self.m, self.k), "w": _weights(seed, 1, self.dtype, self.n, self.k)}
        if self.op in _QUANTIZED and self.dtype != "f32":
            drawn = np.random.default_rng((seed, 1))
            x, w = _rounded(seed, 0, self.dtype, self.m, self.k), random_rows(formats.get(self.weights), max(1, self.experts) * self.n, self.k, drawn)
            if not self.experts:
                return {"x": x, "w": w}
            return {"x": x, "w": w.reshape(self.experts, self.n, -1), "ids": routings(self.m, self.experts, self.top, seed)}
        rng = np.random.default_rng(seed)
        if self.op != "attention":
            x = rng.standard_normal((self.m, self.k), np.float32)
            return {"x": x, "w": random_rows(formats.get(self.weights), self.n, self.k, rng)}
        cache = (-(-self.n // _PAGE), _PAGE, self.kv_heads, self.k)
        found: dict[str, NDArray[Any]] = {"q": rng.standard_normal((self.m, self.heads, self.k), np.float32)}
        return found | {name: rng.standard_normal(cache, np.float32).astype(np.float16) for name in ("keys", "values")}

    def __str__(self) -> str:
        weights = f" {self.fmt}" if self.fmt else ""
        weights += f" {self.dtype}" if not self.fmt or self.dtype != "f32" else ""
        heads = f" heads={self.heads} kv_heads={self.kv_heads}" if self.op == "attention" else ""
        experts = f" experts={self.experts} top={self.top}" if self.experts else ""
        return f"{self.op} m={self.m} n={self.n} k={self.k}{heads}{experts}{weights}"


def _rounded(seed: int, stream: int, dtype: str, rows: int, k: int) -> NDArray[Any]:
    """Normal numbers [rows, k], rounded to nearest even, some rows at a time: the head of a model does not fit in memory often."""
    rng, fmt = np.random.default_rng((seed, stream)), formats.get(_DENSE[dtype])
    made = np.empty((rows, k), np.float16 if dtype == "f16" else np.uint16)
    step = max(1, _DRAWN // k)
    for row in range(0, rows, step):
        made[row : row + step] = fmt.quantize(rng.standard_normal((min(step, rows - row), k), np.float32)).view(made.dtype)
    made.flags.writeable = False
    return made


# Runs of one shape with several m in turn have the same weights.
_weights = functools.lru_cache(maxsize=1)(_rounded)


def question(arms: Sequence[str], call: Call, device: str, residency: str, threads: int) -> str:
    """What a run asks. Threads are those that compute; on a GPU there are none to name."""
    asked = f"Is {arms[0]} or {arms[1]} faster at {call} on {device}, {residency}"
    return asked + (f", {threads} thread{'' if threads == 1 else 's'}?" if device == "cpu" else "?")


def phase_of(m: int) -> str:
    """Decode for up to 16 tokens, each of a sequence of its own; more are a prompt's."""
    return "decode" if m <= _MOST_DECODE else "prefill"


def amounts(problem: Mapping[str, Any]) -> tuple[int, int]:
    """(bytes, operations) of a manifest's `problem`: each operand once, weights as a file has them, and a product and its sum as two.

    Of experts it is those that have rows that count.

    >>> amounts({"op": "quant_linear", "m": 1, "n": 4096, "k": 4096, "format": "Q4_K"})
    (9469952, 33554432)
    """
    m, n, k = (problem[name] for name in ("m", "n", "k"))
    if problem["op"] != "attention":
        number, experts, top = dtype(problem.get("dtype", "f32")), problem.get("experts", 0), problem.get("top", 1)
        rows, several, ids = m * top, active(m, experts, top) if experts else 1, _ID_BYTES * m * top if experts else 0
        weights = several * n * formats.get(problem.get("format", _DENSE[number.name])).row_bytes(k)
        return weights + number.size * (m * k + rows * n) + ids, 2 * rows * n * k
    heads, kv_heads = problem["heads"], problem["kv_heads"]
    seen = m * (n - m) + m * (m + 1) // 2  # the i-th of the last m tokens sees n - m + i positions
    return 2 * n * kv_heads * k * _KV_BYTES + 2 * m * heads * k * 4, 4 * heads * k * seen
