"""What a method call or a formatting may cost, asked before it happens: the methods that templates may call at all, each with its check."""

import re
from collections.abc import Callable
from string import Formatter
from typing import Any, Final

from jinja2.exceptions import SecurityError

from lanewise.files.template_limits import LimitError, Meter

__all__ = ["METHODS", "Check", "check_percent", "refuse", "searched"]

# Character comparisons of one search: about a tenth of a second.
_MOST_STEPS: Final = 1 << 28
_WIDE: Final = "it formats with a width of more than 999 characters, or one that is not written out"


# What may stand between % (and its key) and the letter: flags, width, precision. Matches where one has too many digits, or is given by an argument.
_PERCENT = re.compile(r"[#0\- +]*(?:(?:\d{4,}|\*)|\d*\.(?:\d{4,}|\*))")
_DIGITS = re.compile(r"\d{4,}")


def check_percent(meter: Meter, text: str, arguments: Any) -> None:
    """Refuse `text % arguments` where a field is padded widely or the whole may be too long."""
    fields, at = 0, text.find("%")
    while at >= 0:
        fields += 1
        at = _after_key(text, at + 1)
        if _PERCENT.match(text, at):
            raise LimitError(_WIDE)
        at = text.find("%", at + text.startswith("%", at))
    _check_fields(meter, text, fields, arguments)


def _after_key(text: str, at: int) -> int:
    """Where the `(key)` that begins at `at` ends, if one does. Parentheses in a key are counted, as Python does."""
    if not text.startswith("(", at):
        return at
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i + 1
    return len(text)


def check_braces(meter: Meter, text: str, arguments: Any) -> None:
    """The same for `text.format(arguments)`."""
    fields = 0
    for _, field, spec, _ in Formatter().parse(text):
        fields += field is not None
        if spec and ("{" in spec or _DIGITS.search(spec)):
            raise LimitError(_WIDE)
    _check_fields(meter, text, fields, arguments)


def _check_fields(meter: Meter, text: str, fields: int, arguments: Any) -> None:
    # a field may stand for all of the arguments, and has at most 999 characters of padding
    meter.room(len(text) + fields * (1000 + meter.weigh(arguments)))


Check = Callable[[Meter, Any, tuple[Any, ...], dict[str, Any]], None]


def refuse(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    raise SecurityError(f"the method {method.__name__!r} of a {type(method.__self__).__name__} may not be called")


def _padded(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter.room(max((arg for arg in args if isinstance(arg, int)), default=0))


def _replaced(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        meter.room(len(method.__self__) + method.__self__.count(args[0]) * len(args[1]))


def _joined(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for arg in args:
        meter.room(meter.weigh(arg) + len(arg) * len(method.__self__))


def _split(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    text, by = method.__self__, args[0] if args else kwargs.get("sep")
    if method.__name__ == "splitlines":
        parts = sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    else:
        parts = text.count(by) if isinstance(by, str) and by else len(text) // 2
    meter.room(len(text) + 64 * (parts + 1))


def searched(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Methods whose time may be the product of both lengths: those that search from the end, and those that take characters off."""
    for arg in args:
        if isinstance(arg, str) and len(arg) * len(method.__self__) > _MOST_STEPS:
            raise LimitError(f"it searches {len(method.__self__)} characters for {len(arg)}")
    if method.__name__ == "rsplit":
        _split(meter, method, args, kwargs)


def _formatted(meter: Meter, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    check_braces(meter, method.__self__, (*args, *kwargs.values()))


# None: nothing to check before the call. A method that is not here may not be called.
_PLAIN = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace "
    "istitle isupper lower partition removeprefix removesuffix startswith swapcase title upper"
)
METHODS: dict[type, dict[str, Check | None]] = {
    str: {
        **dict.fromkeys(_PLAIN.split()),
        **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded),
        **dict.fromkeys(("split", "splitlines"), _split),
        **dict.fromkeys(("rsplit", "rfind", "rindex", "rpartition", "strip", "lstrip", "rstrip"), searched),
        **dict.fromkeys(("format", "format_map"), _formatted),
        "replace": _replaced,
        "join": _joined,
    },
    dict: dict.fromkeys(("get", "items", "keys", "values", "copy")),
    list: dict.fromkeys(("count", "index", "copy")),
    tuple: dict.fromkeys(("count", "index")),
}
