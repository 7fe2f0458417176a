"""Memory that tells the truth: every buffer in an address range of its own, with its bounds, its rights and the bytes that anybody has written.

Addresses of 2^40 bytes belong to each buffer, which begins in their middle, so what runs over or in front of one lands in none.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanewise.emulator.fault import FaultError
from lanewise.emulator.registers import Array, fault, first
from lanewise.errors import EmulatorLimitError, ShapeError

__all__ = ["Buffer", "Bytes", "Memory", "at_address", "called", "overlapping"]

SHIFT = 40
_MIDDLE = 1 << SHIFT - 1
_ALIGNED = 256  # what a GPU's allocator gives
_QUAD = np.dtype((np.void, 16))


def _told(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def at_address(address: int, size: int) -> Array:
    """The bytes that are there."""
    held: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(held, np.uint8)


class Bytes:
    """Bytes that lanes read and write by index, with views of every width; `shift` of them lie in front, so that alignment is that of the address.

    held: where they are already, at an address as far behind a multiple of 16; without it they are new
    """

    def __init__(self, size: int, shift: int = 0, held: Array | None = None) -> None:
        self.size, self.shift = size, shift
        whole = (shift + size + 15) // 16 * 16
        if held is None or not size:
            room = np.zeros(whole + 64, np.uint8)
            begin = -room.ctypes.data % 64
            self.all = room[begin : begin + whole]
        else:  # sixteen aligned bytes are never of two pages: what lies around the first and the last is there
            self.all = at_address(held.ctypes.data - shift, whole)
        self.u16, self.u32, self.u64, self.quad = (self.all.view(kind) for kind in (np.uint16, np.uint32, np.uint64, _QUAD))
        self.data = self.all[shift : shift + size]

    def gather(self, index: Array, width: int, aligned: int) -> list[Array]:
        """The words of `width` bytes at each index, uint32 like index; aligned: what every index is a multiple of."""
        at = index + self.shift if self.shift else index
        if width == 16 and aligned >= 16:
            four = self.quad.take(at >> 4).view(np.uint32).reshape(*at.shape, 4)
            return [four[..., number] for number in range(4)]
        if width == 8 and aligned >= 8:
            two = self.u64.take(at >> 3).view(np.uint32).reshape(*at.shape, 2)
            return [two[..., 0], two[..., 1]]
        if width >= 4:
            at = at >> 2
            return [self.u32.take(at + number if number else at) for number in range(width // 4)]
        return [(self.u16.take(at >> 1) if width == 2 else self.all.take(at)).astype(np.uint32)]

    def scatter(self, index: Array, width: int, words: list[Array]) -> None:
        """Write words [any] at index [any]; of two at the same place one stays."""
        at = index + self.shift
        if width == 16 and len(at) and not int(np.bitwise_or.reduce(at)) & 15:
            self.quad[at >> 4] = np.ascontiguousarray(np.stack(words, axis=-1)).view(_QUAD)[..., 0]
        elif width >= 4:
            for number, word in enumerate(words):
                self.u32[(at >> 2) + number] = word
        elif width == 2:
            self.u16[at >> 1] = words[0].astype(np.uint16)
        else:
            self.all[at] = words[0].astype(np.uint8)


@dataclass(slots=True, eq=False)
class Buffer:
    """One allocation as a kernel sees it.

    data:     uint8 [size], contiguous. The kernel works on it where it is, or on a copy where it begins elsewhere than `aligned` says
    write:    whether the kernel may write to it
    known:    bool [size], whether anybody has written a byte, kept up to date; None: all of it
    aligned:  where `data` lies behind a multiple of 256 bytes

    Raises ShapeError for anything else.
    """

    name: str
    data: Array
    write: bool = True
    known: Array | None = None
    aligned: int = 0
    address: int = field(default=0, init=False)
    bytes: Bytes = field(init=False)
    written: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        data, known = self.data, self.known
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise ShapeError(f"{self.name}: a buffer's bytes are a contiguous array uint8 [size]; {_told(data)} was given")
        if known is not None and (not isinstance(known, np.ndarray) or known.dtype != np.bool_ or known.shape != data.shape):
            raise ShapeError(f"{self.name}: known is bool [{data.size}], one for each byte; {_told(known)} was given")
        if self.write and data.size and not data.flags.writeable:
            raise ShapeError(f"{self.name}: the array may only be read, and so may the buffer: write=False")
        if not 0 <= self.aligned < _ALIGNED:
            raise ShapeError(f"{self.name}: aligned is 0 to {_ALIGNED - 1} bytes; {self.aligned} was given")

    def check(self, index: Array, width: int, mask: Array | None, stores: bool) -> tuple[Array, int]:
        """The indices with harmless ones for lanes that do not take part, and their alignment. Raises FaultError for the first lane that is wrong."""
        if mask is not None:
            index = np.where(mask, index, index[first(mask)])
        if int(index.min()) < 0 or int(index.max()) > self.bytes.size - width:
            bad = (index < 0) | (index > self.bytes.size - width)
            raise self._wrong(index, width, bad, mask, stores, f"which has {self.bytes.size} bytes")
        if stores and not self.write:
            raise self._wrong(index, width, np.ones(index.shape, bool), mask, stores, "which may only be read")
        low = int(np.bitwise_or.reduce(index + self.bytes.shift if self.bytes.shift else index, axis=None))
        aligned = low & -low if low else _ALIGNED
        if aligned < min(width, 4):
            bad = (index + self.bytes.shift) % min(width, 4) != 0
            raise self._wrong(index, width, bad, mask, stores, f"which is not aligned to {min(width, 4)}")
        return index, aligned

    def _wrong(self, index: Array, width: int, bad: Array, mask: Array | None, stores: bool, why: str) -> FaultError:
        """The fault of the first active lane that is bad; lanes that are not active have the index of one that is."""
        bad = bad if mask is None else bad & mask
        at = int(index[first(bad)])
        verb = "writes" if stores else "reads"
        return fault(f"{verb} {width} bytes at offset {at} of {self.name}, {why}", bad, buffer=self.name, offset=at)

    def load(self, index: Array, width: int, mask: Array | None) -> list[Array]:
        """The words of `width` bytes at each index, which counts from the buffer's beginning."""
        index, aligned = self.check(index, width, mask, stores=False)
        self.written_before(index, width, mask)
        return self.bytes.gather(index, width, aligned)

    def written_before(self, index: Array, width: int, mask: Array | None) -> None:
        """Raises FaultError where an active lane asks for a byte that nobody has written; index: as `check` gives it."""
        if self.known is not None:
            unknown = ~self.known[index]
            for number in range(1, width):
                unknown |= ~self.known[index + number]
            if unknown.any():
                raise self._wrong(index, width, unknown, mask, False, "which nobody has written")

    def store(self, index: Array, width: int, values: list[Array], mask: Array | None) -> None:
        """Write words at each index."""
        index, _ = self.check(index, width, mask, stores=True)
        chosen = index.ravel() if mask is None else index[mask]
        words = [np.broadcast_to(value, index.shape) for value in values]
        self.bytes.scatter(chosen, width, [word.ravel() if mask is None else word[mask] for word in words])
        self.written = True
        if self.known is not None:
            for number in range(width):
                self.known[chosen + number] = True


