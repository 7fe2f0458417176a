"""An instruction made ready to run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lanewise.emulator.operands import Operand
from lanewise.emulator.registers import SCALAR, Waves
from lanewise.isa.assembly import Instruction

__all__ = ["SCC", "Step", "registers"]

SCC = SCALAR + 4000  # its number in the set of what an instruction touches


@dataclass(frozen=True, slots=True)
class Step:
    """run: over some waves.

    touched:  every register that it reads or writes, which no load may still be on its way to
    counter:  what counts it until it is done ("vm", "lgkm", "vs", or of the newest targets "load", "store", "ds", "km"); several for flat memory
    results:  the registers that are not there before that
    ordered:  whether it is done when later ones of its kind are
    flow:     whether it says where the waves go on
    """

    one: Instruction
    run: Callable[[Waves], Any]
    touched: frozenset[int] = frozenset()
    counter: tuple[str, ...] = ()
    results: frozenset[int] = frozenset()
    ordered: bool = True
    flow: bool = False


def registers(operands: Iterable[Operand]) -> frozenset[int]:
    return frozenset(number for one in operands for number in one.registers())
