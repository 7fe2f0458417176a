"""The matrix units by one rule: the name says shape and types, the rule which lane and register hold which element.

MFMA: of a 64-lane wave lane l holds row l % M (column, of b) and a run of k, the l // M-th; a result lies in column l % N, rows in fours.
WMMA: of 32 lanes, in the first generation both halves of the wave hold all of k and the result's rows alternate between them; in the second
each half has its half of k, and eight rows. AMD's ISA guides, and AMD's matrix instruction calculator.

In which order hardware adds is not specified. Here a sum is exact in float64 as far as that goes and rounded once; integers are exact, and wrap.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.arch import Arch
from lanewise.emulator.floats import bf16
from lanewise.errors import EmulatorLimitError

__all__ = ["Shape", "matrix", "shape"]

Array = NDArray[Any]
_NAME = re.compile(r"v_(mfma|wmma)_(f32|i32|f16|bf16)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(xf32|f32|f16|bf16|i8|iu8|iu4)(?:_1k)?$")
_BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "iu8": 8, "iu4": 4}


@dataclass(frozen=True, slots=True)
class Shape:
    """d[m,n] of k, `blocks` of them side by side; kind: of a and b, result: of c and d.

    source: [elements, lanes] pairs (row, k) of what a lane holds, flat as block * m * k + row * k + k; target: the same of c and d
    """

    m: int
    n: int
    k: int
    blocks: int
    kind: str
    result: str
    source: Array
    target: Array


def shape(name: str, row: Arch) -> Shape:
    """Where everything lies. Raises EmulatorLimitError for a name that the rule does not cover, or a unit that the target does not have."""
    found = _NAME.match(name)
    if found is None or found[1] != row.matrix or found[2] in ("f16", "bf16"):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its matrices")
    m, n, k, blocks = (int(part or 1) for part in found.groups()[2:6])
    if found[1] == "wmma" and (m, n, k) not in ((16, 16, 16), (16, 16, 32 if found[7] == "iu4" else 16)):
        raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its matrices")
    if found[1] == "mfma":
        source, target = _mfma(m, n, k, blocks)
    else:
        source, target = _wmma(k, halves=not row.wmma_repeats_k)
    return Shape(m, n, k, blocks, found[7], found[2], source, target)


def _mfma(m: int, n: int, k: int, blocks: int) -> tuple[Array, Array]:
    lane = np.arange(64)
    groups = 64 // (m * blocks)
    each = k // groups
    element = np.arange(each)[:, None]
    source = lane // (m * groups) * m * k + lane % m * k + lane // m % groups * each + element
    if m == 4:  # a block in four lanes, a row in each register
        register = np.arange(4)[:, None]
        return source, lane // 4 * 16 + register * 4 + lane % 4
    fours = 64 // n  # lanes side by side have four rows each
    register = np.arange(m * n * blocks // 64)[:, None]
    a_block = m * n // 64
    inside = register % a_block
    rows = inside // 4 * 4 * fours + lane // n * 4 + inside % 4
    return source, register // a_block * m * n + rows * n + lane % n


def _wmma(k: int, halves: bool) -> tuple[Array, Array]:
    lane, register = np.arange(32), np.arange(8)[:, None]
    if halves:
        element = np.arange(k // 2)[:, None]
        return lane % 16 * k + lane // 16 * (k // 2) + element, (register + lane // 16 * 8) * 16 + lane % 16
    element = np.arange(k)[:, None]
    return lane % 16 * k + element, (2 * register + lane // 16) * 16 + lane % 16


def _values(registers: Array, kind: str, signed: bool) -> Array:
    """float64 [elements, waves, lanes] of uint32 [registers, waves, lanes]."""
    if kind == "f32":
        return registers.view(np.float32).astype(np.float64)
    if kind == "xf32":  # ten bits of fraction, to nearest even
        raw = registers + (np.uint32(0xFFF) + (registers >> np.uint32(13) & np.uint32(1)))
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    bits = _BITS[kind]
    per = 32 // bits
    shifts = (np.arange(per, dtype=np.uint32) * np.uint32(bits))[:, None, None]
    raw = (registers[:, None] >> shifts & np.uint32((1 << bits) - 1)).reshape(-1, *registers.shape[1:])
    if kind == "f16":
        return raw.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "bf16":
        return bf16(raw.astype(np.uint16)).astype(np.float64)
    return raw.astype(np.float64) - ((raw >> np.uint32(bits - 1)).astype(np.float64) * float(1 << bits) if signed else 0.0)


@functools.cache
def _inverse(key: bytes, shape: tuple[int, int], size: int) -> tuple[Array, Array]:
    """(element, lane) where each place of a matrix is held; where two lanes hold the same, the first."""
    flat = np.frombuffer(key, np.int64).reshape(shape)
    places, at = np.unique(flat, return_index=True)
    if len(places) != size:
        raise EmulatorLimitError(f"a matrix of {size} elements of which {len(places)} are held")
    return at // shape[1], at % shape[1]


def matrix(name: str, row: Arch) -> Callable[..., Array]:
    """(a, b, c) -> d = a @ b + c of register arrays, uint32 [registers, waves, lanes]. Raises as `shape` does."""
    what = shape(name, row)
    source, target = np.ascontiguousarray(what.source, np.int64), np.ascontiguousarray(what.target, np.int64)
    element, lane = _inverse(source.tobytes(), source.shape, what.blocks * what.m * what.k)
    integer = what.kind in ("i8", "iu8", "iu4")
    each = len(source)

    flushes = row.matrix_flushes and what.kind in ("f16", "bf16")
    smallest = 2.0**-14 if what.kind == "f16" else 2.0**-126

    def full(registers: Array, signed: bool) -> Array:
        values = _values(registers, what.kind, signed)[:each]
        if flushes:
            values = np.where(np.abs(values) < smallest, 0.0, values)
        return values[element, :, lane].reshape(what.blocks, what.m, what.k, -1).transpose(3, 0, 1, 2)

    def run(a: Array, b: Array, c: Array, negative: Any = None) -> Array:
        low, high = negative or ((0, 0, 0), (0, 0, 0))
        open_sign = what.kind in ("iu8", "iu4")
        if any(high) or (any(low) and not open_sign):
            raise EmulatorLimitError(f"instruction {name} of {row.name}: no rule for its signs neg_lo {low} neg_hi {high}")
        signs = [bool(low[number]) if open_sign else True for number in (0, 1)]
        product = full(a, signs[0]) @ full(b, signs[1]).swapaxes(-1, -2)
        flat = product.reshape(len(product), -1)
        out = np.empty((len(target), *c.shape[1:]), np.uint32)
        placed = np.moveaxis(flat[:, target], 1, 0)  # [registers, waves, lanes]
        if integer:
            out[...] = (placed.astype(np.int64) + c.view(np.int32)).astype(np.int32).view(np.uint32)
        else:
            out[...] = (placed + c.view(np.float32)).astype(np.float32).view(np.uint32)
        return out

    return run
