"""The proof on AMD's targets without a card: kernels are compiled for one and their machine code runs on the CPU, on the same cases as elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lanewise.arch import Arch

__all__ = ["emulating", "row"]

_ROWS: list[Arch] = []


def row() -> Arch | None:
    """The target whose machine code is run at present."""
    return _ROWS[-1] if _ROWS else None


@contextmanager
def emulating(target: Arch, **options: Any) -> Iterator[list[Any]]:
    """Inside, every kernel that is launched on CPU tensors runs as the target's machine code. options: of `emulator.launch`."""
    from lanewise.emulator.tensors import running

    _ROWS.append(target)
    try:
        with running(target, **options) as ran:
            yield ran
    finally:
        _ROWS.pop()
