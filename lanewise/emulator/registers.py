"""The registers of some waves that run together: uint32 [waves, lanes] for each vector register, uint32 [waves, 1] for each scalar one.

Where every lane is active an instruction's result takes the place of the register's array and nothing is copied; a part of the waves
(`Waves.part`) writes into the arrays of the whole.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.fault import FaultError

__all__ = ["FLAT", "M0", "MODE", "NULL", "SCALARS", "TTMP", "VCC", "Waves", "bits", "lanes_of"]

Array = NDArray[Any]
# Where scalar registers that have names lie among the numbered ones; NULL reads as zero and is written in vain.
VCC, FLAT, TTMP, M0, NULL, XNACK = 106, 102, 108, 124, 126, 104
MODE = 127  # of the mode the one bit that a kernel may change: whether a float16 that overflows is the largest number
SCALARS = 128
POISON = 0x7FC0DEAD  # a NaN whose upper half is one too
# Scalar registers' numbers in the set of those that wait for a load; vector registers have theirs, accumulation registers 512 more.
SCALAR = 4096


class Waves:
    """v: of each vector register (accumulation registers behind them) that the kernel names, None of others; s: the same of scalar ones

    scc: bool [waves, 1]; exec: bool [waves, lanes]; full: whether all of `exec` is set; index: which of the whole's waves these are
    group, wave: of each, its workgroup and its place in it; world: memory and LDS (`emulator.world.World`)
    """

    __slots__ = ("exec", "full", "group", "index", "lanes", "masks", "s", "scc", "v", "wave", "whole", "world")

    def __init__(
        self, v: list[Any], s: list[Any], scc: Array, execs: Array, index: Array, group: Array, wave: Array, world: Any, whole: bool = False
    ) -> None:
        self.v, self.s, self.scc, self.exec, self.world = v, s, scc, execs, world
        self.index, self.group, self.wave, self.whole = index, group, wave, whole
        self.lanes: int = execs.shape[1]
        self.full = bool(execs.all())
        self.masks: dict[int, Array] = {}

    def put(self, register: int, value: Array, ours: bool) -> None:
        """A vector register's new value for active lanes, uint32 [waves, lanes] or what spreads to it; ours: no one else holds the array."""
        if self.full:
            if ours and self.whole and value.shape == self.exec.shape:
                self.v[register] = value
            else:
                self.v[register][...] = value
        else:
            np.copyto(self.v[register], value, where=self.exec)

    def put_all(self, register: int, value: Array) -> None:
        """The same for all lanes, active or not."""
        self.v[register][...] = value

    def put_scalar(self, register: int, value: Array) -> None:
        """uint32 [waves, 1]."""
        if self.masks:
            self.masks.pop(register, None)
            self.masks.pop(register - 1, None)
        self.s[register][...] = value

    def mask(self, register: int) -> Array:
        """The scalar register (of 64 lanes: the pair) as bool [waves, lanes]."""
        found = self.masks.get(register)
        if found is None:
            found = self.masks[register] = lanes_of(self.s[register : register + self.lanes // 32], self.lanes)
        return found

    def put_mask(self, register: int, value: Array) -> None:
        """bool [waves, lanes]; lanes that are not active become 0."""
        if value.shape != self.exec.shape:
            value = np.broadcast_to(value, self.exec.shape)
        if not self.full:
            value = value & self.exec
        words = bits(value)
        for number in range(words.shape[1]):
            self.put_scalar(register + number, words[:, number : number + 1])
        if register != NULL:
            self.masks[register] = value

    def put_exec(self, words: list[Array]) -> None:
        """EXEC from its one or two words."""
        self.set_exec(lanes_of(words, self.lanes))

    def set_exec(self, value: Array) -> None:
        self.exec[...] = value
        self.full = bool(self.exec.all())

    def part(self, which: Any) -> "Waves":
        """Some of the waves: a slice gives views, an array of indices copies (which `back` writes back)."""
        cut = [one if one is None else one[which] for one in self.v], [one if one is None else one[which] for one in self.s]
        scc, execs, index = self.scc[which], self.exec[which], self.index[which]
        return Waves(*cut, scc, execs, index, self.group[which], self.wave[which], self.world)

    def back(self, which: Array, part: "Waves") -> None:
        """What a copied part has become."""
        for mine, its in ((self.v, part.v), (self.s, part.s), ([self.scc, self.exec], [part.scc, part.exec])):
            for old, new in zip(mine, its, strict=True):
                if old is not None:
                    old[which] = new
        self.refresh()

    def refresh(self) -> None:
        """After a part has written."""
        self.full = bool(self.exec.all())
        self.masks.clear()


def bits(mask: Array) -> Array:
    """uint32 [waves, lanes / 32] of bool [waves, lanes].

    >>> bits(np.arange(32)[None] % 2 == 1)
    array([[2863311530]], dtype=uint32)
    """
    return np.packbits(mask, axis=1, bitorder="little").view(np.uint32)


def lanes_of(words: list[Array], lanes: int) -> Array:
    """bool [waves, lanes] of one uint32 [waves, 1] for each 32 lanes."""
    whole = words[0] if len(words) == 1 else np.concatenate(words, axis=1)
    whole = np.ascontiguousarray(whole)
    return np.unpackbits(whole.view(np.uint8), axis=1, bitorder="little")[:, :lanes].view(bool)


def first(mask: Array) -> tuple[int, int]:
    """Wave and lane of the first that is set."""
    wave, lane = np.unravel_index(int(mask.argmax()), mask.shape)
    return int(wave), int(lane)


def fault(what: str, mask: Array, **more: Any) -> FaultError:
    """A fault of the first lane of a mask; of [waves, 1], which is of no lane, the first wave's."""
    wave, lane = first(mask)
    return FaultError(what, wave, lane if mask.shape[1] > 1 else None, **more)
