"""embedding, linear and grouped linear in float64. m = tokens, n = output features, k = reduction."""

import numpy as np
from numpy.typing import NDArray

from lanewise.contract import Tolerance, dtype
from lanewise.oracle.rounding import F64, indices

__all__ = ["embedding", "embedding_bound", "grouped_linear", "grouped_linear_bound", "linear", "linear_bound"]

_Floats = NDArray[np.floating]
_Ints = NDArray[np.integer]


def embedding(w: _Floats, tokens: _Ints) -> F64:
    """y[m,k] = w[tokens[m],k], from w[vocab,k] and int tokens[m]. Raises ShapeError for a token outside the vocabulary."""
    y = np.zeros((len(tokens), w.shape[1]))
    for row, token in enumerate(indices("token", tokens, len(w))):
        y[row] = w[token]
    return y


def embedding_bound(w: _Floats, tokens: _Ints, out: str = "f32") -> F64:
    """Nothing is computed, so nothing may differ; a narrower `out` rounds once."""
    want = embedding(w, tokens)
    return np.zeros(want.shape) if out == "f32" else Tolerance(0.0, dtype(out).roundoff, dtype(out).tiny).bound(want)


def linear(x: _Floats, w: _Floats, bias: _Floats | None = None) -> F64:
    """y[m,n] = x[m,k] @ w[n,k].T + bias[n].

    >>> linear(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]), np.float32([0, 1]))
    array([[11., 18.]])
    """
    y = np.zeros((len(x), len(w)))
    for row in range(len(x)):
        for column in range(len(w)):
            y[row, column] = np.sum(x[row].astype(np.float64) * w[column].astype(np.float64))
            if bias is not None:
                y[row, column] += bias[column]
    return y


def linear_bound(x: _Floats, w: _Floats, bias: _Floats | None = None, out: str = "f32") -> F64:
    """gamma(k) * |x| @ |w|.T, the bias being one more term of the sum, and one rounding to `out` (Higham, section 3.1)."""
    terms = w.shape[1] + (bias is not None)
    magnitude = linear(np.abs(x), np.abs(w), None if bias is None else np.abs(bias))
    return Tolerance.dot(terms, out).bound(linear(x, w, bias), magnitude)


def grouped_linear(x: _Floats, w: _Floats, expert: _Ints) -> F64:
    """y[m,n] = x[m,k] @ w[expert[m],n,k].T, from w[experts,n,k] and int expert[m]. Raises ShapeError for an expert that does not exist."""
    y = np.zeros((len(x), w.shape[1]))
    for row, chosen in enumerate(indices("expert", expert, len(w))):
        y[row] = linear(x[row : row + 1], w[chosen])[0]
    return y


def grouped_linear_bound(x: _Floats, w: _Floats, expert: _Ints, out: str = "f32") -> F64:
    """Each row is a linear of its own."""
    y = np.zeros((len(x), w.shape[1]))
    for row, chosen in enumerate(indices("expert", expert, len(w))):
        y[row] = linear_bound(x[row : row + 1], w[chosen], out=out)[0]
    return y
