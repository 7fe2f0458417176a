"""The segment of kernel arguments that a driver passes: ours by their layout, and those that a compiler adds for itself."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lanewise.emulator.memory import Buffer, Memory
from lanewise.errors import EmulatorLimitError, ShapeError
from lanewise.isa.code_object import Argument, CodeObject

__all__ = ["Value", "packed"]

Value = "np.ndarray[Any, Any] | Buffer | int | float | tuple[Buffer, int]"
_POISON = 0xDB
_WHOLE = 64  # bytes that a scalar load takes at once, so that one that begins in the segment ends in it


def packed(code: CodeObject, given: Mapping[str, Any] | Sequence[Any], grid: tuple[int, int, int], memory: Memory) -> bytes:
    """The segment's bytes, with every array that is given put into memory.

    given: by name or in the kernel's order; arrays, `Buffer`s, (Buffer, offset in bytes) where several point into one, ints and floats.
    Raises ShapeError for what does not fit the kernel's parameters.
    """
    data = bytearray([_POISON]) * (-(-code.descriptor.kernargs // _WHOLE) * _WHOLE + _WHOLE)
    wanted = [one for one in code.arguments if not one.hidden]
    names = list(given) if isinstance(given, Mapping) else [f"argument {number}" for number in range(len(given))]
    values = list(given.values()) if isinstance(given, Mapping) else list(given)
    if len(values) > len(wanted):
        raise ShapeError(f"{code.kernel} takes {len(wanted)} arguments; {len(values)} were given")
    for name, value, one in zip(names, values, wanted, strict=False):
        data[one.offset : one.offset + one.size] = _bytes(code.kernel, name, value, one, memory)
    for one in wanted[len(values) :]:  # Triton appends pointers to memory that it asks a driver for, which are null where it asks for none
        if one.kind != "global_buffer":
            raise ShapeError(f"{code.kernel} takes {len(wanted)} arguments; {len(values)} were given, and one of {one.size} bytes is missing")
        data[one.offset : one.offset + one.size] = bytes(one.size)
    hidden = {one.kind: one for one in code.arguments if one.hidden}
    for kind, number in _hidden(code, grid).items():
        if kind in hidden:
            data[hidden[kind].offset : hidden[kind].offset + hidden[kind].size] = number.to_bytes(hidden[kind].size, "little")
    return bytes(data)


def _hidden(code: CodeObject, grid: tuple[int, int, int]) -> dict[str, int]:
    threads = (code.warps * code.row.wave, 1, 1)
    found = {"hidden_grid_dims": 3}
    for axis, (count, size) in zip("xyz", zip(grid, threads, strict=True), strict=True):
        found |= {f"hidden_block_count_{axis}": count, f"hidden_group_size_{axis}": size}
        found |= {f"hidden_remainder_{axis}": 0, f"hidden_global_offset_{axis}": 0}
    return found


def _bytes(kernel: str, name: str, value: Any, one: Argument, memory: Memory) -> bytes:
    if one.kind == "global_buffer":
        return _address(kernel, name, value, memory).to_bytes(8, "little")
    if one.kind != "by_value":
        raise EmulatorLimitError(f"{kernel}: {name} is a {one.kind}, which the emulator has not")
    if isinstance(value, (np.integer, np.floating)):
        if value.dtype.itemsize != one.size:
            raise ShapeError(f"{kernel}: {name} has {one.size} bytes; {value.dtype} has {value.dtype.itemsize}")
        return value.tobytes()
    if isinstance(value, float) and one.size in (4, 8):
        return struct.pack("<f" if one.size == 4 else "<d", value)
    if isinstance(value, int):
        bits = 8 * one.size
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise ShapeError(f"{kernel}: {name} has {bits} bits; {value} does not fit")
        return (value % (1 << bits)).to_bytes(one.size, "little")
    raise ShapeError(f"{kernel}: {name} is a number of {one.size} bytes; {type(value).__name__} was given")


def _address(kernel: str, name: str, value: Any, memory: Memory) -> int:
    if isinstance(value, tuple):
        buffer, offset = value
        if all(one is not buffer for one in memory.buffers):
            memory.add(buffer)
        return int(buffer.address + offset)
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise ShapeError(f"{kernel}: {name} is not contiguous; give the array that it is a part of, and pass its strides")
        value = Buffer(name, value.reshape(-1).view(np.uint8), write=value.flags.writeable)
    if not isinstance(value, Buffer):
        raise ShapeError(f"{kernel}: {name} is a pointer; {type(value).__name__} was given, and an array or a Buffer is taken")
    return memory.add(value)
