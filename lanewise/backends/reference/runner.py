"""Lowers a spec to numpy: every weight expanded to float32 once at load, every op a call of `ops`."""

import math

import numpy as np
from numpy.typing import NDArray

from lanewise.arch import host
from lanewise.backends.base import Batch, Progress
from lanewise.backends.memory import require
from lanewise.backends.reference import ops
from lanewise.backends.sample import Distribution
from lanewise.contract import Problem
from lanewise.dispatch import bind
from lanewise.files import ModelFile
from lanewise.models.spec import Attention, Linear, Mlp, ModelSpec, Norm, Rope, Weight

__all__ = ["ReferenceBackend", "ReferenceRunner"]

F32 = NDArray[np.float32]
F32_BYTES = 4


class ReferenceBackend:
    """Plain numpy on the host: slow, short, and what is right."""

    name = "reference"

    def lower(self, spec: ModelSpec, file: ModelFile, progress: Progress | None = None, threads: int | None = None) -> "ReferenceRunner":
        """Expand every weight of `spec` to float32. `threads` only adds a note. Raises DeviceError when memory does not suffice."""
        wanted = list(spec.weights())
        tensors = {w: file.tensor(w.name, w.shape) for w in wanted}
        total = sum(t.nbytes for t in tensors.values())
        require(spec.parameters * F32_BYTES, f"the weights of {file.path} in float32")
        arrays: dict[Weight, F32] = {}
        done = 0
        for weight, tensor in tensors.items():
            arrays[weight] = tensor.dequantize()
            done += tensor.nbytes
            if progress:
                progress("load", done, total)
        formats = sorted({t.format.name for t in tensors.values()})
        note = (
            f"reference backend: weights expanded from {total / 1e6:.0f} MB ({', '.join(formats)}) "
            f"to {spec.parameters * F32_BYTES / 1e6:.0f} MB of float32"
        )
        notes: tuple[str, ...] = () if formats == ["F32"] else (note,)
        if threads is not None:
            notes += (f"reference backend: {threads} threads were asked for; numpy's BLAS decides how many it uses",)
        return ReferenceRunner(spec, arrays, notes)


class ReferenceRunner:
    """Walks a spec with numpy. One step takes any mix of prompt chunks and single decode tokens."""

    def __init__(self, spec: ModelSpec, weights: dict[Weight, F32], notes: tuple[str, ...] = ()) -> None:
        self.spec, self.notes = spec, notes
        self._weights = weights
        self._cache: list[tuple[F32, F32]] = []
        self._ops = {op: bind(Problem(op, host()), "reference") for op in ("linear", "embedding", "rms_norm", "attention", "silu_mul")}
        self._inv_freq = {layer.mixer.rope: np.array(layer.mixer.rope.inv_freq) for layer in spec.layers if layer.mixer.rope}

    def allocate(self, pages: int, page_size: int) -> None:
        """Zeroed float32 keys and values, [pages, page_size, kv_heads, head_dim] per layer; the system commits them as they are written."""
        shapes = [(pages, page_size, layer.mixer.kv_heads, layer.mixer.head_dim) for layer in self.spec.layers]
        require(2 * F32_BYTES * sum(math.prod(shape) for shape in shapes), f"the KV cache of {pages * page_size} tokens")
        self._cache = [(np.zeros(shape, np.float32), np.zeros(shape, np.float32)) for shape in shapes]

    def step(self, batch: Batch) -> F32:
        """logits[r,vocab] at batch.logit_rows."""
        x = self._ops["embedding"](self._weights[self.spec.embedding], batch.tokens)
        turns = {rope: ops.rotation(batch.positions, freq, rope.magnitude) for rope, freq in self._inv_freq.items()}
        for layer, cache in zip(self.spec.layers, self._cache, strict=True):
            x = x + self._attention(layer.mixer, x, batch, turns, cache)
            x = x + self._mlp(layer.channel, x)
        return self._linear(self.spec.head, self._norm(self.spec.norm, x[batch.logit_rows]))

    def distribution(self, logits: F32) -> Distribution:
        """The definition."""
        return Distribution(logits)

    def close(self) -> None:
        """Drop weights and cache."""
        self._weights, self._cache = {}, []

    def _attention(self, a: Attention, x: F32, batch: Batch, turns: dict[Rope, tuple[F32, F32]], cache: tuple[F32, F32]) -> F32:
        m = len(x)
        h = self._norm(a.norm, x)
        q = self._linear(a.q, h).reshape(m, a.heads, a.head_dim)
        k = self._linear(a.k, h).reshape(m, a.kv_heads, a.head_dim)
        v = self._linear(a.v, h).reshape(m, a.kv_heads, a.head_dim)
        q = self._norm(a.q_norm, q) if a.q_norm else q
        k = self._norm(a.k_norm, k) if a.k_norm else k
        if a.rope:
            q, k = (ops.rotate(t, *turns[a.rope], a.rope.interleaved) for t in (q, k))
        ops.write_kv(k, v, *cache, batch.slots)
        y = self._ops["attention"](q, *cache, batch.page_table, batch.query_start, batch.context, a.scale, a.window)
        return self._linear(a.o, y.reshape(m, -1))

    def _mlp(self, mlp: Mlp, x: F32) -> F32:
        h = self._norm(mlp.norm, x)
        return self._linear(mlp.down, self._ops["silu_mul"](self._linear(mlp.gate, h), self._linear(mlp.up, h)))

    def _norm(self, norm: Norm, x: F32) -> F32:
        y: F32 = self._ops["rms_norm"](x, self._weights[norm.weight], norm.eps)
        return y

    def _linear(self, linear: Linear, x: F32) -> F32:
        y: F32 = self._ops["linear"](x, self._weights[linear.weight], self._weights[linear.bias] if linear.bias else None)
        return y
