"""Branches, barriers, waits and the end: instructions that say where waves go on, and when."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import limit
from lanewise.emulator.operands import operand
from lanewise.emulator.registers import VCC, Array, Waves
from lanewise.emulator.step import registers
from lanewise.isa.assembly import Instruction

__all__ = ["HARMLESS", "Flow", "Wait", "flow", "waits"]

# They change when something happens and not what, or what only an operating system sees.
HARMLESS = frozenset(
    ("s_nop", "s_clause", "s_delay_alu", "s_setprio", "s_sleep", "s_code_end", "s_inst_prefetch", "s_set_inst_prefetch_distance", "s_icache_inv",
     "s_dcache_inv", "s_dcache_wb", "s_wait_alu", "s_waitcnt_depctr", "s_sethalt", "s_ttracedata", "s_nop_e32", "s_sendmsg",
     "s_wait_event", "s_wait_expcnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_singleuse_vdst", "v_nop")
)  # fmt: skip
_WAIT = re.compile(r"(vmcnt|lgkmcnt|expcnt|vscnt)\((\d+)\)$")
_COUNTERS = ("vm", "lgkm", "vs", "load", "store", "ds", "km")


@dataclass(frozen=True, slots=True)
class Flow:
    """kind: "branch" (to `target` where `condition` holds, always without one), "barrier", "signal", "wait" (of a split barrier) or "end"

    touched: registers that the condition reads, which no load may still be on its way to
    """

    one: Instruction
    kind: str
    target: int = -1
    condition: Callable[[Waves], Array] | None = None
    touched: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Wait:
    """counts: of each counter, how many may still be on their way"""

    one: Instruction
    counts: tuple[tuple[str, int], ...]


def _some(w: Waves) -> Array:
    return np.logical_or.reduce(w.exec, axis=1)


def _conditions(wave: int) -> dict[str, Callable[[Waves], Array]]:
    def vcc(w: Waves) -> Array:
        word: Array = w.s[VCC][:, 0] if wave == 32 else w.s[VCC][:, 0] | w.s[VCC + 1][:, 0]
        return word.astype(bool)

    return {
        "s_cbranch_scc0": lambda w: ~w.scc[:, 0],
        "s_cbranch_scc1": lambda w: w.scc[:, 0],
        "s_cbranch_execz": lambda w: ~_some(w),
        "s_cbranch_execnz": _some,
        "s_cbranch_vccz": lambda w: ~vcc(w),
        "s_cbranch_vccnz": vcc,
    }


def flow(one: Instruction, labels: dict[str, int], row: Arch) -> Flow | None:
    """The instruction, if it is one of these."""
    name = one.mnemonic
    if name in ("s_endpgm", "s_endpgm_saved"):
        return Flow(one, "end")
    if name == "s_barrier":
        return Flow(one, "barrier")
    if name in ("s_barrier_signal", "s_barrier_wait"):
        if one.operands != ("-1",):
            raise limit(one, "named barrier")
        return Flow(one, name.removeprefix("s_barrier_"))
    condition = _conditions(row.wave).get(name)
    if name == "s_branch" or condition is not None:
        if len(one.operands) != 1 or one.operands[0] not in labels:
            raise limit(one, "target of a branch")
        touched = registers([operand("vcc")]) if "vcc" in name else frozenset[int]()
        return Flow(one, "branch", labels[one.operands[0]], condition, touched)
    return None


def waits(one: Instruction, row: Arch) -> Wait | None:
    """The instruction, if it waits for counters."""
    name = one.mnemonic
    if name == "s_waitcnt":
        found = [_WAIT.match(word) for word in (*one.operands, *one.modifiers)]
        if not found or not all(found):
            raise limit(one, "form of s_waitcnt")
        names = {"vmcnt": "vm", "lgkmcnt": "lgkm", "vscnt": "vs", "expcnt": "exp"}
        return Wait(one, tuple((names[item[1]], int(item[2])) for item in found if item))
    if name == "s_wait_idle":
        return Wait(one, tuple((counter, 0) for counter in _COUNTERS))
    if name == "s_waitcnt_vscnt" and one.operands[0] == "null":
        return Wait(one, (("vs", _number(one, one.operands[1])),))
    if single := re.fullmatch(r"s_wait_(load|store|ds|km)cnt", name):
        return Wait(one, ((single[1], _number(one, one.operands[0])),))
    if double := re.fullmatch(r"s_wait_(load|store)cnt_dscnt", name):
        both = _number(one, one.operands[0])  # RDNA4 ISA, S_WAIT_LOADCNT_DSCNT: bits 13:8 and 5:0
        return Wait(one, ((double[1], both >> 8 & 63), ("ds", both & 63)))
    return None


def _number(one: Instruction, text: str) -> int:
    value = operand(text).value
    if not isinstance(value, int):
        raise limit(one, f"count of {text}")
    return value
