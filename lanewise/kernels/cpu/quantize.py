"""Activations made ready for a product: normalised, or gated, or as they are, and then quantized to records.

The integers are bit for bit those of `formats.activations`. What stands in front is fused: the value never goes to memory.

    norm   x / sqrt(mean(x^2) + eps) * weight
    silu   gate / (1 + exp(-gate)) * up
    plain  x

Rows are padded with zeros to a multiple of 32 floats, in x and in weight, so that any k is a whole number of vectors. A record is
made in one piece and then spread over its tile (`records.py`); a row that is a tile of its own is written in place.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from lanewise.formats.activations import ZERO_BELOW
from lanewise.kernels.cpu.emit import F32, I8, I16, I32, LANES, VF, VI, Emitter, Value, vector
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.records import BLOCK, BRAIN, FLOAT, RECORDS, field_offset, tile_of

__all__ = ["PREPARE_ARGUMENTS", "SOURCES", "prepare"]

# x: float32 rows, x_step bytes each, their numbers in rows (int32) or 0 for all in order; other: the norm's weight, or up
# (whose rows lie x_step apart too); out: records, out_step bytes a row, out_worker bytes from one worker's copy to the next;
# k: true width; padded: k rounded up to 32; m rows; each: 1 when a chunk is per_chunk rows, 0 when it is all of them
PREPARE_ARGUMENTS = (
    "x", "x_step", "rows", "other", "eps", "out", "out_step", "out_worker", "k", "padded", "m", "each", "per_chunk",
)  # fmt: skip
SOURCES = ("norm", "silu", "plain")

Read = Callable[[Value], Value]  # byte offset in the row -> float32[16]


@dataclass(frozen=True, slots=True)
class _Row:
    """Where a row's records go: its first word, the tokens of its tile, and room for one record of `nbytes`."""

    place: Value
    tokens: Value
    stack: Value
    nbytes: int

    @contextmanager
    def record(self, e: Emitter, block: Value) -> Iterator[Value]:
        """The address to make record number `block` at; it is spread over the tile at the end."""
        place = e.add(self.place, e.b.mul(e.mul(block, self.nbytes), self.tokens))
        alone = e.equal(self.tokens, 1)
        yield e.b.select(alone, place, self.stack)
        step = e.mul(self.tokens, 4)
        words = self.nbytes // 4
        with e.when(e.b.not_(alone)):
            to = e.variable(place)
            with e.loop(words // _UNROLLED) as i:
                _spread(e, e.add(self.stack, e.mul(i, 4 * _UNROLLED)), to, step, _UNROLLED)
            _spread(e, e.add(self.stack, 4 * (words - words % _UNROLLED)), to, step, words % _UNROLLED)


_UNROLLED = 8


def _spread(e: Emitter, source: Value, to: Value, step: Value, words: int) -> None:
    for w in range(words):
        place = e.get(to)
        e.store(e.load(I32, source, 4 * w), place)
        e.set(to, e.add(place, step))


def prepare(source: str, kind: str) -> CpuKernel:
    """The kernel for one of SOURCES and one kind of record."""
    return CpuKernel(f"prepare_{source}_{kind}", PREPARE_ARGUMENTS, lambda e, a, chunk, worker: _body(source, kind, e, a, chunk, worker))


def _body(source: str, kind: str, e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    out = e.add(a.out, e.b.mul(a.out_worker, worker))
    nbytes = 64 if kind in (FLOAT, BRAIN) else RECORDS[kind].itemsize
    with e.b.goto_entry_block():
        stack = e.b.ptrtoint(e.b.alloca(I8, size=ir.Constant(I32, nbytes)), a.k.type)
    start = e.b.mul(e.b.mul(chunk, a.per_chunk), a.each)
    count = e.sub(e.least(e.add(start, a.per_chunk), a.m), start)
    with e.loop(count) as i:
        row = e.add(start, i)
        chosen = e.variable(row)
        with e.when(e.b.icmp_signed("!=", a.rows, e.index(0))):
            e.set(chosen, e.b.sext(e.load(I32, a.rows, e.mul(row, 4)), row.type))
        x = e.add(a.x, e.b.mul(a.x_step, e.get(chosen)))
        other = e.add(a.other, e.b.mul(a.x_step, e.get(chosen))) if source == "silu" else a.other
        read = _SOURCES[source](e, a, x, other)
        first, tokens = tile_of(e, row, a.m)
        place = e.add(e.add(out, e.b.mul(a.out_step, first)), e.mul(e.sub(row, first), 4))
        _QUANTIZERS[kind](e, a, read, _Row(place, tokens, stack, nbytes))


def _plain(e: Emitter, a: Arguments, x: Value, other: Value) -> Read:
    return lambda offset: e.floats(x, offset)


def _norm(e: Emitter, a: Arguments, x: Value, weight: Value) -> Read:
    """The mean of squares in 2 x 16 partial sums and one tree."""
    sums = [e.variable(e.all_floats(0.0)) for _ in range(2)]
    with e.loop(e.div(a.padded, 2 * LANES)) as i:
        for half, total in enumerate(sums):
            v = e.floats(x, e.add(e.mul(i, 128), 64 * half))
            e.set(total, e.fma(v, v, e.get(total)))
    total = e.reduce(e.b.fadd(e.get(sums[0]), e.get(sums[1])), e.b.fadd)
    mean = e.b.fdiv(total, e.b.sitofp(a.k, F32))
    scale = e.splat(e.b.fdiv(e.real(1.0), e.sqrt(e.b.fadd(mean, a.real("eps")))))
    return lambda offset: e.b.fmul(e.b.fmul(e.floats(x, offset), scale), e.floats(weight, offset))


def _silu(e: Emitter, a: Arguments, gate: Value, up: Value) -> Read:
    def read(offset: Value) -> Value:
        g = e.floats(gate, offset)
        sigmoid = e.b.fdiv(g, e.b.fadd(e.all_floats(1.0), e.exp(e.b.fneg(g))))
        return e.b.fmul(sigmoid, e.floats(up, offset))

    return read


_SOURCES: dict[str, Callable[[Emitter, Arguments, Value, Value], Read]] = {"norm": _norm, "silu": _silu, "plain": _plain}


def _float_record(e: Emitter, a: Arguments, read: Read, out: _Row) -> None:
    with e.loop(e.div(a.padded, LANES)) as i, out.record(e, i) as record:
        e.store(read(e.mul(i, 64)), record)


def _brain_record(e: Emitter, a: Arguments, read: Read, out: _Row) -> None:
    with e.loop(e.div(a.padded, LANES)) as i, out.record(e, i) as record:
        v = read(e.mul(i, 64))
        e.store(_two_parts(e, v) if e.isa.bf16 else v, record)


def _two_parts(e: Emitter, v: Value) -> Value:
    """16 float32 as BRAIN's two parts. What is not finite is its upper part alone, a NaN with a bit that lies in it."""
    bits = e.b.select(e.b.fcmp_unordered("uno", v, v), e.or_(e.b.bitcast(v, VI), e.all_ints(1 << 22)), e.b.bitcast(v, VI))
    upper = e.b.and_(bits, e.all_ints(-(1 << 16)))
    rest = e.b.bitcast(e.b.fsub(v, e.b.bitcast(upper, VF)), VI)
    odd = e.b.and_(e.shr(rest, 16), e.all_ints(1))
    lower = e.shr(e.b.add(e.b.add(rest, e.all_ints(0x7FFF)), odd), 16)
    lower = e.b.select(e.b.fcmp_ordered("<", e.fabs(v), e.all_floats(float("inf"))), lower, e.all_ints(0))
    parts = [e.b.bitcast(e.b.trunc(part, vector(I16)), vector(I32, LANES // 2)) for part in (e.shr(upper, 16), lower)]
    return e.b.shuffle_vector(*parts, ir.Constant(VI, [i // 2 + LANES // 2 * (i % 2) for i in range(LANES)]))


def _size(e: Emitter, so_far: Value, v: Value) -> Value:
    """The bits of max(so_far, |v|): as integers they are in order, with infinity and behind it NaN at the end."""
    return e.most(so_far, e.b.and_(e.b.bitcast(v, VI), e.all_ints(0x7FFFFFFF)))


_INFINITY = 0x7F800000


def _group(e: Emitter, sizes: Value, record: Value, d_at: Sequence[int], nbytes: int, body: Callable[[Value, Value], None]) -> None:
    """body(d, 127 / amax) for a group of ordinary size. One that is too small is zeros, and so is one that is broken, whose d is NaN."""
    bits = e.reduce(sizes, e.most)
    least = int(np.float32(ZERO_BELOW).view(np.int32))
    small = e.b.icmp_signed("<", bits, ir.Constant(I32, least))
    ordinary = e.b.and_(e.b.not_(small), e.b.icmp_signed("<", bits, ir.Constant(I32, _INFINITY)))
    with e.b.if_else(ordinary) as (usual, other):
        with usual:
            amax = e.b.bitcast(bits, F32)
            body(e.b.fdiv(amax, e.real(127.0)), e.splat(e.b.fdiv(e.real(127.0), amax)))
        with other:
            for i in range(0, nbytes, 4):
                e.store(ir.Constant(I32, 0), record, i)
            for offset in d_at:
                e.store(e.b.select(small, e.real(0.0), e.real(float("nan"))), record, offset)


def _quants(e: Emitter, v: Value, inverse: Value, address: Value, offset: int) -> Value:
    """rint(v * inverse), stored as bytes; |v * inverse| rounds to at most 127."""
    q = e.round_to_int(e.b.fmul(v, inverse))
    e.store(e.b.trunc(q, vector(I8)), address, offset)
    return q


def _q8_0_record(e: Emitter, a: Arguments, read: Read, out: _Row) -> None:
    at = {name: field_offset("q8_0", name) for name in ("d", "ds", "c8", "c16", "c128")}
    with e.loop(e.div(a.k, 32)) as block, out.record(e, block) as record:
        values = [read(e.add(e.mul(block, 128), 64 * half)) for half in range(2)]
        sizes = e.all_ints(0)
        for v in values:
            sizes = _size(e, sizes, v)

        def fill(d: Value, inverse: Value, record: Value = record, values: Sequence[Value] = values) -> None:
            first, second = (_quants(e, v, inverse, record, 16 * half) for half, v in enumerate(values))
            s = e.reduce(e.b.add(first, second), e.b.add)
            e.store(d, record, at["d"])
            e.store(e.b.fmul(d, e.b.sitofp(s, F32)), record, at["ds"])
            for name, offset in (("c8", -8), ("c16", -16), ("c128", -128)):
                e.store(e.b.mul(s, ir.Constant(I32, offset)), record, at[name])

        _group(e, sizes, record, (at["d"], at["ds"]), out.nbytes, fill)


def _q8_k_record(e: Emitter, a: Arguments, read: Read, out: _Row) -> None:
    """Two passes over 256 values, which the first leaves on the stack."""
    at = {name: field_offset("q8_k", name) for name in ("d", "sum32", "sum16", "c4", "c32", "c128")}
    with e.b.goto_entry_block():
        place = e.b.alloca(VF, size=ir.Constant(I32, 256 // LANES))
    stack = e.b.ptrtoint(place, a.k.type)
    with e.loop(e.div(a.k, BLOCK["q8_k"])) as block, out.record(e, block) as record:
        first = e.mul(block, 1024)
        sizes = e.variable(e.all_ints(0))
        with e.loop(16) as i:
            v = read(e.add(first, e.mul(i, 64)))
            e.store(v, e.add(stack, e.mul(i, 64)))
            e.set(sizes, _size(e, e.get(sizes), v))

        def fill(d: Value, inverse: Value, record: Value = record) -> None:
            e.store(d, record, at["d"])
            sum16 = _lane_sums(e, [_quants(e, e.floats(stack, 64 * i), inverse, record, 16 * i) for i in range(LANES)])
            even, odd = (e.b.shuffle_vector(sum16, sum16, ir.Constant(vector(I32, 8), list(range(o, LANES, 2)))) for o in (0, 1))
            sum32 = e.b.add(even, odd)
            e.store(e.b.trunc(sum16, vector(I16)), record, at["sum16"])
            e.store(e.b.trunc(sum32, vector(I16, 8)), record, at["sum32"])
            for name, sums, factor in (("c4", sum16, -4), ("c32", sum16, -32), ("c128", sum32, -128)):
                e.store(e.b.mul(sums, ir.Constant(sums.type, [factor] * sums.type.count)), record, at[name])

        _group(e, e.get(sizes), record, (at["d"],), out.nbytes, fill)


def _lane_sums(e: Emitter, v: list[Value]) -> Value:
    """Of 16 vectors, lane i being the sum over vector i: halves of two vectors are added until one lane of each is left."""
    group = LANES
    while len(v) > 1:
        half, count = group // 2, len(v) // 2
        low, high = (
            ir.Constant(VI, [side + start + i for start in range(0, LANES, group) for side in (0, LANES) for i in range(first, first + half)])
            for first in (0, half)
        )
        v = [e.b.add(e.b.shuffle_vector(v[i], v[i + count], low), e.b.shuffle_vector(v[i], v[i + count], high)) for i in range(count)]
        group = half
    return v[0]


_QUANTIZERS: dict[str, Callable[[Emitter, Arguments, Read, _Row], None]] = {
    FLOAT: _float_record,
    BRAIN: _brain_record,
    "q8_0": _q8_0_record,
    "q8_k": _q8_k_record,
}
