"""Single instructions run by hand on registers that a test fills."""

from typing import Any

import numpy as np

from lanewise.arch import TARGETS
from lanewise.emulator.compiler import compiled
from lanewise.emulator.flow import Flow
from lanewise.emulator.memory import Bytes, Memory
from lanewise.emulator.registers import SCALARS, Waves
from lanewise.emulator.shared import Shared
from lanewise.emulator.world import World
from lanewise.isa.assembly import Assembly, parse

LDS = 4096
SCRATCH = 64


def code(text: str, target: str) -> Any:
    """The steps of some instructions, one a line."""
    assembly: Assembly = parse("f:\n" + text.strip() + "\n.amdhsa_kernel f\n")
    return compiled(assembly, TARGETS[target])


def waves(target: str, v: Any = None, s: Any = None, active: Any = None, count: int = 1, scratch: int = 0) -> Waves:
    """v, s: values by the register's number, of a lane each or one for all; active: bool [lanes], all without it."""
    row = TARGETS[target]
    vectors = [np.full((count, row.wave), 0xDEAD0000 + number, np.uint32) for number in range(512)]
    scalars = [np.full((count, 1), 0xBEEF0000 + number, np.uint32) for number in range(SCALARS)]
    scalars[127][...] = 0
    for number, value in (v or {}).items():
        vectors[number][...] = bits(value)
    for number, value in (s or {}).items():
        scalars[number][...] = bits(value)
    execs = np.ones((count, row.wave), bool) if active is None else np.broadcast_to(active, (count, row.wave)).copy()
    memory = Bytes(scratch * row.wave * count) if scratch else None
    world = World(Memory(), Shared(LDS, count, 1), None, memory, scratch)
    group = np.arange(count)
    return Waves(vectors, scalars, np.zeros((count, 1), bool), execs, group, group, np.zeros(count, int), world, whole=True)


def bits(value: Any) -> Any:
    """Floats as they lie in a register; integers wrap."""
    value = np.asarray(value)
    if value.dtype.kind == "f":
        return value.astype(np.float32).view(np.uint32)
    return (value.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def ran(text: str, target: str, w: Waves | None = None, **registers: Any) -> Waves:
    """The waves behind some instructions without branches."""
    w = waves(target, **registers) if w is None else w
    with np.errstate(all="ignore"):
        for step in code(text, target):
            assert not isinstance(step, Flow)
            if hasattr(step, "run"):
                step.run(w)
    return w


def vector(w: Waves, register: int, dtype: Any = np.uint32) -> list[Any]:
    return list(w.v[register][0].view(dtype).tolist())


def scalar(w: Waves, register: int) -> int:
    return int(w.s[register][0, 0])
