"""What a model file says about itself: GGUF key/values or a parsed config.json, behind getters that check type and range.

>>> m = Metadata("config.json", {"num_hidden_layers": 30, "rope_scaling": {"factor": 8.0}, "sliding_window": None})
>>> m.integer("num_hidden_layers", least=1)
30
>>> m.integer("sliding_window", None) is None
True
>>> m.section("rope_scaling").number("factor")
8.0
"""

import math
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import ModelFileError
from lanewise.files.mapped import Plain, shown

__all__ = ["REQUIRED", "Metadata"]

_T = TypeVar("_T")
REQUIRED: Final[Any] = object()
_MISSING: Final = Plain("missing")


class Metadata(Mapping[str, Any]):
    """A read-only mapping of key to value. `m[key]` is the bare value; the getters below check it.

    Values are int, float, bool, str, list[str] and numpy arrays (GGUF), or what JSON has (config.json). A JSON null counts as absent.
    A getter without a default raises ModelFileError when the key is absent; every getter raises it for a value of
    another type or out of range, naming the file, the key, the value and what is allowed. A default is returned unchecked.
    """

    __slots__ = ("_prefix", "_values", "file")

    def __init__(self, file: str | PathLike[str], values: Mapping[str, Any], prefix: str = "") -> None:
        self.file = Path(file)
        self._values = dict(values)
        self._prefix = prefix

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Metadata({str(self.file)!r}, {len(self)} keys)"

    def integer(self, key: str, default: int | _T = REQUIRED, *, least: int = 0, most: int = 2**31 - 1) -> int | _T:
        """An integer in [least, most]; a bool or a float is not one."""
        allowed = f"an integer from {least} to {most} is expected"
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, allowed)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._refusal(key, value, allowed)
        return value

    def number(self, key: str, default: float | _T = REQUIRED, *, least: float | None = None, most: float | None = None) -> float | _T:
        """A finite number, integer or not, in [least, most] where they are given."""
        allowed = "a finite number" + _range(least, most) + " is expected"
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, allowed)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _within(value, least, most):
            raise self._refusal(key, value, allowed)
        return float(value)

    def flag(self, key: str, default: bool | _T = REQUIRED) -> bool | _T:
        """True or false; 0 and 1 are integers, not flags."""
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, "true or false is expected")
        if not isinstance(value, bool):
            raise self._refusal(key, value, "true or false is expected")
        return value

    def string(self, key: str, default: str | _T = REQUIRED) -> str | _T:
        """A string; it may be empty."""
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, "a string is expected")
        if not isinstance(value, str):
            raise self._refusal(key, value, "a string is expected")
        return value

    def strings(self, key: str, default: list[str] | _T = REQUIRED) -> list[str] | _T:
        """A list of strings, as a new list."""
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, "a list of strings is expected")
        items = value.tolist() if isinstance(value, np.ndarray) and not value.size else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self._refusal(key, value, "a list of strings is expected")
        return list(items)

    def integers(self, key: str, default: list[int] | _T = REQUIRED, *, least: int = 0, most: int = 2**31 - 1) -> list[int] | _T:
        """A list of integers, each in [least, most]."""
        allowed = f"a list of integers from {least} to {most} is expected"
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, allowed)
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list):
            raise self._refusal(key, value, allowed)
        for index, item in enumerate(items):
            if type(item) is not int or not least <= item <= most:
                raise self._refusal(f"{key}[{index}]", item, allowed)
        return list(items)

    def numbers(self, key: str, default: "NDArray[np.float32] | _T" = REQUIRED) -> "NDArray[np.float32] | _T":
        """A list of numbers as float32[n]; each is finite as float32."""
        allowed = "a list of numbers that are finite in float32 is expected"
        value = self._values.get(key)
        if value is None:
            return self._absent(key, default, allowed)
        if isinstance(value, list):
            if not all(type(item) in (int, float) for item in value):
                raise self._refusal(key, value, allowed)
            value = np.array([_as_float(item) for item in value], dtype=np.float64)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            raise self._refusal(key, value, allowed)
        with np.errstate(over="ignore"):
            numbers = value.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            raise self._refusal(f"{key}[{bad[0]}]", float(value[bad[0]]), allowed)
        return numbers

    def section(self, key: str) -> "Metadata | None":
        """The object under a key of config.json, or None when it is absent; errors below it name the whole path."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._refusal(key, value, "an object is expected")
        return Metadata(self.file, value, f"{self._prefix}{key}.")

    def _absent(self, key: str, default: _T, allowed: str) -> _T:
        if default is REQUIRED:
            raise self._refusal(key, Plain("null") if key in self._values else _MISSING, allowed)
        return default

    def _refusal(self, key: str, value: object, allowed: str) -> ModelFileError:
        """The error for a value; long lists and arrays are cut before they are printed."""
        if isinstance(value, list | np.ndarray):
            value = Plain(f"a list of {len(value)} that begins {[_item(v) for v in value[:4]]}")
        elif isinstance(value, dict):
            value = Plain(f"an object of {len(value)} keys")
        elif isinstance(value, int) and value.bit_length() > 256:
            value = Plain(f"an integer of {value.bit_length()} bits")
        return ModelFileError(self.file, shown(self._prefix + key), value, allowed)


def _item(value: object) -> object:
    """An element as an error prints it: short, and a numpy scalar as Python's."""
    if isinstance(value, str):
        return value[:16]
    if isinstance(value, np.generic):
        return value.item()
    short = value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64)
    return value if short else Plain(type(value).__name__)


def _as_float(value: float) -> float:
    """float(value), with an integer too long for a double as infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _within(value: float, least: float | None, most: float | None) -> bool:
    return math.isfinite(_as_float(value)) and (least is None or value >= least) and (most is None or value <= most)


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return "" if most is None else f" up to {most:g}"
    return f" from {least:g}" + ("" if most is None else f" to {most:g}")
