"""What the launch of a GPU kernel is compiled to, for a target that is not here: the arguments of the launch decide, a stand-in names the target."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from lanewise.arch import Arch

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
    with _caught(row) as found:
        call()
    made = []
    for source, options in found:
        kernel = triton.compile(source, target=_target(row), options=options)
        text = kernel.asm["amdgcn" if row.vendor == "amd" else "ptx"]
        binary = kernel.asm["hsaco" if row.vendor == "amd" else "cubin"]
        late = getattr(kernel.metadata, "launch_pdl", False)
        made.append(Code(row, source.fn.__name__, text, binary, kernel.metadata.shared, late, kernel.asm["ttgir"]))
    return made


def _target(row: Arch) -> GPUTarget:
    nvidia = row.vendor == "nvidia"
    return GPUTarget("cuda" if nvidia else "hip", int(row.name.rpartition("_")[2]) if nvidia else row.name, row.wave)


class _Driver:
    """As much of a driver as a launch asks before it compiles. The number of a device is a key of Triton's, and here the target's name."""

    def __init__(self, row: Arch) -> None:
        self.row = row

    def get_current_target(self) -> GPUTarget:
        return _target(self.row)

    def get_current_device(self) -> str:
        return self.row.name

    def get_current_stream(self, device: Any) -> int:
        return 0


@contextmanager
def standing_in(row: Arch) -> Iterator[None]:
    """Launches ask a stand-in for the driver, which names the target; whoever is inside says what becomes of what they would compile."""
    driver = triton.runtime.driver
    before = driver._active
    driver._active = _Driver(row)
    try:
        yield
    finally:
        driver._active = before


@contextmanager
def _caught(row: Arch) -> Iterator[list[tuple[ASTSource, dict[str, Any]]]]:
    found: list[tuple[ASTSource, dict[str, Any]]] = []

    def note(self: Any, key: str, signature: Any, device: Any, constants: Any, options: Any, attributes: Any, warmup: bool) -> None:
        found.append((ASTSource(self, signature, constants, attributes), options.__dict__))

    real = JITFunction._do_compile
    JITFunction._do_compile = note
    try:
        with standing_in(row):
            yield found
    finally:
        JITFunction._do_compile = real


def _asked(program: str, option: str, binary: bytes, missing: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        done = subprocess.run([program, option, str(path)], capture_output=True, text=True, check=missing is None, timeout=60)
        return done.stdout if done.returncode == 0 else str(missing)
