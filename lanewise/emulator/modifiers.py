"""What is printed behind the operands: read once, and refused by name where an instruction would otherwise run without it."""

import re

from lanewise.emulator.fault import limit
from lanewise.isa.assembly import Instruction

__all__ = ["Modifiers"]


class Modifiers:
    """The modifiers of an instruction by name; `done` refuses what nobody has asked for."""

    def __init__(self, one: Instruction) -> None:
        self._one = one
        self._left: dict[str, str] = {}
        for word in one.modifiers:
            found = re.match(r"(\w+)[:(](.*?)\)?$", word)
            name, value = (found[1], found[2]) if found else (word, "")
            if name in self._left:
                raise limit(one, f"second {name!r}")
            self._left[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def flag(self, name: str) -> bool:
        """Whether it stands there, with whatever value."""
        return self._left.pop(name, None) is not None

    def word(self, name: str, default: str = "") -> str:
        return self._left.pop(name, default)

    def number(self, name: str, default: int = 0) -> int:
        text = self._left.pop(name, None)
        if text is None:
            return default
        try:
            return int(text, 0)
        except ValueError:
            raise limit(self._one, f"{name}:{text}") from None

    def bits(self, name: str, default: int, length: int) -> list[int]:
        """A list of numbers such as op_sel:[0,1], filled up."""
        text = self._left.pop(name, None)
        found = [] if text is None else [int(item, 0) for item in text.strip("[]").split(",")]
        return found + [default] * (length - len(found))

    def ignore(self, *names: str) -> None:
        """What changes nothing that the emulator computes."""
        for name in names:
            self._left.pop(name, None)

    def done(self) -> None:
        if self._left:
            raise limit(self._one, f"modifier {', '.join(self._left)}")
