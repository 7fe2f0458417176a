"""A commit as something that can be run: a git worktree, and a virtual environment that has it installed, kept by commit.

Both lie in the cache directory; deleting them costs time and nothing else.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lanewise import settings
from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError

__all__ = ["Tree", "commit_id", "tree_of"]

_GIT_SECONDS, _INSTALL_SECONDS = 120, 1800
_PROJECTS = ("pyproject.toml", "setup.py")
_DONE = "done"  # written last: an environment without it was cut short


@dataclass(frozen=True, slots=True)
class Tree:
    """folder: the checkout; environment: its virtual environment, None for a commit that is no Python project; files: a hash of all."""

    commit: str
    folder: Path
    environment: Path | None
    files: str


def commit_id(rev: str, repository: Path) -> str:
    """The whole id of a revision. Raises EvidenceError where there is no such commit, or no repository."""
    return _git(repository, "rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}", failing=f"{rev!r} is no commit here")


def tree_of(commit: str, repository: Path) -> Tree:
    """The commit checked out and, with what it depends on, installed: from the cache, or made. Raises EvidenceError when that fails."""
    place = Path(settings.get("CACHE_DIR") or Path.home() / ".cache" / "lanewise") / "ab" / f"{commit}-{sys.implementation.cache_tag}"
    folder, environment, done = place / "tree", place / "environment", place / _DONE
    if not (done.exists() and _untouched(folder, commit)):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, mode=0o700)
        _git(repository, "worktree", "prune", failing="old worktrees cannot be forgotten")
        _git(repository, "worktree", "add", "--quiet", "--detach", str(folder), commit, failing=f"commit {commit[:12]} cannot be checked out")
        if _is_project(folder):
            _install(folder, environment)
        done.touch()
    listed = _git(repository, "ls-tree", "-r", "--full-tree", commit, failing=f"the files of {commit[:12]} cannot be listed")
    return Tree(commit, folder, environment if _is_project(folder) else None, digest(listed.encode()))


def _is_project(folder: Path) -> bool:
    return any((folder / name).exists() for name in _PROJECTS)


def _untouched(folder: Path, commit: str) -> bool:
    """Whether a worktree still is that commit, as nobody else may have written to it."""
    try:
        head = _git(folder, "rev-parse", "HEAD", failing="")
        return head == commit and not _git(folder, "status", "--porcelain", "--untracked-files=no", failing="")
    except EvidenceError:
        return False


def _install(folder: Path, environment: Path) -> None:
    _run([sys.executable, "-m", "venv", str(environment)], folder, _INSTALL_SECONDS, "no virtual environment can be made")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "."]
    _run(pip, folder, _INSTALL_SECONDS, f"{folder} cannot be installed")


def _git(folder: Path, *words: str, failing: str) -> str:
    return _run(["git", *words], folder, _GIT_SECONDS, failing)


def _run(argv: Sequence[str], folder: Path, seconds: float, failing: str) -> str:
    """What it prints. Raises EvidenceError with `failing` and the last line of what it complained of."""
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace", timeout=seconds)
    except OSError as error:
        raise EvidenceError(f"{failing}: {argv[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise EvidenceError(f"{failing}: {argv[0]} took more than {seconds:.0f} seconds") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise EvidenceError(f"{failing}: {said[-1]}" if said else failing)
    return done.stdout.strip()
