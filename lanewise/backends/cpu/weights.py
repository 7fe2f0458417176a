"""Weights on their way from the file to panels: packed once by a compiled kernel, the file's pages given back behind it."""

import contextlib
import functools
import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError
from lanewise.files import Tensor
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.blocks import BLOCKS
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.dense import DENSE, dense_matmul, dense_pack
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.kernel import CpuKernel
from lanewise.kernels.cpu.matmul import block_matmul
from lanewise.kernels.cpu.pack import pack_kernel
from lanewise.kernels.cpu.pages import release
from lanewise.kernels.cpu.records import BRAIN, FLOAT
from lanewise.kernels.cpu.threads import ThreadPool

__all__ = ["Arena", "PackedWeight", "activation_of", "aligned", "kernels_for", "pack_weight", "padded_vector"]

_HUGE = 2 << 20


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [n, k] as panels of 16 rows; `panels` is a multiple of what a kernel takes at a time.

    arguments: what every kernel is told of it: n, blocks of a row, and address and panel step of both planes
    """

    format: str
    n: int
    k: int
    panels: int
    quants: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    arguments: dict[str, int]

    @property
    def nbytes(self) -> int:
        return self.quants.nbytes + self.scales.nbytes

    @classmethod
    def make(cls, fmt: str, n: int, k: int, group: int, arena: "Arena") -> "PackedWeight":
        """Room for a weight whose kernel takes `group` panels at a time."""
        panels, blocks = -(-n // (LANES * group)) * group, k // FORMATS[fmt].block
        steps = (LANES * DENSE[fmt], 0) if fmt in DENSE else (BLOCKS[fmt].quants, BLOCKS[fmt].scales)
        quants, scales = (arena.take(panels * blocks * step) for step in steps)
        arguments = {"n": n, "blocks": blocks}
        arguments |= {"quants": quants.ctypes.data, "quants_step": blocks * steps[0], "scales": scales.ctypes.data, "scales_step": blocks * steps[1]}
        return cls(fmt, n, k, panels, quants, scales, arguments)


def activation_of(fmt: str) -> str:
    """The kind of record that x is turned into in front of a weight of that format."""
    return BLOCKS[fmt].activation if fmt in BLOCKS else BRAIN if fmt == "BF16" else FLOAT


@functools.cache
def kernels_for(fmt: str) -> tuple[CpuKernel, CpuKernel]:
    """(pack, matmul) of a format. Raises FormatError for one that has none."""
    if fmt in DENSE:
        return dense_pack(fmt), dense_matmul(fmt)
    if fmt not in BLOCKS:
        raise FormatError(f"the cpu backend has no kernel for format {fmt}; it has {', '.join((*DENSE, *BLOCKS))}")
    return pack_kernel(fmt), block_matmul(fmt)


class Arena:
    """Memory for many weights together: huge pages need large pieces, and most weights are smaller than one."""

    _PIECE = 64 << 20

    def __init__(self) -> None:
        self._room = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """`nbytes` of zeroed memory in cache lines of their own."""
        if nbytes > self._room.nbytes:
            self._room = aligned(max(nbytes, self._PIECE))
        taken, rest = self._room[:nbytes], -(-nbytes // 128) * 128
        self._room = self._room[rest:]
        return taken


def pack_weight(tensor: Tensor, library: Library, pool: ThreadPool, arena: Arena) -> PackedWeight:
    """The packed form of a 2-D tensor. The pages of the mapped file that it was read from are released."""
    fmt, (n, k) = tensor.format.name, tensor.shape
    packed = PackedWeight.make(fmt, n, k, library.isa.panels, arena)
    kernel = kernels_for(fmt)[0]
    arguments = kernel.pack(raw=tensor.data.ctypes.data, row_bytes=tensor.data.shape[-1], **packed.arguments)
    program = np.array([[library.address(kernel.name), arguments.ctypes.data, packed.panels, 0]], np.int64)
    pool.run(program)
    if not tensor.data.flags.writeable:  # a view of the mapped file
        release(tensor.data.ctypes.data, tensor.data.nbytes)
    return packed


def padded_vector(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32[k] with zeros behind it up to a multiple of 32, so that any k is a whole number of vectors."""
    out = aligned(-(-len(values) // 32) * 128).view(np.float32)
    out[: len(values)] = values
    return out


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory of our own from the start of a cache line; large pieces in huge pages where the system has them. A shared mapping could not."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    if nbytes < _HUGE:
        raw = np.zeros(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + nbytes]
    room = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system built without them refuses
            room.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(room, np.uint8)
    start = -whole.ctypes.data % _HUGE
    return whole[start : start + nbytes]
