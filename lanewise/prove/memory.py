"""Operands in memory that tells: NaN with a known pattern around them, between their rows, and where a result is to be written.

>>> import torch
>>> x = Guarded((2, 3), (5, 1), torch.bfloat16, torch.device("cpu"))
>>> _ = x.tensor.fill_(1.0)
>>> x.seal()
>>> x.broken()
''
>>> x.tensor[1, 2] = 7
>>> x.broken()
'element 135 of the buffer was changed: it is a value'
"""

import mmap
import sys
from collections.abc import Sequence

import torch

__all__ = ["FAR", "GUARD", "Guarded"]

GUARD = 128  # elements before and behind
FAR = (1 << 31) + 64  # a row stride past what 32 bits hold
# NaN whose payload nothing computes.
_POISON = {
    torch.bfloat16: (torch.int16, 0x7FD5),
    torch.float16: (torch.int16, 0x7ED5),
    torch.float32: (torch.int32, 0x7FC5D5D5),
    torch.int32: (torch.int32, 0x7FC5D5D5),  # no NaN, but a number that no packed word or sum is by chance
    torch.int64: (torch.int64, 0x7FC5D5D57FC5D5D5),
}
_NORESERVE = 0x4000  # Linux's flag of mmap, which Python names from 3.13 on


class Guarded:
    """A tensor of that shape and those strides in a buffer of its own, all poison until something is written to `tensor`.

    offset: elements that it begins behind an aligned address. A row stride of FAR or more costs memory for the rows alone on a CPU; on a card it
    is all there. Such a buffer also reaches as far in front, so that an address of 32 bits finds zeros and not the end of the process.
    """

    def __init__(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device, offset: int = 0) -> None:
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0
        far = max(strides, default=0) >= FAR
        start = (FAR if far else 0) + GUARD + offset
        total = start + span + GUARD
        self._bits, self._poison = _POISON[dtype]
        if not far:
            self._buffer = torch.full((total,), self._poison, dtype=self._bits, device=device)
            self._regions = [(0, total)]
        else:
            self._buffer = _untouched(total, self._bits, device)
            rows = range(0, span, strides[0])
            self._regions = [(start + row - GUARD, start + row + shape[1] + GUARD) for row in rows]
            for first, last in self._regions:
                self._buffer[first:last] = self._poison
        self._inside = (start, start + span)
        self.tensor = self._buffer.view(dtype).as_strided(tuple(shape), tuple(strides), start)
        self._sealed: list[torch.Tensor] = []

    def seal(self) -> None:
        """From here on nothing may change."""
        self._sealed = [self._buffer[first:last].clone() for first, last in self._regions]

    def broken(self) -> str:
        """What was changed since `seal`, in words; empty when nothing was."""
        for (first, last), before in zip(self._regions, self._sealed, strict=True):
            now = self._buffer[first:last]
            if not torch.equal(now, before):
                at = int(torch.nonzero(now != before)[0]) + first
                outside = not self._inside[0] <= at < self._inside[1]
                gap = not outside and int(before[at - first]) == self._poison
                return f"element {at} of the buffer was changed: it is {'in a guard band' if outside else 'padding' if gap else 'a value'}"
        return ""

    def overrun(self) -> str:
        """What was written around a result, in words; empty when nothing was."""
        first, last = self._inside
        for name, band in (("before", self._buffer[:first]), ("behind", self._buffer[last:])):
            changed = torch.nonzero(band != self._poison)
            if len(changed):
                return f"{len(changed)} elements {name} the result were written, the first {int(changed[0])} into the band"
        return ""


def _untouched(elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of which only what is written to becomes real (on a CPU)."""
    if device.type != "cpu" or not sys.platform.startswith("linux"):
        return torch.empty(elements, dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    return torch.frombuffer(mmap.mmap(-1, elements * dtype.itemsize, flags=flags), dtype=dtype)
