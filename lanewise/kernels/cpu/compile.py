"""From LLVM IR to callable machine code, with the objects cached on disk.

A cached object is used only when its key (processor, instruction set, library versions, the source of this folder) and its
own digest are right and it belongs to this user alone; anything else is compiled again and replaced.
"""

import contextlib
import functools
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import llvmlite
import llvmlite.binding as llvm

from lanewise import settings
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.pages import release_code

__all__ = ["Library", "Source", "assembly", "compile_object", "loaded_object"]


class Source(Protocol):
    """What can be compiled: a name that says all about it, and its LLVM IR."""

    @property
    def name(self) -> str: ...

    def ir(self, isa: Isa) -> str: ...


class Library:
    """Kernels compiled and loaded: `address(name)` is where one starts. Keeps the code alive as long as itself."""

    def __init__(self, kernels: Sequence[Source], isa: Isa) -> None:
        self.isa = isa
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(isa, jit=True))
        for kernel in {k.name: k for k in kernels}.values():
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(loaded_object(kernel, isa)))
        self._engine.finalize_object()
        self._addresses: dict[str, int] = {}
        release_code("libllvmlite")  # 30 MB, and 60 MB after compiling

    def address(self, name: str) -> int:
        """The entry of a kernel; KeyError when the library does not have it."""
        if name not in self._addresses:
            self._addresses[name] = int(self._engine.get_function_address(name))
        if not self._addresses[name]:
            raise KeyError(name)
        return self._addresses[name]


def compile_object(kernel: Source, isa: Isa) -> bytes:
    """The kernel's ELF object for the instruction set; does not need to run here."""
    machine = _machine(isa, jit=True)
    return bytes(machine.emit_object(_optimized(kernel, isa, machine)))


def assembly(kernel: Source, isa: Isa) -> str:
    """The kernel's machine code as text, for reading and for the ISA check."""
    machine = _machine(isa, jit=False)
    return str(machine.emit_assembly(_optimized(kernel, isa, machine)))


def _optimized(kernel: Source, isa: Isa, machine: Any) -> Any:
    module = llvm.parse_assembly(kernel.ir(isa))
    module.verify()
    # Kernels are written as they are to run. What is left for LLVM: variables to registers, constants, loops that test at their end.
    # Its own pipeline takes several times as long for code that is no faster.
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return module


@functools.cache
def _initialized(native: bool) -> None:
    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:  # 8 MB of code that a process which only runs kernels never needs
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


def _machine(isa: Isa, *, jit: bool) -> Any:
    _initialized(isa.triple.startswith(platform.machine()))
    target = llvm.Target.from_triple(isa.triple)
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, jit=jit, reloc="pic" if not jit else "default", codemodel="jitdefault" if jit else "default"
    )


def loaded_object(kernel: Source, isa: Isa) -> bytes:
    """The object that a Library loads: the cached one where it can be trusted, else compiled now."""
    path = _folder() / f"{kernel.name}-{_key(kernel, isa)}.o"
    found = _read(path)
    if found is None:
        found = compile_object(kernel, isa)
        _write(path, found)
    return found


def _folder() -> Path:
    root = settings.get("CACHE_DIR") or Path(os.path.expanduser("~/.cache")) / "lanewise"
    return Path(root) / "cpu"


@functools.cache
def _source() -> str:
    """A digest of everything that kernels are written from, this folder and the formats: any change of it changes every key."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *(here.parents[1] / "formats").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(kernel: Source, isa: Isa) -> str:
    parts = (_source(), kernel.name, repr(isa), platform.machine(), llvmlite.__version__, repr(llvm.llvm_version_info))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


_DIGEST = 32


def _read(path: Path) -> bytes | None:
    """The object, or None where there is none that can be trusted: another user's, writable by others, cut short or changed."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            data = file.read()
    except OSError:
        return None
    digest, code = data[:_DIGEST], data[_DIGEST:]
    return code if _digest(path, code) == digest else None


def _write(path: Path, code: bytes) -> None:
    """Put the object into the cache, whole or not at all. A cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(path, code) + code)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _digest(path: Path, code: bytes) -> bytes:
    """Of the object and the name that its key gave it: an object moved to another name is not taken for that one."""
    return hashlib.sha256(path.name.encode() + code).digest()
