"""LDS instructions, and those that only move data between lanes by way of it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.atomics import OPERATIONS, atomic
from lanewise.emulator.fault import FaultError, limit
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import Operand, operand, words
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.step import Step, registers
from lanewise.emulator.widths import Access, access, narrowed, put
from lanewise.isa.assembly import Instruction

__all__ = ["lds", "swizzle_map", "touches_lds"]

_HALF = 32  # lanes that ds_swizzle moves among
_TWO = re.compile(r"(load|store)_(?:2addr_(stride64_)?(b32|b64))$")

_TURNED = re.compile(r"load_b64_tr_b(8|16)$")
_ROW = 16


def lds(one: Instruction, row: Arch) -> Step:
    """One of ds_*."""
    name = one.mnemonic.removeprefix("ds_")
    name = re.sub(r"^(read|write)", lambda found: {"read": "load", "write": "store"}[found[1]], name)
    name = re.sub(r"^(load|store)2(st64)?_", lambda found: f"{found[1]}_2addr_{'stride64_' if found[2] else ''}", name)
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    if any(part.kind != "v" for part in found):
        raise limit(one, f"form of {one.mnemonic}")
    counter = ("ds",) if row.split_waits else ("lgkm",)
    if name in ("bpermute_b32", "permute_b32", "swizzle_b32"):
        run = _swizzle(one, found, given) if name == "swizzle_b32" else _permute(one, name, found, given)
        result = registers(found[:1])
    elif turned := _TURNED.match(name):
        run, result = _turned(one, found, given, int(turned[1])), registers(found[:1])
    elif two := _TWO.match(name):
        run, result = _two(found, given, two[1] == "load", 8 if two[3] == "b64" else 4, 64 if two[2] else 1)
    else:
        verb, _, kind = name.partition("_")
        wanted = access(kind)
        if verb in ("load", "store") and wanted is not None:
            run = _load(one, found, wanted, given) if verb == "load" else _store(one, found, wanted, given)
            result = registers(found[:1]) if verb == "load" else frozenset()
        else:
            run, result = _atomic(one, name, found, given)
    given.done()
    return Step(one, run, registers(found), counter, result)


def touches_lds(one: Instruction) -> bool:
    """Whether it reads or writes there, or may; some only use its way to move data between lanes."""
    return one.mnemonic.startswith(("ds_", "flat_")) and not one.mnemonic.startswith(("ds_bpermute", "ds_permute", "ds_swizzle"))


def _address(register: int, offset: int) -> Callable[[Waves], Array]:
    return lambda w: np.add(w.v[register], offset, dtype=np.int64)


def _load(one: Instruction, found: list[Operand], wanted: Access, given: Modifiers) -> Callable[[Waves], None]:
    target, lanes = found
    at = _address(lanes.first, given.number("offset"))

    def step(w: Waves) -> None:
        if w.full or w.exec.any():
            offset = at(w)
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, None, offset, wanted.width, None if w.full else w.exec, False)
            put(w, target.first, wanted, w.world.shared.load(w, offset, wanted.width))

    return step


def _turned(one: Instruction, found: list[Operand], given: Modifiers, size: int) -> Callable[[Waves], None]:
    """Eight bytes a lane, transposed among sixteen: element j of lane i is element i % p of lane j * 16 / p + i / p, of p elements in a lane."""
    target, lanes = found
    at = _address(lanes.first, given.number("offset"))
    each = 64 // size
    lane, element = np.arange(_ROW)[:, None], np.arange(each)[None, :]
    source = (element * (_ROW // each) + lane // each) * each + lane % each
    dtype = np.uint16 if size == 16 else np.uint8

    def step(w: Waves) -> None:
        if not w.full and w.exec.any():
            raise FaultError("transposes what lanes load, some of which are not active")
        if w.full:
            words = w.world.shared.load(w, at(w), 8)
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, None, at(w), 8, None, False)
            every = np.ascontiguousarray(np.stack(words, axis=-1)).view(dtype).reshape(-1, _ROW * each)
            moved = np.ascontiguousarray(every[:, source]).view(np.uint32).reshape(*w.exec.shape, 2)
            for number in range(2):
                w.put(target.first + number, moved[..., number], False)

    return step


def _store(one: Instruction, found: list[Operand], wanted: Access, given: Modifiers) -> Callable[[Waves], None]:
    lanes, value = found
    at = _address(lanes.first, given.number("offset"))

    def step(w: Waves) -> None:
        if w.full or w.exec.any():
            offset = at(w)
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, None, offset, wanted.width, None if w.full else w.exec, True)
            w.world.shared.store(w, offset, wanted.width, narrowed(w, value.first, wanted))

    return step


def _two(found: list[Operand], given: Modifiers, loads: bool, width: int, stride: int) -> tuple[Callable[[Waves], None], frozenset[int]]:
    """Two accesses whose offsets count in elements."""
    offsets = [given.number(name) * width * stride for name in ("offset0", "offset1")]
    size = width // 4
    if loads:
        target, lanes = found

        def load(w: Waves) -> None:
            if w.full or w.exec.any():
                base = w.v[lanes.first].astype(np.int64)
                every = [word for offset in offsets for word in w.world.shared.load(w, base + offset, width)]
                for number, word in enumerate(every):
                    w.put(target.first + number, word, False)

        return load, registers([target])
    lanes, *values = found

    def store(w: Waves) -> None:
        if w.full or w.exec.any():
            base = w.v[lanes.first].astype(np.int64)
            for offset, value in zip(offsets, values, strict=True):
                w.world.shared.store(w, base + offset, width, [w.v[value.first + number] for number in range(size)])

    return store, frozenset()


def _atomic(one: Instruction, name: str, found: list[Operand], given: Modifiers) -> tuple[Callable[[Waves], None], frozenset[int]]:
    returns = "rtn_" in name
    kind = name.replace("rtn_", "").replace("storexchg", "swap").replace("wrxchg", "swap")
    compares = kind.startswith(("cmpst", "cmpstore"))
    entry: Any = (np.uint32, None) if compares and kind.endswith("b32") else OPERATIONS.get(kind)
    results, rest = found[:returns], found[returns:]
    if entry is None or len(rest) != 2 + compares or np.dtype(entry[0]).itemsize != 4:
        raise limit(one, f"instruction {one.mnemonic}")
    dtype, run = entry
    lanes, *values = rest
    if compares and kind.startswith("cmpst_"):  # the old form has what is compared in front of the new value
        values.reverse()
    at = _address(lanes.first, given.number("offset"))

    def step(w: Waves) -> None:
        if not w.exec.any():
            return
        index = w.world.shared.all(w, at(w), 4)
        data = [np.broadcast_to(words(one, value)[0](w), w.exec.shape).view(dtype) for value in values]
        old = atomic(w.world.shared.bytes, index, dtype, run or (lambda before, new: new), data[0], data[1] if compares else None, w.exec)
        if results:
            w.put(results[0].first, old.view(np.uint32), False)

    return step, registers(results)


def _permute(one: Instruction, name: str, found: list[Operand], given: Modifiers) -> Callable[[Waves], None]:
    """Lanes by their address in words: bpermute reads from there, permute sends there. What is not active gives 0."""
    target, lanes, value = found
    offset, pulls = given.number("offset"), name == "bpermute_b32"

    def step(w: Waves) -> None:
        other = ((w.v[lanes.first] + np.uint32(offset)) >> np.uint32(2)).astype(np.int64) % w.lanes
        data = w.v[value.first]
        if pulls:
            moved = np.take_along_axis(data, other, axis=1)
            if not w.full:
                moved = np.where(np.take_along_axis(w.exec, other, axis=1), moved, np.uint32(0))
        else:
            moved = np.zeros_like(data)
            wave, lane = np.nonzero(w.exec)
            moved[wave, other[wave, lane]] = data[wave, lane]
        w.put(target.first, moved, True)

    return step


def _swizzle(one: Instruction, found: list[Operand], given: Modifiers) -> Callable[[Waves], None]:
    target, value = found
    text = given.word("offset", "0")
    source = swizzle_map(one, text)

    def step(w: Waves) -> None:
        index = (np.arange(w.lanes) // _HALF * _HALF) + source[np.arange(w.lanes) % _HALF]
        moved = w.v[value.first].take(index, axis=1)
        if not w.full:
            moved = np.where(w.exec[:, index], moved, np.uint32(0))
        w.put(target.first, moved, True)

    return step


def swizzle_map(one: Instruction, text: str) -> Array:
    """The lane that each of 32 reads. AMD's ISA guides, "DS_SWIZZLE_B32"."""
    lane = np.arange(_HALF)
    found = re.fullmatch(r"swizzle\((\w+),?(.*)\)?", text)
    if found is None:
        number = int(text, 0)
        if number & 0x8000:
            return lane // 4 * 4 + (number >> 2 * (lane % 4) & 3)
        return ((lane & (number & 31)) | (number >> 5 & 31)) ^ (number >> 10 & 31)
    mode, rest = found[1], [item.strip().strip('"') for item in found[2].rstrip(")").split(",")]
    if mode == "BITMASK_PERM":
        at = {"0": (0, 0, 0), "1": (0, 1, 0), "p": (1, 0, 0), "i": (1, 0, 1)}
        masks = [sum(at[character][which] << 4 - place for place, character in enumerate(rest[0])) for which in range(3)]
        return ((lane & masks[0]) | masks[1]) ^ masks[2]
    numbers = [int(item, 0) for item in rest]
    if mode == "QUAD_PERM":
        return lane // 4 * 4 + np.array(numbers)[lane % 4]
    if mode == "SWAP":
        return lane ^ numbers[0]
    if mode == "REVERSE":
        return lane ^ (numbers[0] - 1)
    if mode == "BROADCAST":
        return lane // numbers[0] * numbers[0] + numbers[1]
    raise limit(one, f"swizzle {text}")
