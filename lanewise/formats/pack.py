"""Weights re-laid for a device without losing a bit: fields apart, rows interleaved in panels, and the exact way back.

A device reads one field of many rows at once, so each field of a block gets a plane of its own and `panel` rows lie side by side in it:
`planes[field][p, b, r]` is the field of block b in row p * panel + r. The last panel is filled up with blocks of zero bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError
from lanewise.formats.format import Format

__all__ = ["Packed", "pack", "unpack"]


@dataclass(frozen=True, slots=True)
class Packed:
    """w[n, k] in `format`, packed. planes[field]: [ceil(n/panel), k/block, panel, *field's own shape], C-contiguous, of the field's dtype."""

    format: Format
    n: int
    k: int
    panel: int
    planes: dict[str, NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of all planes, the padding rows included."""
        return sum(plane.nbytes for plane in self.planes.values())


def pack(raw: NDArray[np.uint8], fmt: Format, panel: int = 16) -> Packed:
    """The blocks of raw uint8[n, row_bytes], packed. Raises FormatError for another dtype or shape, or a panel below 1.

    >>> from lanewise.formats import get
    >>> packed = pack(np.zeros((17, 34), np.uint8), get("Q8_0"))
    >>> {name: plane.shape for name, plane in packed.planes.items()}
    {'d': (2, 1, 16), 'qs': (2, 1, 16, 32)}
    """
    blocks = fmt.blocks(raw)
    if blocks.ndim != 2:
        raise FormatError(f"{fmt.name}: pack takes uint8[n, row_bytes]; raw has {blocks.ndim} dimensions")
    if panel < 1:
        raise FormatError(f"{fmt.name}: a panel of {panel} rows; it must have at least 1")
    n, count = blocks.shape
    whole = n // panel
    planes: dict[str, NDArray[Any]] = {}
    for name in fmt.layout.names or ():
        field = blocks[name]
        plane = np.zeros((-(-n // panel), count, panel, *field.shape[2:]), field.dtype)
        plane[:whole] = field[: whole * panel].reshape(whole, panel, *field.shape[1:]).swapaxes(1, 2)
        if n % panel:
            plane[whole, :, : n % panel] = field[whole * panel :].swapaxes(0, 1)
        planes[name] = plane
    return Packed(fmt, n, count * fmt.block, panel, planes)


def unpack(packed: Packed) -> NDArray[np.uint8]:
    """raw uint8[n, row_bytes]: the bytes that `pack` was given."""
    fmt, count = packed.format, packed.k // packed.format.block
    rows = -(-packed.n // packed.panel) * packed.panel
    blocks = np.zeros((rows, count), fmt.layout)
    for name, plane in packed.planes.items():
        blocks[name] = plane.swapaxes(1, 2).reshape(rows, count, *plane.shape[3:])
    return blocks[: packed.n].view(np.uint8).reshape(packed.n, count * fmt.nbytes)
