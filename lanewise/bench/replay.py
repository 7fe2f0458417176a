"""CUDA graphs and events: work that is captured once, replayed, and timed by the GPU itself.

Everything that `bench` asks of torch.cuda is here, so that a test can put a stand-in where no GPU is.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from lanewise.errors import DeviceError

__all__ = ["TYPES", "Gpu", "Piece", "gpu_index"]

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}  # what is measured on a GPU
_CUDA: Any = torch.cuda  # parts of it have no types
_WARM = 3  # runs before a capture: compilers, workspaces and lazily loaded modules have no place in one


@dataclass(frozen=True, slots=True)
class Piece:
    """Captured work. calls: how many calls one replay holds; result: what the last of them gave, in memory that each replay writes again."""

    replay: Callable[[], None]
    calls: int
    result: Any


def gpu_index(device: str) -> int:
    """The number behind `cuda:`, 0 where there is none. Raises DeviceError for a device that is not there."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not re.fullmatch(r"[0-9]{0,4}", number) or device.endswith(":"):
        raise DeviceError(f"device {device[:64]!r} is no GPU; one is called cuda, or cuda:1 for the second")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= there:
        raise DeviceError(f"there is no device {device}: PyTorch sees {there} GPU{'' if there == 1 else 's'} here")
    return int(number or 0)


class Gpu:
    """One GPU and the stream that everything is captured and replayed on."""

    def __init__(self, index: int) -> None:
        self.index, self.name, self.device = index, f"cuda:{index}", torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        self.properties = torch.cuda.get_device_properties(self.device)
        self._stream = _CUDA.Stream(self.device)

    @property
    def cache(self) -> int | None:
        """Bytes of the L2 cache, None where PyTorch does not know."""
        return int(getattr(self.properties, "L2_cache_size", 0)) or None

    def copies(self, w: Any, count: int, n: int, k: int) -> list[Any]:
        """w, a tensor that holds weights [n,k], and clones of it, so many in all. Raises DeviceError when there is no memory for them."""
        self.room(count, n, k, w.nbytes)
        return [w, *(w.clone() for _ in range(count - 1))]

    def room(self, count: int, n: int, k: int, nbytes: int) -> None:
        """Raise DeviceError when there is no memory for so many w[n,k] of so many bytes."""
        needed, free = count * nbytes, int(torch.cuda.mem_get_info(self.device)[0])
        if needed > free:
            raise DeviceError(f"{count} cop{'y' if count == 1 else 'ies'} of {n}x{k} weights need {needed} bytes, and the GPU has {free} left")

    def capture(self, call: Callable[[int], Any], calls: int) -> Piece:
        """call(0) to call(calls - 1) as one graph, behind a few that are not captured. Nothing of it has run before `run` or a replay."""
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream):
            for i in range(_WARM):
                call(i % calls)
            self._stream.synchronize()
            graph, result = torch.cuda.CUDAGraph(), None
            graph.capture_begin()
            try:
                for i in range(calls):
                    result = call(i)
            finally:
                graph.capture_end()
        return Piece(graph.replay, calls, result)

    def run(self, piece: Piece) -> None:
        """One replay, behind everything that was asked of the GPU before, to its end."""
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream):
            piece.replay()
        self._stream.synchronize()

    def seconds(self, piece: Piece, replays: int) -> tuple[int, float]:
        """(monotonic ns before the start, seconds) of so many replays, behind one that is not counted and hides what launching costs."""
        ((started, seconds),) = self.passes(piece, replays, 1)
        return started, seconds

    def passes(self, piece: Piece, replays: int, count: int) -> list[tuple[int, float]]:
        """The same `count` times, one behind the other without a pause."""
        events = [_CUDA.Event(enable_timing=True) for _ in range(count + 1)]
        with torch.cuda.stream(self._stream):
            piece.replay()
            started = time.monotonic_ns()
            events[0].record(self._stream)
            for event in events[1:]:
                for _ in range(replays):
                    piece.replay()
                event.record(self._stream)
            events[-1].synchronize()
        return [(started, one.elapsed_time(other) / 1e3) for one, other in pairwise(events)]

    def medians(self, pieces: Sequence[Piece], turns: int, replays: int = 1) -> list[float]:
        """Median seconds of a call of each, in turns."""
        taken = [[self.seconds(piece, replays)[1] / (replays * piece.calls) for piece in pieces] for _ in range(turns)]
        return [sorted(one)[len(one) // 2] for one in zip(*taken, strict=True)]

    def close(self) -> None:
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
