"""Calls CPU kernels from a test, without threads: arrays by name, chunk after chunk, with packed weights and records made for them."""

import ctypes
import functools
import hashlib
import mmap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.backends.cpu.weights import activation_of, kernels_for
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.blocks import BLOCKS
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.emit import LANES, Emitter, Value
from lanewise.kernels.cpu.isa import ISAS, runnable
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel, float_bits, module_of
from lanewise.kernels.cpu.matmul import unpacked_bytes
from lanewise.kernels.cpu.quantize import prepare
from lanewise.kernels.cpu.records import FLOAT, MANY, RECORDS, record_bytes, small_tiles
from support import aarch64

RUNNABLE = {isa.name: isa for isa in runnable()}  # in the encoding that this processor takes
HERE = tuple(RUNNABLE)
BEST = HERE[0]
FUSED = tuple(name for name in HERE if ISAS[name].fma)  # the others round a product before they add
QUANTIZED = tuple(BLOCKS)
ALL = (*DENSE, *BLOCKS)

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_LIBRARIES: dict[tuple[str, str], Library] = {}


def call(kernel: CpuKernel, isa: str, chunks: int = 1, reach: Sequence[np.ndarray] = (), **values: Any) -> None:
    """Run chunks 0..chunks-1 as worker 0. Arrays stand for their addresses, floats for their bits; others hold addresses of `reach`."""
    if isa not in RUNNABLE:
        return aarch64.run(kernel, isa, chunks, values, reach)
    key = isa, kernel.name
    if key not in _LIBRARIES:
        _LIBRARIES[key] = Library([kernel], RUNNABLE[isa])
    plain = {name: _argument(value) for name, value in values.items()}
    table = kernel.pack(**plain)
    run = _CALL(_LIBRARIES[key].address(kernel.name))
    for chunk in range(chunks):
        run(table.ctypes.data, chunk, 0)


