"""y[m,n] = x[m,k] @ w[n,k].T for quantized w: one kernel a format, for any m, n and number of blocks.

A chunk is a run of panel groups. Within it, all tokens pass by in the tiles that `records.py` lays them out in. In front of
a prompt's many tiles a group's panels are unpacked once into the worker's scratch memory; one row (decode) is the tile of one
token. Rows of y past n are never written, whatever n is.
"""

from typing import Protocol

from lanewise.kernels.cpu.blocks import BLOCKS, BlockFormat
from lanewise.kernels.cpu.emit import F32, LANES, VF, Emitter, Value
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.records import RECORDS, spans
from lanewise.kernels.cpu.tile import KEPT_BYTES, Ints, Kept, Tile

__all__ = ["MATMUL_ARGUMENTS", "Sums", "block_matmul", "unpacked_bytes", "walk_tiles"]

# quants, scales: the planes of w; quants_step, scales_step: bytes from panel to panel; x: records, x_step bytes a row,
# x_worker bytes from one worker's copy to the next (0 where all share one); y: float32, y_step bytes a row; groups: panel
# groups in all, per_chunk of them in a chunk; bias: float32[n] or 0; add: 1 adds to what y holds; scratch: what
# `unpacked_bytes` says for each worker, scratch_step bytes apart
MATMUL_ARGUMENTS = (
    "quants", "quants_step", "scales", "scales_step", "x", "x_step", "x_worker", "y", "y_step",
    "m", "n", "blocks", "groups", "per_chunk", "bias", "add", "scratch", "scratch_step",
)  # fmt: skip


class Sums(Protocol):
    """Emits a tile of y: sums[panel][token]. `kept` holds what is computed from the weights of these panels alone."""

    def __call__(self, panel: Value, first: Value, panels: int, tokens: int, kept: Kept | None = None) -> Ints: ...


def unpacked_bytes(fmt: str, k: int, isa: Isa) -> int:
    """Scratch memory of one worker for a weight with k columns, in bytes."""
    return isa.panels * k * (KEPT_BYTES if fmt in BLOCKS else 4 * LANES)


def block_matmul(fmt: str) -> CpuKernel:
    """The kernel of a quantized format."""
    return CpuKernel(f"matmul_{fmt}", MATMUL_ARGUMENTS, lambda e, a, chunk, worker: _body(BLOCKS[fmt], e, a, chunk, worker))


