"""A copy of the repository that a test may break, and what a rule says of it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from lanewise.gates import Repo
from lanewise.gates.finding import Finding, Rule, judge

ROOT = Path(__file__).resolve().parent.parent.parent
REPO = Repo(ROOT)
# What the gates read. The rest of a checkout (environments, models, caches) stays where it is.
_PARTS = ("*.md", "*.toml", "Makefile", ".ci/*", "docs/*.md", "tools/*.py", "bench/records/**/*", "lanewise/**/*.py", "tests/**/*.py")
Edit = str | tuple[str, str] | None


def copied(target: Path, edits: Mapping[str, Edit]) -> Repo:
    """A copy with some files changed: a whole new text, (old, new) of a passage that is there once, or None to take the file away."""
    for part in _PARTS:
        for path in ROOT.glob(part):
            if path.is_file():
                there = target / path.relative_to(ROOT)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, there)
    for name, edit in edits.items():
        path = target / name
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        if isinstance(edit, tuple):
            old, new = edit
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
            text = text.replace(old, new)
        if edit is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if isinstance(edit, tuple) else edit)
    repo = Repo(target)
    if not any(name.endswith(".py") and not name.startswith("tests/") for name in edits):
        repo.inventory = REPO.inventory  # the package is the same and need not be asked again
    return repo


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
