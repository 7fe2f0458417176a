"""Where the bits of a block's codes lie: splitting bytes into small integers, and putting them together again.

Every GGUF block format of two to six bits keeps its codes in one or two byte fields, and each field in the same pattern: `groups` runs of
bytes; within a run, the lowest `bits` of all its bytes come first, then the next higher bits of the same bytes, and so on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blocks", "Plane", "join", "split"]

Blocks = NDArray[np.void]  # an array of one format's structured dtype


@dataclass(frozen=True, slots=True)
class Plane:
    """One byte field of codes: `bits` of each code, which belong `at` bits up in the code, in `groups` runs of bytes."""

    field: str
    groups: int
    bits: int
    at: int = 0

    @property
    def shifts(self) -> NDArray[np.uint8]:
        return np.arange(0, 8, self.bits, dtype=np.uint8)[:, None]


def split(blocks: Blocks, *planes: Plane) -> NDArray[np.uint8]:
    """codes[n, block] of blocks[n]: the bits of all planes put together."""
    codes: NDArray[np.uint8] | None = None
    for plane in planes:
        field: NDArray[Any] = blocks[plane.field]
        part = field.reshape(len(blocks), plane.groups, 1, field.shape[-1] // plane.groups) >> plane.shifts
        part &= np.uint8((1 << plane.bits) - 1)
        part = part.reshape(len(blocks), -1)
        if codes is None:
            codes = part
        else:
            part <<= np.uint8(plane.at)
            codes |= part
    assert codes is not None
    return codes


def join(codes: NDArray[np.uint8], blocks: Blocks, *planes: Plane) -> None:
    """The inverse of `split`: codes[n, block] written into the planes' fields of blocks[n]."""
    for plane in planes:
        field: NDArray[Any] = blocks[plane.field]
        part = codes >> np.uint8(plane.at) if plane.at else codes
        part = part & np.uint8((1 << plane.bits) - 1)
        part = part.reshape(len(blocks), plane.groups, 8 // plane.bits, -1) << plane.shifts
        field[:] = np.bitwise_or.reduce(part, axis=2).reshape(field.shape)
