"""Whether what quantized GPU kernels gave is right: beside float64 sums of the bytes as the oracle reads them, within the bounds that follow."""

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.contract import Tolerance
from lanewise.contract import dtype as known
from lanewise.oracle.blocks import decode
from lanewise.prove.operands import products as float_products
from lanewise.prove.quant_exact import products, quantized, terms

__all__ = ["QuantReference"]

_CHUNK = 1 << 22  # weights that are decoded at a time
_ROUNDED = 4  # float32 roundings of a weight: scale and minimum, their products with codes, the difference
_PARTS = 8  # partial sums that the vendor's library may round to the result's type


class QuantReference:
    """x[m,k] in 16 bits by raw uint8[n,row_bytes]: what y[m,n] is by the definition of the integer kernels, and by that of weights expanded."""

    def __init__(self, x: torch.Tensor, raw: NDArray[np.uint8], fmt: str, dtype: str) -> None:
        self._x, self._raw, self._fmt, self._dtype = x, raw, fmt, dtype
        self._exact: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def integer(self, y: torch.Tensor, activation: str) -> float:
        """The largest error, as a share of what is allowed, of the first rows of the product with x as int8: `oracle.quant.quant_linear_bound`."""
        if self._exact is None:
            q, d = quantized(self._x.float().cpu().numpy(), activation)
            self._exact = products(q, d, self._raw, self._fmt, self._x.device)
        want, magnitude = (part[: len(y)] for part in self._exact)
        return _share(y, want, Tolerance.dot(terms(self._x.shape[1]), out=self._dtype).bound(want, magnitude))

    def expanded(self, y: torch.Tensor, made: torch.Tensor) -> float:
        """The same of the vendor's product with the weights made[n,k], and of those: each is to be the file's, rounded once to its type."""
        want, magnitude = float_products(self._x.double().cpu().numpy(), made)
        bound = Tolerance.dot(self._x.shape[1], out=self._dtype).bound(want, magnitude) + _PARTS * known(self._dtype).roundoff * magnitude
        return max(_share(y, want, bound), self._weights(made))

    def _weights(self, made: torch.Tensor) -> float:
        tolerance, worst = Tolerance.dot(_ROUNDED, out=self._dtype), 0.0
        rows = max(1, _CHUNK // made.shape[1])
        for start in range(0, len(made), rows):
            part = made[start : start + rows]
            w = decode(self._raw[start : start + rows], self._fmt)
            scaled, least = w.scale[..., None] * w.q, w.least[..., None]
            want = (scaled - least).reshape(part.shape)
            worst = max(worst, _share(part, want, tolerance.bound(want, (np.abs(scaled) + np.abs(least)).reshape(part.shape))))
        return worst


def _share(y: torch.Tensor, want: NDArray[np.float64], bound: NDArray[np.float64]) -> float:
    share = np.abs(y.double().cpu().numpy() - want) / bound
    return float(np.where(np.isfinite(share), share, np.inf).max(initial=0.0))
