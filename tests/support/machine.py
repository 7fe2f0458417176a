"""Programs of a few instructions by hand, run by whole workgroups: what needs several waves, branches, barriers or waits.

v0 is the lane's number in its workgroup, s2 the workgroup's; buffers' addresses lie in s[4:5], s[6:7] and so on; everything else is poison.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from lanewise.arch import TARGETS
from lanewise.emulator.compiler import compiled
from lanewise.emulator.machine import Batch
from lanewise.emulator.memory import Buffer, Memory
from lanewise.emulator.registers import POISON, SCALARS, Waves
from lanewise.emulator.schedule import schedule as by_name
from lanewise.emulator.shared import Shared
from lanewise.emulator.world import World
from lanewise.isa.assembly import parse

__all__ = ["batch", "program", "ran"]


def program(text: str, target: str) -> str:
    """A text for one target. `WAIT load 1`, `WAIT lds 0`, `WAIT scalar 0` and `BARRIER` become what it has for them; lines are the source's lines."""
    row = TARGETS[target]
    old = {"load": "vmcnt", "lds": "lgkmcnt", "scalar": "lgkmcnt", "store": "vscnt" if row.store_counter else "vmcnt"}
    new = {"load": "load", "lds": "ds", "scalar": "km", "store": "store"}
    lines = ['.file 1 "hand.py"']
    for number, line in enumerate(text.strip().splitlines(), 1):
        line = line.strip()
        lines.append(f".loc 1 {number} 0")
        if found := re.match(r"WAIT (\w+) (\d+)", line):
            kind, count = found[1], int(found[2])
            old_form = f"s_waitcnt_vscnt null, {count:#x}" if old[kind] == "vscnt" else f"s_waitcnt {old[kind]}({count})"
            lines.append(f"s_wait_{new[kind]}cnt {count:#x}" if row.split_waits else old_form)
        elif line == "BARRIER":
            lines += ["s_barrier_signal -1", "s_barrier_wait -1"] if row.split_waits else ["s_barrier"]
        else:
            lines.append(line)
    return "f:\n" + "\n".join(lines) + "\n.amdhsa_kernel f\n"


def batch(
    text: str, target: str, *, groups: Any = 1, warps: int = 2, schedule: str = "lockstep", waits: bool = True, races: bool = True, lds: int = 4096,
    buffers: Sequence[Buffer] = (), most: int = 1000, watch: Any = None,
) -> Batch:  # fmt: skip
    """Waves at the beginning of a program; groups: how many, or their numbers [groups, 3]."""
    row, assembly = TARGETS[target], parse(program(text, target))
    steps = compiled(assembly, row)
    numbers = np.array([(number, 0, 0) for number in range(groups)]) if isinstance(groups, int) else np.asarray(groups)
    count = len(numbers) * warps
    vectors: list[Any] = [np.full((count, row.wave), POISON, np.uint32) for _ in range(16)] + [None] * 496
    scalars: list[Any] = [np.full((count, 1), POISON, np.uint32) for _ in range(SCALARS)]
    group, wave = np.tile(np.arange(len(numbers)), warps), np.repeat(np.arange(warps), len(numbers))
    memory = Memory()
    for number, buffer in enumerate(buffers):
        address = memory.add(buffer)
        scalars[4 + 2 * number][...], scalars[5 + 2 * number][...] = address & 0xFFFFFFFF, address >> 32
    vectors[0][...] = wave[:, None] * row.wave + np.arange(row.wave)
    scalars[2][:, 0] = numbers[group, 0]
    world = World(memory, Shared(lds, len(numbers), warps if races else 1))
    w = Waves(vectors, scalars, np.zeros((count, 1), bool), np.ones((count, row.wave), bool), np.arange(count), group, wave, world, whole=True)
    return Batch(steps, w, numbers, "f", 0, by_name(schedule), waits=waits, most=most, watch=watch)


def ran(text: str, target: str, **options: Any) -> Batch:
    """The batch behind the program."""
    made = batch(text, target, **options)
    with np.errstate(all="ignore"):
        made.run()
    made.w.world.memory.back()
    return made
