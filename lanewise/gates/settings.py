"""Settings: what is declared is documented and read, what is documented or read is declared.

A setting counts as read when code that something reaches calls `settings.get` or `settings.enabled` with its name, or when a registered
kernel has it as its switch. A comment or a string that merely has the name is not a read.
"""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any

from lanewise.gates.finding import Complaint, Excepted, Finding, Rule, judge
from lanewise.gates.markdown import rows_of
from lanewise.gates.names import PACKAGE, PREFIX
from lanewise.gates.repo import Repo

__all__ = ["RULES", "gate"]

_PAGE, _HOME = "docs/user.md", f"{PACKAGE}/settings.py"
_READERS = ((f"{PACKAGE}.settings", "get"), (f"{PACKAGE}.settings", "enabled"))
_VARIABLE = re.compile(rf"{PREFIX}[A-Z0-9_]+")


def gate(repo: Repo) -> list[Finding]:
    """Ask every rule about settings."""
    return judge("settings", RULES, repo)


def undeclared_reads(repo: Repo) -> Iterator[Complaint]:
    """Settings that code asks for by a name that does not exist."""
    for path, line, name, _ in _reads(repo):
        if name is not None and name not in _declared(repo):
            yield Complaint(path, name, f"{path}:{line}: the setting {name} is read and not declared")


def computed_reads(repo: Repo) -> Iterator[Complaint]:
    """Reads whose name is computed: they could be of any setting, so that each needs a reason."""
    for path, line, name, _ in _reads(repo):
        if name is None:
            yield Complaint(path, "computed", f"{path}:{line}: a setting is read by a name that is computed; give the name")


def unread(repo: Repo) -> Iterator[Complaint]:
    """Settings that nothing reads."""
    read = {name for _, _, name, runs in _reads(repo) if runs} | {kernel["switch"] for kernel in repo.inventory["kernels"]}
    for name in _declared(repo):
        if name not in read:
            yield Complaint(_HOME, name, f"the setting {name} is declared and nothing reads it")


def unexplained(repo: Repo) -> Iterator[Complaint]:
    """Settings that do not say what they take or what they are for, or whose name is not that of their variable."""
    for name, (variable, accepts, purpose) in repo.inventory["help"].items():
        if variable != f"{PREFIX}{name}" or not accepts.strip() or not purpose.strip():
            yield Complaint(_HOME, name, f"the setting {name} does not say what it takes and what it is for")


def undocumented(repo: Repo) -> Iterator[Complaint]:
    """Settings without a row in the users' table, and rows of that table whose default is not the setting's."""
    rows = {_code(cells[0]).removeprefix(PREFIX): _code(cells[1]) for cells in rows_of(repo.text(_PAGE), "variable")}
    for name, default in _declared(repo).items():
        if name not in rows:
            yield Complaint(_PAGE, name, f"{PREFIX}{name} has no row in {_PAGE}")
        elif default is not None and rows[name] != _written(default):
            yield Complaint(_PAGE, name, f"{_PAGE}: the default of LANEWISE_{name} is {_written(default)}, and the table says {rows[name]}")


def unknown(repo: Repo) -> Iterator[Complaint]:
    """Variables that a document, a string of the package or a test's environment names and that do not exist."""
    for path, text in repo.documents.items():
        for name in sorted(set(_VARIABLE.findall(text))):
            yield from _unless_declared(repo, path, name)
    for path, tree in repo.sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in _VARIABLE.findall(node.value):
                    yield from _unless_declared(repo, path, name)
    for path, tree in repo.tests.items():
        for node in ast.walk(tree):
            set_or_unset = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("setenv", "delenv")
            first = node.args[0] if set_or_unset and isinstance(node, ast.Call) and node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and _VARIABLE.fullmatch(first.value):
                yield from _unless_declared(repo, path, first.value)


def _unless_declared(repo: Repo, path: str, variable: str) -> Iterator[Complaint]:
    if variable.removeprefix(PREFIX) not in _declared(repo):
        yield Complaint(path, variable, f"{path}: {variable} does not exist")


def _declared(repo: Repo) -> dict[str, Any]:
    return dict(repo.inventory["settings"])


@functools.lru_cache(maxsize=1)
def _reads(repo: Repo) -> tuple[tuple[str, int, str | None, bool], ...]:
    """(path, line, setting, whether anything comes to it) of every read; None for a name that is no constant."""
    found: list[tuple[str, int, str | None, bool]] = []
    names = repo.names
    for module, path in names.paths.items():
        for symbol, nodes in names.symbols[module].items() if path != _HOME else ():
            for call in (c for node in nodes for c in names.calls(module, node, *_READERS)):
                first = call.args[0] if call.args else None
                name = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
                found.append((path, call.lineno, name, (module, symbol) in repo.reached))
    return tuple(found)


def _code(cell: str) -> str:
    return cell.strip().strip("`")


def _written(default: Any) -> str:
    return str(int(default)) if isinstance(default, bool) else str(default)


RULES = (
    Rule("reads_are_declared", "every setting that is read is declared", undeclared_reads),
    Rule(
        "reads_have_names",
        "every read says which setting it reads",
        computed_reads,
        (
            Excepted(f"{PACKAGE}/contract.py", "computed", "a kernel's switch; the registry says which settings these are"),
            Excepted(f"{PACKAGE}/bench/machine.py", "computed", "a record holds every setting; it counts as a read of none"),
        ),
    ),
    Rule("declared_are_read", "every setting is read somewhere", unread),
    Rule("declared_are_explained", "every setting says what it takes and what it is for", unexplained),
    Rule("declared_are_documented", f"every setting has a row in {_PAGE}, with its default", undocumented),
    Rule("names_exist", "every variable that a page, a message or a test names exists", unknown),
)
