"""quant_linear in float64, by whole matrices: the sums of `oracle.quant` for cases that it would take hours for.

Every number here is what the slow oracle adds up, and a test holds the two together. Where sums are whole multiples of one number below 2^53, as
those of exact cases are, float64 makes no error in any order; elsewhere its own is 2^-29 of what float32 is allowed.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.formats import get
from lanewise.formats.activations import quantize_q8_0, quantize_q8_k
from lanewise.oracle.blocks import decode
from lanewise.oracle.rounding import F64

__all__ = ["largest", "products", "quantized", "terms"]

_Ints = NDArray[np.int8]
_CHUNK = 1 << 22  # weights that are decoded at a time: int64 and float64, several of each
_DOT = 4


def quantized(x: NDArray[np.float32], kind: str) -> tuple[_Ints, NDArray[np.float32]]:
    """(q int8[m,k], d float32[m,groups]) of x float32[m,k], by definition."""
    made = quantize_q8_0(x) if kind == "q8_0" else quantize_q8_k(x)
    return made.q, made.d


def terms(k: int) -> int:
    """How many float32 roundings a sum of k products has at most, as `oracle.quant.quant_linear_bound` counts them."""
    return 2 * -(-k // _DOT) + 4


def products(q: _Ints, d: NDArray[np.float32], raw: NDArray[np.uint8], name: str, device: torch.device) -> tuple[F64, F64]:
    """(y, magnitude) float64[m,rows] of quantized activations and raw[rows,row_bytes]: sums of products, and of their sizes with both parts of w.

    Rows of w with a scale that is not finite, and tokens with such a d, are not finite in y; the rest does not know of them.
    """
    m, k = q.shape
    wide = d.astype(np.float64).repeat(k // max(1, d.shape[1]), axis=1) if k else np.zeros((m, 0))
    x = torch.from_numpy(wide * q).to(device)
    y = torch.zeros((m, len(raw)), dtype=torch.float64, device=device)
    size = torch.zeros_like(y)
    rows = max(1, _CHUNK // max(1, k))
    for start in range(0, len(raw), rows):
        w, parts = (torch.from_numpy(part).to(device) for part in _weights(raw[start : start + rows], name))
        torch.mm(x, w.T, out=y[:, start : start + rows])
        torch.mm(x.abs(), parts.T, out=size[:, start : start + rows])
    return y.cpu().numpy(), size.cpu().numpy()


def largest(raw: NDArray[np.uint8], name: str) -> tuple[F64, float]:
    """(the largest |scale * q| + |least| of each column [k], a power of two that all scales and minima are whole multiples of)."""
    k = raw.shape[1] // get(name).nbytes * get(name).block
    most, step = np.zeros(k), 1.0
    rows = max(1, _CHUNK // max(1, k))
    for start in range(0, len(raw), rows):
        w = decode(raw[start : start + rows], get(name).name)
        parts = np.abs(w.scale)[..., None] * np.abs(w.q) + np.abs(w.least)[..., None]
        most = np.maximum(most, parts.reshape(-1, k).max(axis=0, initial=0.0))
        numbers = np.abs(np.concatenate([w.scale.ravel(), w.least.ravel()]))
        # a float64 is a whole number of 53 bits times a power of two
        mantissas, exponents = np.frexp(numbers[numbers > 0])
        whole = (mantissas * 2.0**53).astype(np.int64)
        step = float(np.min((whole & -whole) * 2.0 ** (exponents - 53), initial=step))
    return most, step


def _weights(raw: NDArray[np.uint8], name: str) -> tuple[F64, F64]:
    """(scale * q - least, |scale * q| + |least|), each [rows,k]."""
    w = decode(raw, get(name).name)
    with np.errstate(invalid="ignore"):
        scaled, least = w.scale[..., None] * w.q, w.least[..., None]
        return (scaled - least).reshape(len(raw), -1), (np.abs(scaled) + np.abs(least)).reshape(len(raw), -1)