class Memory:
    """The buffers of a launch. Addresses count from `1 << 40` on, so none is zero."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def add(self, buffer: Buffer) -> int:
        """Give a buffer its address; one that is there already has it."""
        if any(one is buffer for one in self.buffers):
            return buffer.address
        self.buffers.append(buffer)
        buffer.written = False
        shift, there = buffer.aligned % 16, buffer.data.ctypes.data % 16
        buffer.bytes = Bytes(buffer.data.size, shift, buffer.data if there == shift else None)
        if there != shift:
            buffer.bytes.data[...] = buffer.data
        buffer.address = (len(self.buffers) << SHIFT) + _MIDDLE + buffer.aligned % _ALIGNED
        if buffer.address >= 1 << 47:
            raise EmulatorLimitError(f"a launch has at most {len(self.buffers) - 1} buffers")
        return buffer.address

    def back(self) -> None:
        """What the kernel has written to copies goes where they came from."""
        for buffer in self.buffers:
            if buffer.written and buffer.data.ctypes.data % 16 != buffer.aligned % 16:
                buffer.data[...] = buffer.bytes.data

    def at(self, address: int, where: Array | None = None) -> Buffer:
        """The buffer in whose range an address lies; where: who asks, for the fault."""
        number = (address >> SHIFT) - 1
        if 0 <= number < len(self.buffers):
            return self.buffers[number]
        what = f"address {address:#x} belongs to no buffer"
        raise FaultError(what) if where is None else fault(what, where)

    def split(self, address: Array, mask: Array | None) -> list[tuple[Buffer, Array, Array | None]]:
        """For uint64 addresses: every buffer that is meant, indices in it, and the lanes that mean it."""
        high = address >> np.uint64(SHIFT)
        flat = high if mask is None else high[mask]
        if flat.size == 0:
            return []
        top = int(flat.flat[0])
        if bool((flat == top).all()):
            buffer = self.at(top << SHIFT, np.ones(address.shape, bool) if mask is None else mask)
            return [(buffer, (address - np.uint64(buffer.address)).view(np.int64), mask)]
        found = []
        for one in np.unique(flat):
            lanes = (high == one) if mask is None else (high == one) & mask
            buffer = self.at(int(one) << SHIFT, lanes)
            found.append((buffer, (address - np.uint64(buffer.address)).view(np.int64), lanes))
        return found


def overlapping(spans: Mapping[str, tuple[int, int]]) -> list[tuple[int, int, list[str]]]:
    """Runs of memory in which things lie, and their names, from (first byte, behind the last) of each; what is empty lies alone."""
    runs: list[tuple[int, int, list[str]]] = [(begin, end, [name]) for name, (begin, end) in spans.items() if begin == end]
    last: tuple[int, int, list[str]] | None = None
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin == end:
            continue
        if last is not None and begin < last[1]:
            last = runs[-1] = (last[0], max(last[1], end), [*last[2], name])
        else:
            last = (begin, end, [name])
            runs.append(last)
    return runs


def called(names: list[str], spans: Mapping[str, tuple[int, int]]) -> str:
    """What a run of memory goes by: of what is the very same memory the first name, since launchers pass some tensor for what a kernel does not use.

    >>> called(["y", "bias", "tail"], {"y": (0, 8), "bias": (0, 8), "tail": (4, 8)})
    'y and tail'
    """
    return " and ".join({spans[name]: name for name in reversed(names)}[span] for span in dict.fromkeys(spans[name] for name in names))


def uniform(value: Array) -> Any:
    """The number that all of uint32 [waves, 1] are, or None."""
    one = value[0, 0]
    return int(one) if len(value) == 1 or bool((value == one).all()) else None
