"""What a kernel's machine code consists of, counted: dots, products, loads, registers, waves, bytes in flight."""

import re
from collections import Counter
from dataclasses import dataclass

from lanewise.isa.assembly import Instruction
from lanewise.isa.code_object import CodeObject
from lanewise.isa.cubin import Cubin

__all__ = ["Summary", "annotated", "summary", "waves"]


@dataclass(frozen=True, slots=True)
class _Patterns:
    """kinds:     by name, of which the first that matches counts
    fast, slow: integer products of 24 bits, and of others
    dots:      what varies in a dot's name
    unsigned, signed: products of bytes or nibbles that may be unsigned, and how a modifier begins that makes both sides signed
    size:      of a load
    """

    kinds: dict[str, re.Pattern[str]]
    fast: re.Pattern[str]
    slow: re.Pattern[str]
    dots: re.Pattern[str]
    unsigned: re.Pattern[str]
    signed: str
    size: re.Pattern[str]


def _kinds(**patterns: str) -> dict[str, re.Pattern[str]]:
    return {kind: re.compile(pattern) for kind, pattern in patterns.items()}


_AMD = _Patterns(
    _kinds(
        dot=r"v_dot\d", matrix=r"v_(wmma|mfma|smfmac|swmmac)", load=r"(buffer|global|flat|scratch)_load",
        store=r"(buffer|global|flat|scratch)_(store|atomic)", LDS=r"ds_", wait=r"s_(wait|delay_alu|nop|barrier|clause)", scalar=r"s_", vector=r"v_",
    ),
    re.compile(r"v_(dual_)?(mul|mad)_[iu]32_[iu]24"), re.compile(r"v_(mul_lo|mul_hi|mad_[iu]64|mad_co_[iu]64)"), re.compile(r"_(e32|e64|dpp|sdwa)$"),
    re.compile(r"v_(dot\d|wmma|swmmac)\w*_iu[48]"), "neg_lo:[1,1",
    re.compile(r"_(?:b(?P<bits>\d+)|dwordx(?P<words>\d)|(?P<word>dword)|[us]?(?P<small>short|byte)|(?P<half>[us]8|[ui]16|d16))"),
)  # fmt: skip
_NVIDIA = _Patterns(
    _kinds(
        dot=r"dp4a\.", matrix=r"(mma\.sync|wgmma\.mma_async|tcgen05\.mma)", load=r"(ld\.(global|local)|cp\.async\.c[ag])",
        store=r"(st\.(global|local)|atom|red\.)",
        LDS=r"((ld|st)\.shared|ldmatrix|stmatrix)", wait=r"(bar|barrier|griddepcontrol|membar|fence|mbarrier|cp\.async)", vector=r"[a-z]",
    ),
    re.compile(r"(?!)"), re.compile(r"(mul|mad)(24)?\.((lo|hi)\.[su](16|32)|wide\.[su]16)"), re.compile(r"\..*"),
    re.compile(r"(dp4a\.(u32|s32\.u32)|mma\.sync\..*\.u[48])"), "(?!)",
    re.compile(r"(?:\.v(?P<lanes>\d))?\.[busf](?P<width>\d+)$"),
)  # fmt: skip
_WIDE = 16


@dataclass(frozen=True)
class Summary:
    """Counts over the whole text, each instruction once however often it runs. Of NVIDIA the text is PTX.

    mix:      instructions by kind; dots, own_dots: by mnemonic, and those of them that do not stand in inline assembly
    unsigned: products of bytes or nibbles that are not signed on both sides
    fast, slow: integer products of 24 bits, and of others; NVIDIA has no 24, and products for addresses of 64 bits are left out there
    loads:    bytes a lane of each load from memory, in order; flight: the most that is on its way at once, of straight code, before a wait for loads
    waves:    of a SIMD, by registers and by LDS. Of NVIDIA neither is known here, and both are 0
    """

    mix: dict[str, int]
    dots: dict[str, int]
    own_dots: int
    matrix: int
    unsigned: int
    fast: int
    slow: int
    loads: tuple[int, ...]
    flight: int
    waves: int

    @property
    def wide(self) -> int:
        return sum(one == _WIDE for one in self.loads)


