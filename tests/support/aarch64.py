"""Runs aarch64 kernels on this machine: the machine code that an Arm processor would load, one call after another, in qemu's user mode.

Neither an Arm compiler nor an Arm Python is needed: a program of forty instructions reads memory and a call from its standard
input, calls, and writes the memory back. Each row runs on a processor that has no more than the row asks for, so that an
instruction that it lacks ends the program. Arrays lie apart there, and what lies between them must stay as it was.
"""

import atexit
import contextlib
import ctypes
import functools
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.kernels.cpu.compile import loaded_object as compiled
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.kernel import CpuKernel, float_bits

# qemu's name of a processor with just what a row asks for; before qemu 8.1 the one with i8mm has everything.
PROCESSORS = {"aarch64": "cortex-a57", "aarch64+dotprod": "cortex-a76", "aarch64+dotprod+i8mm": "max"}
_QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
_TOOLS = {tool: shutil.which(f"aarch64-linux-gnu-{tool}") for tool in ("as", "ld", "objcopy")}
MISSING = "; ".join(
    f"{what} is not installed (Debian: {package})"
    for what, package, found in (
        ("qemu-aarch64", "qemu-user", _QEMU),
        ("aarch64-linux-gnu-ld", "binutils-aarch64-linux-gnu", all(_TOOLS.values())),
    )
    if not found
)

_CODE, DATA, _END = 0x10000000, 0x11000000, 0x18000000
_PAGE, _LINE, _GAP, _GUARD = 4096, 64, 192, 0xA5
# Maps memory for code and data at its fixed address. Then, until the input ends: four int64 (address, bytes, kernel or 0, chunks) and
# those bytes, which it puts there; where a kernel is named, it calls kernel(address, chunk, 0) for each chunk and writes the bytes as
# they are then. System calls of Linux: 222 maps, 63 reads, 64 writes, 93 ends.
_SOURCE = """
        .global _start
_start: ldr  x0, ={code}
        ldr  x1, ={room}
        mov  x2, #7
        mov  x3, #0x32
        mov  x4, #-1
        mov  x5, #0
        mov  x8, #222
        svc  #0
        sub  sp, sp, #32
next:   mov  x1, sp
        mov  x2, #32
        bl   take
        ldp  x1, x2, [sp]
        bl   take
        ldp  x20, x21, [sp, #16]
        cbz  x20, next
        mov  x19, #0
each:   cmp  x19, x21
        b.ge done
        ldr  x0, [sp]
        mov  x1, x19
        mov  x2, #0
        blr  x20
        add  x19, x19, #1
        b    each
done:   ldp  x1, x2, [sp]
        bl   give
        b    next
take:   mov  x3, #0
        mov  x8, #63
        b    more
give:   mov  x3, #1
        mov  x8, #64
more:   cbz  x2, all
        mov  x0, x3
        svc  #0
        cmp  x0, #0
        b.le end
        add  x1, x1, x0
        sub  x2, x2, x0
        b    more
all:    ret
end:    mov  x8, #93
        svc  #0
"""


