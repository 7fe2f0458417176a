"""A copy of the repository that a test may break, and what a rule says of it."""

import atexit
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lanewise.gates import Repo
from lanewise.gates.finding import Finding, Rule, judge

ROOT = Path(__file__).resolve().parent.parent.parent
REPO = Repo(ROOT)
# What the gates read. The rest of a checkout (environments, models, caches) stays where it is.
_PARTS = ("*.md", "*.toml", "Makefile", ".ci/*", "docs/*.md", "tools/*.py", "bench/records/**/*", "lanewise/**/*.py", "tests/**/*.py")
# Every write of the copy has a time of its own, so that Python never takes a compiled file for that of another text.
_CLOCK = itertools.count(10**9)
Edit = str | tuple[str, str] | None


@functools.cache
def _copy() -> Path:
    """One copy of the repository for all the tests of a process, taken away when it ends."""
    target = Path(tempfile.mkdtemp(prefix="lanewise-gates-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for part in _PARTS:
        for path in ROOT.glob(part):
            if path.is_file():
                there = target / path.relative_to(ROOT)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, there)
    return target


@contextmanager
def changed(edits: Mapping[str, Edit]) -> Iterator[Repo]:
    """The copy with some files changed: a whole new text, (old, new) of a passage that is there once, or None to take the file away."""
    target = _copy()
    before = {name: (target / name).read_text() if (target / name).exists() else None for name in edits}
    try:
        for name, edit in edits.items():
            if isinstance(edit, tuple):
                text, (old, new) = before[name] or "", edit
                assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
                edit = text.replace(old, new)
            _put(target / name, edit)
        repo = Repo(target)
        if not any(name.endswith(".py") and not name.startswith("tests/") for name in edits):
            repo.inventory = REPO.inventory  # the package is the same and need not be asked again
        yield repo
    finally:
        for name, text in before.items():
            _put(target / name, text)


def _put(path: Path, text: str | None) -> None:
    path.unlink(missing_ok=True)
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (next(_CLOCK),) * 2)


def tree(target: Path, files: Mapping[str, str]) -> Repo:
    """A small repository of these files alone."""
    for name, text in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Repo(target)


def asked(rule: Rule, repo: Repo) -> list[Finding]:
    return judge("gate", [rule], repo)


def words(check, repo: Repo) -> list[str]:
    """What a check complains of, nothing excepted."""
    return [complaint.words for complaint in check(repo)]
