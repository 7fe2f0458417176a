"""Results of dots that are touched too early: inline assembly hides its dots from the compiler, which waits behind those alone that it knows.

The rules are those of LLVM's GCNHazardRecognizer: `Arch.dot_wait` states have to pass before anybody but a dot of the same kind, as its
addend, reads or overwrites the result. An instruction is one state, and `s_nop n` is n + 1.
"""

import re
from collections.abc import Iterator

from lanewise.isa.assembly import Instruction
from lanewise.isa.code_object import CodeObject

__all__ = ["hazards", "registers", "unwaited"]

_DOT = re.compile(r"v_dot\d")
_BRANCH = re.compile(r"s_c?branch")
_REGISTER = re.compile(r"\bv(?:(\d+)|\[(\d+):(\d+)\])")
_ENCODING = re.compile(r"_(e32|e64|dpp|sdwa)$")


def registers(operand: str) -> frozenset[int]:
    """The vector registers that an operand names.

    >>> sorted(registers("-v[3:5]")), sorted(registers("s[0:3]")), sorted(registers("|v7.h|"))
    ([3, 4, 5], [], [7])
    """
    found = _REGISTER.search(operand)
    if found is None:
        return frozenset()
    return frozenset([int(found[1])] if found[1] else range(int(found[2]), int(found[3]) + 1))


def hazards(code: CodeObject) -> list[str]:
    """Each dot whose result is touched too early, in words; empty on targets that wait by themselves."""
    wait = code.row.dot_wait
    found = []
    for dot in code.instructions if wait else ():
        if _DOT.match(dot.mnemonic):
            for reader, states in _touching(code, dot, wait):
                found.append(f"{dot.text!r} at {dot.pc:#x} has {states} of {wait} wait states before {reader.text!r} at {reader.pc:#x}")
    return found


def unwaited(code: CodeObject) -> list[str]:
    """Dots of inline assembly with no wait of their own behind them, in words: what follows otherwise is the compiler's choice of today."""
    found, run = [], list[Instruction]()
    for one in (*code.instructions, None) if code.row.dot_wait else ():
        if one is not None and one.inline:
            run.append(one)
            continue
        last = max((i for i, other in enumerate(run) if _DOT.match(other.mnemonic)), default=None)
        if last is not None and all(_states(other) < code.row.dot_wait for other in run[last:]):
            found.append(f"{run[last].text!r} of inline assembly at {run[last].pc:#x} has no wait of {code.row.dot_wait} states behind it there")
        run = []
    return found


def _states(one: Instruction) -> int:
    return int(one.operands[0], 0) + 1 if one.mnemonic == "s_nop" else 0


def _touching(code: CodeObject, dot: Instruction, wait: int) -> Iterator[tuple[Instruction, int]]:
    """Whoever may come within the wait and touches the result, along every branch; behind whoever overwrites it nobody else does."""
    result = registers(dot.operands[0])
    ways, seen = [(dot.index + 1, 0)], set()
    while ways:
        at, states = ways.pop()
        if states >= wait or at >= len(code.instructions) or (at, states) in seen:
            continue
        seen.add((at, states))
        one = code.instructions[at]
        if one.mnemonic == "s_endpgm":
            continue
        if any(registers(operand) & result for operand in _touched(one, dot)):
            yield one, states
            continue
        more = max(1, _states(one))
        if _BRANCH.match(one.mnemonic):
            ways.append((code.labels[one.operands[0]], states + more))
        if one.mnemonic != "s_branch":
            ways.append((at + 1, states + more))


def _touched(one: Instruction, dot: Instruction) -> tuple[str, ...]:
    """Operands that must not be the result: all, but of a dot of the same kind result and addend."""
    operands = one.operands + (one.pair.operands if one.pair else ())
    same = _ENCODING.sub("", one.mnemonic) == _ENCODING.sub("", dot.mnemonic)
    return operands[1:3] if same else operands
