"""The cases of linear in bf16 and fp16: one list for the interpreter on the CPU and for a card. This file loads no torch.

A case's name says everything about it, so `python -m lanewise.prove --case NAME` runs it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

__all__ = ["CASES", "LAYOUTS", "SMALL", "VALUES", "LinearCase", "covering"]

# How an operand lies: what is not "rows" may be refused with words where the second says so.
LAYOUTS: dict[str, bool] = {
    "rows": False,  # contiguous, or rows with padding
    "x 3-D": False,  # two leading dimensions
    "one row, far stride": False,  # a view of one row whose stride is not k
    "x row repeated": False,  # row stride 0
    "off by one": False,  # every operand begins one element after an aligned address
    "x far rows": False,  # row strides past 2^31 elements
    "w far rows": False,
    "bias far rows": False,
    "residual far rows": False,
    "w row repeated": True,
    "x transposed": True,  # inner strides that are not 1
    "w transposed": True,
    "x element repeated": True,
    "w element repeated": True,
    "bias with a stride": True,  # every second element of a longer buffer
    "residual transposed": True,
}
# What the numbers are.
VALUES = (
    "normal",  # zero-centred, y around 1
    "whole",  # whole numbers whose sums are exact: equality must hold
    "tiny",  # subnormal operands or products
    "huge",  # fp16: past its largest number; bf16: near it
    "cancelling",  # the second half of each row takes the first away
)


@dataclass(frozen=True, slots=True)
class LinearCase:
    """One call of linear: its sizes, which parts are there, how operands lie and what is in them."""

    m: int
    k: int
    n: int
    dtype: str = "bf16"
    bias: int = 0  # dimensions of the bias
    pad_x: int = 0  # elements between two rows
    pad_w: int = 0
    norm: bool = False
    gated: bool = False
    residual: bool = False
    out: str = ""  # y's dtype when it is not x's
    side: str = ""  # dtype of bias, residual and norm when it is not x's
    values: str = "normal"
    layout: str = "rows"
    constant_w: bool = False
    device_only: str = ""  # why the CPU does not run it

    @property
    def may_refuse(self) -> bool:
        """Whether a body may refuse with words instead of being right."""
        return LAYOUTS[self.layout]

    @property
    def weights(self) -> int:
        """Rows of w."""
        return 2 * self.n if self.gated else self.n

    @property
    def heavy(self) -> bool:
        """Whether a card needs gigabytes for it."""
        return bool(self.device_only) or self.layout.endswith("far rows")

    def __str__(self) -> str:
        plain = {f.name: f.default for f in fields(self)}
        parts = [f"m={self.m} k={self.k} n={self.n} {self.dtype}"]
        for name in ("bias", "pad_x", "pad_w", "norm", "gated", "residual", "out", "side", "values", "layout", "constant_w"):
            value = getattr(self, name)
            if value != plain[name]:
                parts.append(name if value is True else f"{name}={value}")
        return ", ".join(parts)


# (m, k, n)
_SHAPES = (
    *((1, 32, 16), (1, 64, 64), (2, 256, 256), (3, 1024, 1024), (4, 4096, 4096), (4, 4096, 4097), (4, 4112, 4097), (1, 9216, 512)),
    *((2, 10240, 1024), (4, 16384, 8192), (4, 32768, 8193), (4, 32784, 8192), (1, 64, 8), (2, 128, 8), (4, 256, 8)),
)
_K = (1, 7, 8, 9, *range(200, 1601, 8), 513, 1040, 4112)
_DTYPES = ("bf16", "f16")


def covering(axes: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Rows in which every pair of values of any two axes occurs: greedily, of all rows the one with the most pairs that are still missing."""
    rows = list(product(*axes))
    missing = {(i, a, j, b) for i in range(len(axes)) for j in range(i + 1, len(axes)) for a in axes[i] for b in axes[j]}
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(_pairs(row) & missing))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(row: tuple[object, ...]) -> set[tuple[int, object, int, object]]:
    return {(i, row[i], j, row[j]) for i in range(len(row)) for j in range(i + 1, len(row))}


def _shapes() -> Iterator[LinearCase]:
    """Every shape of the list and the runs of n, k and m, all in both dtypes; in the runs the parts take turns so that neighbours differ."""
    for (m, k, n), dtype in product(_SHAPES, _DTYPES):
        yield LinearCase(m, k, n, dtype)
    turns: list[dict[str, Any]] = [dict(zip(("bias", "norm", "residual", "pad_w"), row, strict=True)) for row in _TURNS]
    for dtype in _DTYPES:
        for i, n in enumerate(range(1, 18)):
            yield LinearCase(1 + i % 4, 136, n, dtype, **turns[i % len(turns)])
            yield LinearCase(5 + i % 12, 136, n, dtype, **turns[(i + 3) % len(turns)])
        for i, k in enumerate(_K):
            yield LinearCase((1, 2, 3, 4, 8)[i % 5], k, (5, 9, 16)[i % 3], dtype, **turns[i % len(turns)])
        for i, m in enumerate(range(18)):
            yield LinearCase(m, 264, 24, dtype, **turns[i % len(turns)])
            yield LinearCase(m, 264, 24, dtype, gated=True)
    for n, (dtype, m) in product((50257, 151936), (("bf16", 1), ("f16", 3))):
        yield LinearCase(m, 64, n, dtype)


