"""Loads that are still on their way: their registers may not be touched until the counter that counts them was waited for.

What a load brings stands in its register at once; that nobody looks there too early is checked here.
"""

from dataclasses import dataclass

import numpy as np

from lanewise.emulator.fault import FaultError
from lanewise.emulator.lds import touches_lds
from lanewise.emulator.operands import operand
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.step import Step, registers

__all__ = ["Waits"]


@dataclass(slots=True, eq=False)
class _Entry:
    """waves: those it is on its way for, bool of all waves; None means all of them"""

    step: Step
    counter: str
    waves: Array | None


class Waits:
    """Of the `waves` waves of a batch."""

    def __init__(self, waves: int) -> None:
        self.waves = waves
        self.queues: dict[str, list[_Entry]] = {}
        self.registers: dict[int, list[_Entry]] = {}

    def issue(self, step: Step, w: Waves) -> None:
        """An instruction that a counter counts has begun."""
        which = None
        if len(w.index) < self.waves:
            which = np.zeros(self.waves, bool)
            which[w.index] = True
        for counter in step.counter:
            entry = _Entry(step, counter, which if which is None else which.copy())
            self.queues.setdefault(counter, []).append(entry)
            for register in step.results:
                self.registers.setdefault(register, []).append(entry)

    def check(self, touched: frozenset[int], step: Step | None, w: Waves) -> None:
        """Raises FaultError where an instruction touches what is on its way; step: itself, where it is more than a branch."""
        for register in touched & self.registers.keys():
            for entry in self.registers[register]:
                if entry.waves is not None and not entry.waves[w.index].any():
                    continue
                if step is not None and register in step.results and _in_order(entry, step) and register not in _sources(step):
                    continue  # loads that come back in order may write one register after the other
                wave = 0 if entry.waves is None else int(entry.waves[w.index].argmax())
                raise FaultError(f"touches a register that `{entry.step.one.text}` is still loading: a wait is missing", wave)

    def wait(self, counter: str, most: int, w: Waves) -> None:
        """Go on when no more than `most` of what the counter counts are on their way.

        What comes back in order is there as soon as `most` later ones of its kind may be on their way; others may be behind any of them, so for what
        does not come back in order only a wait for 0 helps.
        """
        queue = self.queues.get(counter)
        if not queue:
            return
        if len(w.index) == self.waves and all(entry.waves is None for entry in queue):
            late = sum(entry.step.ordered for entry in queue) - most
            done = []
            for entry in queue:
                if most == 0 or (entry.step.ordered and late > 0):
                    done.append(entry)
                late -= entry.step.ordered
            self._drop(counter, done)
            return
        ours = np.zeros(self.waves, bool)
        ours[w.index] = True
        later = np.zeros(self.waves, np.int64)
        done = []
        for entry in reversed(queue):
            waves = np.ones(self.waves, bool) if entry.waves is None else entry.waves
            there = ours & waves
            if most:
                there &= (later >= most) if entry.step.ordered else False
            later += waves & entry.step.ordered
            entry.waves = waves & ~there
            if not entry.waves.any():
                done.append(entry)
        self._drop(counter, done)

    def _drop(self, counter: str, done: list[_Entry]) -> None:
        for entry in done:
            self.queues[counter].remove(entry)
            for register in entry.step.results:
                left = self.registers[register]
                left.remove(entry)
                if not left:
                    del self.registers[register]

    def outstanding(self, w: Waves) -> Step | None:
        """An access to LDS that some of these waves have not waited for."""
        for counter in ("lgkm", "ds"):
            for entry in self.queues.get(counter, ()):
                if touches_lds(entry.step.one) and (entry.waves is None or entry.waves[w.index].any()):
                    return entry.step
        return None


def _in_order(entry: _Entry, step: Step) -> bool:
    return entry.counter in step.counter and step.ordered and entry.step.ordered


def _sources(step: Step) -> frozenset[int]:
    """What a load reads: its address, and what an atomic takes."""
    return registers(operand(text) for text in step.one.operands[1:])
