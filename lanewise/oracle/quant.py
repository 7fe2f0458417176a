"""quant_linear: with float activations, and with integer ones, exact in int64 up to the scales."""

import numpy as np
from numpy.typing import NDArray

from lanewise.contract import Tolerance
from lanewise.formats import get
from lanewise.formats.activations import quantize_q8_0, quantize_q8_k
from lanewise.oracle.blocks import Decoded, decode
from lanewise.oracle.linear import linear, linear_bound
from lanewise.oracle.rounding import F64

__all__ = ["quant_linear", "quant_linear_bound"]

_Bytes = NDArray[np.uint8]
_Floats = NDArray[np.floating]
_DOT = 4  # products that a hardware dot sums exactly in int32 before anything becomes a float


def quant_linear(x: _Floats, raw: _Bytes, fmt: str, bias: _Floats | None = None, *, integer: bool = False) -> F64:
    """y[m,n] = x[m,k] @ dequantize(w)[n,k].T + bias[n], from raw uint8[n,row_bytes] in the format of that name.

    integer: x is first quantized as the format's `activation` says. Weight i of group g is scale[g] * q[i] - least[g] and activation i is d * a[i],
    so y = sum over groups of d * (scale[g] * sum(q * a) - least[g] * sum(a)), both inner sums in int64. Raises FormatError for float formats.
    """
    if not integer:
        return linear(x, get(fmt).dequantize(raw), bias)
    a, d, w = _integers(x, raw, fmt)
    y = np.zeros((len(x), len(raw)))
    for row in range(len(x)):
        for column in range(len(raw)):
            dots = np.sum(w.q[column] * a[row], axis=-1)
            sums = np.sum(a[row], axis=-1)
            y[row, column] = np.sum(d[row] * (w.scale[column] * dots - w.least[column] * sums))
            if bias is not None:
                y[row, column] += bias[column]
    return y


def quant_linear_bound(x: _Floats, raw: _Bytes, fmt: str, bias: _Floats | None = None, *, integer: bool = False, out: str = "f32") -> F64:
    """A sum in any order (Higham, section 3.1), whose weights may be left as scale * q - least: both parts count with their own size.

    Float activations: k products, or a sum over each group for both parts and the sum of those; and two roundings of scale and weight.
    Since group + 2 * groups <= k + 1 + groups, gamma(k + groups + 3) covers both.
    Integer activations: 4 products at a time are exact and give a term for both parts: gamma(k / 2). Each term is rounded when it becomes a
    float, when its scale is rounded, and when it meets either scale: gamma(k / 2 + 4).
    """
    if not integer and get(fmt).activation == "float":
        return linear_bound(x, get(fmt).dequantize(raw), bias, out)
    k = x.shape[1]
    size = np.abs(x).astype(np.float64)
    if integer:
        a, d, w = _integers(x, raw, fmt)
        size = np.reshape(np.abs(a) * np.abs(d)[..., None], size.shape)
    else:
        w = decode(raw, get(fmt).name)
    parts = np.reshape(np.abs(w.scale[..., None] * w.q) + np.abs(w.least[..., None]), (len(raw), k))
    magnitude = linear(size, parts, None if bias is None else np.abs(bias))
    roundings = 2 * -(-k // _DOT) + 4 if integer else k + w.q.shape[1] + 3
    tolerance = Tolerance.dot(roundings + (bias is not None), out)
    return tolerance.bound(quant_linear(x, raw, fmt, bias, integer=integer), magnitude)


def _integers(x: _Floats, raw: _Bytes, fmt: str) -> tuple[NDArray[np.int64], F64, Decoded]:
    """Activations a int64[m,groups,group] with their scale d float64[m,groups], and the weights in the same groups."""
    narrow = np.asarray(x, dtype=np.float32)
    w = decode(raw, get(fmt).name)
    groups, group = w.q.shape[1:]
    if get(fmt).activation == "q8_0":
        quantized, block = quantize_q8_0(narrow), 32
        q, d = quantized.q, quantized.d
    else:
        super_block = quantize_q8_k(narrow)
        q, d, block = super_block.q, super_block.d, 256
    return q.astype(np.int64).reshape(len(x), groups, group), np.repeat(d.astype(np.float64), block // group, axis=1), w
