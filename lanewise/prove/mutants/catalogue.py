"""All mutants."""

from dataclasses import replace

from lanewise.prove.mutants import activations, grouped, linear, quantized
from lanewise.prove.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

# What no proof can notice, and why.
_EQUIVALENT = {
    "x outside is one": "w is zero wherever x lies outside k, rows of x past the last token are not stored, and one times zero is zero",
    "a k with a tail passes for whole tiles": "a share is a whole number of tiles, so that k is one too where it is a whole number of shares",
}
_ALL = (*linear.MUTANTS, *activations.MUTANTS, *quantized.MUTANTS, *grouped.MUTANTS)
MUTANTS: tuple[Mutant, ...] = tuple(replace(one, equivalent=_EQUIVALENT.get(one.name, "")) for one in _ALL)
