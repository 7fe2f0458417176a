"""A model is data: what the layers of a decoder are and which tensors of the file they read.

A file in this room turns a config and tensor names into a `ModelSpec`; a backend lowers the spec to a running step.
Neither knows of the other. Everything here is frozen: a spec can be compared, printed and lowered twice.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

__all__ = ["Attention", "Layer", "Linear", "Mlp", "ModelSpec", "Norm", "Rope", "Weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the model file: its name there and the shape it must have, outermost first."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """y[m,n] = x[m,k] @ weight[n,k].T (+ bias[n])"""

    weight: Weight
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm: x / sqrt(mean(x^2) + eps) * weight, over the last dimension."""

    weight: Weight
    eps: float


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding, its scaling already resolved: pair i turns by position * inv_freq[i].

    interleaved: pairs are (2i, 2i+1), else (i, i + len(inv_freq)). Dimensions past 2 * len(inv_freq) are left alone.
    magnitude:   what YaRN multiplies the rotated values by.
    """

    inv_freq: tuple[float, ...]
    interleaved: bool
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class Attention:
    """Token mixer: x + o(attention(q, k, v of norm(x))). Query head h reads key/value head h // (heads / kv_heads).

    q_norm, k_norm: RMSNorm of every head, before the rotation.
    window: a token sees this many positions back, itself included; None means all.
    """

    norm: Norm
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Mlp:
    """Channel mixer: x + down(silu(gate(h)) * up(h)) with h = norm(x)."""

    norm: Norm
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: a token mixer, then a channel mixer, each with its own norm in front and residual behind."""

    mixer: Attention
    channel: Mlp


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A whole decoder: logits[m,vocab] = head(norm(layers(embedding[tokens])))."""

    family: str
    hidden: int
    vocab: int
    context: int
    embedding: Weight
    layers: tuple[Layer, ...]
    norm: Norm
    head: Linear

    def weights(self) -> Iterator[Weight]:
        """Every tensor that the model reads, each once."""
        return iter(dict.fromkeys(_weights_in(self)))

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold."""
        return sum(math.prod(w.shape) for w in self.weights())


def _weights_in(part: Any) -> Iterator[Weight]:
    if isinstance(part, Weight):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            if not isinstance(item, float):
                yield from _weights_in(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _weights_in(getattr(part, field.name))
