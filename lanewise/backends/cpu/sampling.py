"""Sampling with the compiled passes over the vocabulary: the same answers as the definition, from lists that are short."""

import ctypes
import math

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.sample import Distribution
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.kernel import CpuKernel, double_bits, float_bits
from lanewise.kernels.cpu.sample import COLLECT, SAMPLE_KERNELS, SCAN, TOTAL, VECTORS

__all__ = ["CpuDistribution", "Passes"]

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_TOKEN = 0xFFFFFFFF  # where a key has its token
_FASTEST = 1e300  # 1 / temperature at most: times the smallest difference of two logits it is still far below where exp ends


class Passes:
    """The compiled passes, and memory that a call of one uses. For one thread at a time, as a runner is."""

    def __init__(self, library: Library, vocab: int) -> None:
        self.keys, self.out = np.empty(vocab, np.int64), np.zeros(2, np.int64)
        self.keys_address, self._out_address = self.keys.ctypes.data, self.out.ctypes.data
        self._library = library  # whose code the functions are
        self._functions = {kernel.name: _CALL(library.address(kernel.name)) for kernel in SAMPLE_KERNELS}

    def run(self, kernel: CpuKernel, **values: int) -> None:
        """Leaves what the kernel has to say in `out` (and `keys`), until the next call."""
        table = kernel.pack(out=self._out_address, **values)
        self._functions[kernel.name](table.ctypes.data, 0, 0)


class CpuDistribution(Distribution):
    """`Distribution` with compiled passes. `total` differs from the definition's in rounding, everything else in nothing."""

    def __init__(self, passes: Passes, logits: F32) -> None:
        logits = np.ascontiguousarray(logits, np.float32)
        n = len(logits)
        pieces = -(-n // (LANES * VECTORS))
        self._passes, self._maxima = passes, np.empty(pieces * LANES, np.float32)
        self._row = {"logits": logits.ctypes.data, "n": n}
        self._pieces = {**self._row, "pieces": pieces, "maxima": self._maxima.ctypes.data}
        super().__init__(logits)

    def _like(self, logits: F32) -> "CpuDistribution":
        return CpuDistribution(self._passes, logits)

    def _greatest(self) -> int:
        self._passes.run(SCAN, **self._pieces)
        best, broken = self._passes.out.tolist()
        return len(self.logits) if broken else best

    def most_likely(self, count: int) -> Ints:
        """The `count`-th greatest of the parts' maxima has at least `count` logits that are no smaller: those are collected and sorted."""
        if count == 0:
            return np.empty(0, np.intp)
        parts = len(self._maxima)
        least = -math.inf if count >= parts else float(np.partition(self._maxima, parts - count)[parts - count])
        self._passes.run(COLLECT, **self._pieces, least=float_bits(least), keys=self._passes.keys_address)
        keys = self._passes.keys[: self._passes.out[0]]
        keys.sort()
        return keys & _TOKEN

    def total(self, temperature: float) -> float:
        rate = min(1 / float(temperature), _FASTEST)
        self._passes.run(TOTAL, **self._row, greatest=float_bits(float(self.logits[self.greatest])), rate=double_bits(rate))
        return float(self._passes.out.view(np.float64)[0])
