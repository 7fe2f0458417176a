"""Vector memory: buffer, global and flat instructions, by one path from addresses to buffers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.atomics import OPERATIONS, atomic
from lanewise.emulator.fault import limit
from lanewise.emulator.memory import Buffer, uniform
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import Operand, operand, words
from lanewise.emulator.registers import Array, Waves, fault, first
from lanewise.emulator.step import Step, registers
from lanewise.emulator.widths import Access, access, narrowed, put
from lanewise.isa.assembly import Instruction

__all__ = ["CACHES", "HINTS", "counters", "vector_memory"]

Spot = list[tuple[Buffer, Array, Array | None]]
Find = Callable[[Waves, int], tuple[Spot, Array | None]]
# They say which caches keep what, or wait for caches that the emulator does not have.
HINTS = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "scc", "th")
CACHES = frozenset(
    ("buffer_gl0_inv", "buffer_gl1_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_inv", "buffer_wbl2", "buffer_invl2", "global_inv",
     "global_wb", "global_wbinv")
)  # fmt: skip


def vector_memory(one: Instruction, row: Arch) -> Step:
    """A load, a store or an atomic."""
    family, _, rest = one.mnemonic.partition("_")
    verb, _, kind = rest.partition("_")
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    wanted = access(kind)
    if verb == "atomic":
        return _atomic(one, family, kind, found, given, row)
    if verb not in ("load", "store") or wanted is None:
        raise limit(one, f"instruction {one.mnemonic}")
    given.ignore(*HINTS)
    value, *address = found if verb == "load" or family == "buffer" else [found[1], found[0], *found[2:]]
    find = _FIND[family](one, address, given)
    given.done()
    if value.kind != "v" or value.count != wanted.registers:
        raise limit(one, f"data in {value.text}")
    step = _load(one, value.first, wanted, find) if verb == "load" else _store(one, value.first, wanted, find)
    results = registers([value]) if verb == "load" else frozenset[int]()
    return Step(one, step, registers(found), counters(row, family, verb), results, ordered=family != "flat")


def counters(row: Arch, family: str, verb: str) -> tuple[str, ...]:
    """What counts an access until it is done."""
    stores = verb == "store"
    if row.split_waits:
        kind = "store" if stores else "load"
        return (kind, "ds") if family == "flat" else (kind,)
    kind = "vs" if stores and row.store_counter else "vm"
    return (kind, "lgkm") if family == "flat" else (kind,)


def _load(one: Instruction, register: int, wanted: Access, find: Find) -> Callable[[Waves], None]:
    width = wanted.width

    def step(w: Waves) -> None:
        if not w.full and not w.exec.any():
            return
        spots, outside = find(w, width)
        measure = w.world.measure
        if measure is not None:
            for buffer, index, mask in spots:
                measure.access(w.world.kernel, one, buffer, index, width, mask, False)
        if len(spots) == 1 and outside is None:
            buffer, index, mask = spots[0]
            put(w, register, wanted, buffer.load(index, width, mask))
            return
        total = [np.zeros(w.exec.shape, np.uint32) for _ in range(wanted.registers)]
        for buffer, index, mask in spots:
            for whole, word in zip(total, buffer.load(index, width, mask), strict=True):
                np.copyto(whole, word, where=True if mask is None else mask)
        put(w, register, wanted, total)

    return step


def _store(one: Instruction, register: int, wanted: Access, find: Find) -> Callable[[Waves], None]:
    width = wanted.width

    def step(w: Waves) -> None:
        if not w.full and not w.exec.any():
            return
        spots, _ = find(w, width)
        values = narrowed(w, register, wanted)
        for buffer, index, mask in spots:
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, buffer, index, width, mask, True)
            buffer.store(index, width, values, mask)
            if w.world.stores is not None:
                w.world.stores.note(one, buffer, index, width, mask, w)

    return step


def _buffer(one: Instruction, address: list[Operand], given: Modifiers) -> Find:
    """Lanes' offsets from the address in a descriptor of four scalar registers; what begins past its number of bytes reads 0 and is not stored."""
    if len(address) != 3 or address[1].kind != "s" or address[1].count != 4 or given.flag("idxen"):
        raise limit(one, "form of buffer address")
    lanes, table, scalar = address
    offen, fixed = given.flag("offen"), given.number("offset")
    if offen != (lanes.kind == "v"):
        raise limit(one, "form of buffer address")
    (extra,) = words(one, scalar)
    first = table.first
    register = lanes.first

    def find(w: Waves, width: int) -> tuple[Spot, Array | None]:
        offset = w.v[register] if offen else np.zeros(w.exec.shape, np.uint32)
        mask = None if w.full else w.exec
        described = [uniform(w.s[first + number]) for number in range(4)]
        more = uniform(extra(w))
        if None in described or more is None:
            return _each(w, offset, first, extra(w), fixed, width, mask, one)
        return _described(w, offset, described, more + fixed, width, mask, one)

    return find


def _each(
    w: Waves, offset: Array, first: int, extra: Array, fixed: int, width: int, mask: Array | None, one: Instruction
) -> tuple[Spot, Array | None]:
    """Where waves have different descriptors."""
    words = [*(w.s[first + number] for number in range(4)), extra]
    rows = np.concatenate([np.broadcast_to(word, (len(offset), 1)) for word in words], axis=1)
    spots: Spot = []
    outside = np.zeros(w.exec.shape, bool)
    for row in np.unique(rows, axis=0):
        lanes = np.broadcast_to((rows == row).all(axis=1)[:, None], w.exec.shape)
        lanes = lanes if mask is None else lanes & mask
        if lanes.any():
            found, beyond = _described(w, offset, [int(item) for item in row[:4]], int(row[4]) + fixed, width, lanes, one)
            spots += found
            outside |= np.False_ if beyond is None else beyond
    return spots, outside


