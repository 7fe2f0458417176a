"""The proof on AMD's targets without a card: kernels are compiled for one and their machine code runs on the CPU, on the same cases as elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lanewise.arch import TARGETS, Arch
from lanewise.errors import DeviceError
from lanewise.prove import interpreter

__all__ = ["emulating", "repeats", "row"]

_ROWS: list[Arch] = []


def row() -> Arch | None:
    """The target whose machine code is run at present."""
    return _ROWS[-1] if _ROWS else None


def repeats() -> bool:
    """Whether a second run can be no other than the first: in the interpreter and in the emulator, whose order is given."""
    return row() is not None or interpreter.on()


@contextmanager
def emulating(target: Arch, **options: Any) -> Iterator[list[Any]]:
    """Inside, every kernel that is launched on CPU tensors runs as the target's machine code. options: of `emulator.launch`.

    Raises DeviceError for a target whose code the emulator does not get or does not run.
    """
    from lanewise.emulator.tensors import running

    if target.vendor != "amd" or not target.triton:
        there = ", ".join(row.name for row in TARGETS.values() if row.vendor == "amd" and row.triton)
        raise DeviceError(f"the emulator runs what Triton compiles for AMD's {there}; {target} is none of them")
    _ROWS.append(target)
    try:
        with running(target, **options) as ran:
            yield ran
    finally:
        _ROWS.pop()
