"""Reads x86 and aarch64 assembly as LLVM prints it: the innermost loops of a function, and what stands in them."""

import re
from collections.abc import Sequence

_LABEL = re.compile(r"(\.LBB\w+):")
_BRANCH = re.compile(r"\t(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\t(?:.*, *)?(\.LBB\w+)")
_STACK = re.compile(r"\(%r[sb]p[,)]|\[sp\b|\[x29\b")


def loops(text: str) -> list[list[str]]:
    """The instructions of every innermost loop: from a label to a branch back to it that holds no other such pair."""
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    places = {found.group(1): i for i, line in enumerate(lines) if (found := _LABEL.match(line))}
    ranges = set()
    for i, line in enumerate(lines):
        found = _BRANCH.match(line)
        if found and places.get(found.group(1), i + 1) <= i:
            ranges.add((places[found.group(1)], i))
    inner = [(a, b) for a, b in sorted(ranges) if not any((c, d) != (a, b) and a <= c and d <= b for c, d in ranges)]
    return [[line for line in lines[a : b + 1] if line.startswith("\t") and not line.startswith("\t.")] for a, b in inner]


def count(lines: Sequence[str], mnemonic: str) -> int:
    """How many of the lines are that instruction."""
    return sum(1 for line in lines if _mnemonic(line) == mnemonic)


def _mnemonic(line: str) -> str:
    return line.removeprefix("\t{vex}").strip().split("\t")[0]


def on_stack(lines: Sequence[str]) -> list[str]:
    """Lines that read or write the stack."""
    return [line.strip() for line in lines if _STACK.search(line)]
