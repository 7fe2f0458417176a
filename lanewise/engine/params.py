"""How a completion is sampled and when it ends: one frozen, validated dataclass.

>>> SamplingParams(temperature=0.7, top_p=0.9, seed=1).greedy
False
"""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from lanewise.errors import SamplingError

__all__ = ["SamplingParams"]

_MOST = 2**63 - 1  # no count, seed or factor is larger


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Raises SamplingError for a value out of range. Filters apply in the order of the fields, after the temperature.

    max_tokens:         most tokens to generate
    temperature:        0 is greedy; logits are divided by it otherwise
    top_k:              keep this many tokens; 0 keeps all
    top_p:              keep the most likely tokens that together reach this probability
    min_p:              drop tokens less likely than this share of the most likely one
    repetition_penalty: above 1 makes tokens of the prompt and the output less likely
    presence_penalty:   subtracted from the logit of every token that the output has
    frequency_penalty:  subtracted once for each time that the output has it
    seed:               same seed, same text; None draws one
    stop:               texts that end the output and are left out of it
    stop_ids:           token ids that end the output and are left out of it
    logprobs:           report the log probabilities of the chosen token and of this many most likely ones
    ignore_eos:         go on after the model's own end of text
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        stop: Any = self.stop  # a single text is taken too: splitting it into letters is never meant
        for name, items in (("stop", (stop,) if isinstance(stop, str) else stop), ("stop_ids", self.stop_ids)):
            if not isinstance(items, list | tuple | set | frozenset):
                raise SamplingError(f"{name} is {items!r}; it takes a tuple")
            object.__setattr__(self, name, tuple(items))
        _check("max_tokens", self.max_tokens, whole=True, least=1)
        _check("temperature", self.temperature, least=0.0)
        _check("top_k", self.top_k, whole=True, least=0)
        _check("top_p", self.top_p, above=0.0, most=1.0)
        _check("min_p", self.min_p, least=0.0, most=1.0)
        _check("repetition_penalty", self.repetition_penalty, least=1e-3, most=1e3)
        _check("presence_penalty", self.presence_penalty, least=-1e4, most=1e4)
        _check("frequency_penalty", self.frequency_penalty, least=-1e4, most=1e4)
        if self.seed is not None:
            _check("seed", self.seed, whole=True, least=0)
        if self.logprobs is not None:
            _check("logprobs", self.logprobs, whole=True, least=0, most=100)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise SamplingError(f"stop holds {text!r}; it takes texts that are not empty")
        for token in self.stop_ids:
            _check("stop_ids", token, whole=True, least=0)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalizes(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def _check(name: str, value: Any, *, whole: bool = False, least: float | None = None, above: float | None = None, most: float = _MOST) -> None:
    """Raise SamplingError unless value is a finite number (whole where asked) within its limits."""
    good = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if good:  # an integer may be too large for a float: compare it as what it is
        good = (least is None or value >= least) and (above is None or value > above) and value <= most
    if not good:
        limits = (("at least", least), ("above", above), ("at most", None if most == _MOST else most))
        words = " and ".join(f"{text} {limit}" for text, limit in limits if limit is not None)
        shown = repr(value) if not isinstance(value, int) or abs(value) <= _MOST else "a number of more than 19 digits"
        raise SamplingError(f"{name} is {shown}; it takes {'a whole number' if whole else 'a finite number'}{' ' + words if words else ''}")
