"""jinja2's immutable sandbox, narrowed to what chat templates use and with every operation that makes a value metered.

The parsed template is rewritten before it is compiled: operations that jinja2 compiles to bare Python (`~`, slices, list and dict displays)
become calls of filters, and statements that reach for other templates are refused. Calls, binary operators, filters, output and
the joining of output pass through the environment, which asks the Meter of the rendering that is running.
"""

import types
from collections.abc import Iterable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from lanewise.files.template_checks import METHODS, check_percent, refuse
from lanewise.files.template_filters import CONCAT, FILTERS, GLOBALS, MADE
from lanewise.files.template_limits import METER

__all__ = ["Environment"]


class Environment(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled and run in. One serves all threads."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        extensions: list[str | type[Extension]] = ["jinja2.ext.loopcontrols", _Generation]
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=_output, extensions=extensions)
        self.filters = dict(FILTERS)
        self.globals = dict(GLOBALS)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Rewrite().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        assert isinstance(tree, nodes.Template)
        return tree

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        raise jinja2.exceptions.SecurityError(f"the attribute {attribute[:80]!r} of a {type(obj).__name__} may not be reached")

    def concat(self, pieces: Iterable[str]) -> str:
        meter, parts = METER.get(), []
        for piece in pieces:
            meter.charge(len(piece))
            parts.append(piece)
        return "".join(parts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter = METER.get()
        if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            meter.room(len(left) + len(right))
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, str | list | tuple) and isinstance(times, int):
                    meter.room(max(len(value), 1) * times)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            meter.made(1 << min(max(left.bit_length() - 1, 0) * max(right, 0), 1 << 16))
        elif operator == "%" and isinstance(left, str):
            check_percent(meter, left, right)
        return meter.made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - jinja2's names leave kwargs free
        meter = METER.get()
        if isinstance(__obj, types.BuiltinMethodType) or hasattr(__obj, "__wrapped__"):
            # str.format arrives wrapped by the sandbox
            method = getattr(__obj, "__wrapped__", __obj)
            if method.__name__ == "join":
                args = tuple(map(meter.items, args))
            check = METHODS.get(type(method.__self__), {}).get(method.__name__, refuse)
            if check is not None:
                check(meter, method, args, kwargs)
            if method.__name__ == "get":
                return super().call(__context, __obj, *args, **kwargs)
        elif isinstance(__obj, Macro):
            meter.made((*args, *kwargs.values()))
        elif not (isinstance(__obj, LoopContext | BlockReference | jinja2.Undefined) or _from_loop(__obj) or __obj in GLOBALS.values()):
            raise jinja2.exceptions.SecurityError(f"a {type(__obj).__name__} may not be called")
        return meter.made(super().call(__context, __obj, *args, **kwargs))


def _from_loop(obj: object) -> bool:
    return isinstance(obj, types.MethodType) and isinstance(obj.__self__, LoopContext)


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what training learns from; rendering is not changed by it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


_OUTSIDE: dict[type[nodes.Node], str] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.Extends: "extends",
    nodes.EvalContextModifier: "autoescape",
    nodes.ScopedEvalContextModifier: "autoescape",
}


class _Rewrite(NodeTransformer):
    """Sends what jinja2 would compile to bare Python through filters, and refuses what has no place in a chat template."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        word = _OUTSIDE.get(type(node))
        if word is not None:
            raise jinja2.TemplateSyntaxError(f"a chat template may not use {word!r}", node.lineno)
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.TemplateData):
            # as a constant it goes through `_output` at run time, which counts it
            return nodes.Const(node.data, lineno=node.lineno)
        if isinstance(node, nodes.Concat):
            return _filtered(nodes.List(node.nodes, lineno=node.lineno), CONCAT)
        if isinstance(node, nodes.List | nodes.Dict | nodes.Tuple) and getattr(node, "ctx", "load") == "load":
            return node if all(isinstance(item, nodes.Const) for item in node.iter_child_nodes()) else _filtered(node, MADE)
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return _filtered(node, MADE)
        return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context  # which also keeps jinja2 from working constants out while it compiles
def _output(context: Context, value: Any) -> str:
    meter = METER.get()
    meter.charge(64)
    return meter.text(value)
