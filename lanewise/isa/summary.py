"""What a kernel's machine code consists of, counted: dots, products, loads, registers, waves, bytes in flight."""

import re
from collections import Counter
from dataclasses import dataclass

from lanewise.isa.assembly import Instruction
from lanewise.isa.code_object import CodeObject

__all__ = ["Summary", "annotated", "summary"]

_KINDS = (
    ("dot", re.compile(r"v_dot\d")),
    ("matrix", re.compile(r"v_(wmma|mfma|smfmac|swmmac)")),
    ("load", re.compile(r"(buffer|global|flat|scratch)_load")),
    ("store", re.compile(r"(buffer|global|flat|scratch)_(store|atomic)")),
    ("LDS", re.compile(r"ds_")),
    ("wait", re.compile(r"s_(wait|delay_alu|nop|barrier|clause)")),
    ("scalar", re.compile(r"s_")),
    ("vector", re.compile(r"v_")),
)
_FAST = re.compile(r"v_(dual_)?(mul|mad)_[iu]32_[iu]24")
_SLOW = re.compile(r"v_(mul_lo|mul_hi|mad_[iu]64|mad_co_[iu]64)")
_UNSIGNED = re.compile(r"v_(dot\d|wmma|swmmac)\w*_iu[48]")
_BYTES = re.compile(r"_(?:b(\d+)|dwordx(\d)|(dword)|[us]?(short|byte)|([us]8|[ui]16|d16))")
_WIDE = 16


@dataclass(frozen=True)
class Summary:
    """Counts over the whole text, each instruction once however often it runs.

    mix:      instructions by kind; dots, own_dots: by mnemonic, and those of them that do not stand in inline assembly
    unsigned: products of bytes or nibbles that are not signed on both sides
    fast, slow: integer products of 24 and of 32 bits
    loads:    bytes a lane of each load from memory, in order; flight: the most that is on its way at once, of straight code, before a wait for loads
    waves:    of a SIMD, by registers and by LDS
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


def summary(code: CodeObject) -> Summary:
    every = [half for one in code.instructions for half in (one, one.pair) if half is not None]
    mix = Counter(next((kind for kind, pattern in _KINDS if pattern.match(one.mnemonic)), "other") for one in every)
    dots = [one for one in every if _KINDS[0][1].match(one.mnemonic)]
    return Summary(
        dict(mix), dict(Counter(_plain(one.mnemonic) for one in dots)), sum(not one.inline for one in dots), mix["matrix"],
        sum(bool(_UNSIGNED.match(one.mnemonic)) and not _signed(one) for one in every),
        sum(bool(_FAST.match(one.mnemonic)) for one in every), sum(bool(_SLOW.match(one.mnemonic)) for one in every),
        tuple(_bytes(one) for one in every if _KINDS[2][1].match(one.mnemonic)), _flight(every), waves(code),
    )  # fmt: skip


def waves(code: CodeObject) -> int:
    """That a SIMD holds at once, by registers and LDS; 0 where nothing is known of the target's, or not one fits."""
    registers = code.row.registers
    if registers is None:
        return 0
    fit = registers.occupancy(code.vgprs, code.agprs)
    if code.shared:
        fit = min(fit, code.row.lds // code.shared * code.warps // registers.simds)
    return fit


def annotated(code: CodeObject) -> list[str]:
    """The assembly with pcs and, where it changes, the source line."""
    names = {index: label for label, index in code.labels.items()}
    lines, before = [], None
    for one in code.instructions:
        if one.index in names:
            lines.append(f"{names[one.index]}:")
        source = f"{one.source[0]}:{one.source[1]}" if one.source else ""
        lines.append(f"  {one.pc:5x}  {one.text:<72}{f'  ; {source}' if source and source != before else ''}".rstrip())
        before = source
    return lines


def _plain(mnemonic: str) -> str:
    return re.sub(r"_(e32|e64|dpp|sdwa)$", "", mnemonic)


def _signed(one: Instruction) -> bool:
    return any(modifier.startswith("neg_lo:[1,1") for modifier in one.modifiers)


def _bytes(one: Instruction) -> int:
    found = _BYTES.search(one.mnemonic)
    if found is None:
        return 0
    bits, words, word, small, _ = found.groups()
    return int(bits) // 8 if bits else 4 * int(words) if words else 4 if word else 1 if small == "byte" else 2


def _flight(every: list[Instruction]) -> int:
    most, pending = 0, list[int]()
    for one in every:
        if _KINDS[2][1].match(one.mnemonic):
            pending.append(_bytes(one))
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
