"""The limits of this machine at this moment: what its threads read a second, and how many int8 or float32 products they form.

Run between the measurements that are compared with them, by the same threads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.cpu.weights import aligned
from lanewise.backends.memory import require
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import CpuKernel
from lanewise.kernels.cpu.probes import CHUNK_BYTES, LINE, float_chunk_macs, float_kernel, int8_chunk_macs, int8_kernel, read_kernel
from lanewise.kernels.cpu.threads import ThreadPool

__all__ = ["FLOAT_SIZE", "FLOAT_TURNS", "READ_TURNS", "Limits", "Probe", "gpu_probe_bytes", "probe_bytes"]

_MOST_BYTES = 10**9
READ_TURNS = 2  # times that a pass of a GPU reads its buffer
FLOAT_SIZE, FLOAT_TURNS = 4096, 4  # rows and columns of a GPU's product, and how many a pass forms
_MIB = 1 << 20
_LEAST_GPU_BYTES = 1 << 30
_CACHES = 4  # a buffer of this many last-level caches is read from memory
_PASSES = 3  # of each probe in a round
_PRODUCTS_SECONDS = 0.02
_CHUNKS_PER_THREAD = 8
_SEED_VECTORS = 32
_Seconds = float  # a method of `Limits` has that name


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe in one round: the amount of one pass (bytes, or multiplications) and the seconds of every pass."""

    amount: int
    seconds: tuple[float, ...]


def probe_bytes(cache: int | None) -> int:
    """Bytes to read so that caches do not help: 4 times the last-level cache, but at most 1 GB; 1 GB where it is unknown."""
    return min(_CACHES * cache, _MOST_BYTES) if cache else _MOST_BYTES


def gpu_probe_bytes(cache: int | None) -> int:
    """Bytes that the read probe of a GPU goes over: 4 times its L2 in whole MiB, and 1 GiB at least, as starting and ending show in less."""
    return max(_CACHES * -(-(cache or 0) // _MIB) * _MIB, _LEAST_GPU_BYTES)


class Limits:
    """Probes on a pool's threads. `nbytes` is what the read probe reads; it is held until the object goes.

    Raises DeviceError when there is no memory for it.
    """

    def __init__(self, pool: ThreadPool, isa: Isa, nbytes: int) -> None:
        require(nbytes, "the bytes for the read probe to read")
        self._pool, self.isa, self.nbytes = pool, isa, nbytes
        self._library = Library([read_kernel(), int8_kernel(), float_kernel()], isa)
        self._data = aligned(-(-nbytes // CHUNK_BYTES) * CHUNK_BYTES)
        self._data[:] = 1  # memory that was never written is one page of zeros, read from the cache
        self._seed = aligned(LINE * _SEED_VECTORS)
        self._seed[:] = np.arange(LINE * _SEED_VECTORS) % 100
        self._out = aligned(LINE * pool.threads)
        self._turns: dict[str, int] = {}

    def read(self, nbytes: int | None = None) -> Probe:
        """Read the buffer, or its first `nbytes` (whole chunks, at least one) again and again: what a cache of that size gives."""
        chunks = len(self._data) // CHUNK_BYTES
        if nbytes is not None:
            chunks = min(max(1, nbytes // CHUNK_BYTES), chunks)
        table = read_kernel().pack(data=self._data.ctypes.data, out=self._out.ctypes.data)
        if nbytes is not None:
            self._seconds("probe_read", table, chunks)  # what another probe left in the cache is not its own
        return Probe(chunks * CHUNK_BYTES, tuple(self._seconds("probe_read", table, chunks) for _ in range(_PASSES)))

    def int8(self) -> Probe:
        """Multiply int8 in registers."""
        return self._products(int8_kernel(), int8_chunk_macs)

    def float(self) -> Probe:
        """Multiply float32 in registers."""
        return self._products(float_kernel(), float_chunk_macs)

    def _products(self, kernel: CpuKernel, macs: Callable[[str, int], int]) -> Probe:
        if kernel.name not in self._turns:
            self._turns[kernel.name] = self._calibrated(kernel)
        turns = self._turns[kernel.name]
        chunks = _CHUNKS_PER_THREAD * self._pool.threads
        return Probe(chunks * macs(self.isa.dot, turns), tuple(self._taken(kernel, turns) for _ in range(_PASSES)))

    def _taken(self, kernel: CpuKernel, turns: int) -> _Seconds:
        table = kernel.pack(seed=self._seed.ctypes.data, turns=turns, out=self._out.ctypes.data)
        return self._seconds(kernel.name, table, _CHUNKS_PER_THREAD * self._pool.threads)

    def _calibrated(self, kernel: CpuKernel) -> int:
        turns = 64
        while (seconds := min(self._taken(kernel, turns) for _ in range(_PASSES))) < _PRODUCTS_SECONDS / 10:
            turns *= 4
        return max(1, round(turns * _PRODUCTS_SECONDS / seconds))

    def _seconds(self, kernel: str, table: NDArray[np.int64], chunks: int) -> _Seconds:
        program = np.array([[self._library.address(kernel), table.ctypes.data, chunks, 0]], np.int64)
        began = time.perf_counter()
        self._pool.run(program)
        return time.perf_counter() - began
