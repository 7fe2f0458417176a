"""Every instruction of a kernel as a step, each by the one place that knows it; what none knows is refused with its text."""

from collections.abc import Callable
from dataclasses import replace

from lanewise.arch import Arch
from lanewise.emulator.alu import alu, base
from lanewise.emulator.fault import limit
from lanewise.emulator.flow import HARMLESS, Flow, Wait, flow, waits
from lanewise.emulator.lds import lds, touches_lds
from lanewise.emulator.operands import operand
from lanewise.emulator.private import scratch, with_scratch
from lanewise.emulator.registers import Waves
from lanewise.emulator.scalar import changes_mode, constant_form, scalar
from lanewise.emulator.smem import scalar_load
from lanewise.emulator.special import SPECIAL, matrix_unit, special
from lanewise.emulator.step import Step
from lanewise.emulator.table import lookup
from lanewise.emulator.vmem import CACHES, vector_memory
from lanewise.isa.assembly import Assembly, Instruction

__all__ = ["Code", "compiled"]

Code = tuple[Step | Flow | Wait, ...]


def compiled(assembly: Assembly, row: Arch) -> Code:
    """One entry for each instruction, None never: raises EmulatorLimitError for what is not known."""
    bounded = any(changes_mode(one) for one in assembly.instructions)
    code = tuple(_one(one, assembly.labels, row, bounded) for one in assembly.instructions)
    _halves_together(code, assembly)
    return code


def _halves_together(code: Code, assembly: Assembly) -> None:
    """Between the two halves of a barrier a wave may touch LDS while others are behind it or in front. Compilers print nothing there, and only where
    nothing of LDS stands between them, nor a way in or out, a barrier is what the emulator makes of it: one place where all waves meet.
    """
    begun: Instruction | None = None
    entered = set(assembly.labels.values())
    for index, step in enumerate(code):
        one = step.one
        if begun is not None and (index in entered or touches_lds(one) or (isinstance(step, Flow) and step.kind != "wait")):
            raise limit(one, f"split barrier with this between `{begun.text}` and its wait")
        if isinstance(step, Flow):
            begun = one if step.kind == "signal" else None


def _one(one: Instruction, labels: dict[str, int], row: Arch, bounded: bool) -> Step | Flow | Wait:
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
    if name.startswith("scratch_"):
        return scratch(one, row)
    if name.startswith(("buffer_", "global_", "flat_")):
        return with_scratch(vector_memory(one, row), row)
    if one.pair is not None:
        return _together(one, one.pair, row, bounded)
    plain = base(name)
    if plain in SPECIAL:
        return special(one, plain, row)
    if plain.startswith(("v_wmma_", "v_mfma_", "v_smfmac_", "v_swmmac_")):
        return matrix_unit(one, plain, row)
    if not name.startswith("v_"):
        raise limit(one, f"instruction {name}")
    return alu(one, lookup(plain, row), row, bounded)


def _nothing(w: Waves) -> None:
    """What only costs time."""


def _together(one: Instruction, other: Instruction, row: Arch, bounded: bool) -> Step:
    """Two that read before either writes: where the second reads what the first writes, it is run first, or on what was there."""
    first = alu(replace(one, pair=None), lookup(base(one.mnemonic), row), row, bounded)
    second = alu(other, lookup(base(other.mnemonic), row), row, bounded)
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
