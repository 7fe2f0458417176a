"""From logits to a token: the definition of sampling, in numpy. Deterministic in (logits, parameters, u)."""

import math

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import ModelError

__all__ = ["Distribution", "penalize", "sample", "weights"]

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


class Distribution:
    """What logits[v] say about the next token. Raises ModelError for logits that are no numbers: a token picked from them would look like an answer.

    This is the definition, and a backend may have one of its own that answers alike: with faster passes over the vocabulary
    (`_like`, `_greatest`, `most_likely` and `total`), or, where the logits are not in this memory, with everything that has no underscore.
    """

    def __init__(self, logits: F32) -> None:
        self.logits = logits
        self.greatest = self._greatest()
        if not (self.greatest < len(logits) and math.isfinite(logits[self.greatest])):
            raise ModelError("the model's logits are not finite numbers; its weights or its config are broken")

    def penalized(self, seen: Ints, generated: Ints, counts: Ints, repetition: float, presence: float, frequency: float) -> "Distribution":
        """The same behind `penalize`."""
        return self._like(penalize(self.logits, seen, generated, counts, repetition, presence, frequency))

    def sample(self, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
        """The token picked by u in [0, 1): the first whose cumulative probability exceeds u.

        Temperature 0 is greedy: the greatest logit, ties to the lower id.
        """
        if temperature == 0:
            return self.greatest
        ids, p = self.probabilities(temperature, top_k, top_p, min_p, reach=u)
        last = int(np.count_nonzero(p)) - 1  # a cumulative sum may round to less than u: never past the least likely token that can occur
        return int(ids[min(int(np.searchsorted(np.cumsum(p), u, side="right")), last)])

    def probabilities(
        self, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, reach: float = math.inf
    ) -> tuple[Ints, NDArray[np.float64]]:
        """(ids, p) of the tokens that may be picked, most likely first, ties by the lower id; p sums to 1, or past `reach`.

        In order: softmax(logits / temperature); the top_k most likely (0 = all); the fewest of those whose share reaches
        top_p (Holtzman et al., arXiv 1904.09751); of those the ones with p >= min_p times the greatest (arXiv 2407.01082).
        Where nothing is filtered, the list may end as soon as its share exceeds `reach`.
        """
        filtered = top_p < 1.0 or min_p > 0.0
        if top_k:
            ids = self.most_likely(top_k)[:top_k]
            p = weights(self.logits[ids], temperature)
            p /= p.sum()
            keep = _kept(p, top_p, min_p)
        else:
            total = self.total(temperature)
            # Sorting a whole vocabulary costs more than a small model's step: look at the most likely tokens first, then at more.
            count, done = 8, False
            while not done:
                count *= 8
                ids = self.most_likely(count)
                p = weights(self.logits[ids], temperature) / total
                keep = _kept(p, top_p, min_p)
                done = len(ids) == len(self.logits) or (keep < len(ids) if filtered else np.cumsum(p)[-1] > reach)
        ids, p = ids[:keep], p[:keep]
        return ids, p / p.sum() if filtered else p

    def logprobs(self, token: int, count: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """(natural log probability of `token`, (id, that) of the `count` most likely tokens)."""
        top = self.most_likely(count)[:count]
        level = np.log(self.total(1.0))
        below = self.logits[[token, *top]].astype(np.float64) - self.logits[self.greatest]
        first, *rest = (below - level).tolist()
        return first, tuple(zip(top.tolist(), rest, strict=True))

    def _like(self, logits: F32) -> "Distribution":
        """Another one of the same kind."""
        return Distribution(logits)

    def _greatest(self) -> int:
        """The lowest id of the greatest logit; the id of a NaN, or one past the last, where there is a NaN."""
        return int(np.argmax(self.logits))

    def most_likely(self, count: int) -> Ints:
        """The `count` ids of the greatest logits in order, ties by the lower id. A backend's may go on behind them in the same order."""
        logits = self.logits
        if count >= len(logits):
            return np.argsort(-logits, kind="stable")
        if count == 0:
            return np.empty(0, np.intp)
        least = np.partition(logits, -count)[-count]
        above = np.flatnonzero(logits > least)
        ids = np.concatenate([above, np.flatnonzero(logits == least)[: count - len(above)]])
        ids.sort()
        return ids[np.argsort(-logits[ids], kind="stable")]

    def total(self, temperature: float) -> float:
        """The sum of all `weights`."""
        return float(weights(self.logits, temperature).sum())


def sample(logits: F32, u: float, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """`Distribution.sample` for logits[v]."""
    return Distribution(logits).sample(u, temperature, top_k, top_p, min_p)


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


def weights(logits: F32, temperature: float) -> NDArray[np.float64]:
    """exp(logits / temperature), the greatest being 1, for any positive temperature."""
    below = logits.astype(np.float64) - logits.max()
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the greatest to -inf, whose weight is 0
        return np.asarray(np.exp(below / temperature))


def _kept(p: NDArray[np.float64], top_p: float, min_p: float) -> int:
    """How many of p, most likely first, top_p and min_p leave."""
    keep = len(p)
    if top_p < 1.0:
        keep = min(keep, int(np.searchsorted(np.cumsum(p), top_p)) + 1)
    return min(keep, int(np.count_nonzero(p >= min_p * p[0]))) if min_p > 0.0 else keep
