"""The reference runner with activations rounded to int8 in front of every product, as llama.cpp's CPU kernels do."""

import numpy as np

from lanewise.backends.reference import ReferenceRunner
from lanewise.formats.activations import quantize_q8_0
from lanewise.models.spec import Linear


class Int8ActivationRunner(ReferenceRunner):
    """Shows how far that rounding moves the logits: one int8 scale for every 32 activations."""

    def _linear(self, linear: Linear, x: np.ndarray) -> np.ndarray:
        q = quantize_q8_0(np.ascontiguousarray(x, np.float32))
        rounded = (q.q.reshape(len(x), -1, 32) * q.d[..., None]).reshape(x.shape)
        return super()._linear(linear, rounded.astype(np.float32))
