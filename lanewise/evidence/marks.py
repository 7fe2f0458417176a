"""Find what a document quotes: figures with a mark behind them, and numbers in rows of tables that name a record.

A mark is `<!-- evidence: ID.FIELD -->` directly behind the number. Code, fenced or in backticks, quotes nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["UNITS", "Mark", "Row", "agrees", "find_marks", "find_rows", "numbers", "sentences"]

# What one of each is in the unit of a figure: seconds, bytes or operations a second, a ratio.
UNITS: dict[str, float] = {
    "": 1.0, "x": 1.0, "×": 1.0, "times": 1.0, "%": 1e-2, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9,
    "B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GMAC/s": 1e9, "TMAC/s": 1e12, "GOP/s": 1e9, "TOP/s": 1e12, "tok/s": 1.0, "tokens/s": 1.0,
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "tokens": 1.0, "threads": 1.0, "pairs": 1.0, "rounds": 1.0,
}  # fmt: skip
_UNIT = "|".join(sorted(map(re.escape, filter(None, UNITS)), key=len, reverse=True))
_NUMBER = re.compile(rf"(?<![\w.,/-])(?P<number>[-−+]?\d+(?:,\d{{3}})*(?:\.\d+)?)[ \u00a0]?(?P<unit>{_UNIT})?(?![\w/-]|[.,]\d)")
_MARK = re.compile(r"<!--\s*evidence:\s*(?P<target>.*?)\s*-->", re.DOTALL)
_RECORD = re.compile(r"bench/records/(?P<id>[\w.+-]+)")
_CODE = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HIDDEN = "\x01"
_BLOCKS = ("\n\n", "\n- ", "\n* ", "\n#", "\n|")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*_\d])")


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark: its line, `ID.FIELD`, the number and unit in front of it (None without one), what stands before the mark and before the
    number, and the sentence."""

    line: int
    target: str
    number: str | None
    unit: str
    before: str
    lead: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table that names records: (column's head, number, unit) of each number in it, and its text.

    A paragraph that names records is one too, with the numbers that have a unit.
    """

    line: int
    ids: tuple[str, ...]
    numbers: tuple[tuple[str, str, str], ...]
    text: str
    table: bool = True


def agrees(number: str, unit: str, figure: float) -> bool:
    """Whether a figure, in the unit and at the precision of the number as it is written, is that number.

    >>> agrees("1.43", "x", 1.4349), agrees("76", "%", 0.7587), agrees("1.5", "", 1.43)
    (True, True, False)
    """
    plain = number.replace(",", "").replace("−", "-")
    places = len(plain.partition(".")[2])
    # half a unit of the last place, and what the conversion to binary may cost
    return abs(figure / UNITS[unit] - float(plain)) <= 0.5 * 10.0**-places * (1 + 1e-9)


def numbers(text: str) -> Iterator[tuple[str, str]]:
    """(number, unit) of each number in a text that stands for itself: not those in names, versions, dates and paths."""
    yield from ((found["number"], found["unit"] or "") for found in _NUMBER.finditer(text))


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph."""
    return _SENTENCE.split(text)


def find_marks(text: str) -> list[Mark]:
    """Every mark of a document, in order."""
    text = _without_code(text)
    marks = []
    for found in _MARK.finditer(text):
        start = max(text.rfind("\n\n", 0, found.start()) + 1, 0)
        before = _COMMENT.sub("", text[start : found.start()]).rstrip(" *_")
        last = None
        for last in _NUMBER.finditer(before):  # noqa: B007 (the last one is wanted)
            pass
        number, unit, lead = None, "", before
        if last is not None and last.end() == len(before):
            number, unit, lead = last["number"], last["unit"] or "", before[: last.start()]
        sentence = _sentence(text, found.start(), found.end())
        marks.append(Mark(text.count("\n", 0, found.start()) + 1, found["target"], number, unit, before, lead, sentence))
    return marks


def find_rows(text: str) -> list[Row]:
    """The rows of tables that name a record, in themselves or in the line in front of their table, and the paragraphs that do."""
    lines = _without_code(text, spans=False).split("\n")
    rows = list(_paragraphs(lines))
    for first, last in _tables(lines):
        above = next((line for line in reversed(lines[max(0, first - 2) : first]) if line.strip()), "")
        common = _named(above)
        head = _cells(lines[first])
        for i in range(first + 2, last):
            named = _named(lines[i]) or common
            cells = [_RECORD.sub("", _MARK.sub("\0", re.sub(r"\([^)]*\.json\)", "", cell))) for cell in _cells(lines[i])]
            found = [(head[c] if c < len(head) else "", n, unit) for c, cell in enumerate(cells) if "\0" not in cell for n, unit in numbers(cell)]
            rows += [Row(i + 1, named, tuple(found), lines[i])] if named else []
    return rows


def _paragraphs(lines: list[str]) -> Iterator[Row]:
    first = 0
    for i, line in enumerate([*lines, ""]):
        if line.strip() and not line.lstrip().startswith(("|", "#")):
            continue
        text = "\n".join(lines[first:i])
        if named := _named(text):
            marked = re.sub(rf"{_NUMBER.pattern}[ *_]*<!--.*?-->", "", text, flags=re.DOTALL)
            found = [("", number, unit) for number, unit in numbers(_RECORD.sub("", marked)) if unit]
            yield Row(first + 1, named, tuple(found), " ".join(text.split()), table=False)
        first = i + 1


def _named(text: str) -> tuple[str, ...]:
    """The records that a text names, without their endings."""
    names = (found["id"].rstrip(".").removesuffix(".json").removesuffix(".zip") for found in _RECORD.finditer(text))
    return tuple(dict.fromkeys(names))


def _tables(lines: list[str]) -> Iterator[tuple[int, int]]:
    """[first, last) of each run of lines with a head, a rule below it, and rows."""
    i = 0
    while i + 1 < len(lines):
        if lines[i].lstrip().startswith("|") and re.fullmatch(r"\s*\|[\s:|-]+\|?\s*", lines[i + 1]):
            last = i + 2
            while last < len(lines) and lines[last].lstrip().startswith("|"):
                last += 1
            yield i, last
            i = last
        else:
            i += 1


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence round a mark, or the whole row of a table, without its marks."""
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", _HIDDEN, found[0]), text)
    first, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    if text[first:].lstrip(" ").startswith("|"):
        return _plain(text[first : stop if stop >= 0 else len(text)])
    begin = max(text.rfind(mark, 0, start) for mark in _BLOCKS) + 1
    last = min((place for mark in _BLOCKS if (place := text.find(mark, end)) >= 0), default=len(text))
    breaks = [begin, *(begin + found.end() for found in _SENTENCE.finditer(text[begin:last])), last]
    begin = max(place for place in breaks if place <= start)
    return _plain(text[begin : min(place for place in breaks if place >= end)])


def _plain(text: str) -> str:
    return " ".join(text.replace(_HIDDEN, "").split())


def _without_code(text: str, *, spans: bool = True) -> str:
    """The text with its code blanked, of the same length and with the same lines."""

    def blank(found: re.Match[str]) -> str:
        if not spans and not found["fence"]:
            return found[0]
        return re.sub(r"[^\n]", " ", found[0])

    return _CODE.sub(blank, text)
