"""One sequence's sampler: its parameters, its random numbers, and what it has seen so far."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.sample import most_likely, penalize, sample
from lanewise.engine.params import SamplingParams
from lanewise.errors import ModelError

__all__ = ["Sampler", "TokenLogprob"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probabilities under the model's own distribution, before penalties, temperature and filters.

    top: (token, logprob) of the most likely tokens, most likely first
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """Picks tokens for one sequence. Draws one random number a token, so a seed's text does not depend on its neighbours."""

    def __init__(self, params: SamplingParams, prompt: list[int], vocab: int) -> None:
        self.params = params
        self._random = np.random.Generator(np.random.Philox(params.seed))
        self._seen = np.zeros(vocab, bool)
        self._seen[prompt] = True
        self._counts = np.zeros(vocab, np.int64)

    def pick(self, logits: NDArray[np.float32]) -> tuple[int, TokenLogprob | None]:
        """The next token for logits[vocab], and its log probabilities where they were asked for.

        Raises ModelError for logits that are no numbers: a token picked from them would look like an answer.
        """
        if not np.isfinite(logits.max()):
            raise ModelError("the model's logits are not finite numbers; its weights or its config are broken")
        p = self.params
        adjusted = self._penalized(logits) if p.penalizes else logits
        u = 0.0 if p.greedy else self._random.random()
        token = sample(adjusted, u, p.temperature, p.top_k, p.top_p, p.min_p)
        self._seen[token] = True
        self._counts[token] += 1
        return token, None if p.logprobs is None else _logprob(logits, token, p.logprobs)

    def _penalized(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        generated = np.flatnonzero(self._counts)
        p = self.params
        return penalize(
            logits, np.flatnonzero(self._seen), generated, self._counts[generated], p.repetition_penalty, p.presence_penalty, p.frequency_penalty
        )


def _logprob(logits: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    top = most_likely(logits, count)
    return TokenLogprob(token, float(wide[token]), tuple((int(i), float(wide[i])) for i in top))
