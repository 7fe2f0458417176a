"""Literals that have a home: names of targets, names of variables, tolerances. Found in syntax trees; docstrings and comments do not count."""

import ast
import functools
import re
from collections.abc import Iterator

from lanewise.gates.names import PREFIX

__all__ = ["targets", "tolerances", "variables"]

# A whole name, the part of one that a prefix match would use, or an LLVM intrinsic or triple of one target.
_TARGET = re.compile(
    r"(gfx|sm_)\d*[0-9a-z]{0,2}([:+-][\w:+-]*)?|x86[-_]64[\w.+-]*|aarch64[\w.+-]*|arm64|llvm\.(x86|aarch64|amdgcn|nvvm)[\w.]*|(amdgcn|nvptx64)[\w-]*"
)
_VARIABLE = re.compile(rf"{PREFIX}[A-Z0-9_]*")
# What compares with a tolerance, and the names under which it takes one.
_CLOSE = {
    "allclose": ("rtol", "atol"), "assert_allclose": ("rtol", "atol"), "isclose": ("rtol", "atol", "rel_tol", "abs_tol"),
    "assert_close": ("rtol", "atol"), "approx": ("rel", "abs"), "assert_almost_equal": ("decimal",), "assert_array_almost_equal": ("decimal",),
    "assert_approx_equal": ("significant",), "assertAlmostEqual": ("delta", "places"), "assert_array_almost_equal_nulp": ("nulp",),
}  # fmt: skip
_TOLERANCES = {name for names in _CLOSE.values() for name in names} - {"rel", "abs", "decimal", "significant", "delta", "places", "nulp"}
_ERROR = re.compile(r"err|diff|delta|deviation|distance", re.IGNORECASE)


def targets(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of strings that are the name of a target or the start of one."""
    for node, text in _strings(tree):
        if _TARGET.fullmatch(text):
            yield node.lineno, text


def variables(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of strings that are the name of a setting's variable or the start of one."""
    for node, text in _strings(tree):
        if _VARIABLE.fullmatch(text):
            yield node.lineno, text


@functools.cache
def tolerances(tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """(line, source) of tolerances that are written as numbers, or left to a library's default.

    A number of `Tolerance(...)` or of a comparing function's tolerances, a value named tolerance, rtol or atol, and the upper side of
    `abs(...) < number` or of `error < number` for a fraction. Zero is none, and arithmetic on a name counts as derived.
    """
    return tuple(_tolerances(tree))


def _tolerances(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = [t.id for t in (node.targets if isinstance(node, ast.Assign) else [node.target]) if isinstance(t, ast.Name)]
            if node.value is not None and any(_is_tolerance(name) for name in names) and _bare(node.value):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.arguments):
            places = zip((node.posonlyargs + node.args)[::-1], node.defaults[::-1], strict=False)
            for argument, default in [*places, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]:
                if default is not None and _is_tolerance(argument.arg) and _bare(default):
                    yield default.lineno, f"{argument.arg}={ast.unparse(default)}"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                small, large = (left, right) if isinstance(op, ast.Lt | ast.LtE) else (right, left)
                if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and _is_error(small) and _bare(large) and 0 < abs(_value(large)) < 1:
                    yield node.lineno, ast.unparse(node)


def _of_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    named = {k.arg: k.value for k in call.keywords if k.arg}
    if name in _CLOSE:
        given = [value for key, value in named.items() if key in _CLOSE[name]] + call.args[1 if name == "approx" else 2 :]
    elif name == "Tolerance":
        given = [*call.args, *named.values()]
    else:
        given = [value for key, value in named.items() if _is_tolerance(key)]
    if any(_bare(value) for value in given) or (name in _CLOSE and not given):
        yield call.lineno, ast.unparse(call)


def _is_tolerance(name: str) -> bool:
    return name.lower() in _TOLERANCES or "tolerance" in name.lower()


def _is_error(node: ast.expr) -> bool:
    """Whether an expression looks like a difference: abs(...), or something named error or the like."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and getattr(each.func, "attr", getattr(each.func, "id", "")) in ("abs", "absolute", "fabs", "norm"):
            return True
        if _ERROR.search(getattr(each, "attr", getattr(each, "id", "")) if isinstance(each, ast.Attribute | ast.Name) else ""):
            return True
    return False


def _bare(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone and is not zero."""
    made_of = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    return all(isinstance(each, made_of) for each in ast.walk(node)) and _value(node) != 0


def _value(node: ast.expr) -> float:
    value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})  # only numbers and operators come here
    return float(value) if isinstance(value, int | float) else 0.0


@functools.cache
def _strings(tree: ast.Module) -> tuple[tuple[ast.Constant, str], ...]:
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in documents)
    return tuple((node, str(node.value)) for node in found)
