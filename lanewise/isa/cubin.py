"""What NVIDIA's compilers made of a kernel: PTX as instructions, and what the cubin behind it takes in registers and memory.

PTX is not machine code: ptxas moves instructions, merges loads and hands out registers. Dots, products and the width of loads it leaves as they are,
so those are counted there; whether registers were enough the cubin says, by NVIDIA's own reader that comes with Triton.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lanewise.arch import Arch
from lanewise.errors import AssemblyError
from lanewise.isa.assembly import Instruction

__all__ = ["Cubin", "cubin", "read_ptx"]

_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_USE = re.compile(r"\b(REG|STACK|LOCAL):(\d+)")
_SECONDS = 60


@dataclass(frozen=True)
class Cubin:
    """One kernel for one target.

    shared: bytes that a launch asks for; warps: of a block
    instructions: of the PTX, whose pcs nobody knows
    registers: of a thread; stack, local: bytes of a thread that lie in memory
    """

    row: Arch
    kernel: str
    shared: int
    warps: int
    instructions: tuple[Instruction, ...]
    registers: int
    stack: int
    local: int
    binary: bytes
    text: str


def cubin(text: str, binary: bytes, row: Arch, *, shared: int = 0, warps: int = 1) -> Cubin:
    """The kernel of which Triton keeps `text` and `binary` (`Launch.text`, `Launch.binary`). Raises AssemblyError where one cannot be read."""
    kernel, instructions = read_ptx(text)
    used = {name: int(value) for name, value in _USE.findall(_resources(kernel, binary))}
    if set(used) != {"REG", "STACK", "LOCAL"}:
        raise AssemblyError(f"{kernel}: cuobjdump says {', '.join(used) or 'nothing'} of its cubin; registers, stack and local memory are wanted")
    return Cubin(row, kernel, shared, warps, instructions, used["REG"], used["STACK"], used["LOCAL"], binary, text)


def read_ptx(text: str) -> tuple[str, tuple[Instruction, ...]]:
    """Name and instructions of the one kernel of a PTX text. Raises AssemblyError where there is not one, or nothing in it."""
    kernels = _ENTRY.findall(text)
    if len(kernels) != 1:
        raise AssemblyError(f"PTX has {len(kernels)} kernels ({', '.join(kernels)[:100]}); one is read at a time")
    found = tuple(_instructions(text[text.index(f".entry {kernels[0]}(") :], dict(_FILE.findall(text))))
    if not found:
        raise AssemblyError(f"{kernels[0]}: there is no instruction in its body")
    return kernels[0], found


def _instructions(text: str, files: dict[str, str]) -> Iterator[Instruction]:
    source: tuple[str, int] | None = None
    inline, index = False, 0
    for line in text[text.index("{") + 1 :].splitlines():
        if "begin inline asm" in line or "end inline asm" in line:
            inline = "begin inline asm" in line
        if found := _LOC.match(line):
            source = (re.split(r"[/\\]", files.get(found[1], "?"))[-1], int(found[2])) if int(found[2]) else None
            continue
        if line.startswith("\t.section"):
            return
        for piece in line.partition("//")[0].replace("{ ", "").split(";"):
            words = piece.strip().strip("{}").strip()
            if not words or words.startswith((".", "$", "}", "%")) or words.endswith(":"):
                continue
            mnemonic = re.sub(r"^@!?%?\w+\s+", "", words).split()[0]
            if not re.fullmatch(r"[a-z][\w.:]*", mnemonic):
                continue
            yield Instruction(index, -1, mnemonic, (), (), f"{' '.join(words.split())};", source, inline)
            index += 1


def _resources(kernel: str, binary: bytes) -> str:
    import triton

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise AssemblyError(f"{kernel}: cuobjdump cannot read its cubin: {done.stderr.strip()[:200]}")
    return done.stdout
