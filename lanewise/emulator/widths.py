"""Names of memory instructions, old and new, as what they move."""

import re
from dataclasses import dataclass

import numpy as np

from lanewise.emulator.registers import Array, Waves

__all__ = ["Access", "access", "narrowed", "put"]

_OLD = {"dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128", "dwordx8": "b256", "dwordx16": "b512", "ubyte": "u8", "sbyte": "i8",
        "ushort": "u16", "sshort": "i16", "byte": "b8", "short": "b16", "ubyte_d16": "d16_u8", "sbyte_d16": "d16_i8", "short_d16": "d16_b16",
        "ubyte_d16_hi": "d16_hi_u8", "sbyte_d16_hi": "d16_hi_i8", "short_d16_hi": "d16_hi_b16", "byte_d16_hi": "d16_hi_b8",
        "u8_d16": "d16_u8", "i8_d16": "d16_i8", "u16_d16": "d16_b16", "u8_d16_hi": "d16_hi_u8", "i8_d16_hi": "d16_hi_i8",
        "u16_d16_hi": "d16_hi_b16", "b8_d16_hi": "d16_hi_b8", "b16_d16_hi": "d16_hi_b16"}  # fmt: skip
_KIND = re.compile(r"(d16_|d16_hi_)?([bui])(8|16|32|64|96|128|256|512)$")


@dataclass(frozen=True, slots=True)
class Access:
    """width: bytes; signed: widened with its sign; half: 0 or 1 where only half of a register is meant, else None"""

    width: int
    signed: bool
    half: int | None

    @property
    def registers(self) -> int:
        return max(1, self.width // 4)


def access(kind: str) -> Access | None:
    """What follows `load_` or `store_`; None for what is not known.

    >>> access("dwordx4"), access("d16_hi_u8")
    (Access(width=16, signed=False, half=None), Access(width=1, signed=False, half=1))
    """
    found = _KIND.match(_OLD.get(kind, kind))
    if not found:
        return None
    half = {None: None, "d16_": 0, "d16_hi_": 1}[found[1]]
    return Access(int(found[3]) // 8, found[2] == "i", half)


def put(w: Waves, register: int, kind: Access, words: list[Array]) -> None:
    """Loaded words into registers of active lanes, widened as the instruction says."""
    if kind.half is not None:
        value = words[0]
        if kind.signed and kind.width == 1:
            value = value.astype(np.int8).astype(np.int16).view(np.uint16)
        half = w.v[register].view(np.uint16)[:, kind.half :: 2]
        np.copyto(half, value.astype(np.uint16), where=w.exec)
        return
    if kind.signed:
        small = np.int8 if kind.width == 1 else np.int16
        w.put(register, words[0].astype(small).astype(np.int32).view(np.uint32), True)
        return
    for number, word in enumerate(words):
        w.put(register + number, word, word.base is None)


def narrowed(w: Waves, register: int, kind: Access) -> list[Array]:
    """The words to be stored."""
    if kind.half == 1:
        return [w.v[register] >> np.uint32(16)]
    return [w.v[register + number] for number in range(kind.registers)]
