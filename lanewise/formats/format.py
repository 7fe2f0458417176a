"""Format: one GGUF block format as a descriptor, with the checks and the chunked loops that every format shares.

A format brings two functions that see nothing but an array of its blocks; shapes, refusals and memory are handled here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError
from lanewise.formats.bits import Blocks

__all__ = ["HALF_MAX", "Format"]

HALF_MAX = 65504.0  # the largest finite fp16: no block scale is larger

# Weights handled at a time. Small enough for the temporaries to stay in the second-level cache, and never more than a few MB of them.
_DECODE_CHUNK = 1 << 17
_ENCODE_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Format:
    """One block format: `block` weights of a row stored in `layout`'s bytes, in file order.

    name:       as ggml writes it
    ggml_type:  its number in GGUF files
    block:      weights in a block; 1 for the float formats
    layout:     structured dtype of one block, fields in file order, little endian, no padding
    activation: how x is quantized for the integer multiply with this format: "float" (it is not), "q8_0" or "q8_k"
    largest:    `quantize` refuses |x| above this, since no finite block scale reaches it
    """

    name: str
    ggml_type: int
    block: int
    layout: np.dtype[np.void]
    activation: str
    largest: float
    _decode: Callable[[Blocks, NDArray[np.float32]], None] = field(repr=False)
    _encode: Callable[[NDArray[np.float32], Blocks], None] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of one block."""
        return self.layout.itemsize

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.block

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of k weights. Raises FormatError when k is not a whole number of blocks."""
        if k < 0 or k % self.block:
            raise FormatError(f"{self.name}: a row of k={k} weights is not a whole number of blocks of {self.block}")
        return k // self.block * self.nbytes

    def blocks(self, raw: NDArray[np.uint8]) -> Blocks:
        """blocks[..., k/block] of raw[..., row_bytes]: a view with this format's layout, a copy only where raw's last axis has gaps."""
        self._check_raw(raw)
        shape = (*raw.shape[:-1], raw.shape[-1] // self.nbytes)
        if raw.size == 0:
            return np.zeros(shape, self.layout)
        return (raw if raw.strides[-1] == 1 else np.ascontiguousarray(raw)).view(self.layout)

    def dequantize(self, raw: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """w[..., k] float32 of raw[..., row_bytes] uint8, bit for bit what the `gguf` package computes.

        `out`, when given, is a C-contiguous float32 array of that shape; it is filled and returned. Scales may be any fp16, so the
        weights may be Inf or NaN. Scratch memory is a few MB at most, whatever the size. Raises FormatError for another dtype or shape.

        >>> from lanewise.formats import get
        >>> get("Q8_0").dequantize(np.array([[0, 56] + [2] * 32], np.uint8))[0, :3]
        array([1., 1., 1.], dtype=float32)
        """
        self._check_raw(raw)
        shape = (*raw.shape[:-1], raw.shape[-1] // self.nbytes * self.block)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
            raise FormatError(f"{self.name}: out is {_describe(out)}; it must be writeable, C-contiguous float32{list(shape)}")
        flat = out.reshape(-1, self.block)
        done = 0
        with np.errstate(all="ignore"):
            for part in _chunks(raw, self.nbytes, max(1, _DECODE_CHUNK // self.block)):
                self._decode(part.view(self.layout)[:, 0], flat[done : done + len(part)])
                done += len(part)
        return out

    def quantize(self, x: NDArray[np.float32]) -> NDArray[np.uint8]:
        """raw[..., row_bytes] uint8 of x[..., k] float32: the format's scale search, then rounding to the nearest code.

        A block's bytes depend on that block alone and are the same on every machine. A block of zeros decodes to zeros. Raises FormatError
        for another dtype, a k that is not a whole number of blocks, and (saying where) NaN, Inf or a value beyond `largest`.

        >>> from lanewise.formats import get
        >>> get("Q8_0").quantize(np.ones((1, 32), np.float32)).shape
        (1, 34)
        """
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim == 0:
            raise FormatError(f"{self.name}: x is {_describe(x)}; quantize takes float32[..., k]")
        raw = np.empty((*x.shape[:-1], self.row_bytes(x.shape[-1])), np.uint8)
        flat = raw.reshape(-1, self.nbytes)
        done = 0
        with np.errstate(all="ignore"):
            for part in _chunks(x, self.block, max(1, _ENCODE_CHUNK // self.block)):
                # NaN fails both comparisons
                if not (part.max() <= self.largest and part.min() >= -self.largest):
                    self._refuse(x, done, part)
                self._encode(part, flat[done : done + len(part)].view(self.layout)[:, 0])
                done += len(part)
        return raw

    def _check_raw(self, raw: NDArray[np.uint8]) -> None:
        if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim == 0:
            raise FormatError(f"{self.name}: raw is {_describe(raw)}; it must be uint8[..., row_bytes]")
        if raw.shape[-1] % self.nbytes:
            raise FormatError(f"{self.name}: a row of {raw.shape[-1]} bytes is not a whole number of blocks of {self.nbytes} bytes")

    def _refuse(self, x: NDArray[np.float32], done: int, part: NDArray[np.float32]) -> None:
        """Say where the first value is that cannot be stored; `part` holds the blocks of x from number `done` on."""
        at = int(np.argmin(np.abs(part) <= self.largest))
        where = ", ".join(str(i) for i in np.unravel_index(done * self.block + at, x.shape))
        raise FormatError(f"{self.name}: x[{where}] is {part.flat[at]}; quantize takes finite values up to {self.largest:.6g}")


def _describe(array: object) -> str:
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__


def _chunks(array: NDArray[Any], unit: int, count: int) -> Iterator[NDArray[Any]]:
    """`array`'s elements in row-major order as contiguous [at most count, unit] pieces; its last axis is a multiple of `unit`.

    Views where the array is contiguous, and otherwise copies of one piece at a time: never of the whole.
    """
    if array.size == 0:
        return
    if array.flags.c_contiguous:
        flat = array.reshape(-1, unit)
        for start in range(0, len(flat), count):
            yield flat[start : start + count]
    elif array.ndim > 2:
        for part in array:
            yield from _chunks(part, unit, count)
    else:
        rows, width = np.atleast_2d(array), array.shape[-1]
        tall, wide = max(1, count * unit // width), min(width, count * unit)
        for top in range(0, len(rows), tall):
            for left in range(0, width, wide):
                yield np.ascontiguousarray(rows[top : top + tall, left : left + wide]).reshape(-1, unit)
