"""How far the roundings that the cpu backend adds to the reference may move the logits: the reference with each of them made as large as it gets."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lanewise.backends import Batch
from lanewise.backends.reference import ReferenceRunner, ops
from lanewise.contract import dtype
from lanewise.formats import FORMATS
from lanewise.models.spec import Linear
from support.bounds import DRAWS
from support.run import step_logits

INT8_HALF_STEP = 0.5 / 127
GROUPS = {"float": 0, "q8_0": 32, "q8_k": 256}


class MovedRunner(ReferenceRunner):
    """Adds, with signs drawn at random, half a step of int8 to what every quantized product reads and half an ulp of float16 to the cache."""

    def __init__(self, like: ReferenceRunner, kinds: dict[str, str], draw: int) -> None:
        super().__init__(like.spec, like._weights)
        self._kinds, self._rng = kinds, np.random.default_rng(draw)

    def _signs(self, x: np.ndarray) -> np.ndarray:
        return self._rng.choice(np.float32([-1, 1]), x.shape)

    def _linear(self, linear: Linear, x: np.ndarray) -> np.ndarray:
        group = GROUPS[self._kinds[linear.weight.name]]
        if group:
            amax = np.abs(x.reshape(len(x), -1, group)).max(axis=-1, keepdims=True)
            x = x + (np.float32(INT8_HALF_STEP) * amax * self._signs(x).reshape(len(x), -1, group)).reshape(x.shape)
        return super()._linear(linear, x)

    def step(self, batch: Batch) -> np.ndarray:
        write = ops.write_kv

        def moved(k: np.ndarray, v: np.ndarray, *rest: Any) -> None:
            half = np.float32(dtype("f16").roundoff)
            write(k * (1 + half * self._signs(k)), v * (1 + half * self._signs(v)), *rest)

        ops.write_kv = moved
        try:
            return super().step(batch)
        finally:
            ops.write_kv = write


@contextmanager
def numpy_only() -> Iterator[None]:
    """Compiled kernels are out of dispatch: what runs is the reference's numpy, and not what is to be compared with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANEWISE_CPU_KERNELS", "0")
        yield


def moved_bound(reference: ReferenceRunner, formats: dict[str, str], ids: Sequence[int]) -> tuple[np.ndarray, float]:
    """(the reference's logits, how far any may be off).

    A rounding error is at most what is added here and its sign is as good as random, so that no logit should be further off than the
    furthest of a few draws (`bounds.logit_bound` says the same of float32's own roundings, which are 2^13 times smaller than float16's).
    """
    kinds = {name: FORMATS[fmt].activation for name, fmt in formats.items()}
    with numpy_only():
        want = step_logits(ReferenceRunner(reference.spec, reference._weights), ids)
        draws = [step_logits(MovedRunner(reference, kinds, draw), ids) for draw in range(DRAWS)]
    return want, float(max(np.abs(draw - want).max() for draw in draws))
