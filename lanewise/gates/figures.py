"""Figures in documents: a number with a unit of time, size, speed or share. Each has evidence that is in the repo.

Evidence is a comment `<!-- evidence: ID.FIELD -->` behind the figure and outside code, where ID is a record or bundle of bench/records, or the
path of a record in the same paragraph, item or table (or in the text right above the table). Whether the figure is the record's is the business of
`lanewise evidence verify`. A limit or a definition is no measurement: it is excepted by a row.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest

from lanewise.gates.finding import Complaint, Excepted
from lanewise.gates.markdown import Piece, pieces
from lanewise.gates.repo import Repo

__all__ = ["NOT_MEASURED", "unproven"]

_SPEED = r"tok(?:ens?)?(?:/s| (?:a|per) second)|[kKMGT]?i?B/s|[GT]?MACs?/s|[GT]?FLOPS?(?:/s)?|TOPS"
_UNITS = rf"{_SPEED}|[kKMGT]i?B|[mnuµμ]s|ns|s|sec|seconds?|minutes?|hours?|[kMG]Hz|cycles|°C|W|%|x(?= faster| slower| as| the)|×"
_NUMBER = re.compile(rf"(?<![\w.^/-])~?\d[\d,]*(?:\.\d+)?(?:\s?[-–]\s?\d[\d.,]*)?\s?(?:{_UNITS})(?![\w/])")
_PART = r"an? (?:half|third|quarter|fifth|sixth|eighth|tenth|twentieth|hundredth)|two thirds|three quarters"
_MANY = rf"(?:twice|double|half|[a-z]+ times|\d[\d.]* times|{_PART})"
_WHOLE = r"(?:of )?the (?:time|start|speed|memory|size|work|instructions|cost)"
_WORDS = re.compile(rf"\b{_MANY} (?:as (?:fast|slow|quick|large|small|much|many|long)|{_WHOLE})\b")
_EVIDENCE = re.compile(r"<!--\s*evidence:\s*(\S+)\s*-->")
_CODE = re.compile(r"`[^`]*`")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_RECORD = re.compile(r"bench/records/([\w.+-]+)")

NOT_MEASURED = (
    Excepted("README.md", "2 GB", "what the demo needs at most: a requirement"),
    Excepted("README.md", "98 MB", "the size of the file that tools/fetch_model.py knows by its hash"),
    Excepted("docs/reviewer.md", "90 %", "the limit of coverage in pyproject.toml"),
    Excepted("docs/user.md", "95 %", "the level of the interval: a definition"),
    Excepted("docs/user.md", "96 %", "simulated coverage, held by tests/bench/test_bench_stats.py"),
    Excepted("docs/user.md", "97 %", "simulated coverage, held by tests/bench/test_bench_stats.py"),
    Excepted("docs/user.md", "three times as many", "how many rounds a run may add: a limit"),
    Excepted("docs/user.md", "1 GB", "the limit of the read probe: a definition"),
    Excepted("docs/user.md", "4 times as large", "what cold means: a definition"),
    Excepted("docs/user.md", "100 %", "the whole of the read bandwidth: a definition"),
    Excepted("docs/user.md", "2.8 %", "16 bytes of scales for 12 in a block of 144: arithmetic, held by tests/kernels/cpu/test_cpu_pack.py"),
)


def unproven(repo: Repo) -> Iterator[Complaint]:
    """Figures without evidence, and evidence that is not in the repo."""
    for page, text in repo.documents.items():
        above = ""
        for piece in pieces(text):
            yield from _of_piece(repo, page, piece, above if piece.kind == "table" else "")
            above = piece.text


def _of_piece(repo: Repo, page: str, piece: Piece, above: str) -> Iterator[Complaint]:
    spoken = _CODE.sub(lambda code: " " * len(code[0]), piece.text)
    for found in _EVIDENCE.finditer(spoken):
        if _record(repo, found[1]) is None:
            yield Complaint(page, found[1], f"{page}:{_line(piece, found.start())}: there is no record for the evidence {found[1]}")
    proofs = [found.start() for found in _EVIDENCE.finditer(spoken) if _record(repo, found[1])]
    shown = _CODE.sub(lambda code: " " * len(code[0]) if "<!--" in code[0] else code[0], piece.text)  # shows how evidence is written
    visible = _COMMENT.sub(lambda comment: " " * len(comment[0]), shown)
    named = [name for text in (visible, _COMMENT.sub("", above)) for name in _RECORD.findall(text)]
    if any(repo.exists(f"bench/records/{name.rstrip('.')}") for name in named):
        return
    figures = sorted([*_NUMBER.finditer(visible), *_WORDS.finditer(visible)], key=lambda m: m.start())
    for figure, following in zip_longest(figures, figures[1:]):
        end = following.start() if following else len(visible)
        if not any(figure.end() <= proof < end for proof in proofs):
            what = " ".join(figure[0].split())
            yield Complaint(page, what, f"{page}:{_line(piece, figure.start())}: the figure {what!r} has no evidence")


def _record(repo: Repo, evidence: str) -> str | None:
    """The path of the record of ID.FIELD. An id may hold dots itself: the longest that is there counts."""
    ids = [name for name in repo.records if evidence.startswith(f"{name}.") and len(evidence) > len(name) + 1]
    return repo.records[max(ids, key=len)] if ids else None


def _line(piece: Piece, offset: int) -> int:
    return piece.line + piece.text[:offset].count("\n")
