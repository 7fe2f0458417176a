"""A repository as the gates see it: its sources as syntax trees, its documents as text, and what its package says of itself when it runs."""

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lanewise.gates.names import PACKAGE, PREFIX, Names, Symbol

__all__ = ["Broken", "Repo", "checkout"]

_SCRIPT = Path(__file__).with_name("inventory.py")
_PROVING = ("emulate", "isa")


@functools.cache
def _parse(text: str, name: str) -> ast.Module:
    """A syntax tree, shared by every repo that has this very text: nobody changes it."""
    return ast.parse(text, name)


class Broken(Exception):  # noqa: N818 (what a gate reports)
    """The tree cannot be asked: its package does not import."""


class Repo:
    """The tree under `root`. Everything is read once, when it is first asked for; paths are relative, with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @functools.cached_property
    def sources(self) -> dict[str, ast.Module]:
        """Every module of the package."""
        return dict(self._parsed(PACKAGE))

    @functools.cached_property
    def tests(self) -> dict[str, ast.Module]:
        """Every file of the tests."""
        return dict(self._parsed("tests"))

    @functools.cached_property
    def documents(self) -> dict[str, str]:
        """Every page that a reader may take for true."""
        pages = [*sorted(self.root.glob("*.md")), *sorted((self.root / "docs").glob("*.md"))]
        return {self._name(page): page.read_text(encoding="utf-8") for page in pages}

    @functools.cached_property
    def records(self) -> dict[str, str]:
        """Evidence in the repo: the id of each record or bundle (its name without a suffix) and its path."""
        folder = self.root / "bench" / "records"
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        return {(path.name if path.is_dir() else path.stem): self._name(path) for path in found}

    @functools.cached_property
    def inventory(self) -> dict[str, Any]:
        """What this tree's package answers when it is imported, in a process of its own: see `inventory.py` for the keys."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        command = [sys.executable, "-c", _SCRIPT.read_text(encoding="utf-8")]
        environment["PYTHONPATH"] = str(self.root)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.root, env=environment, timeout=300, check=False)
        if done.returncode:
            raise Broken(f"the package does not import: {(done.stderr.strip().splitlines() or ['no word why'])[-1]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))

    @functools.cached_property
    def names(self) -> Names:
        """The package's names, followed through imports."""
        return Names(self.sources)

    @functools.cached_property
    def reached(self) -> set[Symbol]:
        """Every symbol that a command, the body of a registered kernel or the front door comes to: a backend's list of kernels too.

        Commands that prove kernels do not count: what nobody else comes to is in nobody's use.
        """
        bodies = {(k["module"], k["function"].split(".")[0]) for k in self.inventory["kernels"]}
        found, ahead = bodies, [command for name, command in self.inventory["commands"].items() if name not in _PROVING]
        for name in self.inventory["front_door"]:
            found |= self.names.resolve(f"{PACKAGE}.{name}")
        while ahead:
            command = ahead.pop()
            found.add((command["module"], command["function"].split(".")[0]))
            ahead += command["commands"].values()
        return self.names.reached(found)

    def text(self, path: str) -> str:
        """A file's text; empty when it is not there."""
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def _parsed(self, folder: str) -> Iterator[tuple[str, ast.Module]]:
        for path in sorted((self.root / folder).rglob("*.py")):
            yield self._name(path), _parse(path.read_text(encoding="utf-8"), self._name(path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def checkout() -> Path:
    """The root of the tree that this package was imported from."""
    return Path(__file__).resolve().parent.parent.parent
