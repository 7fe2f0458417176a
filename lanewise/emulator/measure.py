"""What a launch moved: bytes that lanes used, bytes that memory had to fetch for them, and banks of LDS that several lanes wanted at once."""

from dataclasses import dataclass, field

import numpy as np

from lanewise.emulator.memory import Buffer
from lanewise.emulator.registers import Array
from lanewise.isa.assembly import Instruction

__all__ = ["Access", "Counter"]

_SECTOR = 64  # bytes that memory gives at least
_BANKS, _BANK = 32, 4  # of LDS: how many, and bytes that each gives at a time


@dataclass(slots=True)
class Access:
    """Of one instruction, over all waves.

    waves:   that ran it with some lane active
    used:    bytes of active lanes, each as often as a lane asks for it; distinct: each once a wave
    fetched: bytes of the sectors of 64 in which they lie, each once a wave; 0 of LDS
    turns:   of LDS: turns that the banks take, summed over waves; best: turns that they would take without a conflict
    """

    kernel: str
    one: Instruction
    buffer: str
    stores: bool
    waves: int = 0
    used: int = 0
    distinct: int = 0
    fetched: int = 0
    turns: int = 0
    best: int = 0

    @property
    def coalescing(self) -> float:
        """Distinct bytes used of those fetched: 1 where nothing is fetched in vain."""
        return self.distinct / self.fetched if self.fetched else 1.0


@dataclass(slots=True)
class Counter:
    """Asked by every access of a launch (`World.measure`)."""

    accesses: dict[tuple[str, int, str], Access] = field(default_factory=dict)

    def access(self, kernel: str, one: Instruction, buffer: Buffer | None, index: Array, width: int, mask: Array | None, stores: bool) -> None:
        name = "LDS" if buffer is None else buffer.name
        found = self.accesses.setdefault((kernel, one.index, name), Access(kernel, one, name, stores))
        lanes = np.broadcast_to(True, index.shape) if mask is None else np.broadcast_to(mask, index.shape)
        found.waves += int(lanes.any(axis=1).sum())
        found.used += int(lanes.sum()) * width
        if buffer is None:
            turns, best = _turns(np.broadcast_to(index, lanes.shape), width, lanes)
            found.turns, found.best = found.turns + turns, found.best + best
            return
        at = index + buffer.bytes.shift
        found.distinct += _distinct(at, width, lanes, min(width, 4))
        found.fetched += _distinct(at, width, lanes, _SECTOR)


def _distinct(index: Array, width: int, lanes: Array, unit: int) -> int:
    """Bytes of the aligned units that active lanes touch, each once a wave."""
    first, last = index // unit, (index + width - 1) // unit
    most = int((last - first).max()) + 1
    every = np.concatenate([np.where(lanes, np.minimum(first + step, last), -1) for step in range(most)], axis=1)
    every.sort(axis=1)
    new = np.diff(every, axis=1, prepend=-1) != 0
    return int((new & (every >= 0)).sum()) * unit


def _turns(offset: Array, width: int, lanes: Array) -> tuple[int, int]:
    """Turns of the banks, and without conflicts. Lanes are served in runs whose bytes fill all banks; the same word is given to many at once."""
    words = max(1, width // _BANK)
    run = max(1, _BANKS // words)
    waves, count = offset.shape
    total = best = 0
    for begin in range(0, count, run):
        active = np.repeat(lanes[:, begin : begin + run], words, axis=1)
        word = (offset[:, begin : begin + run, None] // _BANK + np.arange(words)).reshape(waves, -1)
        key = np.where(active, word, -1)
        key.sort(axis=1)
        new = (np.diff(key, axis=1, prepend=-1) != 0) & (key >= 0)
        wave, place = np.nonzero(new)
        wanted = np.zeros((waves, _BANKS), np.int64)
        np.add.at(wanted, (wave, key[wave, place] % _BANKS), 1)
        total += int(wanted.max(axis=1).sum())
        best += int((wanted.sum(axis=1) > 0).sum())
    return total, best
