"""From logits to a token: the definition of sampling, in numpy. Deterministic in (logits, parameters, u)."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["penalize", "probabilities", "sample"]

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


def probabilities(logits: F32, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> tuple[Ints, NDArray[np.float64]]:
    """(ids, p) of the tokens that may be picked, most likely first, ties by the lower id; p sums to 1.

    In order: softmax(logits / temperature); the top_k most likely (0 = all); the fewest of those whose share reaches
    top_p (Holtzman et al., arXiv 1904.09751); of those the ones with p >= min_p times the greatest (arXiv 2407.01082).
    """
    ids = np.argsort(-logits, kind="stable")
    if top_k:
        ids = ids[:top_k]
    scaled = logits[ids].astype(np.float64) / temperature
    p = np.exp(scaled - scaled[0])
    p /= p.sum()
    keep = len(p)
    if top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(p), top_p)) + 1
    if min_p > 0.0:
        keep = min(keep, int(np.count_nonzero(p >= min_p * p[0])))
    ids, p = ids[:keep], p[:keep]
    return ids, p / p.sum()


def sample(logits: F32, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """The token picked from logits[v] by u in [0, 1): the first whose cumulative probability exceeds u.

    Temperature 0 is greedy: the greatest logit, ties to the lower id.
    """
    if temperature == 0:
        return int(np.argmax(logits))
    ids, p = probabilities(logits, temperature, top_k, top_p, min_p)
    last = int(np.count_nonzero(p)) - 1  # a cumulative sum may round to less than u: never past the least likely token that can occur
    return int(ids[min(int(np.searchsorted(np.cumsum(p), u, side="right")), last)])
