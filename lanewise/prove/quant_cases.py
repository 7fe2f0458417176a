"""The cases of quant_linear on packed weights, for Triton's interpreter and for a card. This file loads no torch.

A case is one set of weights and activations, and every m at which it is run: the first m rows of x, so that equal rows must give equal bits.
Its name says everything about it, so `python -m lanewise.prove --op quant_linear --case NAME` runs it again.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from lanewise.formats import FORMATS

__all__ = ["BLOCKS", "CASES", "INTERPRETED", "NAMES", "ROWS", "SMALL", "TOKENS", "VALUES", "QuantCase", "pairwise"]

NAMES = tuple(name for name, form in FORMATS.items() if form.activation != "float")
TOKENS = (1, 2, 3, 4, 5, 8, 9, 16, 32, 33, 512)
ROWS = (1, 3, 5, 7, 8, 16, 17, 576, 4097)
BLOCKS = (1, 2, 3, 5, 7, 16, 33, 48)
SIZES = (1e-8, 1.0, 2000.0, 60000.0)
TILE = 256  # columns of the tiles that weights are packed in: a short block's row is padded to them
# What the numbers are.
VALUES = (
    "bytes",  # weights of any bytes whose scales are finite: some block outweighs the others by far
    "even",  # any codes, under scales that let every block count
    "extreme",  # codes and integer scales at their ends, and activations that all become +-127
    "exact",  # every product and sum is exact: y must be equal bit for bit
    "broken x",  # NaN in a group of the first token, Inf in one of the last: theirs alone is not finite
    "broken w",  # NaN and Inf as scales of two rows of w: theirs alone may not be finite
)


@dataclass(frozen=True, slots=True)
class QuantCase:
    """One call of quant_linear at several m: its sizes, which parts are there, and what is in it."""

    format: str
    m: tuple[int, ...]
    n: int
    k: int
    dtype: str = "bf16"  # of x
    out: str = "bf16"
    bias: int = 0  # dimensions of the bias
    residual: bool = False
    gated: bool = False
    norm: bool = False
    side: str = ""  # dtype of bias, residual and norm when it is not x's
    constant_w: bool = False
    values: str = "even"
    size: float = 1.0  # of x
    device_only: str = ""  # why the CPU does not run it

    @property
    def tokens(self) -> int:
        return max(self.m)

    @property
    def weights(self) -> int:
        """Rows of w."""
        return 2 * self.n if self.gated else self.n

    @property
    def heavy(self) -> bool:
        """Whether it is much for a card too."""
        return bool(self.device_only)

    @property
    def exact(self) -> bool:
        """Whether y follows from the operands without any freedom."""
        return self.values == "exact" and not self.gated

    def __str__(self) -> str:
        plain = {f.name: f.default for f in fields(self)}
        parts = [f"{self.format} m={','.join(map(str, self.m))} n={self.n} k={self.k} {self.dtype} to {self.out}"]
        for name in ("bias", "residual", "gated", "norm", "side", "constant_w", "values", "size"):
            value = getattr(self, name)
            if value != plain[name]:
                parts.append(name if value is True else f"{name}={value:g}" if name == "size" else f"{name}={value}")
        return " ".join(parts)


def pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows in which every pair of values of any two axes occurs, for axes whose product `linear_cases.covering` has no time to search.

    Each row begins with a pair that is missing, and is filled axis by axis with what covers most; of equals the one that was used least.
    """
    sizes = [len(axis) for axis in axes]
    missing = {(i, a, j, b) for i in range(len(axes)) for j in range(i + 1, len(axes)) for a in range(sizes[i]) for b in range(sizes[j])}
    used = [[0] * size for size in sizes]
    rows: list[tuple[Any, ...]] = []
    while missing:
        i, a, j, b = min(missing)
        row = {i: a, j: b}
        for axis in sorted(set(range(len(axes))) - {i, j}, key=lambda axis: -sizes[axis]):
            gains = [sum(_ordered(axis, value, other, row[other]) in missing for other in row) for value in range(sizes[axis])]
            row[axis] = max(range(sizes[axis]), key=lambda value: (gains[value], -used[axis][value], -value))
        missing -= {_ordered(p, row[p], q, row[q]) for p in row for q in row if p < q}
        for axis, value in row.items():
            used[axis][value] += 1
        rows.append(tuple(axes[axis][row[axis]] for axis in range(len(axes))))
    return rows


def _ordered(i: int, a: int, j: int, b: int) -> tuple[int, int, int, int]:
    return (i, a, j, b) if i < j else (j, b, i, a)


_PARTS = ("dtype", "out", "bias", "residual", "gated", "norm", "side", "constant_w", "values", "size")
_FLAGS = (False, True)
_AXES = (("bf16", "f16", "f32"), ("bf16", "f16", "f32"), (0, 1, 2), _FLAGS, _FLAGS, _FLAGS, ("", "f32"), _FLAGS, VALUES[:4], SIZES)
_TAILS: list[dict[str, Any]] = [dict(zip(_PARTS, row, strict=True)) for row in pairwise(_AXES)]


def _sound(case: QuantCase) -> QuantCase:
    """The case without what would leave nothing to compare: a gate that overflows fp16, sums that a norm keeps from being exact, a size that
    exact numbers have already."""
    if case.values == "exact" and case.norm:
        case = replace(case, values="even")
    if case.values == "exact":
        case = replace(case, size=1.0)
    if case.gated and case.out == "f16":
        case = replace(case, values="exact" if case.values == "exact" else "even", size=1.0)
    return case


