"""y[m,n] = x[m,k] @ w[n,k].T for quantized w: one kernel a format, for any m, n and number of blocks.

A chunk is a run of panel groups. Within it, all tokens pass by in tiles of the largest size that still fits the rest, so
one row (decode) is the tile of one token. Rows of y past n are never written, whatever n is.
"""

from collections.abc import Callable, Sequence

from lanewise.kernels.cpu.blocks import BLOCKS, BlockFormat
from lanewise.kernels.cpu.emit import F32, LANES, VF, Emitter, Value
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.records import RECORDS
from lanewise.kernels.cpu.tile import Ints, Tile

__all__ = ["MATMUL_ARGUMENTS", "block_matmul", "store_tile", "tile_sizes"]

# quants, scales: the planes of w; quants_step, scales_step: bytes from panel to panel; x: records, x_step bytes a row,
# x_worker bytes from one worker's copy to the next (0 where all share one); y: float32, y_step bytes a row; groups: panel
# groups in all, per_chunk of them in a chunk; bias: float32[n] or 0; add: 1 adds to what y holds
MATMUL_ARGUMENTS = (
    "quants", "quants_step", "scales", "scales_step", "x", "x_step", "x_worker", "y", "y_step",
    "m", "n", "blocks", "groups", "per_chunk", "bias", "add",
)  # fmt: skip


def tile_sizes(isa: Isa) -> tuple[int, ...]:
    """Tokens of the tiles that a kernel has, largest first: any m is a sum of them."""
    return tuple(size for size in (6, 4, 2, 1) if size <= isa.tokens)


def block_matmul(fmt: str) -> CpuKernel:
    """The kernel of a quantized format."""
    return CpuKernel(f"matmul_{fmt}", MATMUL_ARGUMENTS, lambda e, a, chunk, worker: _body(BLOCKS[fmt], e, a, chunk, worker))


def _body(fmt: BlockFormat, e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    record = RECORDS[fmt.activation].itemsize
    rows = e.add(a.x, e.b.mul(a.x_worker, worker))

    def sums(group: Value, first: Value, tokens: int) -> Ints:
        panels = range(e.isa.panels)
        if tokens == 1:  # bound by memory, which is read fastest as one stream
            return [row for r in panels for row in some(group, first, 1, [r])]
        return some(group, first, tokens, panels)

    def some(group: Value, first: Value, tokens: int, panels: Sequence[int]) -> Ints:
        numbers = [e.add(e.mul(group, e.isa.panels), r) for r in panels]
        quants, scales = ([e.add(plane, e.b.mul(step, number)) for number in numbers] for plane, step in _planes(a))
        starts = [e.add(rows, e.b.mul(a.x_step, e.add(first, i))) for i in range(tokens)]
        acc = [[e.variable(e.all_floats(0.0)) for _ in range(tokens)] for _ in panels]
        places = [[e.variable(address) for address in addresses] for addresses in (quants, scales, starts)]
        with e.loop(a.blocks):
            now = [[e.get(place) for place in row] for row in places]
            tile = Tile(e, fmt.activation, now[0], now[1], now[2], [[e.get(v) for v in row] for row in acc])
            fmt.multiply(tile)
            for variables, values in zip(acc, tile.acc, strict=True):
                for variable, value in zip(variables, values, strict=True):
                    e.set(variable, value)
            for row, addresses, step in zip(places, now, (fmt.quants, fmt.scales, record), strict=True):
                for place, address in zip(row, addresses, strict=True):
                    e.set(place, e.add(address, step))
        return [[e.get(v) for v in row] for row in acc]

    walk_tiles(e, a, chunk, sums)


def _planes(a: Arguments) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    return (a.quants, a.quants_step), (a.scales, a.scales_step)


def walk_tiles(e: Emitter, a: Arguments, chunk: Value, sums: Callable[[Value, Value, int], Ints]) -> None:
    """For each panel group of the chunk and each tile of tokens: store what `sums(group, first token, tokens)` emits."""
    start = e.b.mul(chunk, a.per_chunk)
    count = e.sub(e.least(e.add(start, a.per_chunk), a.groups), start)
    with e.loop(count) as i:
        group = e.add(start, i)
        done = e.variable(e.index(0))
        for size in tile_sizes(e.isa):
            with e.loop(e.div(e.sub(a.m, e.get(done)), size)) as t:
                first = e.add(e.get(done), e.mul(t, size))
                store_tile(e, a, group, first, sums(group, first, size))
            e.set(done, e.sub(a.m, e.rem(e.sub(a.m, e.get(done)), size)))


def store_tile(e: Emitter, a: Arguments, group: Value, first: Value, values: Ints) -> None:
    """y = values (+ bias) (+ y), for the rows of w that exist. Whole panels without a bias, which most are, take no decision each."""
    first_row = e.mul(e.mul(group, len(values)), LANES)
    whole = e.b.icmp_signed("<=", e.add(first_row, LANES * len(values)), a.n)
    plain = e.b.and_(whole, e.equal(a.bias, 0))
    with e.b.if_else(plain) as (fast, careful):
        with fast, e.b.if_else(e.equal(a.add, 0)) as (replace, update):
            for branch, adds in ((replace, False), (update, True)):
                with branch:
                    _store_whole(e, a, first_row, first, values, adds)
        with careful:
            _store_carefully(e, a, group, first, values)


def _store_whole(e: Emitter, a: Arguments, row: Value, first: Value, values: Ints, adds: bool) -> None:
    for i in range(len(values[0])):
        place = e.add(e.add(a.y, e.b.mul(a.y_step, e.add(first, i))), e.mul(row, 4))
        for r, of_panel in enumerate(values):
            value = e.b.fadd(of_panel[i], e.floats(place, 64 * r)) if adds else of_panel[i]
            e.store(value, place, 64 * r)


def _store_carefully(e: Emitter, a: Arguments, group: Value, first: Value, values: Ints) -> None:
    for r, of_panel in enumerate(values):
        row = e.mul(e.add(e.mul(group, len(values)), r), LANES)
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
