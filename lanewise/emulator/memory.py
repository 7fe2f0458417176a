"""Memory that tells the truth: every buffer in an address range of its own, with its bounds, its rights and the bytes that anybody has written.

Addresses of 2^40 bytes belong to each buffer, which begins in their middle, so what runs over or in front of one lands in none.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanewise.emulator.fault import FaultError
from lanewise.emulator.registers import Array, fault, first

__all__ = ["Buffer", "Bytes", "Memory", "at_address"]

SHIFT = 40
_MIDDLE = 1 << SHIFT - 1
_ALIGNED = 256  # what a GPU's allocator gives
_QUAD = np.dtype((np.void, 16))


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

    data:     uint8, contiguous. The kernel works on it where it is, or on a copy where it begins elsewhere than `aligned` says
    write:    whether the kernel may write to it
    known:    bool per byte, whether anybody has written it; None: all of it
    aligned:  where `data` lies behind a multiple of 256 bytes
    """

    name: str
    data: Array
    write: bool = True
    known: Array | None = None
    aligned: int = 0
    address: int = field(default=0, init=False)
    bytes: Bytes = field(init=False)
    written: bool = field(default=False, init=False)

    def check(self, index: Array, width: int, mask: Array | None, stores: bool) -> tuple[Array, int]:
        """The indices with harmless ones for lanes that do not take part, and their alignment. Raises FaultError for the first lane that is wrong."""
        if mask is not None:
            index = np.where(mask, index, index[first(mask)])
        if int(index.min()) < 0 or int(index.max()) > self.bytes.size - width:
            bad = (index < 0) | (index > self.bytes.size - width)
            at = int(index[first(bad)])
            verb = "writes" if stores else "reads"
            raise fault(f"{verb} {width} bytes at offset {at} of {self.name}, which has {self.bytes.size} bytes", bad, buffer=self.name, offset=at)
        if stores and not self.write:
            everyone = np.ones(index.shape, bool) if mask is None else mask
            at = int(index[first(everyone)])
            raise fault(f"writes {width} bytes at offset {at} of {self.name}, which may only be read", everyone, buffer=self.name, offset=at)
        low = (
            int(np.bitwise_or.reduce(index, axis=None)) | self.bytes.shift
            if not self.bytes.shift
            else int(np.bitwise_or.reduce(index + self.bytes.shift, axis=None))
        )
        aligned = low & -low if low else 256
        if aligned < min(width, 4):
            bad = (index + self.bytes.shift) % min(width, 4) != 0
            at = int(index[first(bad)])
            raise fault(f"{width} bytes at offset {at} of {self.name} are not aligned to {min(width, 4)}", bad, buffer=self.name, offset=at)
        return index, aligned

    def load(self, index: Array, width: int, mask: Array | None) -> list[Array]:
        """The words of `width` bytes at each index, which counts from the buffer's beginning."""
        index, aligned = self.check(index, width, mask, stores=False)
        if self.known is not None:
            unknown = ~self.known[index]
            for number in range(1, width):
                unknown |= ~self.known[index + number]
            if unknown.any():
                at = int(index[first(unknown)])
                raise fault(f"reads {width} bytes at offset {at} of {self.name}, which nobody has written", unknown, buffer=self.name, offset=at)
        return self.bytes.gather(index, width, aligned)

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
        """Give a buffer its address."""
        self.buffers.append(buffer)
        shift, there = buffer.aligned % 16, buffer.data.ctypes.data % 16
        buffer.bytes = Bytes(buffer.data.size, shift, buffer.data if there == shift else None)
        if there != shift:
            buffer.bytes.data[...] = buffer.data
        buffer.address = (len(self.buffers) << SHIFT) + _MIDDLE + buffer.aligned % _ALIGNED
        if buffer.address >= 1 << 47:
            raise FaultError(f"a launch with more than {len(self.buffers) - 1} buffers")
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


def uniform(value: Array) -> Any:
    """The number that all of uint32 [waves, 1] are, or None."""
    one = value[0, 0]
    return int(one) if len(value) == 1 or bool((value == one).all()) else None
