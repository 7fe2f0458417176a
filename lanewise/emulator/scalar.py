"""Scalar instructions that are more than a function of their operands: they use EXEC, the program counter or the mode, or carry a constant."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import limit
from lanewise.emulator.operands import Operand, operand, words
from lanewise.emulator.registers import MODE, SCALAR, Array, Waves, bits
from lanewise.emulator.step import Step, registers
from lanewise.isa.assembly import Instruction

__all__ = ["changes_mode", "constant_form", "scalar"]

# (new EXEC) of (source, EXEC): SCC says whether any lane is left, the destination is the old EXEC, or with `wrexec` the new one.
_SAVE: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andn1": lambda a, b: ~a & b,
    "andn2": lambda a, b: a & ~b,
    "orn1": lambda a, b: ~a | b,
    "orn2": lambda a, b: a | ~b,
    "and_not0": lambda a, b: ~a & b,
    "and_not1": lambda a, b: a & ~b,
    "or_not0": lambda a, b: ~a | b,
    "or_not1": lambda a, b: a | ~b,
}

# "FP16_OVFL", the one bit of the mode that is not fixed: Triton sets it around conversions to 8 bits.
_MODE = re.compile(r"s_setreg_imm32_b32 hwreg\(HW_REG_(?:WAVE_)?MODE, 23, 1\), ([01])$")


def changes_mode(one: Instruction) -> bool:
    return bool(_MODE.match(one.text))


def _bound(one: Instruction, value: int) -> Step:
    def step(w: Waves) -> None:
        w.s[MODE][...] = value

    return Step(one, step, frozenset([SCALAR + MODE]))


def constant_form(one: Instruction) -> tuple[str, tuple[str, ...]]:
    """Name and operands of an instruction with a constant of 16 bits (SOPK) as those of the one that it abbreviates.

    >>> from lanewise.isa.assembly import parse
    >>> code = parse("f:\\n s_addk_i32 s1, 0xff00\\n s_movk_i32 s2, 5\\n.amdhsa_kernel f\\n").instructions
    >>> [constant_form(one) for one in code]
    [('s_add_i32', ('s1', 's1', '-256')), ('s_mov_b32', ('s2', '5'))]
    """
    name, operands = one.mnemonic, one.operands
    if not (name.startswith(("s_movk_", "s_addk_", "s_mulk_", "s_cmpk_", "s_cmovk_"))) or operand(operands[-1]).kind != "const":
        return name, operands
    raw = int(operand(operands[-1]).value) & 0xFFFF
    value = raw if name.endswith("_u32") and name.startswith("s_cmpk_") else raw - 0x10000 if raw >= 0x8000 else raw
    full = {
        "s_movk_i32": "s_mov_b32",
        "s_addk_i32": "s_add_i32",
        "s_addk_co_i32": "s_add_co_i32",
        "s_mulk_i32": "s_mul_i32",
        "s_cmovk_i32": "s_cmov_b32",
    }
    twice = name.startswith(("s_addk_", "s_mulk_"))
    plain = full.get(name, re.sub("^s_(add|mul|cmp)k_", r"s_\1_", name))
    return plain, (operands[0], *((operands[0],) if twice else ()), str(value))


def scalar(one: Instruction, row: Arch) -> Step | None:
    """The instruction, if it is one of these."""
    name = one.mnemonic
    found = [operand(text) for text in one.operands]
    for ending, new in (("_saveexec_b", False), ("_wrexec_b", True)):
        head, _, size = name.partition(ending)
        if size and head.removeprefix("s_") in _SAVE:
            return _save(one, _SAVE[head.removeprefix("s_")], found, int(size), new, row)
    if found_mode := _MODE.match(one.text):
        return _bound(one, int(found_mode[1], 0))
    if name in ("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32"):
        raise limit(one, "hardware register")
    if name in ("s_denorm_mode", "s_round_mode"):
        raise limit(one, "change of the float mode")
    return None


def _save(one: Instruction, combine: Any, found: list[Operand], size: int, new: bool, row: Arch) -> Step:
    target, source = found
    if size != row.wave or target.kind != "s" or target.count != size // 32:
        raise limit(one, f"EXEC of {size} lanes")
    reads = words(one, source)
    if source.kind == "const" and size == 64:  # an inline constant is as wide as its operand, with its sign
        high = np.full((1, 1), 0xFFFFFFFF if int(source.value) < 0 else 0, np.uint32)
        reads = [*reads, lambda w: high]

    def step(w: Waves) -> None:
        before = bits(w.exec)
        given = [np.broadcast_to(read(w), (len(before), 1)) for read in reads]
        after = [combine(word, before[:, number : number + 1]) for number, word in enumerate(given)]
        w.put_exec(after)
        w.scc[:, 0] = w.exec.any(axis=1)
        for number in range(size // 32):
            w.put_scalar(target.first + number, after[number] if new else before[:, number : number + 1])

    return Step(one, step, registers(found))
