"""As much of ELF (System V ABI) and of msgpack (its specification) as code objects of AMD are made of; no length is believed."""

import struct
from dataclasses import dataclass
from typing import Any

from lanewise.errors import AssemblyError

__all__ = ["Elf", "Section", "notes", "read", "unpacked"]

_SYMTAB, _NOBITS = 2, 8  # types of a section (System V ABI, figure 4-9)


@dataclass(frozen=True, slots=True)
class Section:
    """address: where it lies when loaded; 0 in what is not linked"""

    name: str
    kind: int
    address: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Elf:
    """symbols: name -> (section's number, value, size)"""

    sections: tuple[Section, ...]
    symbols: dict[str, tuple[int, int, int]]

    def section(self, name: str) -> Section:
        """The one of that name. Raises AssemblyError where there is none, or more than one."""
        found = [one for one in self.sections if one.name == name]
        if len(found) != 1:
            raise AssemblyError(f"code object has {len(found)} sections {name}; it has to have one")
        return found[0]

    def bytes_of(self, symbol: str) -> bytes:
        """What a symbol names. Raises AssemblyError where it is not there, or not wholly in its section."""
        if symbol not in self.symbols:
            raise AssemblyError(f"code object has no symbol {symbol}")
        number, value, size = self.symbols[symbol]
        section = self.sections[number] if number < len(self.sections) else Section("", 0, 0, b"")
        start = value - section.address
        if start < 0 or start + size > len(section.data):
            raise AssemblyError(f"code object: {symbol} is {size} bytes at {value:#x}, outside of its section")
        return section.data[start : start + size]


def read(data: bytes) -> Elf:
    """Sections and symbols of a 64-bit little-endian file. Raises AssemblyError for any other."""
    try:
        return _read(data)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise AssemblyError(f"code object of {len(data)} bytes is cut short or damaged: {error}") from None


def _read(data: bytes) -> Elf:
    if data[:6] != b"\x7fELF\x02\x01":
        raise AssemblyError(f"code object begins with {data[:6]!r}; a 64-bit little-endian ELF file is read")
    at, size, count, names = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<3H", data, 58)
    if size != 64 or at + size * count > len(data):
        raise AssemblyError(f"code object: {count} sections of {size} bytes at {at}, outside of the file")
    heads = [struct.unpack_from("<2I4Q2I2Q", data, at + i * size) for i in range(count)]
    contents = []
    for _, kind, _, _, offset, length, *_ in heads:
        if kind != _NOBITS and offset + length > len(data):
            raise AssemblyError(f"code object: a section of {length} bytes at {offset}, outside of the file")
        contents.append(b"" if kind == _NOBITS else data[offset : offset + length])
    sections = tuple(Section(_name(contents[names], head[0]), head[1], head[3], content) for head, content in zip(heads, contents, strict=True))
    symbols = {}
    for head, section in zip(heads, sections, strict=True):
        if section.kind == _SYMTAB:
            for name, _, _, number, value, length in struct.iter_unpack("<I2BH2Q", section.data):
                symbols[_name(contents[head[6]], name)] = (number, value, length)
    return Elf(sections, symbols)


def _name(table: bytes, at: int) -> str:
    return table[at : table.index(0, at) if 0 in table[at:] else len(table)].decode()


def notes(section: Section) -> dict[tuple[str, int], bytes]:
    """(owner, type) -> description of a section of notes."""
    found, at, data = {}, 0, section.data
    while at + 12 <= len(data):
        name, size, kind = struct.unpack_from("<3I", data, at)
        start = at + 12 + (name + 3) // 4 * 4
        if start + size > len(data):
            raise AssemblyError(f"code object: a note of {size} bytes at {start}, outside of its section")
        found[data[at + 12 : at + 12 + name].rstrip(b"\0").decode(), kind] = data[start : start + size]
        at = start + (size + 3) // 4 * 4
    return found


def unpacked(data: bytes) -> Any:
    """What a msgpack value says. Raises AssemblyError for what is cut short or has types that metadata do not have."""
    try:
        value, end = _value(data, 0, 0)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise AssemblyError("metadata are cut short or damaged") from None
    if end != len(data):
        raise AssemblyError(f"metadata end at byte {end} of {len(data)}")
    return value


_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
_DEEPEST = 16


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    first, at = data[at], at + 1
    if depth > _DEEPEST:
        raise AssemblyError(f"metadata are nested more than {_DEEPEST} deep")
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    if first in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[first], data, at)
        return number, at + struct.calcsize(_NUMBERS[first])
    if first in _LENGTHS:
        (length,) = struct.unpack_from(_LENGTHS[first], data, at)
        at += struct.calcsize(_LENGTHS[first])
        kind = "text" if first <= 0xDB else "list" if first <= 0xDD else "map"
    elif first < 0xC0:
        kind, length = ("map", first & 15) if first < 0x90 else ("list", first & 15) if first < 0xA0 else ("text", first & 31)
    else:
        raise AssemblyError(f"metadata have a value of type {first:#x}, which is not read")
    if length > len(data) - at:
        raise AssemblyError(f"metadata have {length} items where {len(data) - at} bytes are left")
    if kind == "text":
        return data[at : at + length].decode(), at + length
    items = []
    for _ in range(length * (2 if kind == "map" else 1)):
        item, at = _value(data, at, depth + 1)
        items.append(item)
    return (items if kind == "list" else {str(key): value for key, value in zip(items[::2], items[1::2], strict=True)}), at
