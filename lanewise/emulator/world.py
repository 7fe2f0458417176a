"""What waves share: memory, LDS, scratch, and who counts what they do."""

from dataclasses import dataclass
from typing import Any, Protocol

from lanewise.emulator.memory import Buffer, Bytes, Memory
from lanewise.emulator.registers import Array
from lanewise.emulator.shared import Shared
from lanewise.isa.assembly import Instruction

__all__ = ["Measure", "World"]


class Measure(Protocol):
    """Whoever wants to know of every access: by which instruction, in which buffer (None: LDS), at which indices,
    bytes of each, active lanes (None: all)."""

    def access(self, kernel: str, one: Instruction, buffer: Buffer | None, index: Array, width: int, mask: Array | None, stores: bool) -> None: ...


@dataclass(slots=True)
class World:
    """numbers: of a batch's workgroups, x counting first; stores: whoever wants to know who stored what (`origin.Stores`), or None

    scratch: of every lane of every wave, `scratch_size` bytes each, or None
    """

    memory: Memory
    shared: Shared
    measure: Measure | None = None
    scratch: Bytes | None = None
    scratch_size: int = 0
    kernel: str = ""
    numbers: Array | None = None
    stores: Any = None
