"""Read GGUF's integers, text and key/values: a cursor over the mapped bytes that checks every read against their end first.

Layout (the GGUF specification in ggml's docs/gguf.md): a string is a u64 length and bytes; a value is a u32 type and what it holds; an array
is a u32 element type, a u64 count and the elements. All text must be UTF-8, token strings too: the official writer only writes UTF-8, and a
tokenizer cannot be built of anything else.
"""

import itertools
import mmap
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lanewise.errors import ModelFileError
from lanewise.files.mapped import Plain

__all__ = ["UINT32", "Cursor", "Entry", "read_entry", "type_name"]

UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9
# Value types by number: name, struct code, bytes. 8 is a string, 9 an array.
_SCALARS: Final = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_STRUCTS: Final = {number: struct.Struct("<" + code) for number, (_, code) in _SCALARS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
# Bounds on what a header may make us hold, each above what the largest known model has (a vocabulary of 262k tokens and 515k
# merges) and low enough for a second: bytes before the tensor data, strings in all arrays together.
_HEADER, _STRINGS = 48 << 20, 1 << 20
# Strings are decoded this many at a time, which bounds the scratch memory; one by one, which is quicker then, when there are fewer than _FEW.
_BATCH, _FEW = 1 << 16, 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One key's value with its GGUF type numbers; `element` is the type of an array's elements."""

    type: int
    element: int | None
    value: Any


def type_name(number: int) -> str:
    """The GGUF name of a value type."""
    return {STRING: "string", ARRAY: "array"}.get(number) or _SCALARS[number][0]


class Cursor:
    """A place in the mapped file; every read is checked against its end first."""

    __slots__ = ("buffer", "limit", "path", "position", "size", "strings")

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path, self.buffer, self.size = path, buffer, len(buffer)
        self.limit = min(self.size, _HEADER)
        self.position = self.strings = 0

    def error(self, field: str, value: object, allowed: str) -> ModelFileError:
        return ModelFileError(self.path, field, value, allowed)

    def take(self, length: int, field: str) -> int:
        """Where the next `length` bytes begin; moves past them."""
        start = self.position
        if length > self.limit - start:
            end = f"the file ends at byte {self.size}: it is cut short, or the size is wrong"
            allowed = end if self.limit == self.size else f"a header of at most {_HEADER >> 20} MiB is allowed"
            raise self.error(field, Plain(f"{length} bytes at byte {start}"), allowed)
        self.position = start + length
        return start

    def u32(self, field: str) -> int:
        return int(_U32.unpack_from(self.buffer, self.take(4, field))[0])

    def u64(self, field: str) -> int:
        return int(_U64.unpack_from(self.buffer, self.take(8, field))[0])

    def count(self, field: str, smallest: int, most: int) -> int:
        """A u64 that counts items of at least `smallest` bytes each; they must fit what is left of the header."""
        value = self.u64(field)
        fits = (self.limit - self.position) // smallest
        if value > fits:
            raise self.error(field, value, f"at most {fits} fit in the {self.limit - self.position} bytes that follow")
        if value > most:
            raise self.error(field, value, f"at most {most} are allowed")
        return value

    def text(self, field: str, most: int = _HEADER) -> str:
        length = self.u64(f"the length of {field}")
        if length > most:
            raise self.error(f"the length of {field}", length, f"at most {most} bytes are allowed")
        start = self.take(length, field)
        return self.decode(self.buffer[start : start + length], field)

    def decode(self, raw: bytes, field: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(field, raw[max(0, error.start - 8) : error.start + 8], "UTF-8 text is expected") from None


def read_entry(cursor: Cursor, field: str) -> Entry:
    kind = cursor.u32(f"the type of {field}")
    if kind == STRING:
        return Entry(kind, None, cursor.text(field))
    if kind == ARRAY:
        element = cursor.u32(f"the element type of {field}")
        return Entry(kind, element, _array(cursor, field, element))
    if kind not in _SCALARS:
        raise cursor.error(f"the type of {field}", kind, "value types 0 to 12 exist")
    layout = _STRUCTS[kind]
    value = layout.unpack_from(cursor.buffer, cursor.take(layout.size, field))[0]
    if kind == BOOL:
        if value > 1:
            raise cursor.error(field, value, "a bool is stored as 0 or 1")
        value = bool(value)
    return Entry(kind, None, value)


def _array(cursor: Cursor, field: str, element: int) -> Any:
    """list[str], or a read-only numpy array of the elements' own type."""
    if element == ARRAY:
        raise cursor.error(f"the element type of {field}", Plain("array"), "arrays of arrays are not read")
    if element != STRING and element not in _SCALARS:
        raise cursor.error(f"the element type of {field}", element, "value types 0 to 12 exist")
    width = 8 if element == STRING else _STRUCTS[element].size
    count = cursor.count(f"the length of {field}", width, _HEADER)
    if element == STRING:
        return _strings(cursor, field, count)
    dtype = np.dtype(_SCALARS[element][0])
    start = cursor.take(count * width, field)
    raw = np.frombuffer(cursor.buffer, np.uint8 if element == BOOL else dtype.newbyteorder("<"), count, start)
    if element == BOOL and count and raw.max() > 1:
        raise cursor.error(field, int(raw.max()), "a bool is stored as 0 or 1")
    values = raw.astype(dtype)  # a copy: metadata must not keep the map alive
    values.flags.writeable = False
    return values


def _strings(cursor: Cursor, field: str, count: int) -> list[str]:
    """`count` strings. A plain walk over the lengths is the only loop: a vocabulary of 150k takes tens of milliseconds."""
    cursor.strings += count
    if cursor.strings > _STRINGS:
        raise cursor.error(f"the length of {field}", count, f"all arrays together may hold {_STRINGS} strings")
    position, unpack = cursor.position, _U64.unpack_from
    bounds = array("q", [position])  # string number n lies between bounds n and n + 1
    note = bounds.append
    try:
        for _ in range(count):
            position += 8 + unpack(cursor.buffer, position)[0]
            note(position)
    except (struct.error, OverflowError, IndexError):  # past the end, or further than an index reaches
        pass
    if len(bounds) <= count or position > cursor.limit:
        bad = next((n for n, end in enumerate(bounds) if end > cursor.limit), len(bounds)) - 1
        cursor.position = bounds[bad]
        cursor.text(f"item {bad} of {field}")  # raises: this read is checked
    cursor.position = position
    strings: list[str] = []
    for first in range(0, count, _BATCH):
        batch = bounds[first : first + _BATCH + 1]
        strings += _split(cursor.buffer, batch) or [
            cursor.decode(cursor.buffer[begin + 8 : end], f"item {first + n} of {field}") for n, (begin, end) in enumerate(itertools.pairwise(batch))
        ]
    return strings


def _split(buffer: mmap.mmap, bounds: "array[int]") -> list[str] | None:
    """The strings between `bounds`, decoded all at once; None when they need to be taken one by one.

    Each 8-byte length becomes one NUL byte, so that one decode and one split make every string. That fails when a
    string holds a NUL itself or is not UTF-8, and does not pay when there are few.
    """
    count = len(bounds) - 1
    if count < _FEW:
        return None
    starts = np.frombuffer(bounds, np.int64, count) - bounds[0]
    raw = np.frombuffer(buffer, np.uint8, bounds[-1] - bounds[0], bounds[0])
    keep = np.ones(len(raw), np.bool_)
    for byte in range(1, 8):
        keep[starts + byte] = False
    packed = raw[keep]
    packed[starts - 7 * np.arange(count)] = 0
    try:
        strings = str(packed[1:].data, "utf-8").split("\0")
    except UnicodeDecodeError:
        return None
    return strings if len(strings) == count else None
