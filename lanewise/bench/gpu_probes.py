"""The limits of a GPU at this moment: bytes that it reads a second, and products that its matrix units form."""

from typing import Any

import torch
import triton
import triton.language as tl

from lanewise.bench.limits import FLOAT_SIZE, FLOAT_TURNS, READ_TURNS, Probe, gpu_probe_bytes
from lanewise.bench.replay import Gpu, Piece

__all__ = ["GpuLimits", "read_all"]

_PASSES = 3  # of each probe in a round
_TILES = ((2048, 4), (4096, 8), (8192, 8))  # (int32 of one program, its warps); the fastest is the probe
_CHOOSING = 5


@triton.jit  # type: ignore[untyped-decorator]
def _read(data, out, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0).to(tl.int64)
    words = tl.load(data + program * TILE + tl.arange(0, TILE))
    tl.store(out + program, tl.sum(words))


def read_all(data: Any, out: Any, tile: int, warps: int) -> None:
    """Every int32 of `data`, a multiple of `tile`; sums go to `out`, one of each program, so that nothing is left out as unused."""
    _read[(data.numel() // tile,)](data, out, TILE=tile, num_warps=warps)


class GpuLimits:
    """Probes on one GPU, captured. Raises DeviceError, as torch's own words, where there is no memory for them."""

    def __init__(self, gpu: Gpu, dtype: Any) -> None:
        self._gpu = gpu
        self.read_bytes = READ_TURNS * gpu_probe_bytes(gpu.cache)
        self.macs = FLOAT_TURNS * FLOAT_SIZE**3
        data = torch.ones(gpu_probe_bytes(gpu.cache) // 4, dtype=torch.int32, device=gpu.device)
        out = torch.empty(data.numel() // min(tile for tile, _ in _TILES), dtype=torch.int32, device=gpu.device)
        pieces = [self._reading(data, out, tile, warps) for tile, warps in _TILES]
        times = gpu.medians(pieces, _CHOOSING)
        self._read = pieces[times.index(min(times))]
        a, b = (torch.randn(FLOAT_SIZE, FLOAT_SIZE, device=gpu.device).to(dtype) for _ in range(2))
        c = torch.empty_like(a)
        self._products = gpu.capture(lambda i: torch.mm(a, b, out=c), FLOAT_TURNS)
        self._kept = data, out, a, b, c

    def read(self) -> Probe:
        return Probe(self.read_bytes, self._seconds(self._read))

    def products(self) -> Probe:
        return Probe(self.macs, self._seconds(self._products))

    def _reading(self, data: Any, out: Any, tile: int, warps: int) -> Piece:
        return self._gpu.capture(lambda i: read_all(data, out, tile, warps), READ_TURNS)

    def _seconds(self, piece: Piece) -> tuple[float, ...]:
        return tuple(seconds for _, seconds in self._gpu.passes(piece, 1, _PASSES))
