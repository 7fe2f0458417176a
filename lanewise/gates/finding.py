"""What a gate says. A rule is a check over the repo; what it finds is ok, FAIL or SKIP, each in words.

What a rule forbids may be excepted by a row with its reason. A row that excepts nothing any more is itself a failure, so that exceptions
do not outlive what they were made for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lanewise.gates.repo import Broken, Repo

__all__ = ["Complaint", "Excepted", "Finding", "Rule", "Skip", "judge"]


class Skip(Exception):  # noqa: N818 (a reason, and no error)
    """A rule that cannot be asked here, and why."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """One place where a rule is broken. `where`: a path of the repo; `what`: a short key, stable while lines move; `words`: the sentence."""

    where: str
    what: str
    words: str


@dataclass(frozen=True, slots=True)
class Excepted:
    """A complaint that is allowed, known by its where and what ("*" for any), and why."""

    where: str
    what: str
    reason: str

    def covers(self, complaint: Complaint) -> bool:
        return self.where == complaint.where and self.what in ("*", complaint.what)


@dataclass(frozen=True, slots=True)
class Rule:
    """name: unique within its gate; holds: what is true when nothing is complained of; check(repo) finds where it is not."""

    name: str
    holds: str
    check: Callable[[Repo], Iterable[Complaint]]
    excepted: tuple[Excepted, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule of one gate says: state is "ok", "FAIL" or "SKIP"."""

    gate: str
    rule: str
    state: str
    words: str

    def __str__(self) -> str:
        return f"{self.state:4} {self.gate}.{self.rule}: {self.words}"


def judge(gate: str, rules: Iterable[Rule], repo: Repo) -> list[Finding]:
    """Ask every rule: one ok for each that holds, one FAIL for each complaint, one SKIP for each that cannot be asked."""
    found: list[Finding] = []
    for rule in rules:
        try:
            complaints = list(rule.check(repo))
        except Skip as skip:
            found.append(Finding(gate, rule.name, "SKIP", str(skip)))
            continue
        except Broken as error:
            found.append(Finding(gate, rule.name, "FAIL", str(error)))
            continue
        broken = [c.words for c in complaints if not any(row.covers(c) for row in rule.excepted)]
        for row in rule.excepted:
            if not row.reason.strip():
                broken.append(f"{row.where}: {row.what} is excepted without a reason")
            if not any(row.covers(c) for c in complaints):
                broken.append(f"{row.where}: {row.what} is excepted ({row.reason}), and nothing is left to except")
        found += [Finding(gate, rule.name, "FAIL", words) for words in broken] or [Finding(gate, rule.name, "ok", rule.holds)]
    return found
