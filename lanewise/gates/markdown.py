"""Markdown as the gates read it: code spans, fenced blocks, tables, and pieces of text that stand or fall together."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Piece", "pieces", "rows_of", "spans"]

_FENCE = re.compile(r"^(```|~~~)\s*(\w*)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph, an item of a list, a heading, a table or a fenced block: its first line's number, kind and text.

    kind: "text", "table", or for a fenced block "```" and its language.
    """

    line: int
    kind: str
    text: str


def pieces(document: str) -> Iterator[Piece]:
    """The document in order. A new item of a list or a heading begins a piece, as an empty line does; fences are left out."""
    lines = document.splitlines()
    start, kind, held = 0, "", list[str]()
    for number, line in enumerate([*lines, ""], 1):
        fence = _FENCE.match(line)
        inside = kind.startswith("```")
        if inside and not fence and number <= len(lines):
            held.append(line)
            continue
        this = "table" if line.lstrip().startswith("|") else "text" if line.strip() else ""
        begins = bool(re.match(r"\s*([-*] |\d+\. |#+ )", line))
        if held and (inside or fence or this != kind or begins or not this):
            yield Piece(start, kind, "\n".join(held))
        if inside or fence or this != kind or begins or not this:
            start, held = (number + 1 if fence else number), []
            kind = "" if inside else f"```{fence[2]}" if fence else this
        if this and not fence and not inside:
            held.append(line)


def spans(document: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the code spans outside fenced blocks and comments."""
    for piece in pieces(document):
        if not piece.kind.startswith("```"):
            text = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), piece.text)
            for found in re.finditer(r"`([^`]+)`", text):
                yield piece.line + text[: found.start()].count("\n"), " ".join(found[1].split())


def rows_of(document: str, head: str) -> list[list[str]]:
    """The cells of the rows of every table whose first heading is `head`."""
    found: list[list[str]] = []
    for piece in pieces(_COMMENT.sub("", document)):  # a row that is commented out is none
        if piece.kind == "table":
            cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in piece.text.splitlines()]
            found += cells[2:] if cells[0][0] == head else []
    return found
