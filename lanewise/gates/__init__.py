"""The repo's own checks: `python -m lanewise.gates`, which CI runs with `make lint`.

A gate is a function from a `Repo` to findings, each ok, FAIL or SKIP. Rules read syntax trees, the registry and the real command line:
a comment, or a string that merely has the right words, satisfies none of them.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from lanewise.gates import docs, kernels, layout, meta, settings
from lanewise.gates.finding import Complaint, Excepted, Finding, Rule, Skip
from lanewise.gates.repo import Repo

__all__ = ["GATES", "Complaint", "Excepted", "Finding", "Repo", "Rule", "Skip", "check", "green"]

GATES: dict[str, Callable[[Repo], list[Finding]]] = {
    "settings": settings.gate,
    "kernels": kernels.gate,
    "docs": docs.gate,
    "layout": layout.gate,
    "meta": meta.gate,
}


def check(root: Path, only: Iterable[str] = ()) -> list[Finding]:
    """Every finding of every gate, or of those named in `only`, over the tree at `root`."""
    repo = Repo(root)
    return [finding for name, gate in GATES.items() if not only or name in only for finding in gate(repo)]


def green(findings: Iterable[Finding]) -> bool:
    """Whether everything was asked and everything held: something that was skipped is not green, and neither is nothing at all."""
    states = {finding.state for finding in findings}
    return states == {"ok"}
