"""GGUF blocks as integers and scales, read from the bytes alone: weight = scale * q - least.

A second reading, apart from lanewise.formats: nothing is shared with it, and a test holds the two together. Offsets and bit positions are those of
ggml's block structures (ggml-common.h) and of its dequantize functions (ggml-quants.c).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError
from lanewise.oracle.rounding import F64

__all__ = ["Decoded", "decode"]

_Bytes = NDArray[np.uint8]
_Ints = NDArray[np.int64]
_Block = tuple[_Ints, F64, F64]  # q[blocks,groups,group], scale[blocks,groups], least[blocks,groups]


@dataclass(frozen=True, slots=True)
class Decoded:
    """q int64[n,groups,group], scale and least float64[n,groups]."""

    q: _Ints
    scale: F64
    least: F64


def decode(raw: _Bytes, name: str) -> Decoded:
    """The rows uint8[n,row_bytes] of a quantized format. Raises FormatError for a format that has no integers."""
    if name not in _READERS:
        raise FormatError(f"{name} has no integer form; those that have: {', '.join(_READERS)}")
    size, read = _READERS[name]
    n = len(raw)
    with np.errstate(invalid="ignore"):  # bytes may spell an infinite scale, and its product with 0
        q, scale, least = read(raw.reshape(-1, size))
    groups = raw.shape[1] // size * q.shape[1]
    return Decoded(q.reshape(n, groups, q.shape[2]), scale.reshape(n, groups), least.reshape(n, groups))


def _half(b: _Bytes, at: int) -> F64:
    """The fp16 at a byte offset of every block, as [blocks,1]."""
    halves: NDArray[np.float16] = np.ascontiguousarray(b[:, at : at + 2]).view("<f2")
    return halves.astype(np.float64)


def _bytes(b: _Bytes, at: int, count: int) -> _Ints:
    return b[:, at : at + count].astype(np.int64)


def _nibbles(packed: _Ints, run: int) -> _Ints:
    """Every `run` bytes hold 2 * run elements: the low nibbles first, then the high ones. [blocks,bytes] -> [blocks,2*bytes]."""
    parts = packed.reshape(len(packed), -1, 1, run)
    both: _Ints = np.concatenate([parts & 15, parts >> 4], axis=2)
    return both.reshape(len(packed), -1)


def _groups(q: _Ints, group: int) -> _Ints:
    return q.reshape(len(q), -1, group)


def _plain(q: _Ints, scale: F64) -> _Block:
    return q, scale, np.zeros(scale.shape)


def _bits5(b: _Bytes, at: int) -> _Ints:
    """Bit j of a little-endian 32-bit word, for element j of the block."""
    return np.unpackbits(np.ascontiguousarray(b[:, at : at + 4]), axis=1, bitorder="little").astype(np.int64)


def _q4_0(b: _Bytes) -> _Block:
    return _plain(_groups(_nibbles(_bytes(b, 2, 16), 16) - 8, 32), _half(b, 0))


def _q4_1(b: _Bytes) -> _Block:
    return _groups(_nibbles(_bytes(b, 4, 16), 16), 32), _half(b, 0), -_half(b, 2)


def _q5_0(b: _Bytes) -> _Block:
    return _plain(_groups((_nibbles(_bytes(b, 6, 16), 16) | _bits5(b, 2) << 4) - 16, 32), _half(b, 0))


def _q5_1(b: _Bytes) -> _Block:
    return _groups(_nibbles(_bytes(b, 8, 16), 16) | _bits5(b, 4) << 4, 32), _half(b, 0), -_half(b, 2)


def _q8_0(b: _Bytes) -> _Block:
    return _plain(_groups(b[:, 2:].view(np.int8).astype(np.int64), 32), _half(b, 0))


def _crumbs(packed: _Ints) -> _Ints:
    """Every 32 bytes hold 128 elements, two bits each: bits 0-1 of all 32 first, then bits 2-3, and so on."""
    parts = packed.reshape(len(packed), -1, 1, 32)
    four: _Ints = np.concatenate([parts >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
    return four.reshape(len(packed), -1)


def _planes(packed: _Ints) -> _Ints:
    """32 bytes hold bit j of the elements 32j..32j+31 in their bit j: [blocks,32] -> [blocks,256]."""
    return np.concatenate([packed >> j & 1 for j in range(8)], axis=1)


def _q2_k(b: _Bytes) -> _Block:
    scales = _bytes(b, 0, 16)
    return _groups(_crumbs(_bytes(b, 16, 64)), 16), _half(b, 80) * (scales & 15), _half(b, 82) * (scales >> 4)


def _q3_k(b: _Bytes) -> _Block:
    q = (_crumbs(_bytes(b, 32, 64)) | _planes(_bytes(b, 0, 32)) << 2) - 4
    packed = _bytes(b, 96, 12)
    low = _nibbles(packed[:, :8], 8)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    return _plain(_groups(q, 16), _half(b, 108) * ((low | high << 4) - 32))


def _scales_k4(b: _Bytes) -> tuple[_Ints, _Ints]:
    """The eight 6-bit scales and minima of Q4_K and Q5_K, from 12 bytes at offset 4."""
    p = _bytes(b, 4, 12)
    scale = np.concatenate([p[:, 0:4] & 63, p[:, 8:12] & 15 | p[:, 0:4] >> 6 << 4], axis=1)
    least = np.concatenate([p[:, 4:8] & 63, p[:, 8:12] >> 4 | p[:, 4:8] >> 6 << 4], axis=1)
    return scale, least


def _q4_k(b: _Bytes) -> _Block:
    scale, least = _scales_k4(b)
    return _groups(_nibbles(_bytes(b, 16, 128), 32), 32), _half(b, 0) * scale, _half(b, 2) * least


def _q5_k(b: _Bytes) -> _Block:
    scale, least = _scales_k4(b)
    q = _nibbles(_bytes(b, 48, 128), 32) | _planes(_bytes(b, 16, 32)) << 4
    return _groups(q, 32), _half(b, 0) * scale, _half(b, 2) * least


def _q6_k(b: _Bytes) -> _Block:
    low = _nibbles(_bytes(b, 0, 128), 64)
    q = (low | _crumbs(_bytes(b, 128, 64)) << 4) - 32
    return _plain(_groups(q, 16), _half(b, 208) * b[:, 192:208].view(np.int8))


# The 16 values that an IQ4 nibble stands for (ggml-common.h, kvalues_iq4nl).
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int64)


def _iq4_nl(b: _Bytes) -> _Block:
    return _plain(_groups(_IQ4[_nibbles(_bytes(b, 2, 16), 16)], 32), _half(b, 0))


def _iq4_xs(b: _Bytes) -> _Block:
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2").astype(np.int64)
    scale = _nibbles(_bytes(b, 4, 4), 1) | (high >> 2 * np.arange(8) & 3) << 4
    return _plain(_groups(_IQ4[_nibbles(_bytes(b, 8, 128), 16)], 32), _half(b, 0) * (scale - 32))


_READERS: dict[str, tuple[int, Callable[[_Bytes], _Block]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q2_K": (84, _q2_k),
    "Q3_K": (110, _q3_k),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
    "IQ4_NL": (18, _iq4_nl),
    "IQ4_XS": (136, _iq4_xs),
}
