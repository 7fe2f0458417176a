"""Launches of Triton kernels run by the emulator on the memory of CPU tensors, so that whoever calls a kernel needs to know nothing of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lanewise.arch import Arch
from lanewise.emulator.driver import Ran, launch
from lanewise.emulator.memory import Buffer, at_address, called, overlapping
from lanewise.errors import DeviceError, EmulatorLimitError
from lanewise.isa.code_object import CodeObject, code_object
from lanewise.isa.launches import Launch, taken

__all__ = ["running"]

_ALIGNED = 256
_INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
             "i1": np.int8, "u1": np.uint8}  # fmt: skip
_KINDS = {**_INTEGERS, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
_CODES: dict[str, CodeObject] = {}


@contextmanager
def running(row: Arch, *, changed: Callable[[Launch], CodeObject] | None = None, **options: Any) -> Iterator[list[Ran]]:
    """Every Triton launch inside the block is compiled for a target and run on its tensors' own memory; what each did is noted in order.

    changed: another code object for a launch, such as one with a fault in it; options: of `launch`

    Raises DeviceError for a tensor that does not lie on the CPU, and what `taken` and `launch` raise.

    >>> from lanewise.arch import parse
    >>> from lanewise.kernels.gpu.skinny import skinny
    >>> from lanewise.kernels.gpu.table import choose
    >>> row, x, w = parse("gfx1100"), torch.ones(1, 256, dtype=torch.float16), torch.ones(32, 256, dtype=torch.float16)
    >>> with running(row) as ran:
    ...     y = skinny(x, w, config=choose(row, "f16", 1, 32, 256, None).config, arch=row)
    >>> y[0, :3].tolist(), len(ran)
    ([256.0, 256.0, 256.0], 1)
    """
    ran: list[Ran] = []

    def run(one: Launch) -> None:
        code = changed(one) if changed else _code(one)
        ran.append(launch(code, one.grid, _arguments(one), **options))

    with taken(row, run):
        yield ran


def _code(one: Launch) -> CodeObject:
    key = f"{one.row} {one.compiled.hash}"
    if key not in _CODES:
        _CODES[key] = code_object(one.text, one.binary, one.row, shared=one.shared, warps=one.warps)
    return _CODES[key]


def _arguments(one: Launch) -> dict[str, Any]:
    """Tensors as buffers, those whose memory overlaps as one; numbers as the kernel's types."""
    tensors = {name: value for name, value in one.arguments.items() if isinstance(value, torch.Tensor)}
    if away := [name for name, value in tensors.items() if value.device.type != "cpu"]:
        raise DeviceError(f"{one.name}: {away[0]} lies on {tensors[away[0]].device}; the emulator works on the memory of CPU tensors")
    spans = {name: _span(value) for name, value in tensors.items()}
    places = {
        name: (buffer, spans[name][0] - begin)
        for begin, end, names in overlapping(spans)
        for buffer in [Buffer(called(names, spans), _memory(begin, end - begin), aligned=begin % _ALIGNED)]
        for name in names
    }
    signature = one.compiled.src.signature
    found: dict[str, Any] = {}
    for name, value in one.arguments.items():
        kind = _KINDS.get(signature[name]) if isinstance(signature[name], str) else None
        if name in places:
            found[name] = places[name]
        elif kind is None:
            raise EmulatorLimitError(f"{one.name}: {name} is passed as {signature[name]}, which the emulator has not")
        else:
            found[name] = kind(value)
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte of a tensor's first element, and behind its last one's."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def _memory(address: int, size: int) -> Any:
    return at_address(address, size) if size else np.zeros(0, np.uint8)
