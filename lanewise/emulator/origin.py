"""Where a value in memory came from: who stored it, and in which instruction it last crossed from one lane to another.

A fault names its line by itself; a number that is merely wrong is stored by a line that is mostly right. What is wrong about lanes, such as a
reduction over 32 of 64, is wrong where lanes meet.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.emulator.memory import Buffer
from lanewise.emulator.operands import operand
from lanewise.emulator.registers import Array, Waves
from lanewise.isa.assembly import Instruction
from lanewise.isa.code_object import CodeObject

__all__ = ["Origin", "Stores", "meeting"]

_MEETS = re.compile(r"v_(readlane|readfirstlane|writelane|permlane|wmma|mfma|smfmac|swmmac)|ds_(bpermute|permute|swizzle|read|load)|\w+_dpp$")
_SILENT = ("s_cbranch", "s_wait", "s_nop", "buffer_store", "global_store", "flat_store", "ds_store", "ds_write")
_NOWHERE = -1
_MANY = 64  # waves that a workgroup has at most


@dataclass(frozen=True, slots=True)
class Origin:
    """one: the instruction that stored a byte, from `lane` of `wave` of workgroup `group` (x counting first)
    met: the last in front of it that brought its value from another lane, None where it came from none
    """

    one: Instruction
    group: int
    wave: int
    lane: int
    met: Instruction | None

    def __str__(self) -> str:
        text = f"stored at {_line(self.one)} by workgroup {self.group}, wave {self.wave}, lane {self.lane}"
        return text if self.met is None else f"{text}; its value came from other lanes at {_line(self.met)}, `{self.met.text}`"


def _line(one: Instruction) -> str:
    return f"{one.source[0]}:{one.source[1]}" if one.source else f"pc {one.pc:#x}"


class Stores:
    """Given to `launch(stores=...)`: of every byte of every buffer who wrote it last, by the buffer's name, in the last launch that wrote to it."""

    def __init__(self) -> None:
        self.code: CodeObject | None = None  # of the launch that runs
        self._codes: dict[str, CodeObject | None] = {}
        self._written: dict[str, tuple[Array, Array, Array]] = {}

    def note(self, one: Instruction, buffer: Buffer, index: Array, width: int, mask: Array | None, w: Waves) -> None:
        size = buffer.data.size
        if self._codes.get(buffer.name) is not self.code:  # of another launch before
            self._written.pop(buffer.name, None)
        self._codes[buffer.name] = self.code
        which, where, lane = self._written.setdefault(buffer.name, tuple(np.full(size, _NOWHERE, np.int32) for _ in range(3)))  # type: ignore[arg-type]
        shape = index.shape
        lanes = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        at = index[lanes]
        wave = np.broadcast_to((w.world.numbers[w.group] * _MANY + w.wave)[:, None], shape)[lanes]
        of = np.broadcast_to(np.arange(shape[1]), shape)[lanes]
        for number in range(width):
            which[at + number], where[at + number], lane[at + number] = one.index, wave, of

    def of(self, buffer: str, offset: int) -> Origin | None:
        """Who wrote a byte of a buffer; None where nobody has."""
        found, code = self._written.get(buffer), self._codes.get(buffer)
        if found is None or code is None or not 0 <= offset < len(found[0]) or found[0][offset] == _NOWHERE:
            return None
        one = code.instructions[int(found[0][offset])]
        group, wave = divmod(int(found[1][offset]), _MANY)
        return Origin(one, group, wave, int(found[2][offset]), meeting(code, one))


def meeting(code: CodeObject, store: Instruction) -> Instruction | None:
    """The last instruction in front of a store, in the order of the text, through which the stored value came from other lanes.

    Registers are followed backwards; a loop's earlier turns are not.
    """
    wanted: set[Any] = set(_data(store).registers())
    for one in reversed(code.instructions[: store.index]):
        for half in (one, one.pair) if one.pair else (one,):
            if not half.operands or half.mnemonic.startswith(_SILENT):
                continue
            target, *sources = [operand(text) for text in half.operands]
            made = set(target.registers())
            if not made & wanted:
                continue
            if _MEETS.match(half.mnemonic):
                return half
            keeps = "fmac" in half.mnemonic or "dot4c" in half.mnemonic or "_dpp" in half.mnemonic
            wanted = (wanted if keeps else wanted - made) | {register for source in sources for register in source.registers()}
    return None


def _data(store: Instruction) -> Any:
    return operand(store.operands[0 if store.mnemonic.startswith("buffer") else 1])
