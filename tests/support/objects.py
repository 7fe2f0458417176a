"""Code objects of Triton kernels, for launches on arrays of numpy."""

from collections.abc import Callable
from typing import Any

from lanewise.arch import TARGETS
from lanewise.isa.code_object import CodeObject, code_object
from lanewise.isa.launches import Launch, taken

__all__ = ["compiled", "taken_once"]


def taken_once(target: str, call: Callable[[], Any]) -> Launch:
    """The launch that a call makes, on tensors that only say types and alignment."""
    with taken(TARGETS[target]) as launches:
        call()
    (one,) = launches
    return one


def compiled(target: str, call: Callable[[], Any]) -> CodeObject:
    one = taken_once(target, call)
    return code_object(one.text, one.binary, one.row, shared=one.shared, warps=one.warps)