def summary(code: CodeObject | Cubin) -> Summary:
    every = [half for one in code.instructions for half in (one, one.pair) if half is not None]
    amd = isinstance(code, CodeObject)
    patterns = _AMD if amd else _NVIDIA
    kinds = [next((kind for kind, pattern in patterns.kinds.items() if pattern.match(one.mnemonic)), "other") for one in every]
    dots = [one for one, kind in zip(every, kinds, strict=True) if kind == "dot"]
    loads = tuple(_bytes(one, patterns) for one, kind in zip(every, kinds, strict=True) if kind == "load")
    return Summary(
        dict(Counter(kinds)), dict(Counter(patterns.dots.sub("", one.mnemonic) for one in dots)), sum(not one.inline for one in dots),
        kinds.count("matrix"), sum(bool(patterns.unsigned.match(one.mnemonic)) and not _signed(one, patterns) for one in every),
        sum(bool(patterns.fast.match(one.mnemonic)) for one in every), sum(bool(patterns.slow.match(one.mnemonic)) for one in every),
        loads, _flight(every) if amd else 0, waves(code),
    )  # fmt: skip


def waves(code: CodeObject | Cubin) -> int:
    """That a SIMD holds at once, by registers and LDS; 0 where nothing is known of the target's, or not one fits."""
    registers = code.row.registers
    if registers is None or isinstance(code, Cubin):
        return 0
    fit = registers.occupancy(code.vgprs, code.agprs)
    if code.shared:
        fit = min(fit, code.row.lds // code.shared * code.warps // registers.simds)
    return fit


def annotated(code: CodeObject | Cubin) -> list[str]:
    """The assembly with pcs, where they are known, and where it changes the source line."""
    names = {index: label for label, index in code.labels.items()} if isinstance(code, CodeObject) else {}
    lines, before = [], None
    for one in code.instructions:
        if one.index in names:
            lines.append(f"{names[one.index]}:")
        source = f"{one.source[0]}:{one.source[1]}" if one.source else ""
        pc = f"{one.pc:5x}" if one.pc >= 0 else f"{one.index:5d}"
        lines.append(f"  {pc}  {one.text:<72}{f'  ; {source}' if source and source != before else ''}".rstrip())
        before = source
    return lines


def _signed(one: Instruction, patterns: _Patterns) -> bool:
    return any(modifier.startswith(patterns.signed) for modifier in one.modifiers)


def _bytes(one: Instruction, patterns: _Patterns) -> int:
    found = patterns.size.search(one.mnemonic)
    if found is None:  # of copies to shared memory the size is an operand
        asked = re.search(r"\], (0x[0-9a-f]+|\d+)", one.text)
        return int(asked[1], 0) if asked else 0
    part = {name: value for name, value in found.groupdict().items() if value}
    if "width" in part:
        return int(part["width"]) // 8 * int(part.get("lanes", 1))
    if "bits" in part:
        return int(part["bits"]) // 8
    if "words" in part or "word" in part:
        return 4 * int(part.get("words", 1))
    return 1 if part.get("small") == "byte" else 2


def _flight(every: list[Instruction]) -> int:
    most, pending = 0, list[int]()
    for one in every:
        if _AMD.kinds["load"].match(one.mnemonic):
            pending.append(_bytes(one, _AMD))
            most = max(most, sum(pending))
        elif (left := _left(one)) is not None:
            del pending[: max(0, len(pending) - left)]
    return most


def _left(one: Instruction) -> int | None:
    """How many loads a wait leaves on their way; None of what waits for none."""
    if one.mnemonic == "s_waitcnt":
        counts = [re.fullmatch(r"vmcnt\((\d+)\)", part) for part in one.modifiers]
        return next((int(found[1]) for found in counts if found), None)
    if one.mnemonic.startswith("s_wait_loadcnt"):
        # with another counter beside it loads are the upper one (AMD's RDNA4 ISA guide)
        return int(one.operands[0], 0) >> (8 if one.mnemonic != "s_wait_loadcnt" else 0)
    return None
