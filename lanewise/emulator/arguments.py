"""The segment of kernel arguments that a driver passes: ours by their layout, and those that a compiler adds for itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lanewise.emulator.memory import Buffer, Memory, at_address, called, overlapping
from lanewise.emulator.registers import Array
from lanewise.errors import EmulatorLimitError, ShapeError
from lanewise.isa.code_object import Argument, CodeObject

__all__ = ["packed"]

_APPENDED = 2  # pointers that Triton adds behind the kernel's own; its code objects have no names
_POISON = 0xDB
_HOST = "hidden_hostcall_buffer"
_WHOLE = 64  # bytes that a scalar load takes at once, so that one that begins in the segment ends in it


def packed(code: CodeObject, given: Mapping[str, Any] | Sequence[Any], grid: tuple[int, int, int], memory: Memory) -> bytes:
    """The segment's bytes, with every array that is given put into memory; arrays that overlap lie there as they do here.

    given: in the kernel's order; arrays, `Buffer`s, (Buffer, offset in bytes) where several point into one, ints and floats. Under names, these are
           what faults say, and where the code object has names of its own they decide.
    Raises ShapeError for what does not fit the kernel's parameters.
    """
    data = bytearray([_POISON]) * (-(-code.descriptor.kernargs // _WHOLE) * _WHOLE + _WHOLE)
    wanted = [one for one in code.arguments if not one.hidden]
    items = _ordered(code.kernel, given, wanted)
    places = _placed(code.kernel, items, wanted, memory)
    for (name, value), one in zip(items, wanted, strict=False):
        raw = places[name].to_bytes(8, "little") if name in places else _number(code.kernel, name, value, one)
        data[one.offset : one.offset + one.size] = raw
    for one in wanted[len(items) :]:  # Triton appends pointers to memory that it asks a driver for, which are null where it asks for none
        data[one.offset : one.offset + one.size] = bytes(one.size)
    hidden = {one.kind: one for one in code.arguments if one.hidden}
    if _HOST in hidden:
        raise EmulatorLimitError(f"{code.kernel}: it prints or asserts by calls to a host that answers, which the emulator has not")
    for kind, number in _hidden(code, grid).items():
        if kind in hidden:
            data[hidden[kind].offset : hidden[kind].offset + hidden[kind].size] = number.to_bytes(hidden[kind].size, "little")
    return bytes(data)


def _ordered(kernel: str, given: Mapping[str, Any] | Sequence[Any], wanted: list[Argument]) -> list[tuple[str, Any]]:
    """Names and values in the kernel's order."""
    if not isinstance(given, Mapping | Sequence) or isinstance(given, str | bytes):
        raise ShapeError(f"{kernel}: arguments are a list, or a dict in the kernel's order; {type(given).__name__} was given")
    items = list(given.items()) if isinstance(given, Mapping) else [(f"argument {number}", value) for number, value in enumerate(given)]
    names = [one.name for one in wanted]
    own = len(wanted)
    if None in names and len(wanted) >= _APPENDED and all(one.kind == "global_buffer" for one in wanted[-_APPENDED:]):
        own -= _APPENDED
    if len(items) not in (own, len(wanted)):
        raise ShapeError(f"{kernel} takes {own} arguments; {len(items)} were given")
    if isinstance(given, Mapping) and None not in names:
        if unknown := [name for name, _ in items if name not in names]:
            raise ShapeError(f"{kernel} has no argument {unknown[0]!r}; it has {', '.join(map(str, names))}")
        items.sort(key=lambda item: names.index(item[0]))
    return items


