"""Documents: their commands run, what they cite is there, their lists match the code, and every figure has evidence."""

import re
from collections.abc import Iterator

from lanewise.gates import citations, commands, figures
from lanewise.gates.finding import Complaint, Finding, Rule, judge
from lanewise.gates.listing import listed
from lanewise.gates.markdown import rows_of
from lanewise.gates.repo import Repo

__all__ = ["RULES", "gate"]

_GUIDE, _REVIEW = "docs/user.md", "docs/reviewer.md"


def gate(repo: Repo) -> list[Finding]:
    """Ask every rule about documents."""
    return judge("docs", RULES, repo)


def wrong_lists(repo: Repo) -> Iterator[Complaint]:
    """Formats and families of the README that are not those of the code."""
    text = repo.text("README.md")
    formats = [cell for row in re.findall(r"^\| Formats \| ([^|]+) \|", text, re.MULTILINE) for cell in row.split(", ")]
    if formats != repo.inventory["formats"]:
        yield Complaint("README.md", "formats", f"README.md: the formats are {', '.join(repo.inventory['formats'])}")
    families = [name for row in re.findall(r"^\| Models \| ([^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    if families != repo.inventory["families"]:
        yield Complaint("README.md", "families", f"README.md: the families are {', '.join(repo.inventory['families'])}")


def wrong_types(repo: Repo) -> Iterator[Complaint]:
    """Types in examples of `quantize` and `bench` that nothing can write."""
    for command in commands.commands(repo):
        for option, value in zip(command.words, command.words[1:], strict=False):
            if command.words[0] == "lanewise" and option == "--type" and value not in (*repo.inventory["types"], "T"):
                yield Complaint(command.page, value, f"{command.page}:{command.line}: there is no type {value}")


def unmentioned(repo: Repo) -> Iterator[Complaint]:
    """Commands without a row in the users' table."""
    rows = [" ".join(cells[0].strip("`").split()) for cells in rows_of(repo.text(_GUIDE), "command")]
    ahead = [(f"lanewise {name}", command) for name, command in repo.inventory["commands"].items()]
    while ahead:
        name, command = ahead.pop(0)
        ahead += [(f"{name} {below}", more) for below, more in command["commands"].items()]
        if not command["commands"] and not any(row == name or row.startswith(f"{name} ") for row in rows):
            yield Complaint(_GUIDE, name, f"{_GUIDE} has no row for `{name}`")


def silent_targets(repo: Repo) -> Iterator[Complaint]:
    """Targets that a user may type and that `make help` does not explain."""
    targets = commands.makefile(repo.text("Makefile"))
    explained = {word for line in targets.get("help", ()) for word in re.findall(r'^@?echo "make (\w+)', line)}
    for name in targets.get(".PHONY", ()) or re.findall(r"^\.PHONY: (.+)$", repo.text("Makefile"), re.MULTILINE):
        for target in name.split():
            if target not in explained | {"help", "model"}:
                yield Complaint("Makefile", target, f"Makefile: `make help` does not explain {target}")


def gates_without_a_row(repo: Repo) -> Iterator[Complaint]:
    """Gates of the list that the reviewers' table does not have, and rows of it that are not in the list."""
    rows = [cells[0].strip("`") for cells in rows_of(repo.text(_REVIEW), "gate")]
    for name in sorted(set(listed(repo)) ^ set(rows)):
        missing = f"a row for the gate {name}, which is not in the list" if name in rows else f"no row for the gate {name}"
        yield Complaint(_REVIEW, name, f"{_REVIEW} has {missing}")


RULES = (
    Rule("links", "every link inside the project leads somewhere", citations.broken_links),
    Rule("commands", "every command, option and target of a document exists", commands.unknown),
    Rule("commands_run", "a test runs every command of a document", commands.not_run, commands.NOT_RUN),
    Rule("citations", "every file and symbol that a document names is there", citations.unresolved),
    Rule("examples", "Python in documents parses, and what it imports is there", citations.unresolved_imports),
    Rule("lists", "the README lists the formats and families that there are", wrong_lists),
    Rule("types", "the types in examples exist", wrong_types),
    Rule("guide", f"{_GUIDE} has a row for every command", unmentioned),
    Rule("make", "`make help` explains every target", silent_targets),
    Rule("gates", f"the list of gates and the table of {_REVIEW} are the same", gates_without_a_row),
    Rule("figures", "every figure has evidence or is a limit", figures.unproven, figures.NOT_MEASURED),
)