def _described(
    w: Waves, offset: Array, described: list[Any], more: int, width: int, mask: Array | None, one: Instruction
) -> tuple[Spot, Array | None]:
    low, high, count, _ = described
    if high >> 16:
        raise limit(one, f"stride or swizzling in a descriptor ({high >> 16:#x})")
    if more + width <= count and int(offset.max()) <= count - width - more:
        outside = None
    else:
        inside = offset.astype(np.int64) + more < count
        active = inside if mask is None else inside & mask
        outside = ~inside
        straddles = active & (offset.astype(np.int64) + more > count - width)
        if straddles.any():
            raise fault(f"{width} bytes begin within the descriptor's {count} and end behind", straddles)
        mask = active
        if not active.any():
            return [], outside
    buffer = w.world.memory.at(low | high << 32, w.exec if mask is None else mask)
    return [(buffer, np.add(offset, (low | high << 32) - buffer.address + more, dtype=np.int64), mask)], outside


def _global(one: Instruction, address: list[Operand], given: Modifiers) -> Find:
    """A 64-bit address a lane, or an offset of 32 bits from a scalar one."""
    fixed = given.number("offset")
    if len(address) == 1:
        address = [address[0], Operand("off", "off")]
    lanes, base = address
    if base.kind == "s" and base.count == 2 and lanes.kind == "v" and lanes.count == 1:
        scalar, register = base.first, lanes.first

        def near(w: Waves, width: int) -> tuple[Spot, Array | None]:
            start = _wide(w.s[scalar], w.s[scalar + 1])
            mask = None if w.full else w.exec
            if len(start) == 1 or bool((start == start[0, 0]).all()):
                at = int(start[0, 0])
                buffer = w.world.memory.at(at, w.exec)
                return [(buffer, np.add(w.v[register], at - buffer.address + fixed, dtype=np.int64), mask)], None
            return w.world.memory.split(start + w.v[register].astype(np.uint64) + np.uint64(fixed & (2**64 - 1)), mask), None

        return near
    if base.kind != "off" or lanes.kind != "v" or lanes.count != 2:
        raise limit(one, "form of address")
    register = lanes.first

    def far(w: Waves, width: int) -> tuple[Spot, Array | None]:
        every = _wide(w.v[register], w.v[register + 1]) + np.uint64(fixed & (2**64 - 1))
        return w.world.memory.split(every, None if w.full else w.exec), None

    return far


def _wide(low: Array, high: Array) -> Array:
    return high.astype(np.uint64) << np.uint64(32) | low


_FIND = {"buffer": _buffer, "global": _global, "flat": _global}


def _atomic(one: Instruction, family: str, kind: str, found: list[Operand], given: Modifiers, row: Arch) -> Step:
    """With `glc` (`sc0`, `th:TH_ATOMIC_RETURN`) the old value is returned."""
    returns = given.flag("glc") or given.flag("sc0") or given.word("th") == "TH_ATOMIC_RETURN"
    given.ignore(*HINTS)
    compares = kind.startswith("cmpswap")
    wide = kind.endswith(("64", "_x2"))
    entry = (np.uint64 if wide else np.uint32, lambda old, new: new) if compares else OPERATIONS.get(kind)
    if entry is None:
        raise limit(one, f"instruction {one.mnemonic}")
    dtype, run = entry
    if family == "buffer":
        data, *address = found
        results = found[:1] if returns else []
    else:
        results, (lanes, data, *rest) = found[:returns], found[returns:]
        address = [lanes, *rest]
    find = _FIND[family](one, address, given)
    given.done()
    size = np.dtype(dtype).itemsize // 4

    def value(w: Waves, at: int) -> Array:
        low = w.v[data.first + at]
        return np.ascontiguousarray(np.stack((low, w.v[data.first + at + 1]), axis=-1)).view(dtype)[..., 0] if size == 2 else low.view(dtype)

    def step(w: Waves) -> None:
        if not w.exec.any():
            return
        spots, _ = find(w, 4 * size)
        old = np.zeros(w.exec.shape, dtype)
        for buffer, index, mask in spots:
            lanes = np.ones(w.exec.shape, bool) if mask is None else mask
            index, aligned = buffer.check(index, 4 * size, mask, stores=True)
            buffer.written_before(index, 4 * size, mask)
            if aligned < 4 * size:
                bad = lanes & ((index + buffer.bytes.shift) % (4 * size) != 0)
                offset = int(index[first(bad)])
                what = f"an atomic of {4 * size} bytes at offset {offset} of {buffer.name}, which is not aligned to them"
                raise fault(what, bad, buffer=buffer.name, offset=offset)
            if w.world.measure is not None:
                w.world.measure.access(w.world.kernel, one, buffer, index, 4 * size, mask, True)
            before = atomic(buffer.bytes, index, dtype, run, value(w, 0), value(w, size) if compares else None, lanes)
            np.copyto(old, before, where=lanes)
            buffer.written = True
        if results:
            both = np.ascontiguousarray(old).view(np.uint32).reshape(*old.shape, size)
            for number in range(size):
                w.put(results[0].first + number, both[..., number], False)

    late = registers([Operand("v", "", one_result.first, size) for one_result in results])
    return Step(one, step, registers(found), counters(row, family, "load" if returns else "store"), late, ordered=family != "flat")
