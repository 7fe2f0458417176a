"""The seam between the engine and whatever runs a model: a batch of new tokens in, logits out.

A backend lowers a `ModelSpec` to a `Runner`. The engine owns which tokens sit in which pages; the runner owns the memory
behind the pages and everything about how a step is computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.sample import Distribution
from lanewise.contract import Guard
from lanewise.files import ModelFile
from lanewise.models.spec import ModelSpec

__all__ = ["NUMPY", "Backend", "Batch", "Distribution", "Progress", "Runner"]

NUMPY = Guard("numpy", lambda p: not p.torch, "operands are torch tensors; this kernel takes numpy arrays")

Ints = NDArray[np.int32]
Progress = Callable[[str, int, int], None]
"""progress(what, done, total): "load" counts bytes of the file, "prefill" tokens of the prompt."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The new tokens of one step: those of sequence 0, then those of sequence 1, and so on. All arrays are int32.

    tokens[m]         token ids
    positions[m]      place of each in its sequence
    slots[m]          where its key and value go: page * page_size + offset
    query_start[s+1]  rows query_start[j] to query_start[j+1] belong to sequence j
    context[s]        tokens of sequence j in the cache after this step
    page_table[s,p]   pages of sequence j in order, padded with 0
    logit_rows[r]     rows whose logits are wanted
    """

    tokens: Ints
    positions: Ints
    slots: Ints
    query_start: Ints
    context: Ints
    page_table: Ints
    logit_rows: Ints


class Runner(Protocol):
    """A model that is loaded and can step. Not safe to call from two threads at once."""

    spec: ModelSpec
    notes: tuple[str, ...]  # what the user should know about how this model runs, one line each

    def allocate(self, pages: int, page_size: int) -> None:
        """Make room for `pages` pages of `page_size` tokens in every layer. Raises DeviceError when there is none."""
        ...

    def step(self, batch: Batch) -> NDArray[np.float32]:
        """logits[r,vocab] at the wanted rows; writes the keys and values of the batch's tokens."""
        ...

    def distribution(self, logits: NDArray[np.float32]) -> Distribution:
        """What one row of `step`'s logits says about the next token, to be picked from before the next step.

        Raises ModelError for logits that are no numbers.
        """
        ...

    def close(self) -> None:
        """Give the memory back; the runner cannot be used afterwards."""
        ...


class Backend(Protocol):
    """Lowers specs for one kind of device."""

    name: str

    def lower(self, spec: ModelSpec, file: ModelFile, progress: Progress | None = None, threads: int | None = None) -> Runner:
        """Load the weights and prepare a step. Raises DeviceError when they do not fit, FormatError for an unsupported format.

        `threads` is how many work on a step; None leaves it to the backend. One that cannot choose says so in the runner's notes.
        """
        ...
