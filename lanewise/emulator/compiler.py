"""Every instruction of a kernel as a step, each by the one place that knows it; what none knows is refused with its text."""

from collections.abc import Callable
from dataclasses import replace

from lanewise.arch import Arch
from lanewise.emulator.alu import alu, base
from lanewise.emulator.fault import limit
from lanewise.emulator.flow import HARMLESS, Flow, Wait, flow, waits
from lanewise.emulator.lds import lds
from lanewise.emulator.matrix import matrix
from lanewise.emulator.operands import operand
from lanewise.emulator.registers import Waves
from lanewise.emulator.scalar import constant_form, scalar
from lanewise.emulator.smem import scalar_load, scratch
from lanewise.emulator.special import SPECIAL, matrix_unit, special
from lanewise.emulator.step import Step
from lanewise.emulator.table import lookup
from lanewise.emulator.vmem import CACHES, vector_memory
from lanewise.isa.assembly import Assembly, Instruction

__all__ = ["Code", "compiled"]

Code = tuple[Step | Flow | Wait, ...]


def compiled(assembly: Assembly, row: Arch) -> Code:
    """One entry for each instruction, None never: raises EmulatorLimitError for what is not known."""
    return tuple(_one(one, assembly.labels, row) for one in assembly.instructions)


def _one(one: Instruction, labels: dict[str, int], row: Arch) -> Step | Flow | Wait:
    name = one.mnemonic
    if name in HARMLESS or name in CACHES:
        return Step(one, _nothing)
    if name.startswith("s_"):
        if found := flow(one, labels, row) or waits(one, row) or scalar(one, row):
            return found
        if name.startswith(("s_load_", "s_buffer_load_")):
            return scalar_load(one, row)
        plain, operands = constant_form(one)
        return alu(replace(one, mnemonic=plain, operands=operands), lookup(plain, row), row)
    if name.startswith("ds_"):
        return lds(one, row)
    if name.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return vector_memory(one, row, scratch)
    if one.pair is not None:
        return _together(one, one.pair, row)
    plain = base(name)
    if plain in SPECIAL:
        return special(one, plain, row)
    if plain.startswith(("v_wmma_", "v_mfma_", "v_smfmac_", "v_swmmac_")):
        return matrix_unit(one, matrix(plain, row), row)
    if not name.startswith("v_"):
        raise limit(one, f"instruction {name}")
    return alu(one, lookup(plain, row), row)


def _nothing(w: Waves) -> None:
    """What only costs time."""


def _together(one: Instruction, other: Instruction, row: Arch) -> Step:
    """Two that read before either writes: where the second reads what the first writes, it is run first, or on what was there."""
    first = alu(replace(one, pair=None), lookup(base(one.mnemonic), row), row)
    second = alu(other, lookup(base(other.mnemonic), row), row)
    written = [_written(part) for part in (one, other)]
    touched = first.touched | second.touched
    if not written[0] & second.touched - written[1]:
        order = (first.run, second.run)
    elif not written[1] & first.touched - written[0]:
        order = (second.run, first.run)
    else:
        return Step(one, _crossed(first, second, written[0]), touched)

    def step(w: Waves) -> None:
        order[0](w)
        order[1](w)

    return Step(one, step, touched)


def _crossed(first: Step, second: Step, written: frozenset[int]) -> Callable[[Waves], None]:
    """Each reads what the other writes."""

    def step(w: Waves) -> None:
        before = {register: w.v[register].copy() for register in written}
        first.run(w)
        after = {register: w.v[register] for register in written}
        for register in written:
            w.v[register] = before[register]
        second.run(w)
        for register in written:
            w.v[register] = after[register]

    return step


def _written(one: Instruction) -> frozenset[int]:
    return frozenset(operand(one.operands[0]).registers())
