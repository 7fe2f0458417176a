"""All mutants."""

from lanewise.prove.mutants import activations, grouped, linear, quantized
from lanewise.prove.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (*linear.MUTANTS, *activations.MUTANTS, *quantized.MUTANTS, *grouped.MUTANTS)