def run(kernel: CpuKernel, isa: str, chunks: int, values: dict[str, Any], reach: Sequence[np.ndarray] = ()) -> None:
    """Chunks 0..chunks-1 as worker 0. Arrays stand for their addresses, and so do int64 in them that point into an array of `reach`."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: float_bits(value) if isinstance(value, float) else int(value) for name, value in values.items() if name not in arrays}
    memory = _Memory([*arrays.values(), *reach], 8 * len(kernel.arguments))
    if reach:
        memory.redirect([array for array in arrays.values() if array.dtype == np.int64], reach)
    table = kernel.pack(**plain, **{name: memory.place(array) for name, array in arrays.items()})
    memory.take_back(guest(isa).call(kernel, memory.filled(table), chunks))


class _Memory:
    """Copies of arrays as the other machine has them: apart, equally aligned, the argument table in front. Overlapping arrays stay so."""

    def __init__(self, arrays: Iterable[np.ndarray], table_bytes: int) -> None:
        self._spans: list[tuple[int, int, int]] = []  # first and last byte here, place in the copy
        at = table_bytes
        for low, high in _merged(sorted(_bounds(array) for array in arrays if array.size)):
            at += _GAP
            at += (low - at) % _LINE
            self._spans.append((low, high, at))
            at += high - low
        self._bytes = np.full(at + _GAP, _GUARD, np.uint8)
        for low, high, at in self._spans:
            self._bytes[at : at + high - low] = _view(low, high)
        self._own: dict[int, int] = {}  # place in the copy of an address, and what it is here

    def place(self, array: np.ndarray) -> int:
        """The address of an array there."""
        return DATA + self._copy_of(array.ctypes.data) if array.size else 0

    def _copy_of(self, address: int) -> int:
        return next(at + address - low for low, high, at in self._spans if low <= address < high)

    def redirect(self, tables: Sequence[np.ndarray], reach: Sequence[np.ndarray]) -> None:
        """Make the addresses of arrays of `reach` that stand in tables those of the other machine."""
        targets = [_bounds(target) for target in reach]
        for table in tables:
            for i, word in enumerate(table.ravel().tolist()):
                if any(low <= word < high for low, high in targets):
                    at = self._copy_of(table.ctypes.data) + 8 * i
                    self._own[at] = word
                    self._put(at, DATA + self._copy_of(word))

    def filled(self, arguments: np.ndarray) -> np.ndarray:
        self._bytes[: arguments.nbytes] = arguments.view(np.uint8)
        return self._bytes

    def take_back(self, after: np.ndarray) -> None:
        """The arrays become what the kernel left; everything else must be as it was."""
        same = after == self._bytes
        self._bytes = after
        for at, word in self._own.items():
            assert same[at : at + 8].all()
            self._put(at, word)
        for low, high, at in self._spans:
            same[at : at + high - low] = True
            _view(low, high)[:] = after[at : at + high - low]
        assert same.all(), f"{np.count_nonzero(~same)} bytes outside of any array were written"

    def _put(self, at: int, word: int) -> None:
        self._bytes[at : at + 8] = np.array([word], np.int64).view(np.uint8)


def _bounds(array: np.ndarray) -> tuple[int, int]:
    reach = [stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True)]
    start = array.ctypes.data
    return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in spans:
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _view(low: int, high: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)


class Guest:
    """One running program on one processor, and the kernels that it has been given."""

    def __init__(self, isa: str, processor: str) -> None:
        self._isa, self._folder = ISAS[isa], Path(tempfile.mkdtemp(prefix="lanewise-aarch64-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._room, self._entries = _CODE, dict[str, int]()
        program = self._folder / "program"
        _tool("as", "-o", f"{program}.o", "-", given=_SOURCE.format(code=_CODE, room=_END - _CODE))
        _tool("ld", "-o", program, f"{program}.o")
        self._process = subprocess.Popen([str(_QEMU), "-cpu", processor, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self._process.communicate)

    def call(self, kernel: CpuKernel, memory: np.ndarray, chunks: int) -> np.ndarray:
        """What `memory`, the argument table in front, has become. AssertionError where the program ended instead."""
        if kernel.name not in self._entries:
            self._entries[kernel.name] = self._load(kernel)
        assert DATA + memory.nbytes <= _END
        self._send(DATA, memory.tobytes(), self._entries[kernel.name], chunks)
        assert self._process.stdout
        after = self._process.stdout.read(memory.nbytes)
        if len(after) < memory.nbytes:
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            guest.cache_clear()
            raise AssertionError(f"{kernel.name} for {self._isa.name}: the program ended with {how}")
        return np.frombuffer(bytearray(after), np.uint8)

    def _load(self, kernel: CpuKernel) -> int:
        entry, whole, flat = self._room, self._folder / "kernel", self._folder / "flat"
        whole.with_suffix(".o").write_bytes(compiled(kernel, self._isa))
        whole.with_suffix(".ld").write_text(f"SECTIONS {{ . = {entry}; .all : {{ *(.text*) *(.rodata*) *(.data*) }} /DISCARD/ : {{ *(*) }} }}")
        _tool("ld", "-o", whole, whole.with_suffix(".o"), "-T", whole.with_suffix(".ld"), "-e", kernel.name)
        _tool("objcopy", "-O", "binary", whole, flat)
        code = flat.read_bytes()
        self._room += -(-len(code) // _PAGE) * _PAGE
        assert self._room <= DATA
        self._send(entry, code, 0, 0)
        return entry

    def _send(self, address: int, data: bytes, entry: int, chunks: int) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # what is read next comes short, and says why
            self._process.stdin.write(np.array([address, len(data), entry, chunks], np.int64).tobytes() + data)
            self._process.stdin.flush()


@functools.cache
def guest(isa: str) -> Guest:
    """The program that runs a row's kernels in this process."""
    return Guest(isa, PROCESSORS[isa])


def _tool(name: str, *arguments: str | Path, given: str | None = None) -> None:
    """Run one of the linker's family. A name that a kernel does not define is an error: it calls nothing."""
    done = subprocess.run([str(_TOOLS[name]), *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
