"""What one rendering of a stranger's template may use: wall-clock time, and memory for the values that it makes.

Time: a second thread raises TimeUp in the rendering one, again and again until that has left. Unlike a signal this works in any thread, and
unlike a trace function it leaves coverage and debuggers alone. It reaches every loop of Python code, however tight; what it cannot
interrupt is one operation inside C, so no operation may be large.

Memory: every value has a weight, about the bytes it takes when written out in full. A value that holds another twice weighs it twice, so a
few nested lists that print as terabytes weigh terabytes. No value may weigh more than a sixteenth of the budget, and that also bounds how
long one comparison, one sort or one str() of it can take.
"""

import ctypes
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeGuard, TypeVar

from lanewise.errors import TemplateError

__all__ = ["METER", "LimitError", "Meter", "TimeUp", "Watch"]

_T = TypeVar("_T")
# Integers of more bits than this serve no prompt; multiplying or printing much longer ones would take seconds.
_MOST_BITS: Final = 4096
# Python hashes and frees nested tuples recursively in C, where nothing stops it before the stack ends.
_MOST_DEPTH: Final = 200
# An item of a list that is not a reference to something that exists: its slot and a one-character string.
_ITEM: Final = 96
_REPEAT: Final = 0.05
_CONTAINERS: Final[tuple[type, ...]] = (list, tuple, dict, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


def _holds(value: object) -> TypeGuard[Collection[Any]]:
    return isinstance(value, _CONTAINERS)


class LimitError(Exception):
    """The template asked for more than it may have."""


class TimeUp(BaseException):
    """The template's time is over. Not an Exception: nothing between the loop and `Watch` may take it for one that it handles."""


class Meter:
    """The memory that a rendering may still use.

    memory: bytes of all values it makes together, whether it keeps them or not
    most:   the weight of one value
    """

    __slots__ = ("_known", "left", "memory", "most")

    def __init__(self, memory: int) -> None:
        self.memory = self.left = memory
        self.most = memory // 16
        # id to (container, weight, depth); the reference keeps the id from being given to another
        self._known: dict[int, tuple[object, int, int]] = {}

    def charge(self, size: int) -> None:
        """Take `size` bytes from the budget. Raises LimitError when it is spent."""
        self.left -= size
        if self.left < 0:
            raise LimitError(f"it makes more than {self.memory} bytes of text and lists")

    def room(self, size: int) -> None:
        """Refuse a value of that weight before it is made."""
        if size > self.most:
            raise LimitError(f"it makes a value of more than {self.most} bytes")

    def made(self, value: _T) -> _T:
        """Charge for a value that was just made, and give it back."""
        if isinstance(value, str):
            self.room(len(value))
            self.charge(sys.getsizeof(value))
        elif isinstance(value, int):
            if value.bit_length() > _MOST_BITS:
                raise LimitError(f"it makes an integer of more than {_MOST_BITS} bits")
        elif _holds(value) and id(value) not in self._known:
            self.charge(64 + 16 * len(value))
            self._known[id(value)] = (value, *self._measure(value))
        return value

    def weigh(self, value: object) -> int:
        """The weight of a value. Raises LimitError as soon as it is certain to be too much, or when it is nested too deeply."""
        return self._measure(value)[0]

    def _measure(self, value: object) -> tuple[int, int]:
        """Weight, and depth of nesting. What `made` has seen is not walked again."""
        weight, deepest = 0, 0
        todo = [(value, 0)]
        while todo:
            item, depth = todo.pop()
            weight += 8
            if isinstance(item, str):
                weight += len(item)
            elif isinstance(item, int):
                weight += item.bit_length() // 8
            elif _holds(item):
                known = self._known.get(id(item))
                if known is not None:
                    weight += known[1]
                    depth += known[2]
                else:
                    weight += 8 * len(item)
                    depth += 1
                    todo.extend([(part, depth) for part in item])
                    if isinstance(item, dict):
                        todo.extend([(part, depth) for part in item.values()])
                deepest = max(deepest, depth)
                if deepest > _MOST_DEPTH:
                    raise LimitError(f"it nests lists more than {_MOST_DEPTH} deep")
            self.room(weight)
        return weight, deepest

    def text(self, value: object) -> str:
        """str(value), with a container weighed first."""
        if isinstance(value, str):
            return value
        self.charge(64)
        if _holds(value):
            self.weigh(value)
            return self.made(str(value))
        return str(self.made(value))

    def items(self, values: Iterable[Any]) -> list[Any]:
        """A list of what an iterable gives, charged while it grows."""
        found = []
        for value in values:
            self.charge(_ITEM)
            found.append(value)
        return self.made(found)

    def plain(self, value: Any) -> Any:
        """A copy of JSON-like data in exact built-in types, so that a template finds no other type's methods. Raises TemplateError for the rest."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int.__int__(value)
        if isinstance(value, float):
            return float.__float__(value)
        copy: Any
        if isinstance(value, Mapping):
            copy = {self.plain(key): self.plain(item) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            copy = [self.plain(item) for item in value]
        else:
            raise TemplateError(f"a chat template was given a {type(value).__name__}; strings, numbers, booleans, None, lists and dicts are accepted")
        self._known[id(copy)] = (copy, *self._measure(copy))
        return copy


METER: ContextVar[Meter] = ContextVar("the meter of the rendering that runs")
_raise_in: Callable[[ctypes.c_ulong, ctypes.py_object], int] = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Watch:
    """Raises TimeUp in the thread that made it, `seconds` after `start`, and goes on until `over`.

    To be used as `try: watch.start(); ... finally: watch.over = True; watch.stop()`, inside a handler of TimeUp. The assignment comes first and
    is not a call, since TimeUp arrives at calls and jumps: whatever happens after it, at most one more TimeUp is under way, and `stop` ends
    by raising it where there is one. Nothing that imports may run in between: an import that is broken off can leave its lock behind.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._seconds = seconds
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._target = ctypes.c_ulong(threading.get_ident())

    def start(self) -> None:
        threading.Thread(target=self._wait, name="lanewise template limit", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            # nothing is sent from here on
            pass
        for _ in "ab":
            # A jump, at which what was sent is raised. (Taking it back with NULL leaves CPython 3.11's eval breaker set, and that hangs
            # under a trace function.)
            pass
        self._ended.set()

    def _wait(self) -> None:
        wait = self._seconds
        # once is not enough: a destructor that happens to run swallows what is raised in it
        while not self._ended.wait(wait):
            with self._lock:
                if self.over:
                    return
                _raise_in(self._target, ctypes.py_object(TimeUp))
            wait = _REPEAT
