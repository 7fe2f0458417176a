"""LDS of some workgroups: bounds, alignment and written bytes as of memory, and who touched a byte since the last barrier.

A race is two waves at one byte between two barriers of which one writes. Waves that write the same value are none: Triton lets lanes that hold the
same element store it each. Nor are two atomics; an atomic and an access that is none are.
"""

import numpy as np

from lanewise.emulator.fault import FaultError
from lanewise.emulator.memory import Bytes
from lanewise.emulator.registers import POISON, Array, Waves, fault, first

__all__ = ["Shared"]

_MANY = 255  # read, or changed by atomics, by several waves
_EACH = np.uint32(0x01010101)  # a byte's mark, four times


class Shared:
    """`size` bytes for each of `groups` workgroups. races: whether to look for them (never where a workgroup is one wave)."""

    def __init__(self, size: int, groups: int, waves: int, known: bool = True) -> None:
        self.size, self.room = size, (size + 15) // 16 * 16
        self.bytes = Bytes(self.room * groups)
        self.bytes.u32[...] = POISON
        self.known = np.zeros(self.room * groups, bool) if known else None
        self.races = waves > 1
        count = self.room * groups if self.races else 0
        self.writer, self.reader = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        self.changer: Array | None = None  # by atomics, as soon as there is one
        self.writers, self.readers = self.writer.view(np.uint32), self.reader.view(np.uint32)  # the same, four bytes at a time

    def barrier(self, groups: Array) -> None:
        """Workgroups that have met, bool [groups]."""
        if self.races and self.room:
            self.writer.reshape(-1, self.room)[groups] = 0
            self.reader.reshape(-1, self.room)[groups] = 0
            if self.changer is not None:
                self.changer.reshape(-1, self.room)[groups] = 0

    def _index(self, w: Waves, offset: Array, width: int, stores: bool, mask: Array | None) -> tuple[Array, int]:
        """Indices into all groups' bytes for int64 byte offsets, with harmless ones for lanes that do not take part; and their alignment."""
        if offset.shape != w.exec.shape:
            offset = np.broadcast_to(offset, w.exec.shape)
        one = None if mask is None else first(mask)
        if mask is not None:
            offset = np.where(mask, offset, offset[one])
        if int(offset.max()) > self.size - width or int(offset.min()) < 0:
            bad = (offset > self.size - width) | (offset < 0)
            raise self._wrong(offset, width, bad, mask, stores, f"of which there are {self.size} bytes")
        low = int(np.bitwise_or.reduce(offset, axis=None))
        aligned = low & -low if low else 16
        if aligned < min(width, 4):
            raise self._wrong(offset, width, offset % min(width, 4) != 0, mask, stores, f"which is not aligned to {min(width, 4)}")
        index = offset + (w.group * self.room)[:, None]
        return index if mask is None else np.where(mask, index, index[one]), aligned

    @staticmethod
    def _wrong(offset: Array, width: int, bad: Array, mask: Array | None, stores: bool, why: str) -> FaultError:
        """The fault of the first active lane that is bad; lanes that are not active have the offset of one that is."""
        bad = bad if mask is None else bad & mask
        at = int(offset[first(bad)])
        verb = "writes" if stores else "reads"
        return fault(f"{verb} {width} bytes at offset {at} of LDS, {why}", bad, buffer="LDS", offset=at)

    def load(self, w: Waves, offset: Array, width: int) -> list[Array]:
        """The words of `width` bytes at each byte offset [waves, lanes]."""
        mask = None if w.full else w.exec
        index, aligned = self._index(w, offset, width, False, mask)
        if self.known is not None:
            self._written(index, width, aligned, mask)
        if self.races:
            self._reads(w, index, width, mask)
        return self.bytes.gather(index, width, aligned)

    def _written(self, index: Array, width: int, aligned: int, mask: Array | None) -> None:
        assert self.known is not None
        step = 4 if width >= 4 else width
        known = self.known.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[step])
        whole = 0x01010101 >> 8 * (4 - step)
        for number in range(0, width, step):
            there = known.take((index + number) // step) == whole
            if not there.all():
                raise self._wrong(index % self.room, width, ~there, mask, False, "which nobody has written")

    def store(self, w: Waves, offset: Array, width: int, words: list[Array]) -> None:
        """Write words at each byte offset."""
        mask = None if w.full else w.exec
        index, _ = self._index(w, offset, width, True, mask)
        chosen = index.ravel() if mask is None else index[mask]
        values = [np.broadcast_to(word, index.shape) for word in words]
        flat = [value.ravel() if mask is None else value[mask] for value in values]
        if self.races:
            self._writes(w, index, width, chosen, flat, mask)
        self.bytes.scatter(chosen, width, flat)
        if self.races:
            self._overwritten(w, index, width, flat, chosen, mask)
        if self.known is not None and width >= 4:
            words_known = self.known.view(np.uint32)
            for number in range(0, width, 4):
                words_known[(chosen + number) >> 2] = _EACH
        elif self.known is not None:
            for number in range(width):
                self.known[chosen + number] = True

    def all(self, w: Waves, offset: Array, width: int) -> Array:
        """Indices for an atomic, which is no race with another one and needs known bytes."""
        mask = None if w.full else w.exec
        index, aligned = self._index(w, offset, width, True, mask)
        if self.known is not None:
            self._written(index, width, aligned, mask)
        if self.races:
            self._changes(w, index, width, mask)
        return index

    def _changes(self, w: Waves, index: Array, width: int, mask: Array | None) -> None:
        """Atomics: races with whoever reads or writes without one."""
        chosen, mine = self._flat(w, index, mask)
        if self.changer is None:
            self.changer = np.zeros_like(self.writer)
        for number in range(width):
            at = chosen + number
            for marks, words_of in ((self.writer, "changes a byte that {} has written"), (self.reader, "changes a byte that {} reads")):
                mark = marks.take(at)
                bad = (mark != 0) & (mark != mine)
                if bad.any():
                    raise self._race(bad, index + number, mark, words_of, mask)
            before = self.changer.take(at)
            self.changer[at] = mark = np.where((before == 0) | (before == mine), mine, _MANY)
            others = self.changer.take(at) != mark
            if others.any():
                self.changer[at[others]] = _MANY

    def _changed(self, chosen: Array, mine: Array, index: Array, width: int, mask: Array | None, verb: str) -> None:
        """Plain accesses to what another wave's atomics change."""
        if self.changer is None:
            return
        for number in range(width):
            mark = self.changer.take(chosen + number)
            bad = (mark != 0) & (mark != mine)
            if bad.any():
                raise self._race(bad, index + number, mark, verb + " a byte that {} changes by an atomic", mask)

    def _reads(self, w: Waves, index: Array, width: int, mask: Array | None) -> None:
        chosen, mine = self._flat(w, index, mask)
        self._changed(chosen, mine, index, width, mask, "reads")
        for first_byte in range(0, width, 4):
            if width < 4 or not self._reads_word((chosen + first_byte) >> 2, mine * _EACH):
                self._reads_bytes(chosen, mine, index, range(first_byte, min(width, first_byte + 4)), mask)

    def _reads_word(self, at: Array, mine: Array) -> bool:
        """Mark words that nobody else writes; False where the bytes of one have to be looked at."""
        writer, reader = self.writers.take(at), self.readers.take(at)
        if bool(((writer != 0) & (writer != mine)).any()):
            return False
        alone = (reader == 0) | (reader == mine)
        if not bool((alone | (reader == (reader & np.uint32(255)) * _EACH)).all()):
            return False
        mark = np.where(alone, mine, _MANY * _EACH)
        self.readers[at] = mark
        others = self.readers.take(at) != mark  # several waves read the word in this instruction, and the last one's mark stays
        if others.any():
            self.readers[at[others]] = _MANY * _EACH
        return True

    def _reads_bytes(self, chosen: Array, mine: Array, index: Array, numbers: range, mask: Array | None) -> None:
        for number in numbers:
            at = chosen + number
            writer, reader = self.writer.take(at), self.reader.take(at)
            bad = (writer != 0) & (writer != mine)
            if bad.any():
                raise self._race(bad, index + number, writer, "reads a byte that {} has written", mask)
            self.reader[at] = mark = np.where((reader == 0) | (reader == mine), mine, _MANY)
            others = self.reader.take(at) != mark
            if others.any():
                self.reader[at[others]] = _MANY

    def _flat(self, w: Waves, index: Array, mask: Array | None) -> tuple[Array, Array]:
        """Indices of active lanes, and the mark of the wave of each."""
        wave = np.broadcast_to((w.wave + 1).astype(np.uint8)[:, None], index.shape)
        return (index.ravel(), wave.ravel()) if mask is None else (index[mask], wave[mask])

    def _writes(self, w: Waves, index: Array, width: int, chosen: Array, words: list[Array], mask: Array | None) -> None:
        _, mine = self._flat(w, index, mask)
        self._changed(chosen, mine, index, width, mask, "writes")
        for first_byte in range(0, width, 4):
            if width < 4 or not self._writes_word((chosen + first_byte) >> 2, mine * _EACH, words[first_byte // 4]):
                self._writes_bytes(chosen, mine, index, words, range(first_byte, min(width, first_byte + 4)), mask)

    def _writes_word(self, at: Array, mine: Array, word: Array) -> bool:
        """Mark words that nobody else touches, or that keep their value; False where the bytes of one have to be looked at."""
        changed = self.bytes.u32.take(at) != word
        for marks in (self.writers, self.readers):
            mark = marks.take(at)
            if bool(((mark != 0) & (mark != mine) & changed).any()):
                return False
        self.writers[at] = mine
        return True

    def _writes_bytes(self, chosen: Array, mine: Array, index: Array, words: list[Array], numbers: range, mask: Array | None) -> None:
        for number in numbers:
            at = chosen + number
            value = (words[number // 4] >> np.uint32(8 * (number % 4))).astype(np.uint8)
            changed = self.bytes.data.take(at) != value
            for marks, words_of in ((self.writer, "writes a byte that {} has written too"), (self.reader, "writes a byte that {} reads")):
                mark = marks.take(at)
                bad = (mark != 0) & (mark != mine) & changed
                if bad.any():
                    raise self._race(bad, index + number, mark, words_of, mask)
            self.writer[at] = mine

    def _overwritten(self, w: Waves, index: Array, width: int, words: list[Array], chosen: Array, mask: Array | None) -> None:
        """Waves that wrote one place in the same instruction: not all find there what they wrote."""
        _, mine = self._flat(w, index, mask)
        if width >= 4 and not any((self.bytes.u32.take((chosen + number) >> 2) != words[number // 4]).any() for number in range(0, width, 4)):
            return
        for number in range(width):
            value = (words[number // 4] >> np.uint32(8 * (number % 4))).astype(np.uint8)
            writer = self.writer.take(chosen + number)
            bad = (self.bytes.data.take(chosen + number) != value) & (writer != mine)
            if bad.any():
                raise self._race(bad, index + number, writer, "writes a byte that {} has written too", mask)

    def _race(self, flat: Array, index: Array, marks: Array, what: str, mask: Array | None) -> FaultError:
        """flat, marks: of active lanes."""
        bad = np.zeros(index.shape, bool)
        bad[np.ones(index.shape, bool) if mask is None else mask] = flat
        offset, mark = int(index[first(bad)]) % self.room, int(marks[int(flat.argmax())])
        words = what.format("another wave" if mark == _MANY else f"wave {mark - 1}") + " since the last barrier"
        return fault(f"race in LDS at offset {offset}: {words}", bad, buffer="LDS", offset=offset)
