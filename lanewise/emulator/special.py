"""Vector instructions that are no function of each lane alone: they name lanes, move registers about, or feed the matrix unit."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import limit
from lanewise.emulator.matrix import matrix
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import Operand, operand, words
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.step import Step, registers
from lanewise.isa.assembly import Instruction

__all__ = ["SPECIAL", "matrix_unit", "special"]

_ROW, _HALF = 16, 32
Run = Callable[[Waves], None]

_ONE, _TWO = {0: "v"}, {0: "v", 1: "v"}
# Operands that have to be vector or scalar registers.
_ONLY = {
    "v_readlane_b32": {0: "s", 1: "v"},
    "v_readfirstlane_b32": {0: "s"},
    **dict.fromkeys([f"v_{name}_b32" for name in ("permlane16", "permlanex16", "permlane64", "permlane16_swap", "permlane32_swap", "swap")], _TWO),
    **dict.fromkeys(
        [f"v_{name}_b32" for name in ("writelane", "accvgpr_read", "accvgpr_write", "accvgpr_mov", "mbcnt_lo_u32", "mbcnt_hi_u32")], _ONE
    ),
}


def special(one: Instruction, name: str, row: Arch) -> Step:
    """One of SPECIAL."""
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    if any(found[at].kind != kind for at, kind in _ONLY.get(name, {}).items()):
        raise limit(one, f"form of {name}")
    run = SPECIAL[name](one, found, given)
    given.done()
    return Step(one, run, registers(found))


def matrix_unit(one: Instruction, name: str, row: Arch) -> Step:
    """A product of matrices. Lanes need not be active."""
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    signs = [given.bits(name, 0, 3) for name in ("neg_lo", "neg_hi")]
    multiply = matrix(name, row, (given.number("cbsz"), given.number("blgp")))
    if given.number("abid"):
        raise limit(one, "modifier abid")
    given.done()
    target, *sources = found
    reads = [words(one, source) for source in sources]
    counts = [source.count for source in sources]
    if sources[2].kind == "const":
        if sources[2].value and "_f64_" in name:
            raise limit(one, f"constant {sources[2].text} of 64 bits here")
        counts[2] = target.count
    more: dict[str, Any] = {}
    if any(any(sign) for sign in signs):
        more["negative"] = signs

    def step(w: Waves) -> None:
        shape = w.exec.shape
        given = [
            np.stack([np.broadcast_to(read[number if len(read) > 1 else 0](w), shape) for number in range(count)])
            for read, count in zip(reads, counts, strict=True)
        ]
        for number, value in enumerate(multiply(*given, **more)):
            w.put_all(target.first + number, value)

    return Step(one, step, registers(found))


def _lane(one: Instruction, source: Operand) -> Callable[[Waves], Array]:
    (word,) = words(one, source)
    return lambda w: np.broadcast_to(word(w), (len(w.exec), 1)).astype(np.int64) % w.lanes


def _readlane(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    target, value, which = found
    lane = _lane(one, which)
    return lambda w: w.put_scalar(target.first, np.take_along_axis(w.v[value.first], lane(w), axis=1))


def _readfirstlane(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    """Of the first active lane, or of lane 0 where none is."""
    target, value = found
    (word,) = words(one, value)

    def step(w: Waves) -> None:
        data = word(w)
        if data.shape[1] > 1:
            data = data[:, :1] if w.full else np.take_along_axis(data, w.exec.argmax(axis=1)[:, None], axis=1)
        w.put_scalar(target.first, data)

    return step


def _writelane(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    target, value, which = found
    (word,), lane = words(one, value), _lane(one, which)

    def step(w: Waves) -> None:
        np.put_along_axis(w.v[target.first], lane(w), np.broadcast_to(word(w), (len(w.exec), 1)), axis=1)

    return step


def _permlane16(other_row: bool) -> Callable[..., Run]:
    def made(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
        target, value, low, high = found
        fetch, zero = given.bits("op_sel", 0, 2)[:2]
        selects = [words(one, low)[0], words(one, high)[0]]

        def step(w: Waves) -> None:
            lane = np.arange(w.lanes)
            select = np.where(lane % _ROW < 8, selects[0](w), selects[1](w))
            within = select >> (4 * (lane % 8)).astype(np.uint32) & np.uint32(15)
            base = lane // _ROW * _ROW
            index = np.broadcast_to((base ^ _ROW if other_row else base) + within.astype(np.int64), w.exec.shape)
            data = np.take_along_axis(w.v[value.first], index, axis=1)
            if w.full or fetch:
                w.put(target.first, data, True)
                return
            there = np.take_along_axis(w.exec, index, axis=1)
            w.put(target.first, np.where(there, data, np.uint32(0) if zero else w.v[target.first]), True)

        return step

    return made


def _permlane64(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    target, value = found

    def step(w: Waves) -> None:
        if w.lanes > _HALF:  # of 32 lanes it does nothing (AMD's RDNA3 ISA guide)
            w.put(target.first, np.roll(w.v[value.first], _HALF, axis=1), False)

    return step


def _swap_rows(size: int) -> Callable[..., Run]:
    """Odd rows of the first register with even rows of the second."""

    def made(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
        left, right = found

        def step(w: Waves) -> None:
            lane = np.arange(w.lanes)
            odd = lane // size % 2 == 1
            a, b = w.v[left.first], w.v[right.first]
            new_a, new_b = np.where(odd, np.roll(b, size, axis=1), a), np.where(odd, b, np.roll(a, -size, axis=1))
            w.put(left.first, new_a, False)
            w.put(right.first, new_b, False)

        return step

    return made


def _swap(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    left, right = found

    def step(w: Waves) -> None:
        a, b = w.v[left.first].copy(), w.v[right.first].copy()
        w.put(left.first, b, True)
        w.put(right.first, a, True)

    return step


def _copy(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    target, source = found
    (word,) = words(one, source)
    return lambda w: w.put(target.first, word(w), False)


def _count_below(upper: bool) -> Callable[..., Run]:
    """Set bits of a mask that belong to lanes below each, of the lower or the upper 32, plus a number."""

    def made(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
        target, mask, more = found
        (word,), (added,) = words(one, mask), words(one, more)

        def step(w: Waves) -> None:
            lane = np.arange(w.lanes)
            below = np.clip(lane - 32 if upper else lane, 0, 32)
            every = np.unpackbits(np.ascontiguousarray(np.broadcast_to(word(w), w.exec.shape)).view(np.uint8), axis=1, bitorder="little")
            counted = np.cumsum(every.reshape(*w.exec.shape, 32), axis=2, dtype=np.uint32)
            total = np.concatenate((np.zeros((*w.exec.shape, 1), np.uint32), counted), axis=2)
            w.put(target.first, total[:, lane, below] + added(w), True)

        return step

    return made


def _nothing(one: Instruction, found: list[Operand], given: Modifiers) -> Run:
    return lambda w: None


SPECIAL: dict[str, Callable[[Instruction, list[Operand], Modifiers], Run]] = {
    "v_readlane_b32": _readlane,
    "v_readfirstlane_b32": _readfirstlane,
    "v_writelane_b32": _writelane,
    "v_permlane16_b32": _permlane16(other_row=False),
    "v_permlanex16_b32": _permlane16(other_row=True),
    "v_permlane64_b32": _permlane64,
    "v_permlane16_swap_b32": _swap_rows(16),
    "v_permlane32_swap_b32": _swap_rows(32),
    "v_swap_b32": _swap,
    "v_accvgpr_read_b32": _copy,
    "v_accvgpr_write_b32": _copy,
    "v_accvgpr_mov_b32": _copy,
    "v_mbcnt_lo_u32_b32": _count_below(upper=False),
    "v_mbcnt_hi_u32_b32": _count_below(upper=True),
    "v_nop": _nothing,
}
