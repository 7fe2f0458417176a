"""In which order waves run: what a missing barrier or wait changes, and nothing else may."""

import re
from dataclasses import dataclass, field

import numpy as np

from lanewise.emulator.registers import Array
from lanewise.errors import EmulatorLimitError

__all__ = ["SCHEDULES", "Schedule", "schedule"]

SCHEDULES = ("lockstep", "serial", "reversed", "random", "random:SEED")
_MOST_TURNS = 64  # instructions that a wave runs before another may, at random


@dataclass(slots=True)
class Schedule:
    """kind: "lockstep": all waves side by side, whoever is furthest behind first; "serial": the first wave of every workgroup until it waits or ends,
    then the second one; "reversed": the last wave first, and the last workgroups; "random": any wave for any while
    """

    kind: str
    seed: int = 0
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def groups(self, count: int) -> Array:
        """The order of workgroups."""
        order = np.arange(count)
        if self.kind == "random":
            self._random.shuffle(order)
        return order[::-1] if self.kind == "reversed" else order

    def turn(self, able: Array) -> tuple[Array, int]:
        """Which waves may go on, of those that can, both bool [waves of a workgroup, workgroups]; and for how many instructions, 0 for any number."""
        if self.kind == "lockstep" or len(able) == 1:
            return able, 0
        slots = np.flatnonzero(able.any(axis=1))
        if self.kind == "random":
            slot, most = int(self._random.choice(slots)), int(self._random.integers(1, _MOST_TURNS))
        else:
            slot, most = int(slots[-1 if self.kind == "reversed" else 0]), 0
        chosen = np.zeros_like(able)
        chosen[slot] = able[slot]
        return chosen, most


def schedule(text: str) -> Schedule:
    """By name. Raises EmulatorLimitError for another one.

    >>> schedule("random:7").seed
    7
    """
    found = re.fullmatch(r"(lockstep|serial|reversed|random)(?:(?<=random):(\d+))?", text)
    if not found:
        raise EmulatorLimitError(f"no schedule is {text!r}; there are {', '.join(SCHEDULES)}")
    return Schedule(found[1], int(found[2] or 0))