def _body(fmt: BlockFormat, e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    record = RECORDS[fmt.activation].itemsize
    x = e.add(a.x, e.b.mul(a.x_worker, worker))

    def sums(panel: Value, first: Value, panels: int, tokens: int, kept: Kept | None = None) -> Ints:
        numbers = [e.add(panel, r) for r in range(panels)]
        quants, scales = ([e.add(plane, e.b.mul(step, number)) for number in numbers] for plane, step in _planes(a))
        starts = [*quants, *scales, e.add(x, e.b.mul(a.x_step, first))]
        steps = [fmt.quants] * panels + [fmt.scales] * panels + [record * tokens]
        acc = [[e.variable(e.all_floats(0.0)) for _ in range(tokens)] for _ in range(panels)]
        places = [e.variable(address) for address in starts]
        with e.loop(a.blocks):
            now = [e.get(place) for place in places]
            tile = Tile(e, fmt.activation, now[:panels], now[panels:-1], now[-1], [[e.get(v) for v in row] for row in acc], kept)
            fmt.multiply(tile)
            for variables, values in zip(acc, tile.acc, strict=True):
                for variable, value in zip(variables, values, strict=True):
                    e.set(variable, value)
            for place, address, step in zip(places, now, steps, strict=True):
                e.set(place, e.add(address, step))
        return [[e.get(v) for v in row] for row in acc]

    walk_tiles(e, a, chunk, worker, sums)


def _planes(a: Arguments) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    return (a.quants, a.quants_step), (a.scales, a.scales_step)


def walk_tiles(e: Emitter, a: Arguments, chunk: Value, worker: Value, sums: Sums, *, expand: bool = True) -> None:
    """For each panel group of the chunk and each tile of tokens: store what `sums` emits.

    Where there are many tiles and `expand` is set, a tile of no tokens goes in front and keeps the vectors that the others read.
    """
    scratch = e.add(a.scratch, e.b.mul(a.scratch_step, worker))
    start = e.b.mul(chunk, a.per_chunk)
    count = e.sub(e.least(e.add(start, a.per_chunk), a.groups), start)
    panels, tiles = e.isa.panels, spans(e, a.m)
    with e.loop(count) as i:
        panel = e.mul(e.add(start, i), panels)
        for number, (size, begin, end) in enumerate(tiles):
            many = number == 0 and size > 1
            if many and expand:
                with e.when(e.less(begin, end)):
                    sums(panel, begin, panels, 0, Kept(e, scratch, write=True))
            with e.loop(e.div(e.sub(end, begin), size)) as t:
                first = e.add(begin, e.mul(t, size))
                if many:
                    _ask_for_tile(e, a, panel, first, size)
                kept = Kept(e, scratch, write=False) if many and expand else None
                if size > 1:
                    values = sums(panel, first, panels, size, kept)
                else:  # bound by memory, which is read fastest as one stream
                    values = [row for r in range(panels) for row in sums(e.add(panel, r), first, 1, 1)]
                _store_tile(e, a, panel, first, values)


def _ask_for_tile(e: Emitter, a: Arguments, panel: Value, first: Value, tokens: int) -> None:
    """Ask for the lines of y that a tile will be stored to: they lie far apart, and most are in no near cache."""
    for i in range(tokens):
        place = e.add(e.add(a.y, e.b.mul(a.y_step, e.add(first, i))), e.mul(panel, 4 * LANES))
        for r in range(e.isa.panels):
            e.prefetch(place, 4 * LANES * r)


def _store_tile(e: Emitter, a: Arguments, panel: Value, first: Value, values: Ints) -> None:
    """y = values (+ bias) (+ y), for the rows of w that exist. Whole panels without a bias, which most are, take no decision each."""
    first_row = e.mul(panel, LANES)
    whole = e.b.icmp_signed("<=", e.add(first_row, LANES * len(values)), a.n)
    plain = e.b.and_(whole, e.equal(a.bias, 0))
    with e.b.if_else(plain) as (fast, careful):
        with fast, e.b.if_else(e.equal(a.add, 0)) as (replace, update):
            for branch, adds in ((replace, False), (update, True)):
                with branch:
                    _store_whole(e, a, first_row, first, values, adds)
        with careful:
            _store_carefully(e, a, panel, first, values)


def _store_whole(e: Emitter, a: Arguments, row: Value, first: Value, values: Ints, adds: bool) -> None:
    for i in range(len(values[0])):
        place = e.add(e.add(a.y, e.b.mul(a.y_step, e.add(first, i))), e.mul(row, 4))
        for r, of_panel in enumerate(values):
            value = e.b.fadd(of_panel[i], e.floats(place, 64 * r)) if adds else of_panel[i]
            e.store(value, place, 64 * r)


def _store_carefully(e: Emitter, a: Arguments, panel: Value, first: Value, values: Ints) -> None:
    for r, of_panel in enumerate(values):
        row = e.mul(e.add(panel, r), LANES)
        whole = e.b.icmp_signed("<=", e.add(row, LANES), a.n)
        for i, value in enumerate(of_panel):
            place = e.add(e.add(a.y, e.b.mul(a.y_step, e.add(first, i))), e.mul(row, 4))
            with e.b.if_else(whole) as (full, partial):
                with full:
                    e.store(_finished(e, a, value, place, row), place)
                with partial:
                    _store_rows(e, a, value, place, row)


def _finished(e: Emitter, a: Arguments, value: Value, place: Value, row: Value) -> Value:
    result = e.variable(value)
    with e.when(e.b.icmp_signed("!=", a.bias, e.index(0))):
        e.set(result, e.b.fadd(e.get(result), e.floats(e.add(a.bias, e.mul(row, 4)))))
    with e.when(e.b.icmp_signed("!=", a.add, e.index(0))):
        e.set(result, e.b.fadd(e.get(result), e.floats(place)))
    return e.get(result)


def _store_rows(e: Emitter, a: Arguments, value: Value, place: Value, row: Value) -> None:
    """One row at a time: the last panel of an n that 16 does not divide, or a panel that is only padding."""
    with e.b.goto_entry_block():
        spill = e.b.alloca(VF)
    e.b.store(value, spill)
    lanes = e.b.ptrtoint(spill, a.n.type)
    with e.loop(e.sub(a.n, row)) as lane:  # runs no times where the panel lies past n
        offset = e.mul(lane, 4)
        one = e.variable(e.load(F32, lanes, offset))
        with e.when(e.b.icmp_signed("!=", a.bias, e.index(0))):
            e.set(one, e.b.fadd(e.get(one), e.load(F32, e.add(a.bias, e.mul(row, 4)), offset)))
        with e.when(e.b.icmp_signed("!=", a.add, e.index(0))):
            e.set(one, e.b.fadd(e.get(one), e.load(F32, place, offset)))
        e.store(e.get(one), place, offset)
