"""What launches of GPU kernels are compiled to, for targets that are not here, and what tests ask of the machine code."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from lanewise.arch import Arch
from lanewise.isa.launches import taken

# In the order in which they stand in the machine code; a group of inline assembly of AMD is one text.
_GROUP = re.compile(r";+#ASMSTART\n(.*?)\n\s*;+#ASMEND", re.DOTALL)
_AMD_LOAD = re.compile(r"^\s*((?:buffer|global|flat)_load_\w+)", re.MULTILINE)
_PTX_LOAD = re.compile(r"\bld\.global[\w.:]*")
_AMD_16_BYTES, _PTX_16_BYTES = ("_b128", "_dwordx4"), (".v4.b32", ".v2.b64")


@dataclass(frozen=True)
class Code:
    """name: of the kernel; text: GCN or PTX; shared: bytes of LDS / shared memory; late: launched before the kernel in front has ended;
    ttgir: Triton's form of it, which names layouts."""

    row: Arch
    name: str
    text: str
    binary: bytes
    shared: int
    late: bool
    ttgir: str

    def count(self, pattern: str) -> int:
        return len(re.findall(rf"^\s*{pattern}", self.text, re.MULTILINE))

    def groups(self) -> list[list[str]]:
        """The instructions of every inline assembly."""
        return [[line.split()[0] for line in text.strip().splitlines()] for text in _GROUP.findall(self.text)]

    def loads(self) -> list[bool]:
        """Of every load from memory, whether it is 16 bytes wide."""
        if self.row.vendor == "amd":
            return [load.endswith(_AMD_16_BYTES) for load in _AMD_LOAD.findall(self.text)]
        return [load.endswith(_PTX_16_BYTES) for load in _PTX_LOAD.findall(self.text)]

    def spilled(self) -> dict[str, int]:
        """What lies in memory because registers did not do, by name; only what is not nothing."""
        if self.row.vendor == "amd":
            names = ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
            found = {name: [int(value) for value in re.findall(rf"\.{name}: *(\d+)", self.text)] for name in names}
            assert all(len(values) == 1 for values in found.values()), found
            return {name: value for name, (value,) in found.items() if value}
        used = _asked(triton.knobs.nvidia.cuobjdump.path, "-res-usage", self.binary)
        (stack,), (local,) = re.findall(r"\bSTACK:(\d+)", used), re.findall(r"\bLOCAL:(\d+)", used)
        return {name: value for name, value in (("stack", int(stack)), ("local", int(local) + self.text.count(".local"))) if value}

    def machine(self) -> str:
        """NVIDIA's machine code, which need not stand in the order of PTX; empty where Triton's own disassembler is older than the target."""
        return _asked(triton.knobs.nvidia.nvdisasm.path, "-c", self.binary, missing="")


def compiled(row: Arch, call: Callable[[], Any]) -> list[Code]:
    """The kernels that a call would launch on a GPU of this target. Nothing runs, and what the call returns was not computed."""
    with taken(row) as launches:
        call()
    return [
        Code(row, one.name, one.text, one.binary, one.shared, getattr(one.compiled.metadata, "launch_pdl", False), one.compiled.asm["ttgir"])
        for one in launches
    ]


def _asked(program: str, option: str, binary: bytes, missing: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        done = subprocess.run([program, option, str(path)], capture_output=True, text=True, check=missing is None, timeout=60)
        return done.stdout if done.returncode == 0 else str(missing)
