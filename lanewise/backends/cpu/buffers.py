"""The memory that a step computes in, for up to a number of rows. Row widths are padded to 32 floats, the padding always zero."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.cpu.weights import aligned
from lanewise.backends.memory import require
from lanewise.kernels.cpu.attention import TASK_FIELDS, scratch_bytes
from lanewise.kernels.cpu.emit import LANES
from lanewise.models.spec import ModelSpec, Rope

__all__ = ["Buffers", "Cache", "Widest", "padded"]


def padded(width: int) -> int:
    """A width in floats, rounded up to whole vectors of 32."""
    return -(-width // 32) * 32


def row_bytes(width: int) -> int:
    return 4 * padded(width)


@dataclass(frozen=True, slots=True)
class Widest:
    """Bytes of the longest quantized row, and of the largest panel group when unpacked."""

    record: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values (layout in `kernels/cpu/rotate.py`). places: of each layer's keys and values in a page, in bytes."""

    memory: NDArray[np.uint8]
    page_bytes: int
    places: tuple[tuple[int, int], ...]

    @classmethod
    def make(cls, spec: ModelSpec, pages: int) -> "Cache":
        """Zeroed. Raises DeviceError when there is no room for it."""
        places, used = [], 0
        for a in (layer.mixer for layer in spec.layers):
            size = 2 * LANES * a.kv_heads * a.head_dim
            places.append((used, used + size))
            used += 2 * size
        require(pages * used, f"the KV cache of {pages * LANES} tokens")
        return cls(aligned(pages * used), used, tuple(places))


@dataclass(frozen=True, slots=True)
class Buffers:
    """Addresses come from `.ctypes.data`; nothing here moves while it lives.

    x: the residual stream; qkv: heads, keys and values of a row; mixed: what attention gives; gate, up; records: quantized rows;
    own_records: one row for each worker, `own_step` bytes apart; turns: cos and sin per rope; scratch: attention's, per worker;
    unpacked: a panel group's weights, per worker
    """

    rows: int
    x: NDArray[np.float32]
    qkv: NDArray[np.float32]
    mixed: NDArray[np.float32]
    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    records: NDArray[np.uint8]
    own_records: NDArray[np.uint8]
    own_step: int
    turns: dict[Rope, tuple[NDArray[np.float32], NDArray[np.float32]]]
    tokens: NDArray[np.int32]
    slots: NDArray[np.int32]
    logit_rows: NDArray[np.int32]
    tasks: NDArray[np.int64]
    scratch: NDArray[np.uint8]
    scratch_step: int
    unpacked: NDArray[np.uint8]

    @classmethod
    def make(cls, spec: ModelSpec, rows: int, threads: int, widest: Widest) -> "Buffers":
        """For `rows` rows of a spec."""
        mixers, channels = [layer.mixer for layer in spec.layers], [layer.channel for layer in spec.layers]

        def floats(count: int, width: int) -> NDArray[np.float32]:
            return aligned(count * row_bytes(width)).view(np.float32).reshape(count, padded(width))

        own_step = -(-widest.record // 128) * 128 + 128  # workers' copies lie in cache lines of their own
        scratch_step = max(scratch_bytes(a.head_dim) for a in mixers)
        ropes = dict.fromkeys(a.rope for a in mixers if a.rope)
        return cls(
            rows=rows,
            x=floats(rows, spec.hidden),
            qkv=floats(rows, max((a.heads + 2 * a.kv_heads) * a.head_dim for a in mixers)),
            mixed=floats(rows, max(a.heads * a.head_dim for a in mixers)),
            gate=floats(rows, max(c.gate.weight.shape[0] for c in channels)),
            up=floats(rows, max(c.gate.weight.shape[0] for c in channels)),
            records=aligned(rows * widest.record),
            own_records=aligned(threads * own_step),
            own_step=own_step,
            turns={rope: _turns(rope, rows) for rope in ropes},
            tokens=aligned(4 * rows).view(np.int32),
            slots=aligned(4 * rows).view(np.int32),
            logit_rows=aligned(4 * rows).view(np.int32),
            tasks=aligned(8 * rows * TASK_FIELDS).view(np.int64).reshape(rows, TASK_FIELDS),
            scratch=aligned(threads * scratch_step),
            scratch_step=scratch_step,
            unpacked=aligned(threads * widest.unpacked).reshape(threads, -1),
        )


def _turns(rope: Rope, rows: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    cos, sin = (aligned(4 * rows * len(rope.inv_freq)).view(np.float32).reshape(rows, -1) for _ in range(2))
    return cos, sin
