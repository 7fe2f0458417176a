"""The gates' own gate: each is listed, each of its rules is shown a planted violation, the tests that show them run, and CI calls them.

It reads the checked tree's sources. That this gate itself is in the list is held by the gate `docs`, whose table must have it, and by a test.
"""

import ast
from collections.abc import Iterator

from lanewise.gates import ci
from lanewise.gates.finding import Complaint, Finding, Rule, judge
from lanewise.gates.listing import FOLDER, PLANTED, gate_files, listed, planted, rules_of
from lanewise.gates.repo import Repo

__all__ = ["GATES_OF_THE_ISSUE", "NEEDED", "RULES", "gate"]

GATES_OF_THE_ISSUE = ("settings", "kernels", "docs", "layout", "meta")
# Tests that hold a gate up, and what each is parametrized by: (file, function, the argument's source, or "" for none).
NEEDED = (
    (f"{PLANTED[: PLANTED.rindex('/')]}/test_gates_planted.py", "test_a_planted_violation_is_found", "PLANTS"),
    ("tests/gates/test_gates_run.py", "test_the_repo_passes_every_gate", "GATES"),
    ("tests/gates/test_gates_run.py", "test_a_skip_or_a_failure_is_not_green", ""),
    ("tests/gates/test_gates_meta.py", "test_the_list_has_every_gate", ""),
    ("tests/gates/test_gates_meta.py", "test_ci_stops_where_a_gate_fails", ""),
    ("tests/test_docs_commands.py", "test_a_command_of_a_document_runs", "runnable(REPO)"),
    ("tests/isa/test_isa_gate.py", "test_every_kernel_is_what_was_declared_or_refused_by_dispatch_too", "KINDS"),
    ("tests/isa/test_isa_gate.py", "test_one_target_of_each_kind_is_asked_about_every_kernel", ""),
    ("tests/isa/test_isa_mutants.py", "test_a_mutant_is_found", "MUTANTS"),
    ("tests/isa/test_isa_mutants.py", "test_what_the_issue_names_is_among_the_mutants", ""),
    *((f"tests/gates/test_gates_{name}.py", "", "") for name in GATES_OF_THE_ISSUE),
)
_SKIPS = ("skip", "skipif", "xfail", "importorskip", "exit")


def gate(repo: Repo) -> list[Finding]:
    """Ask every rule about the gates themselves."""
    return judge("meta", RULES, repo)


def unlisted(repo: Repo) -> Iterator[Complaint]:
    """Gates that are not in the list, or listed under another function than their own."""
    found, home = listed(repo), f"{FOLDER}/__init__.py"
    for name in sorted({*GATES_OF_THE_ISSUE, *gate_files(repo)}):
        if name not in found:
            yield Complaint(home, name, f"{home}: the gate {name} is not in GATES")
        elif found[name] != f"{name}.gate":
            yield Complaint(home, name, f"{home}: {name} is {found[name]} in GATES and not {name}.gate")
    for name in sorted(set(found) - set(gate_files(repo))):
        yield Complaint(home, name, f"{home}: {name} is in GATES, and {FOLDER}/{name}.py defines no gate")
    for name in gate_files(repo):
        if not rules_of(repo, name):
            yield Complaint(f"{FOLDER}/{name}.py", "RULES", f"{FOLDER}/{name}.py has no rules")


def unplanted(repo: Repo) -> Iterator[Complaint]:
    """Rules without a planted violation, and planted violations of rules that are not there."""
    rules = {(name, rule) for name in gate_files(repo) for rule in rules_of(repo, name)}
    for name, rule in sorted(rules - set(planted(repo))):
        yield Complaint(PLANTED, f"{name}.{rule}", f"{name}.{rule} has no planted violation in {PLANTED}*.py")
    for name, rule in sorted(set(planted(repo)) - rules):
        yield Complaint(PLANTED, f"{name}.{rule}", f"{PLANTED}*.py plants a violation of {name}.{rule}, which is no rule")


def untested(repo: Repo) -> Iterator[Complaint]:
    """Tests that hold a gate up and are not there, do not run, or run over something else."""
    for path, name, over in NEEDED:
        tests = {n.name: n for n in repo.tests.get(path, ast.Module([], [])).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
        if not tests or (name and name not in tests):
            yield Complaint(path, name or "file", f"{path} has no {name or 'test'}")
            continue
        if name and not any(isinstance(node, ast.Assert) for node in ast.walk(tests[name])):
            yield Complaint(path, name, f"{path}: {name} asserts nothing")
        marks = [mark for mark in tests[name].decorator_list if isinstance(mark, ast.Call)] if over else []
        if over and not any(ast.unparse(mark.func) == "pytest.mark.parametrize" and ast.unparse(mark.args[1]) == over for mark in marks):
            yield Complaint(path, name, f"{path}: {name} is not parametrized by {over}")
    for path in {path for path, _, _ in NEEDED} & set(repo.tests):
        for node in ast.walk(repo.tests[path]):
            named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if named in (*_SKIPS, "pytestmark"):
                yield Complaint(path, named, f"{path}:{getattr(node, 'lineno', 0)}: {named} could keep a needed test from running")


RULES = (
    Rule("listed", "every gate is in the list, with rules", unlisted),
    Rule("planted", "every rule has a planted violation", unplanted),
    Rule("tested", "the tests that the gates stand on are there and run", untested),
    Rule("collected", "pytest leaves no test out", ci.not_collected),
    Rule("isa", "make isa asks the gate on machine code about everything", ci.isa_not_called),
    Rule("called", "CI runs the gates and the tests, and stops where one fails", ci.not_called),
)
