"""The registers of waves as the hardware leaves them when a kernel begins; whatever it does not set is poison.

Facts: LLVM's AMDGPU usage guide, "Initial Kernel Execution State" and "Kernel Descriptor".
"""

from typing import Any

import numpy as np

from lanewise.emulator.operands import ACCUMULATORS
from lanewise.emulator.private import SWIZZLED
from lanewise.emulator.registers import MODE, NULL, POISON, SCALAR, SCALARS, TTMP, VCC, Array, Waves
from lanewise.emulator.world import World
from lanewise.errors import EmulatorLimitError
from lanewise.isa.code_object import CodeObject, Descriptor

__all__ = ["begun", "entry", "user_registers"]

# Of kernel_code_properties, bit by bit: what the driver fills scalar registers with, and how many.
_USER = (
    ("private buffer", 4), ("dispatch packet", 2), ("queue", 2), ("arguments", 2), ("dispatch number", 2), ("flat scratch", 2), ("scratch size", 1),
)  # fmt: skip
_GIVEN = ("private buffer", "arguments", "flat scratch", "scratch size")  # those that the emulator has something for
_ROUNDS_TO_NEAREST_KEEPS_DENORMALS = 0xF0
_BOUNDED = 1 << 26  # FP16_OVFL in rsrc1
_PRELOADED_ENTRY = 256  # bytes behind the entry of drivers that know nothing of preloading
_MOST_GIVEN = 40  # scalar registers that driver and hardware fill


def entry(code: CodeObject, preload: bool) -> int:
    """The index of the first instruction. preload: by a driver that preloads arguments, which where the kernel asks for it begins further on."""
    return code.at(_PRELOADED_ENTRY).index if preload and code.descriptor.preload_length else 0


def user_registers(descriptor: Descriptor) -> tuple[dict[str, int], int]:
    """The first register of what the driver fills in, and of what comes behind (preloaded arguments).

    Raises EmulatorLimitError for what the emulator has not.
    """
    at, found = 0, {}
    for bit, (name, count) in enumerate(_USER):
        if descriptor.properties >> bit & 1:
            if name not in _GIVEN:
                raise EmulatorLimitError(f"the kernel asks the driver for its {name}, which the emulator has not")
            found[name] = at
            at += count
    return found, at


def begun(code: CodeObject, groups: Array, arguments: int, segment: bytes, world: World, preload: bool, named: frozenset[int]) -> Waves:
    """Waves of some workgroups, [groups, 3] of numbers, in order: the first wave of every group, then the second of every one.

    arguments: address of the segment of kernel arguments, whose bytes are `segment`
    named: registers that the kernel names, as `Step.touched` has them

    Raises EmulatorLimitError for modes that the emulator has not.
    """
    descriptor, row = code.descriptor, code.row
    if descriptor.float_mode != _ROUNDS_TO_NEAREST_KEEPS_DENORMALS:
        raise EmulatorLimitError(f"{code.kernel}: float mode {descriptor.float_mode:#x}; the emulator rounds to nearest and keeps denormals (0xf0)")
    if descriptor.rsrc1 & _BOUNDED:
        raise EmulatorLimitError(f"{code.kernel}: its mode has float16 end at the largest number; the emulator begins without")
    if descriptor.wave != row.wave:
        raise EmulatorLimitError(f"{code.kernel}: waves of {descriptor.wave} lanes; the emulator has {row.wave} for {row}")
    count = len(groups) * code.warps
    number = np.tile(np.arange(len(groups)), code.warps)
    wave = np.repeat(np.arange(code.warps), len(groups))
    shape = (count, row.wave)
    v: list[Any] = [np.full(shape, POISON, np.uint32) if one in named or one < 3 else None for one in range(2 * ACCUMULATORS)]
    held = named | {SCALAR + one for one in (VCC, VCC + 1, NULL, *range(TTMP, TTMP + 16), *range(_MOST_GIVEN))}
    s: list[Any] = [np.full((count, 1), POISON, np.uint32) if SCALAR + one in held else None for one in range(SCALARS)]
    w = Waves(v, s, np.zeros((count, 1), bool), np.ones(shape, bool), np.arange(count), number, wave, world, whole=True)
    if s[MODE] is not None:
        s[MODE][...] = 0
    w.v[0][...] = wave[:, None] * row.wave + np.arange(row.wave)
    for register in range(1, 0 if row.packed_ids else 1 + descriptor.workitem_ids):
        w.v[register][...] = 0
    ids = groups[number]
    _driver(w, descriptor, arguments, segment, preload)
    if row.ids_in_ttmp:
        s[TTMP + 9][:, 0], s[TTMP + 7][:, 0] = ids[:, 0], ids[:, 1] | ids[:, 2] << 16
        s[TTMP + 8][:, 0] = wave << 25
        return w
    behind = descriptor.user_sgprs  # more of them than are filled, on targets whose hardware asks for sixteen in all
    for axis, wanted in enumerate(descriptor.workgroup_ids):
        if wanted:
            s[behind][:, 0] = ids[:, axis]
            behind += 1
    if descriptor.rsrc2 & 1:  # bytes of scratch in front of the wave's; each lane's memory is told apart elsewhere
        s[behind][...] = 0
    return w


def _driver(w: Waves, descriptor: Descriptor, arguments: int, segment: bytes, preload: bool) -> None:
    """Fill what the driver fills."""
    places, behind = user_registers(descriptor)
    words = {
        "arguments": (arguments & 0xFFFFFFFF, arguments >> 32),
        "private buffer": SWIZZLED,
        "flat scratch": (0, 0),
        "scratch size": (descriptor.scratch,),
    }
    for name, first in places.items():
        for number, word in enumerate(words[name]):
            w.s[first + number][...] = word
    length = descriptor.preload_length
    if preload and length:
        given = np.frombuffer(segment, np.uint32, length, 4 * descriptor.preload_offset)
        for number, word in enumerate(given):
            w.s[behind + number][...] = word
