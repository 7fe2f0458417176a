"""Workgroups that run together, instruction by instruction: who is next, where it goes on, who waits for whom."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.emulator.compiler import Code
from lanewise.emulator.fault import FaultError
from lanewise.emulator.flow import Flow, Wait
from lanewise.emulator.registers import Array, Waves
from lanewise.emulator.schedule import Schedule
from lanewise.emulator.step import Step
from lanewise.emulator.waits import Waits
from lanewise.errors import KernelFaultError

__all__ = ["Batch"]

_RUNS, _WAITS, _ENDED = 0, 1, 2
# Turns that waves which are furthest behind have before the others get theirs: what they wait for in a loop may be done by one of those.
_PATIENCE = 1000
Watch = Callable[[Step, Waves], None]


class Batch:
    """The waves of some workgroups, the first of every group, then the second of every one.

    numbers: [groups, 3], the workgroups' own; kernel: its name, for faults; begin: index of the first instruction
    waits:   whether results of loads may only be touched behind their wait; most: branches backwards of a wave before it is said to run for ever
    watch:   is told of every instruction that has run
    """

    def __init__(
        self, code: Code, w: Waves, numbers: Array, kernel: str, begin: int, schedule: Schedule, *, waits: bool = True, most: int,
        watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.code, self.w, self.numbers, self.kernel, self.schedule, self.watch, self.most = code, w, numbers, kernel, schedule, watch, most
        count = len(w.index)
        self.groups, self.slots = len(numbers), count // len(numbers)
        self.pc = np.full(count, begin)
        self.state = np.zeros(count, np.int8)
        self.signalled = np.zeros(count, bool)
        self.waits = Waits(count) if waits else None
        self.counts = [0] * len(code)
        self.turns, self.backwards = 0, np.zeros(count, np.int64)

    def run(self) -> None:
        """Until every wave has ended. Raises KernelFaultError."""
        apart = 0  # turns since all that may run were at one place
        while True:
            able = self.state == _RUNS
            if not able.any():
                if (self.state == _ENDED).all():
                    return
                self._stuck()
            chosen, most = self.schedule.turn(able.reshape(self.slots, self.groups))
            mine = np.flatnonzero(chosen.ravel())
            pcs = self.pc[mine]
            low = int(pcs.min())
            apart = apart + 1 if pcs.max() > low else 0
            if apart > _PATIENCE:
                places = np.unique(pcs)
                low = int(places[apart % len(places)])
            behind = mine[pcs == low] if apart else mine
            later = pcs[pcs > low]
            stop = int(later.min()) if len(later) else len(self.code) if apart else -1
            self._turn(behind, low, stop, most)

    def _turn(self, which: Array, pc: int, stop: int, most: int) -> None:
        """Run waves that are at one place: until they meet others there, part, wait or end."""
        whole = len(which) == len(self.pc)
        cut: Any = which
        if not whole and which[-1] - which[0] == len(which) - 1:
            cut = slice(int(which[0]), int(which[-1]) + 1)
        w = self.w if whole else self.w.part(cut)
        try:
            self._straight(w, which, pc, stop, most)
        finally:
            if not whole:
                if isinstance(cut, slice):
                    self.w.refresh()
                else:
                    self.w.back(which, w)

    def _straight(self, w: Waves, which: Array, pc: int, stop: int, most: int) -> None:
        code, counts, waits, watch, count = self.code, self.counts, self.waits, self.watch, len(which)
        left = most or -1
        try:
            while pc != stop and left:
                step = code[pc]
                counts[pc] += count
                left -= 1
                if isinstance(step, Step):
                    if waits is not None and waits.registers and not waits.registers.keys().isdisjoint(step.touched):
                        waits.check(step.touched, step, w)
                    step.run(w)
                    if waits is not None and step.counter:
                        waits.issue(step, w)
                    if watch is not None:
                        watch(step, w)
                    pc += 1
                elif isinstance(step, Wait):
                    if waits is not None:
                        for counter, number in step.counts:
                            waits.wait(counter, number, w)
                    pc += 1
                elif step.kind == "branch":
                    if step.target <= pc:
                        self._back(which)
                    if waits is not None and step.touched:
                        waits.check(step.touched, None, w)
                    taken = None if step.condition is None else step.condition(w)
                    if taken is None or taken.all():
                        pc = step.target
                    elif not taken.any():
                        pc += 1
                    else:
                        self.pc[which] = np.where(taken, step.target, pc + 1)
                        return
                    if stop >= 0 or most:  # others may be behind now
                        break
                else:
                    self._meet(step, w, which, pc)
                    return
        except FaultError as fault:
            raise self._placed(fault, w, pc) from None
        self.pc[which] = pc

    def _back(self, which: Array) -> None:
        """Every loop has a branch backwards, so one without an end has too many."""
        self.backwards[which] += 1
        self.turns += 1
        if self.turns > self.most and (many := self.backwards[which] > self.most).any():
            raise FaultError(
                f"has come to branches backwards {self.most} times and not ended (`branches` of a launch is how often it may)", int(many.argmax())
            )

    def _placed(self, fault: FaultError, w: Waves, pc: int) -> KernelFaultError:
        wave = min(fault.wave, len(w.index) - 1)
        group = self.numbers[w.group[wave]]
        x, y, z = (int(part) for part in group)
        return fault.placed(self.kernel, self.code[pc].one, (x, y, z), int(w.wave[wave]))

    def _meet(self, step: Flow, w: Waves, which: Array, pc: int) -> None:
        """The end, or a barrier."""
        if step.kind == "end":
            self.state[which], self.pc[which] = _ENDED, pc
        elif step.kind == "signal":
            self._finished(w)
            self.signalled[which] = True
            self.pc[which] = pc + 1
            return
        else:
            if step.kind == "barrier":
                self._finished(w)
                self.signalled[which] = True
            elif not self.signalled[which].all():
                raise FaultError("waits at a barrier that it has not signalled", int((~self.signalled[which]).argmax()))
            self.state[which] = _WAITS
            self.pc[which] = pc
        self._release(pc)

    def _finished(self, w: Waves) -> None:
        step = self.waits.outstanding(w) if self.waits is not None else None
        if step is not None:
            raise FaultError(f"is reached while `{step.one.text}` is still on its way: a wait is missing")

    def _release(self, pc: int) -> None:
        """Workgroups of which every wave waits go on."""
        state, places = (part.reshape(self.slots, self.groups) for part in (self.state, self.pc))
        waiting, ended = (state == _WAITS).any(axis=0), (state == _ENDED).any(axis=0)
        if (waiting & ended).any():
            group = int((waiting & ended).argmax())
            late, gone = int((state[:, group] == _WAITS).argmax()), int((state[:, group] == _ENDED).argmax())
            there = self._line(int(places[gone, group]))
            raise self._diverged(group, late, f"waits at a barrier that wave {gone} never reaches: it has ended at {there}")
        ready = (state == _WAITS).all(axis=0)
        if not ready.any():
            return
        apart = ready & (places != places[0]).any(axis=0)
        if apart.any():
            group = int(apart.argmax())
            other = int((places[:, group] != places[0, group]).argmax())
            raise self._diverged(group, 0, f"waits at another barrier than wave {other}, which is at {self._line(int(places[other, group]))}")
        state[:, ready] = _RUNS
        places[:, ready] += 1
        self.signalled.reshape(self.slots, self.groups)[:, ready] = False
        self.w.world.shared.barrier(ready)

    def _line(self, pc: int) -> str:
        one = self.code[pc].one
        where = f"pc {one.pc:#x}" if one.pc >= 0 else f"instruction {one.index}"
        return f"{one.source[0]}:{one.source[1]} ({where})" if one.source else where

    def _diverged(self, group: int, slot: int, what: str) -> KernelFaultError:
        pc = int(self.pc.reshape(self.slots, self.groups)[slot, group])
        x, y, z = (int(part) for part in self.numbers[group])
        return FaultError(what).placed(self.kernel, self.code[pc].one, (x, y, z), slot)

    def _stuck(self) -> None:
        raise self._diverged(0, 0, "waits for ever")
