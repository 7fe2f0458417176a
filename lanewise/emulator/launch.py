"""Launch a code object as a driver would, on arrays of numpy."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.emulator.arguments import packed
from lanewise.emulator.compiler import Code, compiled
from lanewise.emulator.machine import Batch
from lanewise.emulator.memory import Buffer, Bytes, Memory
from lanewise.emulator.origin import Stores
from lanewise.emulator.registers import POISON, Array, Waves
from lanewise.emulator.schedule import schedule as by_name
from lanewise.emulator.shared import Shared
from lanewise.emulator.start import begun, entry
from lanewise.emulator.step import Step
from lanewise.emulator.world import Measure, World
from lanewise.errors import EmulatorLimitError, ShapeError
from lanewise.isa.assembly import Assembly, Instruction
from lanewise.isa.code_object import CodeObject

__all__ = ["Ran", "launch"]

# Lanes that run side by side: their registers have to stay in the processor's cache, and each instruction costs a call whatever they are.
_LANES = 32768
_BRANCHES = 100_000  # backwards; a loop of some instructions that goes on for longer is one without an end, which seconds show
_MOST_Y = 65535  # both halves of one register where ids lie in trap temporaries, and what drivers take
_KEPT: dict[tuple[str, str], Code] = {}
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class Ran:
    """What a launch did.

    counts:  how often waves ran each instruction, by its index; instructions: the sum
    seconds: of processor time
    """

    code: CodeObject
    counts: tuple[int, ...]
    groups: int
    seconds: float

    @property
    def instructions(self) -> int:
        return sum(self.counts)

    def by_mnemonic(self) -> dict[str, int]:
        """How often each instruction ran, the most frequent first."""
        found: dict[str, int] = {}
        for one, count in zip(self.code.instructions, self.counts, strict=True):
            if count:
                found[one.mnemonic] = found.get(one.mnemonic, 0) + count
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def launch(
    code: CodeObject, grid: Sequence[int], args: Mapping[str, Any] | Sequence[Any], *, schedule: str = "lockstep", waits: bool = True,
    races: bool = True, preload: bool = True, measure: Measure | None = None, watch: Callable[[Step, Waves], None] | None = None,
    stores: Stores | None = None, lanes: int = _LANES, branches: int = _BRANCHES,
) -> Ran:  # fmt: skip
    """Run a kernel on a grid of workgroups.

    grid: up to three numbers of workgroups
    args: the kernel's run-time arguments in its order: contiguous numpy arrays for pointers (what is not writeable may only be read), a `Buffer`
          where rights, unwritten bytes or an odd address are meant, (Buffer, offset) for a pointer into one; numbers of numpy, or Python's ints for
          integers and floats for floats. In a dict, names are what faults say; where the code object knows its own (Triton's do not) they decide
    schedule: "lockstep", "serial", "reversed" or "random:SEED": the order in which waves run
    waits: whether to look for results of loads that are used before they were waited for; races: the same of LDS between waves
    preload: by a driver that preloads arguments, where the kernel has an entry for it
    measure, watch, stores: told of every access, of every instruction, and of who stores what; lanes: how many run side by side, about
    branches: how often a wave may branch backwards before it is said to run for ever

    Raises KernelFaultError for what no card would forgive, EmulatorLimitError for what the emulator has not, ShapeError for arguments that do
    not fit.
    """
    if code.row.vendor != "amd":
        raise EmulatorLimitError(f"the emulator runs AMD's machine code; {code.kernel} is compiled for {code.row}")
    sizes = _sizes(grid)
    if stores is not None:
        stores.code = code
    began, plan = time.process_time(), by_name(schedule)
    steps = _compiled(code)
    memory = Memory()
    segment = packed(code, args, sizes, memory)
    arguments = memory.add(Buffer("the kernel's arguments", np.frombuffer(segment, np.uint8), write=False))
    named = frozenset[int]().union(*(step.touched for step in steps if isinstance(step, Step)))
    total = sizes[0] * sizes[1] * sizes[2]
    order = plan.groups(total)
    begin = entry(code, preload)
    counts = np.zeros(len(steps), np.int64)
    each = max(1, lanes // (code.warps * code.row.wave))
    try:
        with np.errstate(all="ignore"):
            for first in range(0, total, each):
                numbers = _numbers(order[first : first + each], sizes)
                world = _world(code, memory, len(numbers), races, measure)
                world.stores, world.numbers = stores, order[first : first + each]
                w = begun(code, numbers, arguments, segment, world, preload, named)
                batch = Batch(steps, w, numbers, code.kernel, begin, plan, waits=waits, most=branches, watch=watch)
                batch.run()
                counts += batch.counts
    finally:
        memory.back()
    return Ran(code, tuple(int(one) for one in counts), total, time.process_time() - began)


def _sizes(grid: Sequence[int]) -> tuple[int, int, int]:
    given = tuple(grid)
    if (
        not 1 <= len(given) <= 3
        or not all(isinstance(one, int | np.integer) and one >= 0 for one in given)
        or any(one > _MOST_Y for one in given[1:])
    ):
        raise ShapeError(f"a grid has up to three whole numbers of workgroups, in y and z up to {_MOST_Y}; {given} was given")
    x, y, z = (*(int(one) for one in given), 1, 1)[:3]
    return x, y, z


def _compiled(code: CodeObject) -> Code:
    key = (str(code.row), code.text)
    if key not in _KEPT:
        if len(_KEPT) >= _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = compiled(Assembly(code.kernel, code.instructions, code.labels), code.row)
    return _KEPT[key]


def _numbers(order: Array, grid: tuple[int, ...]) -> Array:
    """[groups, 3] of a run of workgroups, x counting first."""
    return np.stack((order % grid[0], order // grid[0] % grid[1], order // (grid[0] * grid[1])), axis=1)


def _world(code: CodeObject, memory: Memory, groups: int, races: bool, measure: Measure | None) -> World:
    shared = Shared(max(code.shared, code.descriptor.lds), groups, code.warps if races else 1)
    size = code.descriptor.scratch
    scratch = Bytes(size * groups * code.warps * code.row.wave) if size else None
    if scratch is not None:
        scratch.u32[...] = POISON
    return World(memory, shared, measure, scratch, size, code.kernel)


def source(one: Instruction) -> str:
    """`file:line`, or nothing."""
    return f"{one.source[0]}:{one.source[1]}" if one.source else ""
