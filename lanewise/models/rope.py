"""Rotary frequencies: every way a config can scale them, resolved to plain numbers.

Sources: RoFormer (arXiv 2104.09864); linear: position interpolation (arXiv 2306.15595); llama3: the Llama 3.1 model
card's frequency-dependent scaling; yarn: arXiv 2309.00071, sections 3.2 to 3.4.

>>> frequencies(4, 10000.0)
((1.0, 0.01), 1.0)
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import UnsupportedModelError

__all__ = ["KINDS", "Scaling", "frequencies"]

KINDS = ("none", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a model was stretched past the context it was trained on.

    kind:      "none", "linear", "llama3" or "yarn"
    factor:    new context / original context
    original:  the original context, in tokens
    low, high: llama3: wavelengths longer than original/low are divided by the factor, shorter than original/high kept
    fast, slow: yarn: pairs that turn more often than `fast` in the original context are kept, less than `slow` divided
    magnitude: yarn: what rotated values are multiplied by; None derives it from the factor
    truncate:  yarn: whether the ramp's ends are rounded to whole pairs
    """

    kind: str = "none"
    factor: float = 1.0
    original: int = 0
    low: float = 1.0
    high: float = 4.0
    fast: float = 32.0
    slow: float = 1.0
    magnitude: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnsupportedModelError(f"RoPE scaling {self.kind!r} is not known; known kinds: {', '.join(KINDS)}")
        if self.kind != "none" and not 1.0 <= self.factor <= 1e6:
            raise UnsupportedModelError(f"RoPE scaling factor is {self.factor}; 1 to 1000000 is expected")
        if self.kind in ("llama3", "yarn") and self.original < 1:
            raise UnsupportedModelError(f"RoPE scaling {self.kind} needs the original context length; it is {self.original}")
        if self.kind == "llama3" and not 0 < self.low < self.high:
            raise UnsupportedModelError(f"RoPE scaling llama3 needs 0 < low ({self.low}) < high ({self.high})")
        if self.kind == "yarn" and not 1e-3 <= self.slow < self.fast <= 1e6:
            raise UnsupportedModelError(f"RoPE scaling yarn needs 0.001 <= slow ({self.slow}) < fast ({self.fast}) <= 1000000")
        if self.magnitude is not None and not 1e-3 <= self.magnitude <= 1e3:
            raise UnsupportedModelError(f"RoPE scaling yarn multiplies by {self.magnitude}; 0.001 to 1000 is expected")


def frequencies(dim: int, theta: float, scaling: Scaling | None = None) -> tuple[tuple[float, ...], float]:
    """(inv_freq[dim/2] in radians per token, magnitude) for `dim` rotated dimensions and base `theta`."""
    scaling = scaling or Scaling()
    plain = theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)
    magnitude = 1.0
    if scaling.kind == "linear":
        plain = plain / scaling.factor
    elif scaling.kind == "llama3":
        plain = _llama3(plain, scaling)
    elif scaling.kind == "yarn":
        plain = _yarn(plain, dim, theta, scaling)
        magnitude = 0.1 * math.log(scaling.factor) + 1.0 if scaling.magnitude is None else scaling.magnitude
    return tuple(plain.tolist()), magnitude


def _llama3(plain: NDArray[np.float64], s: Scaling) -> NDArray[np.float64]:
    """Keep fast pairs, divide slow ones by the factor, and blend linearly in turns per original context between."""
    turns = s.original * plain / (2 * math.pi)
    keep = np.clip((turns - s.low) / (s.high - s.low), 0.0, 1.0)
    return np.asarray((1 - keep) * plain / s.factor + keep * plain)


def _yarn(plain: NDArray[np.float64], dim: int, theta: float, s: Scaling) -> NDArray[np.float64]:
    """Keep pairs before the ramp, divide those behind it, and blend linearly in the pair's index along it."""
    if theta <= 1:
        raise UnsupportedModelError(f"RoPE scaling yarn needs a base above 1; it is {theta}")

    def pair_that_turns(times: float) -> float:
        return dim * math.log(s.original / (times * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_that_turns(s.fast), pair_that_turns(s.slow)
    if s.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    # 0.001 keeps a ramp of no width a step, as the paper's reference implementation has it
    divide = np.clip((np.arange(dim // 2) - first) / max(last - first, 0.001), 0.0, 1.0)
    return np.asarray(divide * plain / s.factor + (1 - divide) * plain)
