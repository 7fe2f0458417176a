"""A lane's own memory, which registers that do not suffice are put into.

The newest targets and the CDNA ones from the third on have instructions for it. The others reach it by buffer instructions and a descriptor that
the driver fills: bit 31 of its second word asks for bytes to be laid out by lane, so that an offset of a lane counts in its own memory, and a
scalar one in that of the whole wave (LLVM's AMDGPU usage guide, "private segment buffer").
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import FaultError, limit
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import Operand, operand, words
from lanewise.emulator.registers import Array, Waves, fault
from lanewise.emulator.step import Step, registers
from lanewise.emulator.vmem import HINTS, counters
from lanewise.emulator.widths import Access, access, narrowed, put
from lanewise.isa.assembly import Instruction

__all__ = ["SWIZZLED", "scratch", "with_scratch"]

SCRATCH_AT = 1 << 47  # where the descriptor points to: no buffer lies there
SWIZZLED = (SCRATCH_AT & 0xFFFFFFFF, SCRATCH_AT >> 32 | 1 << 31, 0xFFFFFFFF, 0)  # the descriptor


def scratch(one: Instruction, row: Arch) -> Step:
    """scratch_load and scratch_store: an offset in the lane's own memory, from a vector register, a scalar one, both or none."""
    verb, wanted = _what(one, "scratch_")
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    given.ignore(*HINTS)
    fixed = given.number("offset")
    given.done()
    if len(found) != 3:
        raise limit(one, "form of scratch address")
    value, lanes, scalar = found if verb == "load" else (found[1], found[0], found[2])
    reads = [words(one, part)[0] for part in (lanes, scalar) if part.kind != "off"]

    def offset(w: Waves) -> Array:
        total = np.full(w.exec.shape, fixed, np.int64)
        for part in reads:
            total += part(w).view(np.int32)
        return total

    return _own(one, verb, wanted, value, offset, registers(found), counters(row, "scratch", verb))


def with_scratch(plain: Step, row: Arch) -> Step:
    """A buffer instruction that also takes the descriptor of scratch."""
    one = plain.one
    if not one.mnemonic.startswith(("buffer_load_", "buffer_store_")):
        return plain
    verb, wanted = _what(one, "buffer_")
    given, found = Modifiers(one), [operand(text) for text in one.operands]
    given.ignore(*HINTS)
    offen, fixed = given.flag("offen"), given.number("offset")
    given.done()
    value, lanes, table, scalar = found
    lane = words(one, lanes)[0] if offen else None
    whole = words(one, scalar)[0]

    def offset(w: Waves) -> Array:
        total = np.full(w.exec.shape, fixed, np.int64)
        if lane is not None:
            total += lane(w)
        wave = whole(w).astype(np.int64)
        if (wave % w.lanes).any():
            raise FaultError(f"a scalar offset of {int(wave.max())} bytes in scratch is no whole number of bytes of each lane")
        return total + wave // w.lanes

    own = _own(one, verb, wanted, value, offset, registers(found), plain.counter)
    descriptor = [table.first + number for number in range(2)]

    def step(w: Waves) -> None:
        private = w.world.scratch is not None and all((w.s[at] == word).all() for at, word in zip(descriptor, SWIZZLED, strict=False))
        (own if private else plain).run(w)

    return replace(plain, run=step)


def _what(one: Instruction, family: str) -> tuple[str, Access]:
    verb, _, kind = one.mnemonic.removeprefix(family).partition("_")
    wanted = access(kind)
    if verb not in ("load", "store") or wanted is None:
        raise limit(one, f"instruction {one.mnemonic}")
    return verb, wanted


def _own(
    one: Instruction, verb: str, wanted: Access, value: Operand, offset: Callable[[Waves], Array],
    touched: frozenset[int], counter: tuple[str, ...],
) -> Step:  # fmt: skip
    loads, width = verb == "load", wanted.width

    def step(w: Waves) -> None:
        if not w.exec.any():
            return
        size = w.world.scratch_size
        at = offset(w)
        bad = w.exec & ((at < 0) | (at > size - width))
        if bad.any() or w.world.scratch is None:
            first = int(at[np.unravel_index(int(bad.argmax()), bad.shape)])
            raise fault(f"{width} bytes at offset {first} of scratch, of which a lane has {size} bytes", bad, buffer="scratch", offset=first)
        if (w.exec & (at % min(width, 4) != 0)).any():
            raise fault(f"{width} bytes of scratch are not aligned to {min(width, 4)}", w.exec & (at % min(width, 4) != 0), buffer="scratch")
        index = np.where(w.exec, at, 0) + (w.index[:, None] * w.lanes + np.arange(w.lanes)) * size
        if loads:
            put(w, value.first, wanted, w.world.scratch.gather(index, width, 4 if width >= 4 else width))
        else:
            every = narrowed(w, value.first, wanted)
            w.world.scratch.scatter(index[w.exec], width, [word[w.exec] for word in every])

    return Step(one, step, touched, counter, registers([value]) if loads else frozenset())
