"""Read one GGUF file: header, key/values, tensor table. Nothing in it is trusted before it is checked.

Layout (the GGUF specification in ggml's docs/gguf.md, versions 2 and 3, little endian):

    "GGUF"  u32 version  u64 tensors  u64 keys
    keys     x  { string key, u32 type, value }
    tensors  x  { string name, u32 dims, u64 ne[dims] (innermost first), u32 type, u64 offset }
    padding to general.alignment (32 when absent), then tensor data; offsets count from there
"""

import itertools
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from lanewise.errors import FormatError
from lanewise.files.gguf_values import UINT32, Cursor, Entry, read_entry, type_name
from lanewise.files.mapped import Plain, looks_like, map_file, shown
from lanewise.files.model_file import Tensor
from lanewise.formats import Format, by_ggml_type

__all__ = ["ACCEPTED", "ALIGNMENT", "Part", "read_part"]

ACCEPTED: Final = "a .gguf file or a Hugging Face directory is expected"
ALIGNMENT: Final = "general.alignment"
# Far more keys and tensors than any known model has; bytes of a key and of a tensor's name.
_KEYS, _TENSORS, _KEY, _NAME = 1 << 13, 1 << 16, 65_535, 255
_DIMS = 4
_ALIGNMENTS = (8, 1 << 20)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one GGUF file holds. `alignment` is in bytes."""

    path: Path
    version: int
    alignment: int
    entries: dict[str, Entry]
    tensors: dict[str, Tensor]


def read_part(path: Path) -> Part:
    """Map and check one .gguf file. Raises ModelFileError: file, field, value, what is allowed."""
    cursor = Cursor(path, map_file(path, ACCEPTED))
    version = _version(cursor)
    tensors = cursor.count("tensor count", smallest=24, most=_TENSORS)
    keys = cursor.count("key count", smallest=13, most=_KEYS)
    entries: dict[str, Entry] = {}
    for index in range(keys):
        key = cursor.text(f"key {index + 1} of {keys}", _KEY)
        if not key or key in entries:
            raise cursor.error(f"key {index + 1} of {keys}", key, "a key is not empty and appears once")
        entries[key] = read_entry(cursor, f"key {shown(key)}")
    alignment = _alignment(cursor, entries.get(ALIGNMENT))
    return Part(path, version, alignment, entries, _tensors(cursor, tensors, alignment))


def _version(cursor: Cursor) -> int:
    if cursor.buffer[:4] != b"GGUF":
        head = cursor.buffer[:64]
        raise cursor.error("magic", head[:4], f"a GGUF file begins with b'GGUF', and this looks like {looks_like(head)}; {ACCEPTED}")
    cursor.position = 4
    version = cursor.u32("version")
    if version in (2, 3):
        return version
    if version and not version & 0xFFFF:
        raise cursor.error("byte order", Plain("big endian"), "only little endian is read; convert it with gguf_convert_endian of the gguf package")
    raise cursor.error("version", version, "GGUF versions 2 and 3 are read; convert the model again with a current tool")


def _alignment(cursor: Cursor, entry: Entry | None) -> int:
    if entry is None:
        return 32
    least, most = _ALIGNMENTS
    allowed = f"a uint32 that is a power of two from {least} to {most} is expected"
    if entry.type != UINT32:
        raise cursor.error(f"the type of key {ALIGNMENT}", Plain(type_name(entry.type)), allowed)
    if not least <= entry.value <= most or entry.value & (entry.value - 1):
        raise cursor.error(f"key {ALIGNMENT}", entry.value, allowed)
    return int(entry.value)


def _tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, Tensor]:
    """The tensor table, then each tensor against the data that is really there."""
    infos: dict[str, tuple[Format, tuple[int, ...], int, int]] = {}
    for index in range(count):
        field = f"tensor {index + 1} of {count}"
        name = cursor.text(f"the name of {field}", _NAME)
        if not name or name in infos:
            raise cursor.error(f"the name of {field}", name, "a tensor's name is not empty and appears once")
        infos[name] = _info(cursor, f"tensor {shown(name)}", alignment)
    begin = -(-cursor.position // alignment) * alignment
    for name, (_, _, offset, nbytes) in infos.items():
        if begin + offset + nbytes > cursor.size:
            where = Plain(f"{nbytes} bytes at byte {begin + offset}")
            raise cursor.error(f"tensor {shown(name)}", where, f"the file ends at byte {cursor.size}: it is cut short, or the table is wrong")
    _refuse_overlap(cursor, infos)
    tensors: dict[str, Tensor] = {}
    for name, (fmt, shape, offset, nbytes) in infos.items():
        raw = np.frombuffer(cursor.buffer, np.uint8, nbytes, begin + offset)
        tensors[name] = Tensor(name, fmt, shape, raw.reshape(*shape[:-1], -1))
    return tensors


def _info(cursor: Cursor, field: str, alignment: int) -> tuple[Format, tuple[int, ...], int, int]:
    """One row of the table: format, shape (outermost first), offset and bytes, in Python's unbounded integers."""
    dims = cursor.u32(f"the dimension count of {field}")
    if dims > _DIMS:
        raise cursor.error(f"the dimension count of {field}", dims, f"at most {_DIMS} are allowed")
    sizes = tuple(cursor.u64(f"the dimensions of {field}") for _ in range(dims))
    if 0 in sizes or prod(sizes) >= 2**63:
        raise cursor.error(f"the dimensions of {field}", sizes, "each is at least 1 and their product is below 2^63")
    number = cursor.u32(f"the type of {field}")
    try:
        fmt = by_ggml_type(number)
    except FormatError as error:
        raise cursor.error(f"the type of {field}", number, str(error)) from None
    k = sizes[0] if sizes else 1
    if k % fmt.block:
        raise cursor.error(f"the first dimension of {field}", k, f"{fmt.name} takes multiples of {fmt.block}")
    nbytes = prod(sizes[1:]) * fmt.row_bytes(k)
    if nbytes >= 2**63:
        raise cursor.error(f"the size of {field}", nbytes, "fewer than 2^63 bytes are allowed")
    offset = cursor.u64(f"the offset of {field}")
    if offset % alignment:
        raise cursor.error(f"the offset of {field}", offset, f"a multiple of the alignment, {alignment}, is expected")
    return fmt, sizes[::-1], offset, nbytes


def _refuse_overlap(cursor: Cursor, infos: dict[str, tuple[Format, tuple[int, ...], int, int]]) -> None:
    rows = sorted((offset, offset + nbytes, name) for name, (_, _, offset, nbytes) in infos.items())
    for (_, end, before), (start, _, name) in itertools.pairwise(rows):
        if start < end:
            raise cursor.error(f"the offset of tensor {shown(name)}", start, f"tensor {shown(before)} reaches to {end}; tensors must not overlap")
