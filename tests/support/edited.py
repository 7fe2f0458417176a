"""Compiled kernels whose machine code is changed: the text that the compiler printed, edited, assembled and linked again."""

import re
import tempfile
from pathlib import Path

from triton._C.libtriton import amd

from lanewise.isa.code_object import CodeObject, code_object
from lanewise.isa.launches import Launch

__all__ = ["edited", "lines_of", "without"]


def edited(launch: Launch, text: str) -> CodeObject:
    """The code object of a launch, made of another text."""
    assembled = amd.assemble_amdgcn(text, launch.row.name, "")
    assert assembled, "the assembler refuses the text"
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "in.o", Path(folder) / "out.hsaco"
        before.write_bytes(assembled)
        amd.link_hsaco(str(before), str(after))
        return code_object(text, after.read_bytes(), launch.row, shared=launch.shared, warps=launch.warps)


def lines_of(text: str, pattern: str) -> list[int]:
    """Numbers of the lines that have an instruction of that form."""
    return [number for number, line in enumerate(text.splitlines()) if re.match(rf"\s*(?:{pattern})(?:\s|$)", line)]


def without(text: str, numbers: list[int]) -> str:
    """The text without some of its lines."""
    return "\n".join(line for number, line in enumerate(text.splitlines()) if number not in numbers) + "\n"
