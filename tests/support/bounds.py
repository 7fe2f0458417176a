"""How far a float32 model's logits may be from the float64 model's: derived from the model itself."""

import copy
import math
from typing import Any

import numpy as np

from lanewise.contract import DTYPES

DRAWS = 4
ROUNDED_OPS = 4  # a product, and a norm, an activation and a residual that round once more before the next one
LAMBDA = 4.0  # rounding errors exceed the probabilistic bound with a chance below 2 exp(-LAMBDA^2 / 2) each


def logits64(model: Any, ids: list[int]) -> np.ndarray:
    """logits[len(ids), vocab] of the model in float64, by `transformers`."""
    import torch

    with torch.no_grad():
        return model.double()(torch.tensor([ids])).logits[0].numpy()


def logit_bound(model: Any, ids: list[int], want: np.ndarray) -> np.ndarray:
    """The error allowed at each logit.

    A float32 product with k terms is the exact product of weights that are each off by a factor of at most
    exp(LAMBDA sqrt(k) u + k u^2 / (1 - u)) (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM
    J. Sci. Comput. 41, 2019, theorem 2.4); the roundings of norms, activations and residuals are charged to the weights
    that read them. The allowed error is what the float64 model's logits move by when every weight does move by that
    much, up or down at random: the largest of a few draws, over all logits.
    """
    import torch

    k, u = max(p.shape[-1] for p in model.parameters()), DTYPES["f32"].roundoff
    gamma = ROUNDED_OPS * math.expm1(LAMBDA * math.sqrt(k) * u + k * u * u / (1 - u))
    moved = 0.0
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        other = copy.deepcopy(model).double()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1 + gamma * (2.0 * torch.randint(0, 2, parameter.shape) - 1))
        moved = max(moved, float(np.abs(logits64(other, ids) - want).max()))
    return np.full_like(want, moved)
