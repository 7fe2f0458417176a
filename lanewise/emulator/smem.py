"""Scalar loads."""

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import FaultError, limit
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import operand, words
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.step import Step, registers
from lanewise.emulator.widths import Access, access
from lanewise.isa.assembly import Instruction

__all__ = ["scalar_load"]


def scalar_load(one: Instruction, row: Arch) -> Step:
    """s_load and s_buffer_load: from a 64-bit address or a descriptor, plus a scalar register, plus a number."""
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    buffered = one.mnemonic.startswith("s_buffer_load_")
    wanted = access(one.mnemonic.removeprefix("s_buffer_load_").removeprefix("s_load_"))
    given.ignore("glc", "dlc", "scope", "th")
    fixed = given.number("offset")
    given.done()
    if wanted is None or len(found) != 3 or found[1].kind != "s" or found[1].count != (4 if buffered else 2):
        raise limit(one, "form of scalar load")
    target, base, offset = found
    if target.kind != "s" or target.count != wanted.registers:
        raise limit(one, f"result in {target.text}")
    if offset.kind == "const":
        fixed += int(offset.value)
    extra = words(one, offset)[0] if offset.kind == "s" else None
    width = wanted.width

    def step(w: Waves) -> None:
        high = w.s[base.first + 1] & np.uint32(0xFFFF) if buffered else w.s[base.first + 1]
        start = high.astype(np.uint64) << np.uint64(32) | w.s[base.first]
        if extra is not None:
            start = start + extra(w)
        if buffered:
            count = w.s[base.first + 2]
            if bool((np.int64(fixed + width) + (0 if extra is None else extra(w).astype(np.int64)) > count).any()):
                raise FaultError("a scalar load past the descriptor's number of bytes")
        start = start + np.uint64(fixed & (2**64 - 1))
        same = len(start) == 1 or bool((start == start[0, 0]).all())
        for buffer, index, mask in w.world.memory.split(start[:1] if same else start, None):
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, buffer, index, width, mask, False)
            for number, word in enumerate(buffer.load(index, width, mask)):
                _some(w, target.first + number, word if wanted.width >= 4 else _widened(word, wanted), mask)

    counter = ("km",) if row.split_waits else ("lgkm",)
    return Step(one, step, registers(found), counter, registers([target]), ordered=False)


def _widened(word: Array, wanted: Access) -> Array:
    if not wanted.signed:
        return word
    return word.astype(np.int8 if wanted.width == 1 else np.int16).astype(np.int32).view(np.uint32)


def _some(w: Waves, register: int, word: Array, mask: Array | None) -> None:
    w.put_scalar(register, word if mask is None else np.where(mask, word, w.s[register]))
