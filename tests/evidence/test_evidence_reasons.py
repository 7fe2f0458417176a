"""Every reason to refuse is in the list, is given somewhere, and is expected by a test: read from the source, where codes stand as they are."""

import ast
from pathlib import Path

import pytest

from lanewise.evidence import CODES, Reason

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "lanewise" / "evidence"
TREES = {path.name: ast.parse(path.read_text()) for path in PACKAGE.glob("*.py")}


def constants(tree):
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def codes_of(call, function):
    """The codes that a call of Reason can give; None for a parameter, whose callers say it."""
    given = call.args[0]
    if not isinstance(given, ast.Name):
        return constants(given)
    if given.id in {one.arg for one in function.args.args}:
        return None
    values = [
        node.value for node in ast.walk(function) if isinstance(node, ast.Assign) and given.id in {getattr(to, "id", "") for to in node.targets}
    ]
    return {code for value in values for code in constants(value) & CODES.keys()}


def given():
    """(file, line, codes) of every reason in the package."""
    for name, tree in TREES.items():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason"):
                yield name, call.lineno, codes_of(call, function)


def test_every_reason_has_a_code_of_the_list_that_stands_in_the_source():
    found = list(given())
    assert len(found) > 100
    assert [(name, line) for name, line, codes in found if codes is not None and not (codes and codes <= CODES.keys())] == []


def test_every_code_of_the_list_is_given_and_expected_by_a_test():
    used = {code for _, _, codes in given() for code in codes or ()}
    tests = {text for path in HERE.glob("test_*.py") if path != Path(__file__) for text in constants(ast.parse(path.read_text()))}
    assert set(CODES) - used == set()
    assert set(CODES) - tests == set()


def test_another_code_is_none():
    with pytest.raises(AssertionError, match="nonsense"):
        Reason("nonsense", "where", "this", "that")
