"""Operands to try every body of an op with: ragged and empty shapes, extreme sizes, exact integers, poison where nobody may read.

A case makes its arguments anew at each call, always the same ones. Whatever an op may not read is NaN, so that reading it shows.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.formats import FORMATS

__all__ = ["CASES", "Case", "case", "paged"]

_Arguments = tuple[Any, ...]
_Make = Callable[[np.random.Generator], _Arguments]
_F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """One set of arguments for an op, in the order of its oracle. `exact`: the result has no rounding and must be equal."""

    op: str
    name: str
    make: _Make
    exact: bool = False

    def arguments(self) -> _Arguments:
        return self.make(np.random.default_rng(zlib.crc32(str(self).encode())))

    def __str__(self) -> str:
        return f"{self.op}: {self.name}"


def case(op: str, name: str) -> Case:
    """The case of that op and name."""
    return next(c for c in CASES[op] if c.name == name)


def _f32(values: Any) -> _F32:
    return np.asarray(values, dtype=np.float32)


def _normal(rng: np.random.Generator, *shape: int, size: float = 1.0) -> _F32:
    return (rng.standard_normal(shape) * size).astype(np.float32)


def _whole(rng: np.random.Generator, *shape: int, most: int = 8) -> _F32:
    return rng.integers(-most, most + 1, shape).astype(np.float32)


def _linear(m: int, n: int, k: int, *, bias: bool = False, x: float = 1.0, w: float = 1.0) -> _Make:
    return lambda rng: (_normal(rng, m, k, size=x), _normal(rng, n, k, size=w), *([_normal(rng, n, size=x * w)] if bias else []))


def _strided(rng: np.random.Generator) -> _Arguments:
    return _normal(rng, 6, 40)[::2, 1::2], _normal(rng, 20, 7).T, _normal(rng, 14)[::2]


def _cancelling(rng: np.random.Generator) -> _Arguments:
    x, w = _normal(rng, 3, 64), _normal(rng, 5, 64)
    return np.concatenate([x, -x], axis=1), np.concatenate([w, w * np.float32(1 + 2**-20)], axis=1)


_LINEAR = (
    Case("linear", "one row", _linear(1, 40, 96)),
    Case("linear", "several rows with a bias", _linear(7, 33, 200, bias=True)),
    Case("linear", "no rows", _linear(0, 3, 5, bias=True)),
    Case("linear", "one of everything", _linear(1, 1, 1)),
    Case("linear", "one feature", _linear(3, 1, 65, bias=True)),
    Case("linear", "one product", _linear(4, 9, 1)),
    Case("linear", "long rows", _linear(2, 3, 4099)),
    Case("linear", "tiny operands", _linear(3, 5, 64, x=1e-30, w=1e-6)),
    Case("linear", "products under the smallest float", _linear(3, 5, 64, x=1e-25, w=1e-20)),
    Case("linear", "huge operands", _linear(3, 5, 64, bias=True, x=1e30, w=1e3)),
    Case("linear", "strided operands", _strided),
    Case("linear", "a sum that cancels", _cancelling),
    Case("linear", "whole numbers", lambda rng: (_whole(rng, 5, 1000), _whole(rng, 17, 1000), _whole(rng, 17)), exact=True),
)


def _grouped(m: int, n: int, k: int, experts: int, used: Sequence[int]) -> _Make:
    def make(rng: np.random.Generator) -> _Arguments:
        w = np.full((experts, n, k), np.nan, dtype=np.float32)
        w[list(used)] = _normal(rng, len(used), n, k)
        return _normal(rng, m, k), w, rng.choice(used, m).astype(np.int32)

    return make


_GROUPED = (
    Case("grouped_linear", "rows spread over experts", _grouped(9, 12, 50, 4, (0, 1, 2, 3))),
    Case("grouped_linear", "experts without rows", _grouped(8, 7, 33, 6, (5, 2))),
    Case("grouped_linear", "one expert", _grouped(3, 1, 1, 1, (0,))),
    Case("grouped_linear", "no rows", _grouped(0, 4, 8, 2, (0, 1))),
    Case("grouped_linear", "whole numbers", lambda rng: (_whole(rng, 6, 500), _whole(rng, 3, 4, 500), rng.integers(0, 3, 6)), exact=True),
)


def _embedding(vocab: int, k: int, tokens: Sequence[int]) -> _Make:
    def make(rng: np.random.Generator) -> _Arguments:
        w = np.full((vocab, k), np.nan, dtype=np.float32)
        w[list(tokens)] = _normal(rng, len(tokens), k)
        return w, np.asarray(tokens, dtype=np.int32)

    return make


_EMBEDDING = (
    Case("embedding", "first, last and repeated tokens", _embedding(50, 16, (49, 0, 7, 7)), exact=True),
    Case("embedding", "one token of one feature", _embedding(2, 1, (1,)), exact=True),
    Case("embedding", "no tokens", _embedding(5, 8, ()), exact=True),
)


def _norm(*shape: int, x: float = 1.0, eps: float = 1e-6) -> _Make:
    return lambda rng: (_normal(rng, *shape, size=x), _normal(rng, shape[-1]), eps)


def _zero_row(rng: np.random.Generator) -> _Arguments:
    x = _normal(rng, 3, 32)
    x[1] = 0
    return x, _normal(rng, 32), 1e-5


_NORM = (
    Case("rms_norm", "rows", _norm(5, 576)),
    Case("rms_norm", "heads", _norm(4, 3, 64)),
    Case("rms_norm", "values that eps outweighs", _norm(3, 40, x=1e-3, eps=1e-5)),
    Case("rms_norm", "a row of zeros", _zero_row),
    Case("rms_norm", "tiny values", _norm(2, 48, x=1e-30)),
    Case("rms_norm", "squares near the smallest float", _norm(2, 48, x=1e-21, eps=1e-42)),
    Case("rms_norm", "huge values", _norm(2, 48, x=1e17)),
    Case("rms_norm", "one value", _norm(4, 1)),
    Case("rms_norm", "no rows", _norm(0, 8)),
)


def _rope(m: int, heads: int, dim: int, rot: int, positions: Sequence[int], magnitude: float, interleaved: bool, x: float = 1.0) -> _Make:
    inv_freq = 10000.0 ** -(np.arange(rot // 2) / max(1, rot // 2))
    return lambda rng: (_normal(rng, m, heads, dim, size=x), np.asarray(positions, dtype=np.int32), inv_freq, magnitude, interleaved)


_ROPE = (
    Case("rope", "halves", _rope(4, 3, 64, 64, (0, 1, 17, 4000), 1.0, False)),
    Case("rope", "neighbours", _rope(4, 3, 64, 64, (5, 4, 2, 900), 1.0, True)),
    Case("rope", "part of a head, with a magnitude", _rope(3, 2, 48, 16, (3, 3, 77), 1.25, False)),
    Case("rope", "part of a head, neighbours", _rope(3, 2, 48, 16, (3, 9, 77), 0.75, True)),
    Case("rope", "far positions", _rope(3, 2, 32, 32, (100_000, 131_071, 1_000_003), 1.0, False)),
    Case("rope", "position nought", _rope(2, 2, 16, 16, (0, 0), 1.0, False), exact=True),
    Case("rope", "one pair", _rope(2, 1, 2, 2, (1, 2), 1.0, True)),
    Case("rope", "tiny values", _rope(2, 2, 16, 16, (8, 90), 1.0, False, x=1e-30)),
    Case("rope", "huge values", _rope(2, 2, 16, 16, (8, 90), 1.0, False, x=1e30)),
    Case("rope", "no rows", _rope(0, 2, 16, 16, (), 1.0, False)),
)


def paged(
    rng: np.random.Generator, sequences: Sequence[tuple[int, int]], heads: int, kv_heads: int, dim: int, page: int, size: float = 1.0
) -> _Arguments:
    """(q, keys, values, page_table, query_start, context, scale) for sequences of (new rows, tokens so far), on pages out of order.

    Slots past a sequence's tokens are NaN, and so is the page that the rest of the table points to.
    """
    needed = [-(-context // page) for _, context in sequences]
    order = rng.permutation(sum(needed) + 2)
    unused, order = order[0], order[1:]
    keys = np.full((len(order) + 1, page, kv_heads, dim), np.nan, dtype=np.float32)
    values = keys.copy()
    table = np.full((len(sequences), max(needed, default=0) + 1), unused, dtype=np.int32)
    for sequence, (_, context) in enumerate(sequences):
        pages, order = order[: needed[sequence]], order[needed[sequence] :]
        table[sequence, : len(pages)] = pages[::-1] if np.all(np.diff(pages) > 0) else pages
        for position in range(context):
            place = table[sequence, position // page], position % page
            keys[place] = _normal(rng, kv_heads, dim, size=size)
            values[place] = _normal(rng, kv_heads, dim, size=size)
    query_start = np.cumsum([0] + [new for new, _ in sequences], dtype=np.int32)
    q = _normal(rng, int(query_start[-1]), heads, dim, size=1 / size)
    return q, keys, values, table, query_start, np.asarray([context for _, context in sequences], dtype=np.int32), dim**-0.5


def _attention(sequences: Sequence[tuple[int, int]], heads: int, kv_heads: int, dim: int, page: int, window: int | None = None) -> _Make:
    return lambda rng: (*paged(rng, sequences, heads, kv_heads, dim, page), *([] if window is None else [window]))


def _large_scores(rng: np.random.Generator) -> _Arguments:
    """Scores in the thousands, whose exp overflows unless the largest is taken off first."""
    q, *rest = paged(rng, [(3, 10), (1, 20)], 6, 2, 16, 4)
    return (q * np.float32(1000), *rest)


def _one_key(rng: np.random.Generator) -> _Arguments:
    """Each row sees one key, so that its weight is 1 and the output is a copy; whole numbers keep the score finite and exact."""
    arguments = paged(rng, [(1, 1), (1, 1)], 3, 1, 8, 4)
    return tuple(np.rint(a * 4) if i < 3 else a for i, a in enumerate(arguments))


_ATTENTION = (
    Case("attention", "a prompt", _attention([(9, 9)], 3, 1, 16, 4)),
    Case("attention", "one step of several sequences", _attention([(1, 1), (1, 17), (1, 33)], 8, 1, 32, 16)),
    Case("attention", "prompts and steps together", _attention([(1, 10), (5, 5), (3, 12), (1, 4)], 6, 2, 24, 4)),
    Case("attention", "a sequence without rows", _attention([(2, 6), (0, 5), (1, 3)], 4, 4, 16, 4)),
    Case("attention", "as many kv heads as heads", _attention([(4, 11)], 5, 5, 8, 3)),
    Case("attention", "eight heads on each kv head", _attention([(3, 20)], 16, 2, 8, 8)),
    Case("attention", "a window", _attention([(6, 14), (1, 30), (2, 3)], 3, 1, 16, 4, window=5)),
    Case("attention", "a window of one", _attention([(3, 7)], 2, 1, 8, 4, window=1)),
    Case("attention", "a long context", _attention([(1, 700)], 3, 1, 64, 16)),
    Case("attention", "pages of one slot, heads of one dim", _attention([(2, 5)], 2, 1, 1, 1)),
    Case("attention", "one key each", _one_key, exact=True),
    Case("attention", "large scores", _large_scores),
    Case("attention", "tiny keys and values", lambda rng: paged(rng, [(2, 9)], 3, 1, 16, 4, size=1e-30)),
    Case("attention", "huge keys and values", lambda rng: paged(rng, [(2, 9)], 3, 1, 16, 4, size=1e30)),
    Case("attention", "no rows", lambda rng: paged(rng, [], 3, 1, 16, 4)),
)


def _edges(rng: np.random.Generator) -> _Arguments:
    gate = _f32([0, 1e-40, 1e-30, 0.5, 20, 87, 88.5, 89, 103, 200, 1e30])
    gate = np.concatenate([gate, -gate])[None]
    return np.repeat(gate, 3, axis=0), np.repeat(_f32([[1.5], [1e-3], [-1e6]]), gate.shape[1], axis=1)


_SILU = (
    Case("silu_mul", "rows", lambda rng: (_normal(rng, 4, 300, size=3), _normal(rng, 4, 300))),
    Case("silu_mul", "where exp under- and overflows", _edges),
    Case("silu_mul", "one value", lambda rng: (_normal(rng, 1, 1), _normal(rng, 1, 1))),
    Case("silu_mul", "no rows", lambda rng: (_normal(rng, 0, 8), _normal(rng, 0, 8))),
)


def _quant(fmt: str, m: int, n: int, blocks: int, bias: bool) -> _Make:
    def make(rng: np.random.Generator) -> _Arguments:
        k = max(32, FORMATS[fmt].block) * blocks
        raw = FORMATS[fmt].quantize(_normal(rng, n, k))
        return (_normal(rng, m, k), raw, fmt, *([_normal(rng, n)] if bias else []))

    return make


_QUANT_SHAPES: dict[str, tuple[int, int, int, bool]] = {
    "one row": (1, 5, 2, False),
    "several rows with a bias": (3, 4, 1, True),
    "no rows": (0, 2, 1, False),
}
_QUANT = tuple(Case("quant_linear", f"{fmt}, {name}", _quant(fmt, *shape)) for fmt in FORMATS for name, shape in _QUANT_SHAPES.items())


_LAST_U = 1 - 2.0**-53  # the largest that a generator of float64 in [0, 1) gives


def _sample(vocab: int, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> _Make:
    return lambda rng: (_normal(rng, vocab, size=3), u, temperature, top_k, top_p, min_p)


def _ties(u: float, temperature: float, top_k: int = 0) -> _Make:
    return lambda rng: (_f32([1, 4, 0, 4, -2, 4]), u, temperature, top_k)


def _quarters(u: float, top_p: float) -> _Make:
    """Four equal probabilities: every step is exact, and u and top_p are where the answer changes."""
    return lambda rng: (_f32([3, 3, 3, 3]), u, 1.0, 0, top_p, 1.0)


def _masked(rng: np.random.Generator) -> _Arguments:
    """Their probabilities add up to a little less than 1, and u lies in between: the tokens of probability 0 behind them may not be picked."""
    logits = np.full(40, -np.inf, dtype=np.float32)
    while True:
        logits[5:25] = _normal(rng, 20, size=3)
        p = np.sort(np.exp(logits.astype(np.float64) - np.max(logits)))[::-1]
        if np.cumsum(p / np.sum(p))[-1] <= _LAST_U:
            return logits, _LAST_U, 1.0


_SAMPLE = (
    Case("sample", "greedy", _sample(200, 0.9, 0.0)),
    Case("sample", "greedy, equal logits", _ties(0.99, 0.0)),
    Case("sample", "equal logits go by id", _ties(0.5, 1.0)),
    Case("sample", "top_k among equal logits", _ties(0.9, 1.0, 2)),
    *(Case("sample", f"exact quarters, u {u}, top_p {p}", _quarters(u, p), exact=True) for u in (0.25, 0.5) for p in (0.75, 1.0)),
    Case("sample", "u of nought", _sample(200, 0.0, 1.0)),
    Case("sample", "u just under one", _sample(200, _LAST_U, 1.0)),
    Case("sample", "masked tokens", _masked),
    Case("sample", "a vocabulary of one", _sample(1, 0.5, 1.0, 5, 0.5, 0.5)),
    *(Case("sample", f"temperature {t}, u {u}", _sample(200, u, t)) for t in (0.1, 0.8, 2.0) for u in (0.05, 0.4, 0.93)),
    *(Case("sample", f"top_k 5, u {u}", _sample(200, u, 1.5, 5)) for u in (0.1, 0.6, 0.97)),
    *(Case("sample", f"top_p 0.6, u {u}", _sample(200, u, 1.5, 0, 0.6)) for u in (0.1, 0.6, 0.97)),
    *(Case("sample", f"min_p 0.2, u {u}", _sample(200, u, 1.5, 0, 1.0, 0.2)) for u in (0.1, 0.6, 0.97)),
    *(Case("sample", f"every filter, u {u}", _sample(200, u, 2.0, 30, 0.9, 0.05)) for u in (0.1, 0.6, 0.97)),
)

CASES: dict[str, tuple[Case, ...]] = {
    "linear": _LINEAR,
    "quant_linear": _QUANT,
    "grouped_linear": _GROUPED,
    "embedding": _EMBEDDING,
    "rms_norm": _NORM,
    "rope": _ROPE,
    "attention": _ATTENTION,
    "silu_mul": _SILU,
    "sample": _SAMPLE,
}