def _widths(name: str) -> tuple[int, ...]:
    """Every k of the list: in the format's own blocks, and where those are short in whole tiles too."""
    block = FORMATS[name].block
    return tuple(dict.fromkeys((*(block * count for count in BLOCKS), *(TILE * count for count in BLOCKS))))


def _product() -> Iterator[QuantCase]:
    """Every format, m, n and k; the parts take turns over formats and k, so that no configuration is compiled for many of them."""
    turn = 0
    for name in NAMES:
        for k in _widths(name):
            tail = _TAILS[turn % len(_TAILS)]
            turn += 1
            for n in ROWS:
                yield _sound(QuantCase(name, TOKENS, n, k, **tail))


def _exact() -> Iterator[QuantCase]:
    """Where the integers alone decide: every format, every kind of result."""
    for name, (k, n, out) in product(NAMES, ((TILE, 40, "f32"), (3 * TILE, 17, "bf16"), (9 * TILE, 33, "f32"), (16 * TILE, 8, "f16"))):
        yield QuantCase(name, (1, 4, 9), n, k, "bf16", out, values="exact")
    for name in NAMES:
        yield QuantCase(name, (2, 5), 12, 2 * TILE, "f16", "f32", bias=1, residual=True, values="exact")


def _edges() -> Iterator[QuantCase]:
    """Ends of the numbers, operands that are not numbers, nothing to do."""
    for name in NAMES:
        for size in SIZES:
            yield QuantCase(name, (1, 3), 19, 2 * TILE, "f32", "f32", values="bytes", size=size)
        yield QuantCase(name, (1, 2), 17, 2 * TILE, "f32", "f32", values="extreme")
        yield QuantCase(name, (5,), 17, 3 * TILE, "bf16", "bf16", values="extreme", size=60000.0)
        for values, out in (("broken x", "f32"), ("broken w", "bf16")):
            yield QuantCase(name, (1, 3, 9), 20, 2 * TILE, "bf16", out, bias=1, values=values)
        yield QuantCase(name, (0,), 20, 2 * TILE)
        yield QuantCase(name, (1, 2), 0, 2 * TILE)


def _limits() -> Iterator[QuantCase]:
    """More of something than a grid's second and third dimension hold."""
    much = "more rows or tokens than a grid's second dimension holds are minutes in the interpreter"
    for name in ("Q8_0", "Q4_K", "Q6_K"):
        yield QuantCase(name, (1, 4), 65_553, TILE, "bf16", "bf16", values="even", device_only=much)
        yield QuantCase(name, (65_543, 7), 3, TILE, "bf16", "f32", values="even", device_only=much)
        yield QuantCase(name, (1, 5), 33_000, TILE, "bf16", "bf16", gated=True, values="even", device_only=much)


def _interpreted() -> Iterator[QuantCase]:
    """Every pair of values of two axes, as far as a program of the interpreter takes long, which is a third of a second."""
    axes = (NAMES, ((4, 1), (2,), (5,), (9,)), (1, 7, 16, 17), (1, 2, 3, 5), *_AXES)
    for name, m, n, count, *parts in pairwise(axes):
        k = count * (TILE if count % 2 else FORMATS[name].block)
        yield _sound(QuantCase(name, m, n, k, **dict(zip(_PARTS, parts, strict=True))))
    for i, name in enumerate(NAMES):
        yield QuantCase(name, (4,), 9, (3, 3, 3, 9)[i % 4] * TILE, "bf16", "f32", values="exact")
        yield QuantCase(name, (3,), 5, 2 * TILE, "bf16", "f32", values=("broken x", "broken w", "extreme")[i % 3])
    yield QuantCase("Q4_K", (0,), 20, 2 * TILE)
    yield QuantCase("Q8_0", (1, 2), 0, 2 * TILE)


# What every configuration is tried on: several tiles, tails of n, k and m, each part once; the largest m is what all cuts are compared at.
SMALL: tuple[QuantCase, ...] = (
    QuantCase("Q8_0", (9, 1), 13, 3 * TILE + 96, "bf16", "bf16", bias=1, values="even"),
    QuantCase("Q4_1", (3, 1), 12, 9 * TILE, "f16", "f32", residual=True, values="exact"),
    QuantCase("Q4_K", (9, 8, 1), 9, 9 * TILE, "bf16", "f32", bias=2, norm=True, constant_w=True, values="even"),
    QuantCase("Q6_K", (4, 1), 18, 5 * TILE, "bf16", "f32", values="exact"),
    QuantCase("Q2_K", (5, 2), 7, 4 * TILE, "f32", "f16", gated=True, bias=1, residual=True, values="even"),
    QuantCase("IQ4_XS", (2, 1), 16, 8 * TILE, "bf16", "bf16", gated=True, side="f32", residual=True, values="bytes"),
)
CASES: tuple[QuantCase, ...] = tuple(dict.fromkeys((*_exact(), *_edges(), *_product(), *_limits())))
INTERPRETED: tuple[QuantCase, ...] = tuple(dict.fromkeys(_interpreted()))
# How many times m, n and k meet in a list, for whoever reads its length.
RUNS = sum(len(case.m) for case in CASES)
assert math.prod((len(NAMES), len(TOKENS), len(ROWS), len(BLOCKS))) <= RUNS
