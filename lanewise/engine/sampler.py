"""One sequence's sampler: its parameters, its random numbers, and what it has seen so far."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lanewise.backends import Distribution
from lanewise.engine.params import SamplingParams

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
        self._seen = np.zeros(vocab, bool)
        self._seen[prompt] = True
        self._counts = np.zeros(vocab, np.int64)

    @cached_property
    def _random(self) -> "np.random.Generator":
        """Made when first drawn from: greedy sampling does not wait for numpy.random to be imported."""
        return np.random.Generator(np.random.Philox(self.params.seed))

    def pick(self, distribution: Distribution) -> tuple[int, TokenLogprob | None]:
        """The next token, and its log probabilities where they were asked for."""
        p = self.params
        adjusted = self._penalized(distribution) if p.penalizes else distribution
        u = 0.0 if p.greedy else self._random.random()
        token = adjusted.sample(u, p.temperature, p.top_k, p.top_p, p.min_p)
        self._seen[token] = True
        self._counts[token] += 1
        return token, None if p.logprobs is None else TokenLogprob(token, *distribution.logprobs(token, p.logprobs))

    def _penalized(self, distribution: Distribution) -> Distribution:
        generated = np.flatnonzero(self._counts)
        p = self.params
        return distribution.penalized(
            np.flatnonzero(self._seen), generated, self._counts[generated], p.repetition_penalty, p.presence_penalty, p.frequency_penalty
        )
