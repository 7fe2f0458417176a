"""The gates as their source lists them, read from the checked tree: the list, the rules of each gate, the planted violations."""

import ast
from collections.abc import Iterator

from lanewise.gates.names import PACKAGE
from lanewise.gates.repo import Repo

__all__ = ["FOLDER", "PLANTED", "gate_files", "listed", "planted", "rules_of"]

FOLDER, PLANTED = f"{PACKAGE}/gates", "tests/gates/planted"


def listed(repo: Repo) -> dict[str, str]:
    """Name and function of every gate in the list of `gates/__init__.py`, as `GATES = {"name": module.gate, ...}` has them."""
    tree = repo.sources.get(f"{FOLDER}/__init__.py", ast.Module([], []))
    return {key: ast.unparse(value) for key, value in _table(tree, "GATES")}


def gate_files(repo: Repo) -> list[str]:
    """The modules that define a gate: a function `gate` at the top level."""
    return [
        path.removeprefix(f"{FOLDER}/").removesuffix(".py")
        for path, tree in repo.sources.items()
        if path.startswith(f"{FOLDER}/") and any(isinstance(node, ast.FunctionDef) and node.name == "gate" for node in tree.body)
    ]


def rules_of(repo: Repo, gate: str) -> list[str]:
    """The names of the rules in a gate's `RULES = (Rule("name", ...), ...)`."""
    tree = repo.sources.get(f"{FOLDER}/{gate}.py", ast.Module([], []))
    tables = (node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["RULES"])
    return [str(call.args[0].value) for table in tables for call in _calls(table, "Rule") if isinstance(call.args[0], ast.Constant)]


def planted(repo: Repo) -> list[tuple[str, str]]:
    """(gate, rule) of every `Plant("gate", "rule", ...)` in a tuple that a file of planted violations has at its top level."""
    found = []
    for path, tree in repo.tests.items():
        if path.startswith(PLANTED):
            tables = (node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["PLANTS"])
            for call in (call for table in tables for call in _calls(table, "Plant")):
                found.append(tuple(a.value for a in call.args[:2] if isinstance(a, ast.Constant)))
    return [(str(pair[0]), str(pair[1])) for pair in found if len(pair) == 2]


def _table(tree: ast.Module, name: str) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) and _names(node) == [name] else None
        if isinstance(value, ast.Dict):
            yield from ((str(key.value), item) for key, item in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant))


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == name and each.args)


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
