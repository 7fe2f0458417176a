"""What is said when a kernel does what it must not: which instruction, of which source line, in which lane, at which byte."""

from dataclasses import dataclass

from lanewise.errors import EmulatorLimitError, KernelFaultError
from lanewise.isa.assembly import Instruction

__all__ = ["FaultError", "Place", "limit"]


@dataclass(frozen=True, slots=True)
class Place:
    """group: the workgroup's (x, y, z); wave: within its workgroup; lane, buffer and offset where the fault has one."""

    kernel: str
    instruction: Instruction
    group: tuple[int, int, int]
    wave: int
    lane: int | None = None
    buffer: str | None = None
    offset: int | None = None

    def __str__(self) -> str:
        one = self.instruction
        line = f"{one.source[0]}:{one.source[1]}" if one.source else "no source line"
        pc = f"pc {one.pc:#x}" if one.pc >= 0 else f"instruction {one.index}"
        lane = "" if self.lane is None else f", lane {self.lane}"
        return f"{self.kernel}, {pc} ({line}), `{one.text}`, workgroup {self.group}, wave {self.wave}{lane}"


class FaultError(Exception):
    """Raised where an instruction runs, which does not know whose waves it was given: `wave` counts within those.

    buffer, offset: of the first byte that is meant
    """

    def __init__(self, what: str, wave: int = 0, lane: int | None = None, buffer: str | None = None, offset: int | None = None) -> None:
        super().__init__(what)
        self.what, self.wave, self.lane, self.buffer, self.offset = what, wave, lane, buffer, offset

    def placed(self, kernel: str, instruction: Instruction, group: tuple[int, int, int], wave: int) -> KernelFaultError:
        """The same for whoever launched the kernel."""
        at = Place(kernel, instruction, group, wave, self.lane, self.buffer, self.offset)
        return KernelFaultError(f"{at}: {self.what}", at)


def limit(one: Instruction, what: str) -> EmulatorLimitError:
    """What to raise for something that is not there."""
    line = f" ({one.source[0]}:{one.source[1]})" if one.source else ""
    return EmulatorLimitError(f"the emulator has no {what}: `{one.text}`{line}")
