"""Attention over a paged KV cache, and the write into it, in float64."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lanewise.contract import Tolerance, dtype
from lanewise.errors import ShapeError
from lanewise.oracle.rounding import EXP_FLOOR, F64, U, exp_error, gamma, indices

__all__ = ["attention", "attention_bound", "write_kv"]

_Floats = NDArray[np.floating]
_Ints = NDArray[np.integer]
_TINY = dtype("f32").tiny
# A flash kernel rescales what it has whenever a block of positions brings a larger maximum; no kernel takes blocks shorter than this.
_SHORTEST_BLOCK = 16
_LARGEST_EXPONENT = 600.0  # keeps exp of a hopeless score error finite in float64


def attention(
    q: _Floats, keys: _Floats, values: _Floats, page_table: _Ints, query_start: _Ints, context: _Ints, scale: float, window: int | None = None
) -> F64:
    """y[m,heads,dim] = softmax(q @ k.T * scale) @ v, each row over the positions that it sees (Vaswani et al. 2017, equation 1).

    q is [m,heads,dim]; keys and values are [pages,page,kv_heads,dim]; page_table is int[sequences,max_pages]; query_start is int[sequences+1];
    context is int[sequences]: how many tokens each sequence has, the new ones included. Rows query_start[j]..query_start[j+1]-1 are the last ones
    of sequence j. A row at position p sees positions 0..p, or with a window only the last `window` of them. Position p lives in page
    page_table[j, p // page], slot p % page; head h reads kv head h // (heads / kv_heads). Raises ShapeError for operands that contradict each other.
    """
    y = np.zeros((*q.shape[:2], values.shape[-1]))
    for row, head, k, v in _seen(q, keys, values, page_table, query_start, context, window):
        y[row, head] = _softmax(scale * (k @ q[row, head].astype(np.float64))) @ v
    return y


def attention_bound(
    q: _Floats,
    keys: _Floats,
    values: _Floats,
    page_table: _Ints,
    query_start: _Ints,
    context: _Ints,
    scale: float,
    window: int | None = None,
    out: str = "f32",
) -> F64:
    """How far a float32 attention may be off, in two steps: the wrong weights, then the rounded sums.

    1. Let weight t be off by a factor 1 + r[t]. Then sum(e (1 + r) v) / sum(e (1 + r)) - y = sum(e r (v - y)) / sum(e (1 + r)), exactly, since
       sum(e (v - y)) = 0. So that error is at most sum(p |r| |v - y|) / (sum(p) less what the r may take from it).
       1 + r[t] is exp(score error), from the dot product, and 1 + the error of exp itself, of its argument's subtraction and of the rescalings.
    2. Numerator and denominator are sums of n terms in any order, divided: gamma(2n + 2), and two roundings for each rescaling.
    """
    bound = np.zeros((*q.shape[:2], values.shape[-1]))
    for row, head, k, v in _seen(q, keys, values, page_table, query_start, context, window):
        wide = q[row, head].astype(np.float64)
        scores, blocks = scale * (k @ wide), -(-len(k) // _SHORTEST_BLOCK)
        score_error = np.minimum(_score_error(wide, k, scale), _LARGEST_EXPONENT)
        distance = np.max(scores) - scores + score_error + np.max(score_error)
        # the subtraction's rounding moves the argument by U * distance; each rescaling is one more exp and one more product
        relative = exp_error(distance) + U * distance + blocks * (exp_error(np.zeros(())) + U)
        p = _softmax(scores)
        wrong = p * np.expm1(score_error + np.log1p(relative)) + EXP_FLOOR
        left = float(np.sum(p * np.exp(-score_error) * np.maximum(1 - relative, 0)))
        size = p @ np.abs(v)
        sums = Tolerance.dot(2 * len(k) + 2 + 2 * blocks, out)
        bound[row, head] = _drift(v, p @ v, wrong, left) + sums.bound(p @ v, size + _drift(np.abs(v), size, wrong, left))
    return bound


def _drift(v: F64, mean: F64, wrong: F64, left: float) -> F64:
    """Step 1 for values v[seen,dim]. Whatever the weights are, they give a mean of the values: never further off than the furthest value."""
    away = np.abs(v - mean)
    return np.asarray(np.minimum(wrong @ away / max(left, EXP_FLOOR), np.max(away, axis=0)))


def _score_error(q: F64, k: F64, scale: float) -> F64:
    """gamma(dim + 4) of the magnitudes: the products, and the roundings of scale, of the product with it, and of a folded-in log2(e)."""
    underflow = _TINY * ((len(q) + 2) * (1 + abs(scale)) + np.sum(np.abs(q)) + np.sum(np.abs(k), axis=1))
    return np.asarray(gamma(len(q) + 4) * abs(scale) * (np.abs(k) @ np.abs(q)) + underflow)


def _softmax(scores: F64) -> F64:
    e = np.exp(scores - np.max(scores))
    return np.asarray(e / np.sum(e))


def _seen(
    q: _Floats, keys: _Floats, values: _Floats, page_table: _Ints, query_start: _Ints, context: _Ints, window: int | None
) -> Iterator[tuple[int, int, F64, F64]]:
    """For every row and head: the keys [seen,dim] and values [seen,dim] that it sees, in order of position."""
    page, kv_heads = keys.shape[1], keys.shape[2]
    heads = q.shape[1]
    if heads % kv_heads or query_start[0] != 0 or query_start[-1] != len(q):
        raise ShapeError(f"{heads} heads on {kv_heads} kv heads, rows {query_start[0]}..{query_start[-1]} of {len(q)}: q does not fit the call")
    for sequence in range(len(context)):
        first, end = int(query_start[sequence]), int(query_start[sequence + 1])
        if end - first > context[sequence]:
            raise ShapeError(f"sequence {sequence} has {end - first} new rows but only {context[sequence]} tokens")
        for row in range(first, end):
            position = int(context[sequence]) - (end - first) + (row - first)
            oldest = 0 if window is None else max(0, position - window + 1)
            places = range(oldest, position + 1)
            pages = indices("page", np.asarray([page_table[sequence, p // page] for p in places]), len(keys))
            for head in range(heads):
                kv = head // (heads // kv_heads)
                k = np.asarray([keys[at, p % page, kv] for at, p in zip(pages, places, strict=True)], dtype=np.float64)
                v = np.asarray([values[at, p % page, kv] for at, p in zip(pages, places, strict=True)], dtype=np.float64)
                yield row, head, k, v


def write_kv(k: _Floats, v: _Floats, keys: _Floats, values: _Floats, slots: _Ints) -> None:
    """Write k and v [m,kv_heads,dim] in place: row i goes to page slots[i] // page, offset slots[i] % page. Copies, so nothing may differ."""
    page = keys.shape[1]
    for row, slot in enumerate(indices("slot", slots, len(keys) * page)):
        keys[slot // page, slot % page] = k[row]
        values[slot // page, slot % page] = v[row]
