"""Blocks of every format to prove kernels with: any bytes, codes at their ends, and scales that leave a product exact."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.formats import get
from lanewise.oracle.blocks import decode

__all__ = ["HALVES", "weights"]

HALVES = ("d", "m", "dmin")  # fields that are fp16; everything else is integers
_EXPONENT, _INF, _NAN = np.uint16(0x7C00), np.uint16(0x7C00), np.uint16(0x7E01)
_STEP = -6  # exact scales are a few powers of two from here on
_DRAWN = 1 << 22  # bytes: beyond so many they repeat, shifted so that no two rows are alike


@functools.lru_cache(maxsize=2)
def weights(name: str, rows: int, k: int, values: str, seed: int) -> NDArray[np.uint8]:
    """raw[rows, row_bytes] of a format, as `quant_cases.VALUES` says; the same bytes in every run. Read only."""
    rng, form = np.random.default_rng(seed), get(name)
    width = form.row_bytes(k)
    raw = np.resize(rng.integers(0, 256, min(rows * width, _DRAWN + 1), dtype=np.uint8), (rows, width))
    if values == "extreme":
        raw[:] = (
            np.array([0, 255, 128, 127], np.uint8)[rng.integers(0, 4, (rows, width // form.nbytes, 1))].repeat(form.nbytes, axis=2).reshape(raw.shape)
        )
    blocks = form.blocks(raw)
    for field in HALVES:
        if field in (form.layout.names or ()):
            blocks[field] = _halves(rng, blocks, field, values)
    if values in ("even", "broken x", "broken w") and raw.size:
        _level(blocks, raw, name, k)
    if values == "broken w" and rows > 2:
        blocks["d"][1, -1], blocks["d"][rows - 1, 0] = np.array([_INF, _NAN]).view(np.float16)
    raw.flags.writeable = False
    return raw


def _halves(rng: np.random.Generator, blocks: Any, field: str, values: str) -> NDArray[np.float16]:
    if values == "bytes":
        bits = blocks[field].view(np.uint16)
        # one bit of the exponent is enough
        return np.asarray(np.where(bits & _EXPONENT == _EXPONENT, bits ^ np.uint16(0x0400), bits), np.uint16).view(np.float16)
    sign = rng.choice([-1.0, 1.0], blocks.shape)
    if values == "exact":
        if field == "m":  # Q4_1's and Q5_1's minimum is no product
            return np.asarray(rng.integers(-8, 9, blocks.shape) * 2.0**_STEP, np.float16)
        return np.asarray(sign * 2.0 ** (_STEP + rng.integers(0, 2, blocks.shape)), np.float16)
    return np.asarray(sign * rng.uniform(1, 2, blocks.shape), np.float16)


def _level(blocks: Any, raw: NDArray[np.uint8], name: str, k: int) -> None:
    """Scale all halves by one power of two, so that a row of weights has about length 1."""
    few = decode(raw[: max(1, (1 << 16) // k)], name)
    size = np.sqrt(np.mean((few.scale[..., None] * few.q - few.least[..., None]) ** 2))
    factor = 2.0 ** np.round(np.log2(k**-0.5 / size))
    for field in HALVES:
        if field in blocks.dtype.names:
            blocks[field] = (blocks[field].astype(np.float64) * factor).astype(np.float16)
