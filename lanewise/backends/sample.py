"""From logits to a token: the definition of sampling, in numpy. Deterministic in (logits, parameters, u)."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["most_likely", "penalize", "probabilities", "sample"]

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


def penalize(logits: F32, seen: Ints, generated: Ints, counts: Ints, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0) -> F32:
    """logits[v] with tokens made less likely for having occurred; the input is not changed.

    seen:              ids in the prompt or the output: positive logits are divided by `repetition`, others multiplied
                       (CTRL, arXiv 1909.05858, section 4.1)
    generated, counts: ids in the output and how often: logit -= presence + frequency * count (OpenAI's API reference)
    """
    y = logits.copy()
    if repetition != 1.0:
        y[seen] = np.where(y[seen] > 0, y[seen] / np.float32(repetition), y[seen] * np.float32(repetition))
    if presence or frequency:
        y[generated] -= (presence + frequency * counts).astype(np.float32)
    return y


def probabilities(
    logits: F32, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, reach: float = math.inf
) -> tuple[Ints, NDArray[np.float64]]:
    """(ids, p) of the tokens that may be picked, most likely first, ties by the lower id; p sums to 1, or past `reach`.

    In order: softmax(logits / temperature); the top_k most likely (0 = all); the fewest of those whose share reaches
    top_p (Holtzman et al., arXiv 1904.09751); of those the ones with p >= min_p times the greatest (arXiv 2407.01082).
    Where nothing is filtered, the list may end as soon as its share exceeds `reach`.
    """
    filtered = top_p < 1.0 or min_p > 0.0
    if top_k:
        ids = most_likely(logits, top_k)
        p = _weights(logits[ids], temperature)
        p /= p.sum()
        keep = _kept(p, top_p, min_p)
    else:
        weights = _weights(logits, temperature)
        total = weights.sum()
        # Sorting a whole vocabulary costs more than a small model's step: look at the most likely tokens first, then at more.
        count, done = 8, False
        while not done:
            count *= 8
            ids = most_likely(logits, count)
            p = weights[ids] / total
            keep = _kept(p, top_p, min_p)
            done = len(ids) == len(logits) or (keep < len(ids) if filtered else np.cumsum(p)[-1] > reach)
    ids, p = ids[:keep], p[:keep]
    return ids, p / p.sum() if filtered else p


def _weights(logits: F32, temperature: float) -> NDArray[np.float64]:
    """exp(logits / temperature), the greatest being 1, for any positive temperature."""
    below = logits.astype(np.float64) - logits.max()
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the greatest to -inf, whose weight is 0
        return np.asarray(np.exp(below / temperature))


def most_likely(logits: F32, count: int) -> Ints:
    """The `count` ids of the greatest logits in order, ties by the lower id."""
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    if count == 0:
        return np.empty(0, np.intp)
    least = np.partition(logits, -count)[-count]
    above = np.flatnonzero(logits > least)
    ids = np.concatenate([above, np.flatnonzero(logits == least)[: count - len(above)]])
    ids.sort()
    return ids[np.argsort(-logits[ids], kind="stable")]


def _kept(p: NDArray[np.float64], top_p: float, min_p: float) -> int:
    """How many of p, most likely first, top_p and min_p leave."""
    keep = len(p)
    if top_p < 1.0:
        keep = min(keep, int(np.searchsorted(np.cumsum(p), top_p)) + 1)
    return min(keep, int(np.count_nonzero(p >= min_p * p[0]))) if min_p > 0.0 else keep


def sample(logits: F32, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """The token picked from logits[v] by u in [0, 1): the first whose cumulative probability exceeds u.

    Temperature 0 is greedy: the greatest logit, ties to the lower id.
    """
    if temperature == 0:
        return int(np.argmax(logits))
    ids, p = probabilities(logits, temperature, top_k, top_p, min_p, reach=u)
    last = int(np.count_nonzero(p)) - 1  # a cumulative sum may round to less than u: never past the least likely token that can occur
    return int(ids[min(int(np.searchsorted(np.cumsum(p), u, side="right")), last)])