_TURNS = covering(((0, 1, 2), (False, True), (False, True), (0, 24)))


def _parts() -> Iterator[LinearCase]:
    """The issue's axes in full product on two shapes, and all axes in pairs on four."""
    for (m, k, n), dtype, bias, pad_x, pad_w, norm in product(((1, 264, 20), (3, 520, 9)), _DTYPES, (0, 1, 2), (0, 40), (0, 24), (False, True)):
        yield LinearCase(m, k, n, dtype, bias, pad_x, pad_w, norm)
    names = ("dtype", "bias", "pad_x", "pad_w", "norm", "gated", "residual", "out", "side", "constant_w")
    flags = (False, True)
    rows = covering((_DTYPES, (0, 1, 2), (0, 7), (0, 9), flags, flags, flags, ("", "f32"), ("", "f32"), flags))
    for (m, k, n), row in product(((1, 200, 17), (4, 1025, 33), (8, 264, 40), (16, 96, 7)), rows):
        parts: dict[str, Any] = dict(zip(names, row, strict=True))
        yield LinearCase(m, k, n, **parts)


def _edges() -> Iterator[LinearCase]:
    """Nothing to add up or to write, layouts, and numbers at the ends of the dtypes."""
    for dtype in _DTYPES:
        for bias in (0, 1, 2):
            yield LinearCase(3, 0, 10, dtype, bias)
            yield LinearCase(3, 40, 0, dtype, bias)
            yield LinearCase(0, 40, 10, dtype, bias)
        yield LinearCase(2, 0, 6, dtype, 1, residual=True)
        yield LinearCase(2, 0, 6, dtype, 1, gated=True, out="f32")
        for layout in LAYOUTS:
            yield _laid(layout, dtype)
        for m, values in product((1, 4, 9), VALUES[1:]):
            yield LinearCase(m, 264, 24, dtype, int(values == "whole"), values=values)
        yield LinearCase(2, 264, 24, dtype, values="whole", out="f32", residual=True)
        yield LinearCase(2, 264, 24, dtype, values="cancelling", out="f32")
        yield LinearCase(2, 264, 24, dtype, values="tiny", norm=True)  # eps outweighs the squares
        yield LinearCase(2, 4096, 16, dtype, values="whole")
    yield LinearCase(1, 264, 24, "bf16", layout="off by one", bias=1, residual=True, norm=True, pad_x=1, pad_w=1)


def _laid(layout: str, dtype: str) -> LinearCase:
    plain = LinearCase(3, 264, 24, dtype, layout=layout)
    if layout == "one row, far stride":
        return replace(plain, m=1, pad_x=1000, pad_w=8)
    if "far rows" in layout:
        return replace(plain, m=2, k=72, n=2, bias=2 if layout.startswith("bias") else 0, residual=layout.startswith("residual"))
    if layout == "bias with a stride":
        return replace(plain, bias=1)
    return replace(plain, m=4, residual=layout == "residual transposed")


def _real() -> Iterator[LinearCase]:
    """More weights than 2^31, for real."""
    much = "w is 5 GB and would be read by a program that takes minutes a gigabyte"
    yield LinearCase(1, 16384, 151936, "bf16", device_only=much)
    yield LinearCase(8, 16384, 151936, "f16", device_only=much, residual=True)


CASES: tuple[LinearCase, ...] = tuple(dict.fromkeys((*_shapes(), *_parts(), *_edges(), *_real())))
# What every configuration of a body is tried on: several tiles and programs of it, tails in both directions, and each part once.
SMALL: tuple[LinearCase, ...] = (
    LinearCase(1, 264, 19, "bf16", 1, pad_w=8),
    LinearCase(4, 136, 7, "f16", 2, pad_x=3, residual=True, constant_w=True),
    LinearCase(2, 520, 10, "bf16", norm=True, out="f32"),
    LinearCase(1, 264, 6, "bf16", 1, norm=True, gated=True, residual=True),
    LinearCase(3, 200, 9, "f16", gated=True, side="f32", bias=1, residual=True),
    LinearCase(2, 264, 24, "bf16", 1, values="whole"),
)
