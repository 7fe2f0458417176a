"""The assembly that a compiler printed of one AMD kernel, as a list of instructions with the source line of each.

Nothing here knows what an instruction does. What is kept apart is what everybody who does has to tell apart: mnemonic, operands, modifiers.

>>> code = parse("f:\\n\\tv_add_f32_dpp v1, v1, v2 row_shr:4 bound_ctrl:1 ; comment\\n\\ts_waitcnt vmcnt(0)\\n.amdhsa_kernel f\\n")
>>> [(one.mnemonic, one.operands, one.modifiers) for one in code.instructions]
[('v_add_f32_dpp', ('v1', 'v1', 'v2'), ('row_shr:4', 'bound_ctrl:1')), ('s_waitcnt', (), ('vmcnt(0)',))]
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lanewise.errors import AssemblyError

__all__ = ["Assembly", "Instruction", "parse"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line.

    index:     position in the kernel
    pc:        bytes from the kernel's entry; -1 as long as nobody has assembled it
    mnemonic:  as printed, with _e32, _e64, _dpp or _sdwa; of a pair that issues together ("a :: b") the first one's
    operands:  as printed: "v[0:3]", "-v3", "|v4|", "sext(v1)", "v3.l", "vcc_lo", "0x3f80", "off", ".LBB0_2", "hwreg(HW_REG_MODE, 0, 4)"
    modifiers: what follows operands: "offset:16", "neg_lo:[1,1,0]", "offen", "row_shr:4"; and all parts of s_waitcnt and s_delay_alu
    text:      the line without comments, of a pair the whole
    source:    (file name, line) that the compiler names; of inlined functions the innermost; None where it names none
    inline:    whether it stands in inline assembly, which the compiler did not look into
    pair:      the second of a pair that issues together; both read before either writes
    """

    index: int
    pc: int
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: tuple[str, ...]
    text: str
    source: tuple[str, int] | None
    inline: bool = False
    pair: "Instruction | None" = None


@dataclass(frozen=True, slots=True)
class Assembly:
    """labels: the index of the instruction behind each."""

    kernel: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


_KERNEL = re.compile(r"^\s*\.amdhsa_kernel\s+(\S+)", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*\.type\s+(\S+?),\s*@function", re.MULTILINE)
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+(?:"((?:[^"\\]|\\.)*)"\s+)?"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"([.\w$]+):\s*$")
_COMMENT = re.compile(r"/\*.*?\*/|(?:;|//).*$")
# Where a register's upper bits are set beforehand the printer names the encoded one, and the one that is meant behind it.
_MEANT = re.compile(r"v(?:\d+|\[\d+:\d+\]) ?/\*(v(?:\d+|\[\d+:\d+\]))\*/")
_DEBUG = re.compile(r"\.L(tmp|func_begin|func_end)\d+$")  # labels that tables of debuggers refer to and branches do not
# They place code or describe it; any other directive would put something into it that is no instruction.
_SILENT = re.compile(r"\.(cfi_\w+|p2alignl?|file|loc|globl|type|text|set)\b")
# Words that stand without a colon, where an operand could.
_FLAGS = frozenset(
    ["offen", "idxen", "glc", "slc", "dlc", "scc", "sc0", "sc1", "nt", "lds", "tfe", "gds", "clamp", "high", "row_mirror", "row_half_mirror"]
)
_COUNTER = re.compile(r"(vmcnt|lgkmcnt|expcnt|vscnt|instid0|instid1|instskip)\(")
_FIELD = re.compile(r"[a-z]\w*:")


def parse(text: str) -> Assembly:
    """The one kernel in the assembly of an AMD target (`compiled.asm["amdgcn"]` of Triton). Raises AssemblyError for what cannot be read."""
    kernels = _KERNEL.findall(text)
    if len(kernels) != 1:
        raise AssemblyError(f"assembly has {len(kernels)} kernels ({', '.join(kernels)[:100]}); one is read at a time")
    (kernel,) = kernels
    if others := [name for name in _FUNCTION.findall(text) if name != kernel]:
        raise AssemblyError(f"assembly of {kernel} has functions beside it ({', '.join(others)[:100]}); only a kernel without calls is read")
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    files: dict[str, str] = {}
    source: tuple[str, int] | None = None
    inline = False
    for line in _body(text, kernel):
        if "#ASMSTART" in line or "#ASMEND" in line:
            inline = "#ASMSTART" in line
        elif found := _FILE.match(line):
            files[found[1]] = re.split(r"[/\\]", found[3])[-1]
        elif found := _LOC.match(line):
            source = (files.get(found[1], "?"), int(found[2])) if int(found[2]) else None
        elif code := _COMMENT.sub("", line).strip():
            if found := _LABEL.match(code):
                if not _DEBUG.match(found[1]):
                    labels[found[1]] = len(instructions)
            elif not code.startswith("."):
                meant = _COMMENT.sub("", _MEANT.sub(r"\1", line)).strip()
                instructions.append(_instruction(code, meant, len(instructions), source, inline))
            elif not _SILENT.match(code):
                raise AssemblyError(f"{kernel}: {code[:60]!r} between instructions; only instructions are read")
    if not instructions:
        raise AssemblyError(f"{kernel}: there is no instruction behind its label")
    return Assembly(kernel, tuple(instructions), labels)


def _body(text: str, kernel: str) -> Iterator[str]:
    """The lines from the kernel's label to where its code ends."""
    inside = False
    for line in text.splitlines():
        code = _COMMENT.sub("", line).strip()
        if not inside:
            inside = code == f"{kernel}:"
        elif re.match(r"\.section\b|\.size\b|\.amdhsa_kernel\b|\.Lfunc_end\d+:", code):
            return
        else:
            yield line


def _instruction(text: str, meant: str, index: int, source: tuple[str, int] | None, inline: bool) -> Instruction:
    first, *rest = (part.strip() for part in meant.split("::"))
    if len(rest) > 1 or not all(re.match(r"[a-z]\w*(\s|$)", part) for part in (first, *rest)):
        raise AssemblyError(f"{text[:80]!r} is no instruction")
    text = " ".join(text.split())
    pair = Instruction(index, -1, *_parts(rest[0]), text, source, inline) if rest else None
    return Instruction(index, -1, *_parts(first), text, source, inline, pair)


def _parts(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Mnemonic, operands and modifiers."""
    mnemonic, _, rest = text.partition(" ") if " " in text else text.partition("\t")
    operands: list[str] = []
    modifiers: list[str] = []
    for piece in _split(rest.replace("|", " ") if mnemonic == "s_delay_alu" else rest, ","):
        words = _split(piece, " \t&")
        if not words or (modifiers and not _is_modifier(words[0])):
            raise AssemblyError(f"{text[:80]!r}: an operand is missing or stands behind modifiers")
        if not _is_modifier(words[0]):
            operands.append(words.pop(0))
        modifiers += words
    return mnemonic.strip(), tuple(operands), tuple(modifiers)


def _is_modifier(word: str) -> bool:
    return word in _FLAGS or bool(_FIELD.match(word) or _COUNTER.match(word))


def _split(text: str, at: str) -> list[str]:
    """The pieces of a text between some characters, of which those in brackets do not count; nothing for an empty text."""
    pieces, depth = [""], 0
    for character in text.strip():
        depth += (character in "[(") - (character in "])")
        if depth == 0 and character in at:
            pieces.append("")
        else:
            pieces[-1] += character
    found = [piece.strip() for piece in pieces]
    return [piece for piece in found if piece] if at != "," or not text.strip() else found
