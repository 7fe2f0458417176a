"""Packed weights for tests of what is done with them: random blocks whose scales are ordinary numbers."""

import numpy as np
import torch

from lanewise.formats import get
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack

FORMATS = tuple(LAYOUTS)


def raw_of(fmt: str, rows: int, k: int, seed: int = 0) -> torch.Tensor:
    """uint8[rows, row_bytes] of normal numbers."""
    x = np.random.default_rng(seed).standard_normal((rows, k), np.float32)
    return torch.from_numpy(get(fmt).quantize(x))


def weight(fmt: str = "Q8_0", n: int = 5, k: int = 64, *, gated: bool = False, seed: int = 0) -> QuantWeight:
    return pack(raw_of(fmt, 2 * n if gated else n, k, seed), fmt, gated)


def expanded(w: QuantWeight, raw: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The file's own numbers, rounded once."""
    return torch.from_numpy(get(w.format).dequantize(raw.numpy())).to(dtype)
