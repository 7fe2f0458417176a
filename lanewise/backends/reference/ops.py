"""Every op of a decoder as one short numpy function in float32: the definition that other backends are held to.

m = tokens, n = output features, k = reduction. Arrays are row-major; a cache is [pages, page, kv_heads, dim], and position p
of sequence j lives in page `page_table[j, p // page]`, slot `p % page`. The float64 oracle of each op is in `lanewise.oracle`.
"""

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import ShapeError

__all__ = ["attention", "embedding", "grouped_linear", "linear", "rms_norm", "rope", "rotate", "rotation", "silu_mul", "write_kv"]

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Ints = NDArray[np.integer]


def embedding(w: F32, tokens: Ints) -> F32:
    """y[m,k] = w[tokens[m],k]. Raises ShapeError for a token outside the vocabulary."""
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < len(w):
        raise ShapeError(f"token ids run from {tokens.min()} to {tokens.max()}; the vocabulary has 0 to {len(w) - 1}")
    return w[tokens]


def linear(x: F32, w: F32, bias: F32 | None = None) -> F32:
    """y[m,n] = x[m,k] @ w[n,k].T (+ bias[n])"""
    if x.shape[-1] != w.shape[-1]:
        raise ShapeError(f"x has k={x.shape[-1]} columns and w has k={w.shape[-1]}; they are equal")
    y: F32 = x @ w.T
    if bias is not None:
        np.add(y, bias, out=y)
    return y


def grouped_linear(x: F32, w: F32, expert: Ints) -> F32:
    """y[m,n] = x[m,k] @ w[expert[m],n,k].T: each row goes to its own expert. Raises ShapeError for an expert that is not there."""
    if expert.size and not 0 <= expert.min() <= expert.max() < len(w):
        raise ShapeError(f"expert ids run from {expert.min()} to {expert.max()}; there are experts 0 to {len(w) - 1}")
    y = np.empty((len(x), w.shape[1]), np.float32)
    for e in np.unique(expert):
        y[expert == e] = linear(x[expert == e], w[e])
    return y


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """y[...,k] = x / sqrt(mean(x^2) + eps) * weight[k], over the last dimension (Zhang and Sennrich, arXiv 1910.07467)."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
    y: F32 = x / np.sqrt(mean + np.float32(eps)) * weight
    return y


def rotation(position: Ints, inv_freq: F64, magnitude: float = 1.0) -> tuple[F32, F32]:
    """(cos, sin)[m,pairs] of position[m] * inv_freq[pairs], times magnitude; the angle is taken in float64."""
    angle = position[:, None].astype(np.float64) * inv_freq
    return (np.cos(angle) * magnitude).astype(np.float32), (np.sin(angle) * magnitude).astype(np.float32)


def rotate(x: F32, cos: F32, sin: F32, interleaved: bool) -> F32:
    """y[m,heads,dim]: each pair of x turned by its angle. Pairs are (2i, 2i+1) when interleaved, else (i, i + pairs)."""
    pairs = cos.shape[-1]
    y = x.copy()
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    cos, sin = cos[:, None], sin[:, None]
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def rope(x: F32, position: Ints, inv_freq: F64, magnitude: float = 1.0, interleaved: bool = False) -> F32:
    """y[m,heads,dim] = x turned pairwise by position[m] * inv_freq (RoFormer, arXiv 2104.09864); dims past the pairs stay."""
    return rotate(x, *rotation(position, inv_freq, magnitude), interleaved)


def write_kv(k: F32, v: F32, keys: F32, values: F32, slots: Ints) -> None:
    """Put k[m,kv_heads,dim] and v into a cache layer, in place; slot = page * page_size + offset."""
    keys.reshape(-1, *keys.shape[2:])[slots] = k
    values.reshape(-1, *values.shape[2:])[slots] = v


def attention(
    q: F32,
    keys: F32,
    values: F32,
    page_table: Ints,
    query_start: Ints,
    context: Ints,
    scale: float,
    window: int | None = None,
) -> F32:
    """y[m,heads,dim] = softmax(q @ k.T * scale) @ v, causal, for each sequence over its own pages.

    Rows query_start[j] to query_start[j+1] of q[m,heads,dim] are the newest tokens of sequence j, which has context[j]
    tokens in the cache, these included. Head h reads key/value head h // (heads / kv_heads). With a window, a token sees
    that many positions back, itself included.
    """
    heads, dim = q.shape[1:]
    page, kv_heads = keys.shape[1:3]
    group = heads // kv_heads
    y = np.empty_like(q)
    for j, total in enumerate(context):
        rows = slice(query_start[j], query_start[j + 1])
        count = rows.stop - rows.start
        if count == 0:
            continue
        pages = page_table[j, : -(-total // page)]
        k = keys[pages].reshape(-1, kv_heads, dim)[:total].transpose(1, 2, 0)
        v = values[pages].reshape(-1, kv_heads, dim)[:total].transpose(1, 0, 2)
        grouped = q[rows].reshape(count, kv_heads, group, dim).transpose(1, 2, 0, 3).reshape(kv_heads, group * count, dim)
        score = (grouped @ k * np.float32(scale)).reshape(kv_heads, group, count, total)
        if count > 1 or window is not None:
            back = np.arange(total - count, total)[:, None] - np.arange(total)
            hidden = (back < 0) if window is None else (back < 0) | (back >= window)
            score[..., hidden] = -np.inf
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        mixed = weight.reshape(kv_heads, group * count, total) @ v
        y[rows] = mixed.reshape(kv_heads, group, count, dim).transpose(2, 0, 1, 3).reshape(count, heads, dim)
    return y


def silu_mul(gate: F32, up: F32) -> F32:
    """y[m,n] = gate * sigmoid(gate) * up"""
    with np.errstate(over="ignore"):  # exp overflows to inf where the sigmoid is 0
        y: F32 = gate / (1 + np.exp(-gate)) * up
    return y
