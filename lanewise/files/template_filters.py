"""The filters and globals that chat templates have: jinja2's own where their cost is bounded by their input, metered ones for the rest.

tojson, raise_exception and strftime_now are those of transformers, for which templates are written. `safe` and `escape` give plain text:
nothing here is HTML. Left out, since no published chat template uses them and each would need its own bound: pprint, random, striptags, urlencode,
urlize, wordcount, wordwrap, xmlattr, filesizeformat, lipsum, cycler, joiner.
"""

import functools
import html
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import jinja2
from jinja2.filters import FILTERS as JINJA
from jinja2.filters import do_batch, sync_do_slice
from jinja2.runtime import Context
from jinja2.sandbox import safe_range
from jinja2.utils import Namespace, pass_context

from lanewise.files.template_checks import check_percent, searched
from lanewise.files.template_limits import METER, LimitError

__all__ = ["CONCAT", "FILTERS", "GLOBALS", "MADE"]

# Filters that no template can name: the sandbox sends operations through them.
MADE: Final = "(a value that was made)"
CONCAT: Final = "(~)"


def _metered(name: str, *, text: bool = False, listed: bool = False) -> Callable[..., Any]:
    """jinja2's own filter, with its value turned to text or to a list first, and its result charged."""
    inner: Callable[..., Any] = JINJA[name]
    at = 1 if hasattr(inner, "jinja_pass_arg") else 0

    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> Any:
        meter = METER.get()
        value = args[at]
        if text:
            value = meter.text(value)
        elif listed and not isinstance(value, list | tuple | dict | jinja2.Undefined):
            value = meter.items(value)
        return meter.made(inner(*args[:at], value, *args[at + 1 :], **kwargs))

    return run


def _concat(values: list[Any]) -> str:
    meter = METER.get()
    parts = [meter.text(value) for value in values]
    meter.room(sum(map(len, parts)))
    return meter.made("".join(parts))


def _made(value: Any) -> Any:
    return METER.get().made(value)


@pass_context
def _join(context: Context, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    meter = METER.get()
    if attribute is not None:
        value = context.environment.call_filter("map", value, kwargs={"attribute": attribute}, context=context)
    parts, by = [meter.text(item) for item in meter.items(value)], meter.text(d)
    meter.room(sum(map(len, parts)) + len(parts) * len(by))
    return meter.made(by.join(parts))


@pass_context
def _sum(context: Context, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    environment: Any = context.environment
    if attribute is not None:
        iterable = environment.call_filter("map", iterable, kwargs={"attribute": attribute}, context=context)
    for value in iterable:
        start = environment.call_binop(context, "+", start, value)
    return start


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    meter = METER.get()
    text, old, new = meter.text(s), meter.text(old), meter.text(new)
    meter.room(len(text) + text.count(old) * len(new))
    return meter.made(text.replace(old, new, -1 if count is None else count))


def _center(value: Any, width: int = 80) -> str:
    meter = METER.get()
    meter.room(width)
    return meter.made(meter.text(value).center(width))


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    meter = METER.get()
    text = meter.text(s)
    meter.room(len(text) + (text.count("\n") + 1) * (64 + (len(width) if isinstance(width, str) else width)))
    return meter.made(str(JINJA["indent"](text, width, first, blank)))


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    meter = METER.get()
    text = meter.text(value)
    check_percent(meter, text, kwargs or args)
    return meter.made(text % (kwargs or args))


def _trim(value: Any, chars: str | None = None) -> str:
    meter = METER.get()
    text = meter.text(value)
    if chars is not None:
        searched(meter, text.strip, (chars,), {})
    return meter.made(text.strip(chars))


def _title(s: Any) -> str:
    meter = METER.get()
    text = meter.text(s)
    meter.room(64 * len(text))
    return meter.made(str(JINJA["title"](text)))


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if not -99 <= precision <= 99:
        raise LimitError("it rounds to more than 99 digits")
    return METER.get().made(JINJA["round"](value, precision, method))


def _batch(cut: Callable[..., Iterable[Any]], value: Any, count: int, fill_with: Any = None) -> list[Any]:
    meter = METER.get()
    meter.room(64 * count)
    return meter.items(cut(meter.items(value), count, fill_with))


def _tojson(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """As transformers has it: nothing is escaped for HTML, and characters stay as they are."""
    meter = METER.get()
    meter.weigh(x)
    if any(isinstance(part, str) and len(part) > 64 for part in (indent, *(separators or ()))) or (isinstance(indent, int) and indent > 64):
        raise LimitError("it indents or separates JSON by more than 64 characters")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=bool(sort_keys))
    if indent is None and separators is None:
        return meter.made(encoder.encode(x))
    pieces = []
    for piece in encoder.iterencode(x):
        meter.charge(len(piece) + 64)
        pieces.append(piece)
    return meter.made("".join(pieces))


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(METER.get().text(message)[:500])


def _strftime_now(format: Any) -> str:  # noqa: A002 - templates may name it
    if len(format) > 200:
        raise LimitError("its date format has more than 200 characters")
    return datetime.now().strftime(format)


class _Namespace(Namespace):
    """jinja2's namespace without names that Python gives a meaning to."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # the first is self, so that any keyword may be given
        attributes = METER.get().made(_dict(*args[1:], **kwargs))
        for name in attributes:
            _check_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        # what it holds may hold it
        return "<Namespace>"


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not have an attribute {str(name)[:80]!r}")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """dict(), one key at a time: integers can be chosen to collide, and then the time is quadratic, but can end between two keys."""
    if len(args) > 1:
        raise TypeError(f"dict expected at most 1 argument, got {len(args)}")
    made: dict[Any, Any] = {}
    for pairs in (*args, kwargs):
        for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
            made[key] = value
    return made


GLOBALS: dict[str, Any] = {
    "range": safe_range,
    "dict": _dict,
    "namespace": _Namespace,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
FILTERS: dict[str, Callable[..., Any]] = {
    CONCAT: _concat,
    MADE: _made,
    **{name: JINJA[name] for name in ("attr", "count", "d", "default", "first", "length", "map", "max", "min", "reject", "rejectattr")},
    **{name: JINJA[name] for name in ("select", "selectattr", "unique")},
    **{name: _metered(name) for name in ("abs", "dictsort", "float", "int", "items")},
    **{name: _metered(name, text=True) for name in ("capitalize", "lower", "truncate", "upper")},
    **{name: _metered(name, listed=True) for name in ("groupby", "last", "reverse", "sort")},
    "batch": functools.partial(_batch, do_batch),
    "center": _center,
    "e": lambda s: html.escape(METER.get().text(s)),
    "escape": lambda s: html.escape(METER.get().text(s)),
    "format": _format,
    "indent": _indent,
    "join": _join,
    "list": lambda value: METER.get().items(value),
    "replace": _replace,
    "round": _round,
    "safe": lambda value: METER.get().text(value),
    "slice": functools.partial(_batch, sync_do_slice),
    "string": lambda value: METER.get().text(value),
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
}
