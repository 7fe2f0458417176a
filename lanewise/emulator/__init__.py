"""Runs AMD's machine code on a CPU: what a card would compute, or where the kernel does what no card forgives.

`running` is for launches of Triton kernels on tensors, `launch` for a code object on arrays of numpy; both say what they did as a `Ran`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.emulator.launch import Ran, launch
    from lanewise.emulator.memory import Buffer
    from lanewise.emulator.tensors import running

__all__ = ["Buffer", "Ran", "launch", "running"]
_HOMES = {"Buffer": "memory", "Ran": "launch", "launch": "launch", "running": "tensors"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"lanewise.emulator.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'lanewise.emulator' has no attribute {name!r}; it has {', '.join(__all__)}")
