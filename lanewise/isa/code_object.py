"""A code object as the loader sees it, and the proof that the assembly which the compiler printed is its code.

The text is assembled again, with a label at every instruction: the bytes have to be those of the object, and the labels say where each
instruction lies. From then on reading the text is reading the object.

Facts: LLVM's AMDGPU usage guide, sections on code object metadata and the kernel descriptor.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lanewise.arch import Arch
from lanewise.errors import AssemblyError
from lanewise.isa import elf
from lanewise.isa.assembly import Instruction, parse

__all__ = ["Argument", "CodeObject", "Descriptor", "code_object"]

_METADATA = ("AMDGPU", 32)  # owner and type of the note
_DESCRIPTOR_BYTES = 64
_HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument in the segment that a launch passes: bytes `offset` to `offset + size`. kind: "global_buffer", "by_value", "hidden_..."; of one
    that Triton appends for itself also "global_buffer". name: None where the compiler says none."""

    kind: str
    offset: int
    size: int
    name: str | None = None

    @property
    def hidden(self) -> bool:
        return self.kind.startswith(_HIDDEN)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The 64 bytes that the hardware is set up from.

    lds, scratch, kernargs: bytes; Triton leaves lds at 0 and asks for it at the launch
    entry: from the descriptor to the first instruction, in bytes
    rsrc1, rsrc2, rsrc3, properties: as encoded
    preload_length, preload_offset: of kernel arguments that lie in SGPRs when the kernel begins, in words
    """

    lds: int
    scratch: int
    kernargs: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_length: int
    preload_offset: int

    @property
    def wave(self) -> int:
        return 32 if self.properties & 0x400 else 64

    @property
    def user_sgprs(self) -> int:
        return self.rsrc2 >> 1 & 31

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        """Whether the ids of the workgroup in x, y and z are wanted."""
        return bool(self.rsrc2 >> 7 & 1), bool(self.rsrc2 >> 8 & 1), bool(self.rsrc2 >> 9 & 1)

    @property
    def workitem_ids(self) -> int:
        """0: x of a work item is wanted; 1: x and y; 2: all three."""
        return self.rsrc2 >> 11 & 3

    @property
    def float_mode(self) -> int:
        """Rounding and denormals, as the MODE register has them in its low 8 bits."""
        return self.rsrc1 >> 12 & 255


@dataclass(frozen=True)
class CodeObject:
    """One kernel for one target, and its instructions, each with its pc.

    shared: bytes of LDS that a launch asks for; warps: waves of a workgroup
    metadata: of the kernel, as the object has them
    code: its bytes; labels: index of the instruction behind each
    """

    row: Arch
    kernel: str
    shared: int
    warps: int
    metadata: dict[str, Any]
    descriptor: Descriptor
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    code: bytes
    binary: bytes
    text: str

    @property
    def vgprs(self) -> int:
        """Registers of a lane; where they are allocated together with accumulators of the matrix unit, both."""
        return int(self.metadata[".vgpr_count"])

    @property
    def agprs(self) -> int:
        return int(self.metadata.get(".agpr_count", 0))

    @property
    def sgprs(self) -> int:
        return int(self.metadata[".sgpr_count"])

    @property
    def scratch(self) -> int:
        """Bytes of a lane that lie in memory because registers did not do."""
        return int(self.metadata[".private_segment_fixed_size"])

    @property
    def spills(self) -> int:
        return int(self.metadata[".vgpr_spill_count"]) + int(self.metadata[".sgpr_spill_count"])

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        return tuple(Argument(one[".value_kind"], one[".offset"], one[".size"], one.get(".name")) for one in self.metadata.get(".args", ()))

    def at(self, pc: int) -> Instruction:
        """The instruction at a pc. Raises AssemblyError where none begins."""
        if pc not in self._by_pc:
            raise AssemblyError(f"{self.kernel}: no instruction begins at {pc:#x}")
        return self._by_pc[pc]

    @cached_property
    def _by_pc(self) -> dict[int, Instruction]:
        return {one.pc: one for one in self.instructions}


def code_object(text: str, binary: bytes, row: Arch, *, shared: int = 0, warps: int | None = None) -> CodeObject:
    """The kernel of an AMD target of which Triton keeps `text` and `binary` (`Launch.text`, `Launch.binary`).

    warps: waves of a workgroup; without it as many as the kernel was compiled for at most, which of Triton's is how many they have

    Raises AssemblyError where the object cannot be read, and where it is not what assembling the text gives.
    """
    assembly = parse(text)
    linked = elf.read(binary)
    known = elf.unpacked(elf.notes(linked.section(".note")).get(_METADATA, b"\x80"))
    kernels = {one.get(".name"): one for one in known.get("amdhsa.kernels", ())}
    if assembly.kernel not in kernels:
        raise AssemblyError(f"code object has metadata of {', '.join(map(str, kernels)) or 'nothing'}; the text is of {assembly.kernel}")
    code, descriptor = linked.bytes_of(assembly.kernel), linked.bytes_of(f"{assembly.kernel}.kd")
    assembled, pcs = _assembled(text, assembly.kernel, len(assembly.instructions), row)
    _same(assembly.kernel, "code", assembled.bytes_of(assembly.kernel), code)
    again = assembled.bytes_of(f"{assembly.kernel}.kd")
    if len(descriptor) != _DESCRIPTOR_BYTES or len(again) != _DESCRIPTOR_BYTES:
        raise AssemblyError(f"{assembly.kernel}: its descriptor has {len(descriptor)} bytes; it has to have {_DESCRIPTOR_BYTES}")
    _same(assembly.kernel, "descriptor", again[:16] + again[24:], descriptor[:16] + descriptor[24:])  # between them the linker's offset
    instructions = tuple(_placed(one, pc) for one, pc in zip(assembly.instructions, pcs, strict=True))
    metadata = kernels[assembly.kernel]
    most = int(metadata.get(".max_flat_workgroup_size", row.wave)) // row.wave
    waves = most if warps is None else warps
    if not 1 <= waves <= most:
        raise AssemblyError(f"{assembly.kernel}: a workgroup of {waves} waves; it is compiled for at most {most} of {row.wave} lanes")
    return CodeObject(row, assembly.kernel, shared, waves, metadata, _described(descriptor), instructions, assembly.labels, code, binary, text)


def _described(data: bytes) -> Descriptor:
    lds, scratch, kernargs, _, entry = struct.unpack_from("<4Iq", data)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<3I2H", data, 44)
    return Descriptor(lds, scratch, kernargs, entry, rsrc1, rsrc2, rsrc3, properties, preload & 127, preload >> 7)


def _placed(one: Instruction, pc: int) -> Instruction:
    return replace(one, pc=pc, pair=None if one.pair is None else replace(one.pair, pc=pc))


def _same(kernel: str, what: str, text: bytes, binary: bytes) -> None:
    if text != binary:
        at = next((i for i, (a, b) in enumerate(zip(text, binary, strict=False)) if a != b), min(len(text), len(binary)))
        raise AssemblyError(f"{kernel}: the {what} that the text gives ({len(text)} bytes) differs from the object's ({len(binary)}) at byte {at:#x}")


def _assembled(text: str, kernel: str, count: int, row: Arch) -> tuple[elf.Elf, tuple[int, ...]]:
    """What the text gives, and where each instruction lies from the kernel's entry."""
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    marked = "\n".join(_marked(text, kernel)) + f'\n.section .pcs,"",@progbits\n{_words(kernel, count)}\n'
    made = amd.assemble_amdgcn(marked, row.name, "")
    if not made:
        raise AssemblyError(f"{kernel}: the assembler refuses the text for {row}; what it says is on stderr")
    found = elf.read(made)
    words = found.section(".pcs").data
    return found, struct.unpack(f"<{len(words) // 4}I", words)


def _words(kernel: str, count: int) -> str:
    return "\n".join(f".long .Lpc{i}-{kernel}" for i in range(count))


_CODE = re.compile(r"\s*[a-z]\w*(\s|$)")


def _marked(text: str, kernel: str) -> Iterator[str]:
    """The lines of an assembly, a label in front of every instruction."""
    inside, count = False, 0
    for line in text.splitlines():
        inside = line.startswith(f"{kernel}:") or (inside and not re.match(r"\.Lfunc_end\d+:", line))
        if inside and _CODE.match(line):
            yield f".Lpc{count}:"
            count += 1
        yield line
