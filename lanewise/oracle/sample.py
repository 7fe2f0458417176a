"""Sampling and the penalties in front of it, in float64."""

import numpy as np
from numpy.typing import NDArray

from lanewise.contract import Tolerance
from lanewise.oracle.rounding import F64, U, chained, exp_error, gamma

__all__ = ["penalize", "penalize_bound", "sample", "sample_bound", "sample_candidates"]

_Floats = NDArray[np.floating]
_Ints = NDArray[np.integer]


def penalize(
    logits: _Floats, seen: _Ints, generated: _Ints, counts: _Ints, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0
) -> F64:
    """y[v]: logits [v] with three penalties, repetition first.

    repetition: the logit of every id in `seen` (prompt or output) is divided by it when positive, else multiplied (Keskar et al. 2019, CTRL,
    section 4.1, with Hugging Face's rule for the sign). presence and frequency: the logit of every id in `generated` (output, each id once)
    loses presence, and frequency times its count (OpenAI's API reference).
    """
    y = logits.astype(np.float64)
    for token in {int(t) for t in seen}:
        y[token] = y[token] / repetition if y[token] > 0 else y[token] * repetition
    for token, count in zip(generated, counts, strict=True):
        y[token] -= presence + frequency * float(count)
    return y


def penalize_bound(
    logits: _Floats, seen: _Ints, generated: _Ints, counts: _Ints, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0
) -> F64:
    """A sum of three terms, the longest of which has a rounded factor and a product: gamma(5). The logits of other ids may not change."""
    magnitude = np.abs(penalize(logits, seen, generated[:0], counts[:0], repetition))
    for token, count in zip(generated, counts, strict=True):
        magnitude[token] += abs(presence) + abs(frequency * float(count))
    want = penalize(logits, seen, generated, counts, repetition, presence, frequency)
    touched = np.isin(np.arange(len(logits)), np.concatenate([seen, generated]))
    return np.where(touched, Tolerance.dot(5).bound(want, magnitude), 0.0)


def sample(logits: _Floats, u: float, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """The token that u in [0, 1) picks from logits [v].

    temperature 0: the largest logit, the lowest id of equal ones. Else p = softmax(logits / temperature), largest first (equal ones by id); the
    first top_k of them (0: all); the shortest run from the first whose probability, renormalised, reaches top_p (Holtzman et al. 2020);
    those with p >= min_p * max(p); and of these, renormalised, the first whose cumulative probability exceeds u.

    >>> sample(np.log(np.float32([0.5, 0.2, 0.3])), u=0.6)
    2
    """
    order, p = _ranked(logits, temperature, top_k)
    kept = p[: _kept(p, top_p, min_p)]
    return int(order[_pick(kept, u)])


def sample_candidates(logits: _Floats, u: float, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> set[int]:
    """The tokens that a float32 sampler may answer with: one, unless u, top_p or min_p lies within rounding of where the answer changes.

    Order and top_k compare logits as they are and are never in doubt. Both filters keep a run from the front and a longer run only moves the pick
    back, so the shortest and the longest run that the filters may keep, and the least and the largest pick from them, enclose every answer.
    """
    order, p = _ranked(logits, temperature, top_k)
    if temperature == 0:
        return {int(order[0])}
    relative = _relative_error(logits[order].astype(np.float64) / temperature)
    share = _share_error(p, relative)
    # top_p 1 and min_p 0 are off, not thresholds that rounding could cross
    shortest = _kept(p, top_p - share if top_p < 1 else 1.0, min_p / (1 - relative))
    longest = _kept(p, top_p + share if top_p < 1 else 1.0, min_p / (1 + relative))
    least = _pick(p[:shortest], u - _share_error(p[:shortest], relative[:shortest]))
    largest = _pick(p[:longest], u + _share_error(p[:longest], relative[:longest]))
    return {int(token) for token in order[least : largest + 1]}


def sample_bound(logits: _Floats, u: float, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> F64:
    """0 where the answer is certain. Else the distance to the furthest candidate; `sample_candidates` says which ones, and is the sharper test."""
    arguments = (logits, u, temperature, top_k, top_p, min_p)
    return np.asarray(max(abs(token - sample(*arguments)) for token in sample_candidates(*arguments)), dtype=np.float64)


def _ranked(logits: _Floats, temperature: float, top_k: int) -> tuple[_Ints, F64]:
    """The ids, best first, and their probabilities after top_k."""
    order = np.argsort(-logits.astype(np.float64), kind="stable")
    order = order[: 1 if temperature == 0 else top_k or None]
    scaled = logits[order].astype(np.float64) / (temperature or 1.0)
    e = np.exp(scaled - scaled[0])
    return order, np.asarray(e / np.sum(e))


def _kept(p: F64, top_p: float, min_p: F64 | float) -> int:
    """How many of p, largest first, both filters keep: each keeps a run from the front."""
    reached = np.flatnonzero(np.cumsum(p) >= top_p) if top_p < 1 else np.empty(0, dtype=np.intp)
    by_mass = int(reached[0]) + 1 if len(reached) else len(p)
    small = np.flatnonzero(p < min_p * p[0])
    by_ratio = int(small[0]) if len(small) else len(p)
    return max(1, min(by_mass, by_ratio))


def _pick(p: F64, u: float) -> int:
    """The first place whose cumulative share exceeds u, or the last one that has any: a token of no probability is never picked."""
    exceeding = np.flatnonzero(np.cumsum(p) / np.sum(p) > max(u, 0.0))
    return int(exceeding[0]) if len(exceeding) else int(np.flatnonzero(p)[-1])


def _relative_error(scaled: F64) -> F64:
    """How far each exp(scaled - max) may be off: logits / temperature is rounded (twice, by a reciprocal), then the subtraction, then exp.

    And four roundings more: p's division, min_p, its product with the largest p, and that p's own division.
    """
    distance = scaled[0] - scaled
    argument = U * (2 * np.abs(scaled) + 2 * abs(scaled[0]) + distance)
    return np.minimum(chained(np.expm1(np.minimum(argument, 1.0)), exp_error(distance), gamma(4)), 0.5)


def _share_error(p: F64, relative: F64) -> float:
    """How far the share of a run of p may be off: by its weights (attention_bound, with v = 1 in the run), and by three sums and u's rounding."""
    wrong = float(p @ relative / np.sum(p))
    return wrong / (1 - wrong) + gamma(3 * len(p) + 2)
