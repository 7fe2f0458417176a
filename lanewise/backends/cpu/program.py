"""A step as a table of kernel calls: the spec's layers laid out for a number of rows.

A single row is prepared by every thread for itself, which costs less than a barrier; more rows are shared out.
"""

import functools
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.backends.cpu.buffers import Buffers, Cache, Widest, padded
from lanewise.backends.cpu.weights import PackedWeight, activation_of, kernels_for
from lanewise.files import Tensor
from lanewise.kernels.cpu.attention import TASK_ROWS, attend_kernel, combine_kernel, state_floats
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.embed import embed_kernel
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import CpuKernel, float_bits
from lanewise.kernels.cpu.matmul import unpacked_bytes
from lanewise.kernels.cpu.quantize import prepare
from lanewise.kernels.cpu.records import MANY, record_bytes
from lanewise.kernels.cpu.rotate import rotate_kernel
from lanewise.kernels.cpu.sample import SAMPLE_KERNELS
from lanewise.kernels.cpu.threads import OP_FIELDS
from lanewise.models.spec import Attention, Linear, Mlp, ModelSpec, Weight

__all__ = ["Model", "Program", "Shape", "build", "groups_in_chunk", "kernels_of", "partial_bytes", "widest"]

_CHUNKS_PER_THREAD = 3
_EMBED_ROWS = 4  # in a chunk


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program depends on: rows, rows whose logits are wanted, attention tasks, splits that are spread (0: none), and how many ops
    attention is cut into, so that Python can act on Ctrl-C between them.
    """

    rows: int
    logits: int
    tasks: int
    splits: int
    attends: int = 1


@dataclass(slots=True)
class Program:
    """The table, and everything that its addresses point into."""

    ops: NDArray[np.int64]
    kept: list[Any]


@dataclass(slots=True)
class Model:
    """A spec with its weights packed and its buffers made; rows of the embedding are read from the file as they are needed."""

    spec: ModelSpec
    embedding: Tensor
    packed: dict[Weight, PackedWeight]
    vectors: dict[Weight, NDArray[np.float32]]
    buffers: Buffers
    cache: Cache | None
    library: Library
    threads: int
    logits: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    partial: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))


def kernels_of(spec: ModelSpec, embedding: str, formats: dict[Weight, str]) -> list[CpuKernel]:
    """Every kernel that a model needs. Raises FormatError for a weight in a format without one."""
    found = [embed_kernel(embedding), *SAMPLE_KERNELS]
    for kind in {activation_of(fmt) for fmt in formats.values()}:
        found += [prepare(source, kind) for source in ("norm", "silu", "plain")]
    for fmt in set(formats.values()):
        found += kernels_for(fmt)
    for a in {layer.mixer.head_dim: layer.mixer for layer in spec.layers}.values():
        found += [attend_kernel(a.head_dim), combine_kernel(a.head_dim)]
    for layer in spec.layers:
        found.append(_rotation(layer.mixer))
    return list({kernel.name: kernel for kernel in found}.values())


def build(model: Model, shape: Shape) -> Program:
    """The program of one step."""
    return _Builder(model, shape).program()


def _rotation(a: Attention) -> CpuKernel:
    return rotate_kernel(a.head_dim, len(a.rope.inv_freq) if a.rope else 0, bool(a.rope and a.rope.interleaved))


class _Builder:
    def __init__(self, model: Model, shape: Shape) -> None:
        self.m, self.shape, self.b = model, shape, model.buffers
        self.ops: list[tuple[int, int, int, int]] = []
        self.kept: list[Any] = []
        self.prepared = ""  # the kind of record that is ready

    def program(self) -> Program:
        self._embed()
        cache = self.m.cache
        assert cache, "the runner allocates a cache before a step"
        for layer, (keys, values) in zip(self.m.spec.layers, cache.places, strict=True):
            start = cache.memory.ctypes.data
            self._attention(layer.mixer, {"keys": start + keys, "values": start + values, "page_step": cache.page_bytes})
            self._mlp(layer.channel)
        self._head()
        ops = np.array(self.ops, np.int64).reshape(-1, OP_FIELDS)
        return Program(ops, self.kept)

    def _op(self, kernel: CpuKernel, chunks: int, *, barrier: bool, **values: int) -> None:
        table = kernel.pack(**values)
        self.kept.append(table)
        self.ops.append((self.m.library.address(kernel.name), table.ctypes.data, chunks, int(barrier)))

    def _embed(self) -> None:
        b, rows, table = self.b, self.shape.rows, self.m.embedding
        self._op(
            embed_kernel(table.format.name), -(-rows // _EMBED_ROWS), barrier=True, raw=table.data.ctypes.data, row_bytes=table.data.shape[-1],
            blocks=self.m.spec.hidden // table.format.block, tokens=b.tokens.ctypes.data, x=b.x.ctypes.data, x_step=b.x.strides[0],
            m=rows, per_chunk=_EMBED_ROWS,
        )  # fmt: skip

    def _attention(self, a: Attention, cache: dict[str, int]) -> None:
        b, rows = self.b, self.shape.rows
        step = b.qkv.strides[0]
        widths = (a.heads * a.head_dim, a.kv_heads * a.head_dim)
        places = (0, widths[0], widths[0] + widths[1])
        self._prepare("norm", b.x, a.norm.weight, a.norm.eps, self.m.spec.hidden, (a.q, a.k, a.v))
        for linear, place in zip((a.q, a.k, a.v), places, strict=True):
            self._linear(linear, b.qkv.ctypes.data + 4 * place, step, barrier=linear is a.v)
        cos, sin = b.turns[a.rope] if a.rope else (b.x, b.x)
        self._op(
            _rotation(a), -(-rows // LANES), barrier=True, m=rows, per_chunk=LANES,
            qkv=b.qkv.ctypes.data, row_step=step, heads=a.heads, kv_heads=a.kv_heads,
            q_norm=self._vector(a.q_norm.weight if a.q_norm else None), k_norm=self._vector(a.k_norm.weight if a.k_norm else None),
            eps=float_bits(a.q_norm.eps if a.q_norm else 0.0), cos=cos.ctypes.data, sin=sin.ctypes.data, slots=b.slots.ctypes.data,
            **cache,
        )  # fmt: skip
        self._attend(a, cache)
        self._prepare("plain", b.mixed, None, 0.0, widths[0], (a.o,))
        self._linear(a.o, b.x.ctypes.data, b.x.strides[0], add=True, barrier=True)

    def _attend(self, a: Attention, cache: dict[str, int]) -> None:
        b, s = self.b, self.shape
        cuts = [s.tasks * part // s.attends for part in range(s.attends + 1)]
        for first, end in pairwise(cuts):
            self._op(
                attend_kernel(a.head_dim), (end - first) * a.kv_heads * max(s.splits, 1), barrier=end == s.tasks, q=b.qkv.ctypes.data,
                q_step=b.qkv.strides[0], **cache, tasks=b.tasks[first:].ctypes.data, y=b.mixed.ctypes.data, y_step=b.mixed.strides[0],
                heads=a.heads, kv_heads=a.kv_heads, scale=float_bits(a.scale), window=a.window or 0, scratch=b.scratch.ctypes.data,
                scratch_step=b.scratch_step, splits=s.splits, partial=self.m.partial.ctypes.data,
            )  # fmt: skip
        if s.splits:
            self._op(
                combine_kernel(a.head_dim), s.tasks * a.kv_heads, barrier=True, tasks=b.tasks.ctypes.data, y=b.mixed.ctypes.data,
                y_step=b.mixed.strides[0], heads=a.heads, kv_heads=a.kv_heads, splits=s.splits, partial=self.m.partial.ctypes.data,
            )  # fmt: skip

    def _mlp(self, c: Mlp) -> None:
        b = self.b
        self._prepare("norm", b.x, c.norm.weight, c.norm.eps, self.m.spec.hidden, (c.gate, c.up))
        self._linear(c.gate, b.gate.ctypes.data, b.gate.strides[0], barrier=False)
        self._linear(c.up, b.up.ctypes.data, b.up.strides[0], barrier=True)
        self._prepare("silu", b.gate, None, 0.0, c.down.weight.shape[1], (c.down,), other=b.up.ctypes.data)
        self._linear(c.down, b.x.ctypes.data, b.x.strides[0], add=True, barrier=True)

    def _head(self) -> None:
        spec, logits = self.m.spec, self.m.logits
        if not self.shape.logits:
            return
        self._prepare("norm", self.b.x, spec.norm.weight, spec.norm.eps, spec.hidden, (spec.head,), count=self.shape.logits)
        self._linear(spec.head, logits.ctypes.data, logits.strides[0], barrier=True, count=self.shape.logits)

    def _prepare(
        self, source: str, x: NDArray[np.float32], weight: Weight | None, eps: float, k: int, readers: tuple[Linear, ...],
        *, other: int = 0, count: int | None = None,
    ) -> None:  # fmt: skip
        """Records of x for the linears that will read them; one after the other where they need more than one kind."""
        self.source = (source, x, weight, eps, k, other, count)
        self.prepared = ""
        self._ready(activation_of(self.m.packed[readers[0].weight].format))

    def _ready(self, kind: str) -> None:
        if kind == self.prepared:
            return
        source, x, weight, eps, k, other, count = self.source
        b, rows = self.b, count if count is not None else self.shape.rows
        alone = rows == 1
        if self.prepared and not alone:  # the records of another kind are still being read
            self._wait()
        tile = self.m.library.isa.tokens  # whole tiles belong to one thread, as their rows share cache lines
        per_chunk = tile if rows >= MANY else 1
        self._op(
            prepare(source, kind), 0 if alone else -(-rows // per_chunk), barrier=not alone, x=x.ctypes.data, x_step=x.strides[0],
            rows=b.logit_rows.ctypes.data if count is not None else 0, other=other or self._vector(weight), eps=float_bits(eps),
            out=(b.own_records if alone else b.records).ctypes.data, out_step=record_bytes(kind, padded(k)),
            out_worker=b.own_step if alone else 0, k=k, padded=padded(k), m=rows, each=0 if alone else 1, per_chunk=per_chunk,
        )  # fmt: skip
        self.prepared = kind

    def _wait(self) -> None:
        fn, arguments, chunks, _ = self.ops[-1]
        self.ops[-1] = (fn, arguments, chunks, 1)

    def _linear(self, linear: Linear, y: int, y_step: int, *, barrier: bool, add: bool = False, count: int | None = None) -> None:
        w = self.m.packed[linear.weight]
        kind = activation_of(w.format)
        self._ready(kind)
        b, rows = self.b, count if count is not None else self.shape.rows
        alone = rows == 1
        group = self.m.library.isa.panels
        groups = w.panels // group
        per_chunk = 1 if rows >= MANY else groups_in_chunk(groups, self.m.threads)
        self._op(
            kernels_for(w.format)[1], -(-groups // per_chunk), barrier=barrier, **w.arguments, x=(b.own_records if alone else b.records).ctypes.data,
            x_step=record_bytes(kind, padded(w.k)), x_worker=b.own_step if alone else 0, y=y, y_step=y_step, m=rows, groups=groups,
            per_chunk=per_chunk, bias=self._vector(linear.bias), add=int(add), scratch=b.unpacked.ctypes.data,
            scratch_step=b.unpacked.strides[0],
        )  # fmt: skip

    def _vector(self, weight: Weight | None) -> int:
        return self.m.vectors[weight].ctypes.data if weight else 0


@functools.cache
def groups_in_chunk(groups: int, threads: int) -> int:
    """Panel groups in a chunk: about _CHUNKS_PER_THREAD chunks a thread, of a size that gives every thread as much as the others."""
    most = -(-groups // (_CHUNKS_PER_THREAD * threads))
    return min(range(most, most // 2, -1), key=lambda size: size * ceil(ceil(groups / size) / threads))


def partial_bytes(shape: Shape, spec: ModelSpec) -> int:
    """Room for the states of spread splits."""
    return max(4 * shape.tasks * a.heads * shape.splits * TASK_ROWS * state_floats(a.head_dim) for a in (layer.mixer for layer in spec.layers))


def widest(formats: dict[Weight, str], isa: Isa) -> Widest:
    """The largest of what a model's weights ask for."""
    record = max(record_bytes(activation_of(fmt), padded(w.shape[1])) for w, fmt in formats.items())
    return Widest(record, max(unpacked_bytes(fmt, w.shape[1], isa) for w, fmt in formats.items()))