def _placed(kernel: str, items: list[tuple[str, Any]], wanted: list[Argument], memory: Memory) -> dict[str, int]:
    """The address of every pointer."""
    spans: dict[str, tuple[int, int]] = {}
    arrays: dict[str, Array] = {}
    buffers: dict[str, tuple[Buffer, int]] = {}
    for (name, value), one in zip(items, wanted, strict=False):
        if one.kind != "global_buffer":
            continue
        if isinstance(value, np.ndarray):
            arrays[name] = _bytes(kernel, name, value)
            spans[name] = _span(arrays[name])
        elif isinstance(value, Buffer):
            buffers[name] = (value, 0)
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Buffer) and isinstance(value[1], int | np.integer):
            buffers[name] = (value[0], int(value[1]))
        else:
            raise ShapeError(f"{kernel}: {name} is a pointer; {type(value).__name__} was given, and an array or a Buffer is taken")
    held = {f"buffer {number}": _span(buffer.data) for number, buffer in enumerate({id(one): one for one, _ in buffers.values()}.values())}
    for _, _, names in overlapping({**{f"array {name}": span for name, span in spans.items()}, **held}):
        if len(names) > 1 and any(name.startswith("buffer") for name in names):
            raise ShapeError(f"{kernel}: a Buffer lies in the memory of another argument; give one Buffer, and (Buffer, offset) for the others")
    places = {name: memory.add(buffer) + offset for name, (buffer, offset) in buffers.items()}
    for begin, end, names in overlapping(spans):
        parts = [arrays[name] for name in names]
        if len({part.flags.writeable for part in parts}) > 1:
            raise ShapeError(f"{kernel}: {' and '.join(names)} lie in the same memory, and only a part of them may be written to")
        whole = parts[0] if len(parts) == 1 else at_address(begin, end - begin)
        address = memory.add(Buffer(called(names, spans), whole, write=parts[0].flags.writeable))
        places |= {name: address + spans[name][0] - begin for name in names}
    return places


def _bytes(kernel: str, name: str, value: Array) -> Array:
    if not value.flags.c_contiguous:
        raise ShapeError(f"{kernel}: {name} is not contiguous; give the array that it is a part of, and pass its strides")
    if value.dtype.kind not in "biufcV" or not value.dtype.isnative:
        raise ShapeError(f"{kernel}: {name} is an array of {value.dtype}; numbers in this machine's byte order are taken")
    return value.reshape(-1).view(np.uint8)


def _span(value: Array) -> tuple[int, int]:
    begin = int(value.ctypes.data)
    return begin, begin + value.size


def _hidden(code: CodeObject, grid: tuple[int, int, int]) -> dict[str, int]:
    threads = (code.warps * code.row.wave, 1, 1)
    found = {"hidden_grid_dims": 3}
    for axis, (count, size) in zip("xyz", zip(grid, threads, strict=True), strict=True):
        found |= {f"hidden_block_count_{axis}": count, f"hidden_group_size_{axis}": size}
        found |= {f"hidden_remainder_{axis}": 0, f"hidden_global_offset_{axis}": 0}
    return found


def _number(kernel: str, name: str, value: Any, one: Argument) -> bytes:
    """A number as it is passed. What a code object does not say is whether an integer or a float is wanted: the value's type decides."""
    if one.kind != "by_value":
        raise EmulatorLimitError(f"{kernel}: {name} is a {one.kind}, which the emulator has not")
    if isinstance(value, np.number | np.bool_):
        if value.dtype.itemsize != one.size:
            raise ShapeError(f"{kernel}: {name} has {one.size} bytes; {value.dtype} has {value.dtype.itemsize}")
        return value.tobytes()
    if isinstance(value, float) and one.size in (4, 8):
        with np.errstate(over="ignore"):
            raw = np.float32(value) if one.size == 4 else np.float64(value)
        if np.isinf(raw) and not np.isinf(value):
            raise ShapeError(f"{kernel}: {name} is a float of 32 bits; {value} does not fit")
        return raw.tobytes()
    if isinstance(value, int):
        bits = 8 * one.size
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise ShapeError(f"{kernel}: {name} has {bits} bits; {value} does not fit")
        return (value % (1 << bits)).to_bytes(one.size, "little")
    raise ShapeError(f"{kernel}: {name} is a number of {one.size} bytes; {type(value).__name__} was given")
