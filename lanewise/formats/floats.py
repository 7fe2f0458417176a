"""F32, F16 and BF16: formats of one weight a block, kept here so that code can treat every tensor alike."""

import numpy as np
from numpy.typing import NDArray

from lanewise.formats.bits import Blocks
from lanewise.formats.format import Format

__all__ = ["BF16", "F16", "F32"]


def _decode_cast(blocks: Blocks, out: NDArray[np.float32]) -> None:
    out[:, 0] = blocks["w"]


def _encode_cast(x: NDArray[np.float32], blocks: Blocks) -> None:
    blocks["w"] = x[:, 0]


def _decode_bf16(blocks: Blocks, out: NDArray[np.float32]) -> None:
    bits = out.view(np.uint32)
    bits[:, 0] = blocks["w"]
    bits <<= np.uint32(16)


def _encode_bf16(x: NDArray[np.float32], blocks: Blocks) -> None:
    """Round to nearest even: add just under half a step, and one more where the bit that stays is odd."""
    bits = x[:, 0].view(np.uint32)
    blocks["w"] = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)


def _largest(midpoint: int) -> float:
    """The last float32 that still rounds to a finite number, given the bits of the first that rounds to infinity."""
    return float(np.uint32(midpoint - 1).view(np.float32))


def _layout(code: str) -> np.dtype[np.void]:
    return np.dtype([("w", code)])


F32 = Format("F32", 0, 1, _layout("<f4"), "float", float(np.finfo(np.float32).max), _decode_cast, _encode_cast)
F16 = Format("F16", 1, 1, _layout("<f2"), "float", _largest(0x477FF000), _decode_cast, _encode_cast)
BF16 = Format("BF16", 30, 1, _layout("<u2"), "float", _largest(0x7F7F8000), _decode_bf16, _encode_bf16)
