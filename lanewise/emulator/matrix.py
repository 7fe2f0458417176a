"""The matrix units by one rule: the name says shape and types, the rule which lane and register hold which element.

MFMA: of a 64-lane wave lane l holds row l % M (column, of b) and a run of k, the l // M-th; a result lies in column l % N, rows in fours.
WMMA: of 32 lanes, in the first generation both halves of the wave hold all of k and the result's rows alternate between them; in the second
each half has its half of k, and eight rows. AMD's ISA guides, and AMD's matrix instruction calculator.

In which order hardware adds is not specified. Here a sum is exact in float64 as far as that goes and rounded once; integers are exact, and wrap.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.arch import Arch
from lanewise.emulator.eighths import eighths
from lanewise.emulator.floats import bf16, fma64, wide16
from lanewise.errors import EmulatorLimitError

__all__ = ["Shape", "matrix", "shape"]

Array = NDArray[Any]
# What two modifiers say of the types of an f8f6f4 product (AMD's CDNA4 ISA guide); which k a lane has is the same for both, so it does not show.
_FORMATS = {0: "fp8", 1: "bf8"}
_EIGHTHS = ("fp8", "bf8")
_NAME = re.compile(
    r"v_(mfma|wmma)_(f32|i32|f16|bf16|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(xf32|f32|f16|bf16|i8|iu8|iu4|f64|f8f6f4|(?:fp8|bf8)_(?:fp8|bf8))(?:_1k)?$"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """d[m,n] of k, `blocks` of them side by side; kind: of a and b, result: of c and d.

    groups: of lanes, that have a run of k each; split, order: d[blocks, m, n] reshaped with the waves in front, and its axes in the order in
    which registers, waves and lanes count
    """

    m: int
    n: int
    k: int
    blocks: int
    kind: str
    result: str
    groups: int
    split: tuple[int, ...]
    order: tuple[int, ...]

    def places(self) -> Array:
        """[registers, lanes]: which element of d each is, as block * m * n + row * n + column."""
        flat = np.arange(self.blocks * self.m * self.n).reshape(1, *self.split).transpose(self.order)
        waves = self.order.index(0)
        return flat.reshape(int(np.prod(flat.shape[:waves])), -1)


def shape(name: str, row: Arch) -> Shape:
    """Where everything lies. Raises EmulatorLimitError for a name that the rule does not cover, or a unit that the target does not have."""
    found = _NAME.match(name)
    if found is None or found[1] != row.matrix or found[2] in ("f16", "bf16"):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its matrices")
    m, n, k, blocks = (int(part or 1) for part in found.groups()[2:6])
    if found[1] == "wmma" and (m, n, k) not in ((16, 16, 16), (16, 16, 32 if found[7] == "iu4" else 16)):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its matrices")
    if found[1] == "wmma":
        # rows that alternate between the halves of the wave, or eight of them for each
        split, order = ((8, 2, 16), (1, 0, 2, 3)) if row.wmma_repeats_k else ((2, 8, 16), (2, 0, 1, 3))
        return Shape(m, n, k, 1, found[7], found[2], 1 if row.wmma_repeats_k else 2, split, order)
    groups = 64 // (m * blocks)
    if found[7] == "f64" and (m, blocks) != (16, 1):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its matrices")
    if m == 4:  # a block in four lanes, a row in each register
        return Shape(m, n, k, blocks, found[7], found[2], groups, (blocks, 4, n), (2, 0, 1, 3))
    if found[7] == "f64":  # rows go around the groups of lanes
        return Shape(m, n, k, blocks, found[7], found[2], groups, (m // groups, groups, n), (1, 0, 2, 3))
    fours = 64 // n  # lanes that are side by side have four rows each
    return Shape(m, n, k, blocks, found[7], found[2], groups, (blocks, m // 4 // fours, fours, 4, n), (1, 2, 4, 0, 3, 5))


def _elements(words: Array, kind: str, signed: bool) -> Array:
    """[..., elements] of uint32 [..., words], the lowest bits first."""
    if kind == "iu4":
        raw = words.view(np.uint8)
        both = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], -1)
        return (both ^ 8).view(np.int8) - np.int8(8) if signed else both
    dtype: Any = {"f64": np.float64, "f32": np.float32, "xf32": np.uint32, "f16": np.float16, "bf16": np.uint16}.get(
        kind, np.int8 if signed and kind not in _EIGHTHS else np.uint8
    )
    return words.view(dtype)


def _values(held: Array, kind: str, older: bool) -> Array:
    """The same as float64."""
    if kind in _EIGHTHS:
        return eighths(kind, older).take(held)
    if kind == "xf32":  # ten bits of fraction, to nearest even
        raw = held + (np.uint32(0xFFF) + (held >> np.uint32(13) & np.uint32(1)))
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return (wide16(held) if kind == "f16" else bf16(held) if kind == "bf16" else held).astype(np.float64)


def matrix(name: str, row: Arch, formats: tuple[int, int] = (0, 0)) -> Callable[..., Array]:
    """(a, b, c) -> d = a @ b + c of register arrays, uint32 [registers, waves, lanes]. formats: of a and b, where the name leaves them open.

    Raises as `shape` does.
    """
    what = shape(name, row)
    kinds = _kinds(name, what, formats, row)
    integer = what.kind in ("i8", "iu8", "iu4")
    open_sign = what.kind in ("iu8", "iu4")
    flushes = row.matrix_flushes and what.kind in ("f16", "bf16")
    smallest = 2.0**-14 if what.kind == "f16" else 2.0**-126
    lanes = what.blocks * what.groups * what.m

    def full(registers: Array, kind: str, signed: bool) -> Array:
        count, waves = registers.shape[:2]
        held = registers[:, :, :lanes].reshape(count, waves, what.blocks, what.groups, what.m)
        words = np.ascontiguousarray(held.transpose(1, 2, 4, 3, 0)).reshape(waves, what.blocks, what.m, -1)
        values = _values(_elements(words, kind, signed), kind, row.negative_zero_is_nan)
        return np.where(np.abs(values) < smallest, 0.0, values) if flushes else values

    def run(a: Array, b: Array, c: Array, negative: Any = None) -> Array:
        low, high = negative or ((0, 0, 0), (0, 0, 0))
        if any(high) or (any(low) and not open_sign):
            raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its signs neg_lo {low} neg_hi {high}")
        signs = [bool(low[number]) if open_sign else True for number in (0, 1)]
        left, right = full(a, kinds[0], signs[0]), full(b, kinds[1], signs[1])
        if what.kind == "f64":
            return _doubles(left, right, c, what)
        product = left @ np.ascontiguousarray(right.swapaxes(-1, -2))
        placed = product.reshape(len(product), *what.split).transpose(what.order).reshape(c.shape)
        if integer:
            return (placed.astype(np.int64) + c.view(np.int32)).astype(np.int32).view(np.uint32)
        return (placed + c.view(np.float32)).astype(np.float32).view(np.uint32)

    return run


def _kinds(name: str, what: Shape, formats: tuple[int, int], row: Arch) -> tuple[str, str]:
    """Of a and b."""
    if what.kind == "f8f6f4":
        if not all(one in _FORMATS for one in formats):
            raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its formats cbsz {formats[0]} blgp {formats[1]}")
        return _FORMATS[formats[0]], _FORMATS[formats[1]]
    if any(formats):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for cbsz {formats[0]} blgp {formats[1]}")
    left, _, right = what.kind.partition("_")
    return left, right or left


def _doubles(a: Array, b: Array, c: Array, what: Shape) -> Array:
    """One multiply-add after the other, each rounded once."""
    registers, waves, lanes = c.shape
    held = np.stack((c[::2], c[1::2]), axis=-1).view(np.float64)[..., 0]
    placed = [(a[..., k][..., :, None] * np.ones(what.n), b[..., k][..., None, :] * np.ones((what.m, 1))) for k in range(what.k)]
    for left, right in placed:
        x, y = (one.reshape(waves, *what.split).transpose(what.order).reshape(held.shape) for one in (left, right))
        held = fma64(x, y, held)
    both = np.ascontiguousarray(held).view(np.uint32).reshape(registers // 2, waves, lanes, 2)
    return np.ascontiguousarray(both.transpose(0, 3, 1, 2)).reshape(registers, waves, lanes)
