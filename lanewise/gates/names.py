"""Names followed through imports: what a name in a source file means, and what can be reached from where.

A symbol is (module, name) of something that a module defines at its top level. It uses the symbols that its code names, through any import
and re-export. A class is one symbol with all its methods; what a module runs on import is its symbol "<import>". Types are not followed, so
`object.method` counts only through the class. Comments, strings and imports without a use count for nothing.
"""

import ast
import functools
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["PACKAGE", "PREFIX", "Names", "Symbol", "imported", "module_name"]

PACKAGE, PREFIX = "lanewise", "LANEWISE_"  # the prefix is that of every setting's variable

Symbol = tuple[str, str]
_RUN = "<import>"


def module_name(path: str) -> str:
    """The dotted name of a source path."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(path: str, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, local name, dotted target) of everything imported anywhere under `node`, relative imports resolved."""
    here = path.removesuffix(".py").split("/")
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            for alias in each.names:
                yield each.lineno, alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(each, ast.ImportFrom):
            base = here[: len(here) - each.level] if each.level else []
            module = ".".join([*base, *([each.module] if each.module else [])])
            yield from ((each.lineno, alias.asname or alias.name, f"{module}.{alias.name}") for alias in each.names)


class Names:
    """The symbols of a set of sources."""

    def __init__(self, sources: dict[str, ast.Module]) -> None:
        self.modules = {module_name(path): tree for path, tree in sources.items()}
        self.paths = {module_name(path): path for path in sources}
        self.symbols = {module: _symbols(tree) for module, tree in self.modules.items()}
        self._imports: dict[str, dict[str, set[str]]] = {}
        for module, tree in self.modules.items():
            self._imports[module] = _bound(self.paths[module], tree)

    def resolve(self, dotted: str, seen: frozenset[str] = frozenset()) -> set[Symbol]:
        """The symbols that a dotted name from the package's root stands for; an outside name is itself, as ("", dotted)."""
        if dotted in seen:
            return set()
        if dotted.split(".")[0] != PACKAGE:
            return {("", dotted)}
        parts = dotted.split(".")
        end = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in self.modules), 0)
        module, rest = ".".join(parts[:end]), parts[end:]
        if not end or not rest:
            return {(module, _RUN)} if end else set()
        if rest[0] in self.symbols[module]:
            return {(module, rest[0])}
        again = (".".join([target, *rest[1:]]) for target in self._imports[module].get(rest[0], ()))
        return {symbol for target in again for symbol in self.resolve(target, seen | {dotted})}

    def meant(self, module: str, node: ast.expr) -> set[Symbol]:
        """What an expression `a` or `a.b.c` in a module stands for; empty for anything else and for local variables."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return set()
        targets = self._imports[module].get(node.id, set())
        found = {symbol for target in targets for symbol in self.resolve(".".join([target, *parts]))}
        return found | ({(module, node.id)} if node.id in self.symbols[module] else set())

    def calls(self, module: str, node: ast.AST, *wanted: Symbol) -> Iterator[ast.Call]:
        """The calls under a node of one of some symbols, under whatever name they were imported."""
        for each in _called(node):
            if self.meant(module, each.func) & set(wanted):
                yield each

    def uses(self, symbol: Symbol) -> set[Symbol]:
        """What a symbol's own code names, and what importing its module runs."""
        module, name = symbol
        found: set[Symbol] = {(module, _RUN)}
        for node in self.symbols.get(module, {}).get(name, ()):
            for each in _named(node):
                found |= self.meant(module, each)
        return found

    def reached(self, roots: Iterable[Symbol]) -> set[Symbol]:
        """The roots and everything that they use, however far down."""
        found: set[Symbol] = set()
        ahead = list(roots)
        while ahead:
            symbol = ahead.pop()
            if symbol not in found and symbol[0]:
                found.add(symbol)
                ahead += self.uses(symbol)
        return found


@functools.cache
def _called(node: ast.AST) -> tuple[ast.Call, ...]:
    return tuple(each for each in ast.walk(node) if isinstance(each, ast.Call))


@functools.cache
def _named(node: ast.AST) -> tuple[ast.Name | ast.Attribute, ...]:
    return tuple(each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load))


@functools.cache
def _bound(path: str, tree: ast.Module) -> dict[str, set[str]]:
    """What each name that a module imports may stand for."""
    bound: dict[str, set[str]] = {}
    for _, name, target in imported(path, tree):
        bound.setdefault(name, set()).add(name if target.startswith(f"{name}.") else target)  # `import a.b` binds a
    return bound


@functools.cache
def _symbols(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    symbols: dict[str, list[ast.stmt]] = {_RUN: []}
    for node in tree.body:
        for name in _defined(node) or ([] if isinstance(node, ast.Import | ast.ImportFrom) else [_RUN]):
            symbols.setdefault(name, []).append(node)
    return symbols


def _defined(node: Any) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
