"""What a disassembler of the system makes of a code object, beside the text that the compiler printed: an opinion that is not ours."""

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lanewise.errors import AssemblyError
from lanewise.isa.assembly import Instruction
from lanewise.isa.code_object import CodeObject

__all__ = ["compared", "disassembled"]

# LLVM 14 and 15 decode instructions of AMD wrongly that 19 and later have right; newer targets are unknown to older ones, which say so.
_OLDEST, _NEWEST = 19, 30
_UNKNOWN = "is not a recognized processor"
_SECONDS = 60


def disassembled(code: CodeObject) -> tuple[str, str, str]:
    """(program, what it prints, "") where a system's llvm-objdump knows the target, ("", "", why not) elsewhere."""
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code"
        path.write_bytes(code.binary)
        for program, version in _programs():
            if version < _OLDEST:
                tried.append(f"{program} is of LLVM {version}; {_OLDEST} or later is wanted")
                continue
            done = _run(program, "-d", f"--mcpu={code.row.name}", f"--disassemble-symbols={code.kernel}", str(path))
            if _UNKNOWN not in done.stderr and done.returncode == 0:
                return program, done.stdout, ""
            tried.append(f"{program} does not know {code.row.name}")
    return "", "", "; ".join(tried) or "no llvm-objdump on the path; Debian has one in llvm-22"


@functools.cache
def _programs() -> tuple[tuple[str, int], ...]:
    """Those of the system, newest first, each with its LLVM's version."""
    found = []
    for name in (*(f"llvm-objdump-{n}" for n in range(_NEWEST, _OLDEST - 1, -1)), "llvm-objdump"):
        if program := shutil.which(name):
            version = re.search(r"LLVM version (\d+)", _run(program, "--version").stdout)
            found.append((program, int(version[1]) if version else 0))
    return tuple(found)


def compared(code: CodeObject) -> str:
    """Empty where the system's disassembly says what the text says, instruction by instruction; why nothing was compared where it was not.

    Raises AssemblyError with the first instruction that the two read differently.
    """
    program, listing, why = disassembled(code)
    if not program:
        return why
    theirs = {}
    for line in listing.splitlines():
        text, mark, at = line.partition("//")
        if mark and line.startswith("\t"):
            theirs[int(at.split(":")[0], 16)] = text
    start = min(theirs, default=0)
    for one in code.instructions:
        text = theirs.get(start + one.pc, "")
        if _plain(text) != _plain(_branched(code, one)):
            raise AssemblyError(f"{code.kernel}, {one.pc:#x}: the text has {one.text!r} and {Path(program).name} reads {' '.join(text.split())!r}")
    return ""


def _branched(code: CodeObject, one: Instruction) -> str:
    """The text with a label as the distance that is encoded: in words, from the next instruction, in 16 bits."""
    label = one.operands[-1] if one.operands else ""
    if label not in code.labels:
        return one.text
    words = (code.instructions[code.labels[label]].pc - one.pc - 4) // 4
    return one.text.replace(label, str(words & 0xFFFF))


def _plain(text: str) -> str:
    """Without what is only spelled differently: an offset that is not there, -1, the lower half of a register, upper bits set beforehand."""
    text = " ".join(re.sub(r"/\*.*?\*/", "", text).split()).replace(" ,", ",")
    text = re.sub(r"^(s_load_\w+ .*), null$", r"\1, 0x0", text)
    text = re.sub(r"^s_barrier_wait -1$", "s_barrier_wait 0xffff", text)
    return re.sub(r"\b(v\d+)\.l\b", r"\1", text)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