def _argument(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    return float_bits(value) if isinstance(value, float) else int(value)


def snippet(name: str, arguments: Sequence[str], body: Callable[[Emitter, Arguments], None], isa: str, **values: Any) -> None:
    """Compile and run a few lines of emitter as a kernel of their own."""
    call(digested(CpuKernel(name, tuple(arguments), lambda e, a, chunk, worker: body(e, a)), isa), isa, **values)


def digested(kernel: CpuKernel, isa: str) -> CpuKernel:
    """A test's own kernel under a name that changes with its body: the cache of objects knows only the package's source."""
    return replace(kernel, name=f"{kernel.name}_{hashlib.sha256(module_of(kernel, ISAS[isa]).encode()).hexdigest()[:12]}")


def map_vectors(functions: dict[str, Callable[..., Value]], isa: str, *operands: np.ndarray) -> dict[str, np.ndarray]:
    """Each function(e, x, y, ...) on 16 lanes of the operands at a time; sizes are multiples of 16, element size 4 in and out."""
    count = len(operands[0])
    results = {name: np.zeros(count, np.uint32) for name in functions}
    inputs = [f"in{i}" for i in range(len(operands))]

    def body(e: Emitter, a: Arguments) -> None:
        with e.loop(a.count) as i:
            at = e.mul(i, 4 * LANES)
            values = [(e.floats if o.dtype == np.float32 else e.ints)(e.add(getattr(a, n), at)) for n, o in zip(inputs, operands, strict=True)]
            for name, function in functions.items():
                e.store(function(e, *values), e.add(getattr(a, name), at))

    given = dict(zip(inputs, operands, strict=True))
    snippet("map_vectors", ("count", *inputs, *functions), body, isa, count=count // LANES, **given, **results)
    return results


def at_the_edge(array: np.ndarray) -> np.ndarray:
    """A copy that ends where its page ends. The next page may not be touched: a read there ends the process."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    room = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    next_page = ctypes.c_void_p(room.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(next_page, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = room[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


# weights and activations


def finite_blocks(fmt: str, n: int, blocks: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """uint8[n, row_bytes]: every byte random, but the float16 scales finite, of both signs, about `scale` in size."""
    rng = np.random.default_rng(seed)
    layout = FORMATS[fmt].layout
    raw = rng.integers(0, 256, (n, blocks * layout.itemsize), dtype=np.uint8)
    fields = raw.view(layout)
    for field in halves_of(fmt):
        fields[field] = (rng.normal(size=fields[field].shape) * scale).astype(np.float16)
    return raw


def halves_of(fmt: str) -> list[str]:
    """The fields of a block that are float16."""
    layout = FORMATS[fmt].layout
    return [name for name in layout.names or () if layout[name].base == np.float16]


@functools.cache
def _steps(fmt: str) -> tuple[int, int]:
    """Bytes of one block of one panel in the quant and the scale plane."""
    return (LANES * DENSE[fmt], 0) if fmt in DENSE else (BLOCKS[fmt].quants, BLOCKS[fmt].scales)


def packed(raw: np.ndarray, fmt: str, isa: str, fill: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(quants, scales), uint8[panels, bytes of a panel], packed by the kernel into planes that held `fill`."""
    n, blocks = len(raw), raw.shape[1] // FORMATS[fmt].nbytes
    group = ISAS[isa].panels
    panels = max(1, -(-n // (LANES * group))) * group
    quants, scales = (np.full((panels, blocks * step), fill, np.uint8) for step in _steps(fmt))
    call(
        kernels_for(fmt)[0], isa, panels, raw=raw, row_bytes=raw.shape[1], n=n, blocks=blocks,
        quants=quants, quants_step=quants.shape[1], scales=scales, scales_step=scales.shape[1],
    )  # fmt: skip
    return quants, scales


def records(
    x: np.ndarray, kind: str, isa: str, source: str = "plain", other: np.ndarray | None = None, eps: float = 0.0,
    rows: np.ndarray | None = None, per_chunk: int = 0,
) -> np.ndarray:  # fmt: skip
    """uint8[m, record bytes] by a prepare kernel; guarded by a row that must stay as it was."""
    m, k = len(x) if rows is None else len(rows), x.shape[1]
    wide = pad(x)
    beside = 0 if other is None else pad(other) if other.ndim == 2 else pad(other[None])[0]
    out = np.full((m + 1, record_bytes(kind, wide.shape[1])), 0xA5, np.uint8)
    each = per_chunk or max(m, 1)
    call(
        prepare(source, kind), isa, -(-m // each), x=wide, x_step=wide.strides[0], rows=0 if rows is None else rows, other=beside,
        eps=eps, out=out, out_step=out.shape[1], out_worker=0, k=k, padded=wide.shape[1], m=m, each=1, per_chunk=each,
    )  # fmt: skip
    assert (out[m] == 0xA5).all()
    return out[:m]


def apart(out: np.ndarray, isa: str) -> np.ndarray:
    """Rows of records with the words of each tile put back in one piece a token."""
    words, first, largest = out.view(np.uint32).copy(), 0, ISAS[isa].tokens
    sizes = small_tiles(ISAS[isa]) if len(out) < MANY else (largest, *small_tiles(ISAS[isa]))
    for size in sizes:
        for _ in range((len(out) - first) // size):
            tile = words[first : first + size]
            tile[:] = tile.reshape(-1, size).T.copy()
            first += size
    return words.view(np.uint8)


def pad(x: np.ndarray) -> np.ndarray:
    """float32[m, k] with zeros behind each row up to a multiple of 32."""
    wide = np.zeros((len(x), -(-x.shape[1] // 32) * 32), np.float32)
    wide[:, : x.shape[1]] = x
    return wide


def fields_of(out: np.ndarray, kind: str, isa: str) -> np.ndarray:
    """Records as a structured array [m, blocks]."""
    out = apart(out, isa)
    return out.view(RECORDS[kind]) if kind != FLOAT else out.view(np.float32)


def matmul(
    x: np.ndarray, raw: np.ndarray, fmt: str, isa: str, bias: np.ndarray | None = None, y: np.ndarray | None = None, per_chunk: int = 1
) -> np.ndarray:
    """y[m, n], from records made by the plain kernel; `y`, if given, is what is added to. Rows of y lie apart, and what lies between stays."""
    m, n, blocks = len(x), len(raw), raw.shape[1] // FORMATS[fmt].nbytes
    quants, scales = packed(raw, fmt, isa)
    rows = records(x, activation_of(fmt), isa)
    groups = len(quants) // ISAS[isa].panels
    scratch = np.full(unpacked_bytes(fmt, x.shape[1], ISAS[isa]) + 64, 0xA5, np.uint8)
    guard = np.uint32(0x7FC0BEEF)  # a NaN that nothing computes
    room = np.full((m + 2, n + 19), guard, np.uint32).view(np.float32)
    if y is not None:
        room[:m, :n] = y
    call(
        kernels_for(fmt)[1], isa, -(-groups // per_chunk), quants=quants, quants_step=quants.shape[1], scales=scales,
        scales_step=scales.shape[1], x=rows, x_step=rows.shape[1], x_worker=0, y=room, y_step=room.strides[0], m=m, n=n, blocks=blocks,
        groups=groups, per_chunk=per_chunk, bias=0 if bias is None else bias, add=int(y is not None),
        scratch=scratch, scratch_step=0,
    )  # fmt: skip
    assert (scratch[-64:] == 0xA5).all()
    bits = room.view(np.uint32)
    assert (bits[m:] == guard).all()
    assert (bits[:, n:] == guard).all()
    return room[:m, :n]
