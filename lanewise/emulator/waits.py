"""Loads that are still on their way: their registers may not be touched until the counter that counts them was waited for.

What a load brings stands in its register at once; that nobody looks there too early is checked here.
"""

from dataclasses import dataclass

import numpy as np

from lanewise.emulator.fault import FaultError
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.step import Step

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

    def check(self, step: Step, w: Waves) -> None:
        """Raises FaultError where an instruction touches what is on its way."""
        for register in step.touched & self.registers.keys():
            for entry in self.registers[register]:
                if entry.waves is not None and not entry.waves[w.index].any():
                    continue
                if register in step.results and entry.counter in step.counter and step.ordered and entry.step.ordered:
                    continue  # loads that come back in order may write one register after the other
                wave = 0 if entry.waves is None else int(entry.waves[w.index].argmax())
                raise FaultError(f"touches a register that `{entry.step.one.text}` is still loading: a wait is missing", wave)

    def wait(self, counter: str, most: int, w: Waves) -> None:
        """Go on when no more than `most` of what the counter counts are on their way."""
        queue = self.queues.get(counter)
        if not queue:
            return
        if len(w.index) == self.waves and all(entry.waves is None for entry in queue):
            late = len(queue) - most
            done = [entry for number, entry in enumerate(queue) if number < late and (entry.step.ordered or most == 0)]
            self._drop(counter, done)
            return
        ours = np.zeros(self.waves, bool)
        ours[w.index] = True
        count = np.zeros(self.waves, np.int64)
        done = []
        for entry in reversed(queue):
            waves = np.ones(self.waves, bool) if entry.waves is None else entry.waves
            there = ours & waves & (count >= most) if entry.step.ordered or most == 0 else np.zeros(self.waves, bool)
            count += waves
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
                moves = entry.step.one.mnemonic.startswith(("ds_bpermute", "ds_permute", "ds_swizzle"))
                if entry.step.one.mnemonic.startswith("ds_") and not moves and (entry.waves is None or entry.waves[w.index].any()):
                    return entry.step
        return None
