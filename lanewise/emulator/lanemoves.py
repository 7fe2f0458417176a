"""Sources that come from other lanes (DPP) or from a part of a register (SDWA)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.emulator.fault import limit
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import Read, Via
from lanewise.emulator.registers import Array, Waves
from lanewise.isa.assembly import Instruction

__all__ = ["dpp", "dpp_map", "part", "sub_dword"]

ROW = 16
_SHIFTS = ("row_shl", "row_shr", "row_ror", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_bcast", "row_share", "row_newbcast", "row_xmask",
           "quad_perm", "row_mirror", "row_half_mirror", "dpp8")  # fmt: skip


def dpp_map(name: str, value: Any, lanes: int) -> tuple[Array, Array]:
    """(the lane that each lane reads, whether there is one), [lanes] each. AMD's ISA guides, "DPP".

    >>> index, there = dpp_map("row_shr", 4, 32)
    >>> index[18:22].tolist(), there[18:22].tolist()
    ([14, 15, 16, 17], [False, False, True, True])
    """
    lane = np.arange(lanes)
    row, at = lane // ROW * ROW, lane % ROW
    if name == "quad_perm":
        return lane // 4 * 4 + np.array(value)[lane % 4], np.ones(lanes, bool)
    if name == "dpp8":
        return lane // 8 * 8 + np.array(value)[lane % 8], np.ones(lanes, bool)
    if name in ("row_shl", "row_shr"):
        other = at + (value if name == "row_shl" else -value)
        return row + other, (other >= 0) & (other < ROW)
    if name in ("wave_shl", "wave_shr"):
        other = lane + (1 if name == "wave_shl" else -1)
        return other, (other >= 0) & (other < lanes)
    if name == "row_bcast":  # the last lane of the row in front; of the first half of the wave
        other = row - 1 if value == ROW - 1 else np.full(lanes, 31)
        return other, (lane >= ROW) if value == ROW - 1 else (lane >= 32)
    whole: dict[str, Callable[[], Array]] = {
        "row_ror": lambda: row + (at - value) % ROW,
        "wave_rol": lambda: (lane + 1) % lanes,
        "wave_ror": lambda: (lane - 1) % lanes,
        "row_mirror": lambda: row + ROW - 1 - at,
        "row_half_mirror": lambda: lane // 8 * 8 + 7 - lane % 8,
        "row_share": lambda: row + value,
        "row_newbcast": lambda: row + value,
        "row_xmask": lambda: row + (at ^ value),
    }
    return whole[name](), np.ones(lanes, bool)


def dpp(one: Instruction, given: Modifiers, lanes: int) -> tuple[Via, Callable[[Waves], Array] | None]:
    """How the first source is read, and which lanes the result is written to beside what EXEC says (None: all)."""
    found = [name for name in _SHIFTS if name in given]
    if len(found) != 1:
        raise limit(one, "DPP control")
    name = found[0]
    value: Any = given.bits(name, 0, 0) if name in ("quad_perm", "dpp8") else given.number(name) if "mirror" not in name else given.flag(name)
    if "mirror" in name:
        value = 0
    index, there = dpp_map(name, value, lanes)
    index = np.where(there, index, 0)
    zero, fetch = given.flag("bound_ctrl"), given.number("fi") == 1
    rows, banks = given.number("row_mask", 15), given.number("bank_mask", 15)
    lane = np.arange(lanes)
    written = (rows >> lane // ROW & 1 == 1) & (banks >> lane % ROW // 4 & 1 == 1)
    if lanes == 32 and rows in (0x5, 0xA) and name == "row_bcast":
        raise limit(one, "DPP control of 64 lanes in 32")
    everywhere = bool(there.all())

    def valid(w: Waves) -> Array:
        """bool [lanes] or [waves, lanes]"""
        return there if w.full or fetch or (name == "dpp8" and fetch) else there & w.exec[:, index]

    def via(word: Read) -> Read:
        def moved(w: Waves) -> Array:
            value = word(w)
            value = np.broadcast_to(value, w.exec.shape)[:, index] if value.shape[1] == 1 else value.take(index, axis=1)
            return value if everywhere and (w.full or fetch) else np.where(valid(w), value, np.uint32(0))

        return moved

    if bool(written.all()) and (zero or (everywhere and fetch)):
        return via, None
    return via, (lambda w: written) if zero else (lambda w: written & valid(w))


def part(name: str, extended: bool) -> Callable[[Array], Array]:
    """A selected byte or half of uint32 as uint32, with zeros or its sign above it."""
    if name == "DWORD":
        return lambda value: value
    size, number = name.split("_")
    dtype: Any = {"BYTE": np.int8 if extended else np.uint8, "WORD": np.int16 if extended else np.uint16}[size]
    step = 4 // np.dtype(dtype).itemsize
    wide: Any = np.int32 if extended else np.uint32

    def taken(value: Array) -> Array:
        return np.ascontiguousarray(value).view(dtype)[:, int(number) :: step].astype(wide).view(np.uint32)

    return taken


def sub_dword(one: Instruction, name: str, extended: bool) -> Via:
    """How a source of an SDWA instruction is read. Raises for a selector that does not exist."""
    if name not in ("DWORD", "WORD_0", "WORD_1", *(f"BYTE_{number}" for number in range(4))):
        raise limit(one, f"SDWA selector {name}")
    select = part(name, extended)
    return lambda word: lambda w: select(word(w))
