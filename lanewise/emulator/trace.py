"""What ran, instruction by instruction, as lines of JSON: for reading beside the assembly, and for comparing two runs."""

import json
from typing import IO

from lanewise.emulator.operands import operand
from lanewise.emulator.registers import Waves
from lanewise.emulator.step import Step

__all__ = ["Trace"]

_STORES = ("store", "write", "cmp", "s_nop", "s_clause", "s_delay")


class Trace:
    """Given to `launch(watch=...)`: one line for every instruction that waves ran together.

    pc, text, source: of the instruction; group, wave: of the first wave, in the batch and in its workgroup; waves, lanes: how many ran it, and with
    how many active lanes; writes: what the first wave's registers that it names first hold afterwards, in hexadecimal, lane by lane
    """

    def __init__(self, file: IO[str]) -> None:
        self.file, self.count = file, 0

    def __call__(self, step: Step, w: Waves) -> None:
        one = step.one
        line = {
            "n": self.count, "pc": one.pc, "text": one.text, "source": ":".join(map(str, one.source)) if one.source else None,
            "group": int(w.group[0]), "wave": int(w.wave[0]), "waves": len(w.index), "lanes": int(w.exec.sum()), "writes": _written(step, w),
        }  # fmt: skip
        self.file.write(json.dumps(line) + "\n")
        self.count += 1


def _written(step: Step, w: Waves) -> dict[str, str]:
    one = step.one
    if not one.operands or any(word in one.mnemonic for word in _STORES):
        return {}
    target = operand(one.operands[0])
    if target.kind not in "vs":
        return {}
    held = w.v if target.kind == "v" else w.s
    name = target.text if target.count == 1 else target.text.partition("[")[0]
    return {
        f"{name}{'' if target.count == 1 else target.first + i}": " ".join(f"{int(value):08x}" for value in held[target.first + i][0])
        for i in range(target.count)
        if held[target.first + i] is not None
    }
