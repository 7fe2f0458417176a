"""Which experts the tokens of a measured call go to: a routing drawn once for its sizes, over other experts at every call of a rotation.

A call alone is as if every token had drawn its experts at random. The calls that are measured one after the other on one copy of the experts have
none in common, so that in a rotation over the copies no expert is read twice: a cache that is smaller than what lies between helps none of them.
"""

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_DRAWN", "active", "routings"]

MOST_DRAWN = 1 << 24  # tokens times experts: a number is drawn for each of both


def active(m: int, experts: int, top: int) -> int:
    """How many experts get rows of m tokens that have `top` each: the same in every run.

    >>> active(1, 128, 8), active(4, 128, 8) <= 32, active(512, 128, 8)
    (8, True, 128)
    """
    return int(_pattern(m, experts, top).max()) + 1


def routings(m: int, experts: int, top: int, seed: int) -> NDArray[np.int32]:
    """ids[calls, m, top] of as many calls as there are experts for, no expert in two of them."""
    pattern = _pattern(m, experts, top)
    count = int(pattern.max()) + 1
    order = np.argsort(_words((seed, experts), experts), kind="stable").astype(np.int32)
    return np.stack([order[start : start + count][pattern] for start in range(0, experts - count + 1, count)])


@functools.lru_cache(maxsize=64)
def _pattern(m: int, experts: int, top: int) -> NDArray[np.int64]:
    """[m, top] numbers from 0 on without gaps: each token's are different ones of as many as there are experts."""
    chosen = np.argsort(_words((m, experts, top), m * experts).reshape(m, experts), axis=1, kind="stable")[:, :top]
    found: NDArray[np.int64] = np.unique(chosen, return_inverse=True)[1].reshape(m, top)
    return found


def _words(key: tuple[int, ...], count: int) -> NDArray[np.uint64]:
    """Raw words of Philox, which numpy keeps the same from version to version."""
    found: NDArray[np.uint64] = np.random.Philox(np.random.SeedSequence(list(key))).random_raw(count)
    return found
