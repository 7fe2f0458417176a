"""Attention over a paged float16 cache (layout in `rotate.py`), the same bits for one token or many, on any number of threads.

Positions are cut into splits of SPLIT, at fixed places. A query's result in a split is (largest score, sum of exponentials,
weighted values); splits are then combined in order. A prompt's queries walk their splits one after another; a single token's
splits are spread over the threads and combined behind a barrier, by the same operations. Queries of one key head (those of the
heads that share it, of one or more tokens) read each key and value together, as many as the registers hold sums for.
"""

from collections.abc import Callable

from llvmlite import ir

from lanewise.kernels.cpu.emit import F32, I32, I64, LANES, VF, Emitter, Value
from lanewise.kernels.cpu.isa import Isa
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel

__all__ = [
    "ATTEND_ARGUMENTS", "COMBINE_ARGUMENTS", "SPLIT", "TASK_FIELDS", "TASK_ROWS",
    "attend_kernel", "combine_kernel", "scratch_bytes", "state_floats",
]  # fmt: skip

SPLIT = 512  # positions
LOG2_E = 1.4426950408889634  # scores are powers of 2: e^s = 2^(s log2 e)
TASK_ROWS = 12  # most rows of x in a task
# int64 fields of a task: its first row, how many rows, the position of the first, the address of its int32 page table
TASK_FIELDS = 4
_QUERIES = (12, 6, 4, 2, 1)
Page = Callable[[Value], Value]  # number of a page in the split -> where the head's part of it is

# q: float32 rows, q_step bytes each; keys, values: the layer's places in page 0, page_step bytes from page to page; tasks: the
# table; y: float32 rows, y_step bytes; scale: float bits; window: positions, or 0; scratch: per worker, scratch_step bytes;
# splits: 0 when a chunk (task, key head) walks all of them, else how many chunks (task, key head, split) share a query, which
# then leave their states in `partial`
ATTEND_ARGUMENTS = (
    "q", "q_step", "keys", "values", "page_step", "tasks", "y", "y_step", "heads", "kv_heads", "scale", "window",
    "scratch", "scratch_step", "splits", "partial",
)  # fmt: skip
# chunks are (task, key head)
COMBINE_ARGUMENTS = ("tasks", "y", "y_step", "heads", "kv_heads", "splits", "partial")


def state_floats(dim: int) -> int:
    """Floats of one query's state: the largest score and the sum, in a vector of their own, and the weighted values."""
    return LANES + dim


def scratch_bytes(dim: int) -> int:
    """Bytes that a worker needs: for each query of a tile itself, its scores, and two states."""
    return 4 * _QUERIES[0] * (dim + SPLIT + 2 * state_floats(dim))


def _tile_sizes(isa: Isa) -> tuple[int, ...]:
    """Queries of the tiles, largest first."""
    return tuple(size for size in _QUERIES if size <= 2 * isa.tokens)


def attend_kernel(dim: int) -> CpuKernel:
    """For one head size, a multiple of 16."""
    return CpuKernel(f"attend_{dim}", ATTEND_ARGUMENTS, lambda e, a, chunk, worker: _attend(dim, e, a, chunk, worker))


def combine_kernel(dim: int) -> CpuKernel:
    """Combines the states that `attend_kernel` left, where splits were spread."""
    return CpuKernel(f"combine_{dim}", COMBINE_ARGUMENTS, lambda e, a, chunk, worker: _combine(dim, e, a, chunk))


class _Task:
    """A (task, key head) of a chunk: which queries, and where they are."""

    def __init__(self, e: Emitter, a: Arguments, index: Value) -> None:
        self.task, self.kv_head = e.div(index, a.kv_heads), e.rem(index, a.kv_heads)
        at = e.add(a.tasks, e.mul(self.task, 8 * TASK_FIELDS))
        self.row, self.rows, self.position, self.pages = (e.load(I64, at, 8 * i) for i in range(TASK_FIELDS))
        self.group = e.div(a.heads, a.kv_heads)
        self.queries = e.b.mul(self.rows, self.group)

    def place(self, e: Emitter, base: Value, step: Value, dim: int, query: Value) -> Value:
        """The address of query number `query` (of this task and key head) in rows of heads."""
        row, head = e.add(self.row, e.div(query, self.group)), e.add(e.b.mul(self.kv_head, self.group), e.rem(query, self.group))
        return e.add(e.add(base, e.b.mul(step, row)), e.mul(head, 4 * dim))


def _attend(dim: int, e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    spread = e.b.icmp_signed("!=", a.splits, e.index(0))
    per_query = e.b.select(spread, a.splits, e.index(1))
    task = _Task(e, a, e.div(chunk, per_query))
    scratch = e.add(a.scratch, e.b.mul(a.scratch_step, worker))
    done = e.variable(e.index(0))
    for size in _tile_sizes(e.isa):
        tile = _QueryTile(dim, size, scratch)
        with e.loop(e.div(e.sub(task.queries, e.get(done)), size)) as t:
            first = e.add(e.get(done), e.mul(t, size))
            last_row = e.div(e.add(first, size - 1), task.group)
            total = e.add(e.add(task.position, last_row), 1)  # positions that the last of these queries sees
            count = e.div(e.add(total, SPLIT - 1), SPLIT)
            begin = e.b.select(spread, e.rem(chunk, per_query), e.index(0))
            end = e.b.select(spread, e.least(e.add(begin, 1), count), count)
            with e.when(e.less(begin, end)):
                _load_queries(e, a, task, first, tile)
            with e.loop(e.sub(end, begin)) as i:
                split = e.add(begin, i)
                left = e.add(a.partial, e.mul(_partial_index(e, a, task, split, first), tile.state_bytes))
                own = e.b.select(e.equal(split, 0), tile.running(e), tile.fresh(e))
                _split(e, a, task, first, split, total, tile, e.b.select(spread, left, own))
                with e.when(e.b.and_(e.b.not_(spread), e.less(0, split))), e.loop(size) as u:
                    offset = e.mul(u, tile.state_bytes)
                    _merge(dim, e, e.add(tile.running(e), offset), e.add(tile.fresh(e), offset))
            with e.when(e.b.not_(spread)), e.loop(size) as u:
                place = task.place(e, a.y, a.y_step, dim, e.add(first, u))
                _finish(dim, e, e.add(tile.running(e), e.mul(u, tile.state_bytes)), place)
        e.set(done, e.sub(task.queries, e.rem(e.sub(task.queries, e.get(done)), size)))


class _QueryTile:
    """`size` queries of one head size and what a worker keeps of them in its scratch memory: addresses that differ by constants."""

    def __init__(self, dim: int, size: int, scratch: Value) -> None:
        self.dim, self.size, self.queries = dim, size, scratch
        self.state_bytes = 4 * state_floats(dim)

    def scores(self, e: Emitter) -> Value:
        """float32[size, SPLIT]"""
        return e.add(self.queries, 4 * self.dim * self.size)

    def running(self, e: Emitter) -> Value:
        """The state of each query in all splits so far."""
        return e.add(self.scores(e), 4 * SPLIT * self.size)

    def fresh(self, e: Emitter) -> Value:
        """The state of each query in the next split."""
        return e.add(self.running(e), self.state_bytes * self.size)


def _load_queries(e: Emitter, a: Arguments, task: _Task, first: Value, tile: _QueryTile) -> None:
    with e.loop(tile.size) as u:
        source, place = task.place(e, a.q, a.q_step, tile.dim, e.add(first, u)), e.add(tile.queries, e.mul(u, 4 * tile.dim))
        for j in range(0, 4 * tile.dim, 64):
            e.store(e.floats(source, j), place, j)


def _partial_index(e: Emitter, a: Arguments, task: _Task, split: Value, query: Value) -> Value:
    """Where a query's state of a split is: [task, key head, split, query], room for TASK_ROWS * group queries."""
    room = e.mul(task.group, TASK_ROWS)
    outer = e.add(e.b.mul(e.add(e.b.mul(task.task, a.kv_heads), task.kv_head), a.splits), split)
    return e.add(e.b.mul(outer, room), query)


def _split(e: Emitter, a: Arguments, task: _Task, first: Value, split: Value, total: Value, tile: _QueryTile, state: Value) -> None:
    """The states of a tile's queries in one split: scores to scratch, then exponentials, then the weighted values."""
    start = e.mul(split, SPLIT)
    count = e.least(e.sub(total, start), SPLIT)
    pages = e.div(e.add(count, LANES - 1), LANES)
    head = e.mul(task.kv_head, 2 * tile.dim * LANES)

    def page_of(base: Value, index: Value) -> Value:
        number = e.b.sext(e.load(I32, task.pages, e.mul(e.add(e.div(start, LANES), index), 4)), I64)
        return e.add(e.add(base, e.b.mul(number, a.page_step)), head)

    _score(e, a, task, first, start, pages, lambda index: page_of(a.keys, index), tile, state)
    with e.loop(tile.size) as u:
        own, scores = e.add(state, e.mul(u, tile.state_bytes)), e.add(tile.scores(e), e.mul(u, 4 * SPLIT))
        top = e.reduce(e.floats(own), e.fmax)
        total_weight = e.variable(e.all_floats(0.0))
        with e.loop(pages) as p:
            place = e.add(scores, e.mul(p, 4 * LANES))
            weight = e.exp2(e.b.fsub(e.floats(place), e.splat(top)))
            e.store(weight, place)
            e.set(total_weight, e.b.fadd(e.get(total_weight), weight))
        e.store(top, own)
        e.store(e.reduce(e.get(total_weight), e.b.fadd), own, 4)
    _weigh(e, count, lambda index: page_of(a.values, index), tile, state)


def _score(
    e: Emitter, a: Arguments, task: _Task, first: Value, start: Value, pages: Value, page: Page, tile: _QueryTile, state: Value
) -> None:  # fmt: skip
    """scale * log2(e) * query . key for every position of the split, and the largest of each lane at the head of each state."""
    size, scores, scale = tile.size, tile.scores(e), e.splat(e.b.fmul(a.real("scale"), e.real(LOG2_E)))
    seen = [e.add(task.position, e.div(e.add(first, u), task.group)) for u in range(size)]
    largest = [e.variable(e.all_floats(-float("inf"))) for _ in range(size)]
    # Two pages at a time where the sums of one would wait for each other. Behind an odd number the last is read twice and masked.
    together = 1 if size == _QUERIES[0] else 2
    with e.loop(e.div(e.add(pages, together - 1), together)) as step:
        first_page = e.mul(step, together)
        keys = [page(e.least(e.add(first_page, i), e.sub(pages, 1))) for i in range(together)]
        sums = [[e.variable(e.all_floats(0.0)) for _ in range(size)] for _ in keys]
        with e.loop(tile.dim // 8) as d:
            for i in range(8):
                key = [e.halves(e.add(place, e.mul(d, 16 * LANES)), 2 * LANES * i) for place in keys]
                for u in range(size):
                    q = e.splat_float(e.add(tile.queries, e.mul(d, 32)), 4 * (tile.dim * u + i))
                    for own, of_page in zip(sums, key, strict=True):
                        e.set(own[u], e.fma(of_page, q, e.get(own[u])))
        for i, own in enumerate(sums):
            position = e.mul(e.add(first_page, i), LANES)
            from_start = e.add(start, position)
            all_seen = e.b.and_(e.less(e.add(from_start, LANES - 2), seen[0]), e.equal(a.window, 0))
            with e.b.if_else(all_seen) as (plain, careful):
                for branch, masks in ((plain, False), (careful, True)):
                    with branch:
                        here = e.b.add(e.splat(e.b.trunc(from_start, I32)), e.lane_numbers())
                        for u in range(size):
                            value = e.b.fmul(e.get(own[u]), scale)
                            value = _masked(e, a, value, here, seen[u]) if masks else value
                            e.store(value, e.add(scores, e.mul(position, 4)), 4 * SPLIT * u)
                            e.set(largest[u], e.fmax(value, e.get(largest[u])))
    for u in range(size):
        e.store(e.get(largest[u]), state, tile.state_bytes * u)


def _masked(e: Emitter, a: Arguments, score: Value, here: Value, seen: Value) -> Value:
    """-inf at positions after `seen`, and at those that lie a window or more before it."""
    last = e.splat(e.b.trunc(seen, I32))
    hidden = e.b.icmp_signed(">", here, last)
    window = e.splat(e.b.trunc(e.b.select(e.equal(a.window, 0), e.index(2**31 - 1), a.window), I32))
    far = e.b.icmp_signed(">=", e.b.sub(last, here), window)
    return e.b.select(e.b.or_(hidden, far), e.all_floats(-float("inf")), score)


def _weigh(e: Emitter, count: Value, page: Page, tile: _QueryTile, state: Value) -> None:
    """sum of weight * value over the split, as many vectors of the head at a time as there are registers for their sums."""
    vectors, size, scores = tile.dim // LANES, tile.size, tile.scores(e)
    most = max(1, min(4, 2 * _QUERIES[0] // size))
    for j in range(0, vectors, most):
        width = min(most, vectors - j)
        sums = [[e.variable(e.all_floats(0.0)) for _ in range(width)] for _ in range(size)]
        with e.loop(e.div(e.add(count, LANES - 1), LANES)) as p:
            values = page(p)
            with e.loop(e.least(e.sub(count, e.mul(p, LANES)), LANES)) as t:
                row = [e.halves(e.add(values, e.mul(t, 2 * tile.dim)), 2 * LANES * (j + i)) for i in range(width)]
                weights = e.add(scores, e.mul(e.add(e.mul(p, LANES), t), 4))
                for u in range(size):
                    w = e.splat_float(weights, 4 * SPLIT * u)
                    for i in range(width):
                        e.set(sums[u][i], e.fma(row[i], w, e.get(sums[u][i])))
        for u in range(size):
            for i in range(width):
                e.store(e.get(sums[u][i]), state, tile.state_bytes * u + 64 * (1 + j + i))


def _merge(dim: int, e: Emitter, running: Value, fresh: Value) -> None:
    """running = the state of both splits."""
    old, new = e.load(F32, running), e.load(F32, fresh)
    top = e.fmax(new, old)
    # exp2 works on 16 lanes; -inf - -inf is NaN, which its clamp turns into a weight of 0
    keep, take = (e.exp2(e.splat(e.b.fsub(value, top))) for value in (old, new))
    e.store(top, running)
    scalar = [e.b.extract_element(factor, ir.Constant(I32, 0)) for factor in (keep, take)]
    weight = e.fma(e.load(F32, running, 4), scalar[0], e.b.fmul(e.load(F32, fresh, 4), scalar[1]))
    e.store(weight, running, 4)
    for j in range(1, dim // LANES + 1):
        mixed = e.fma(e.floats(running, 64 * j), keep, e.b.fmul(e.floats(fresh, 64 * j), take))
        e.store(mixed, running, 64 * j)


def _finish(dim: int, e: Emitter, state: Value, y: Value) -> None:
    inverse = e.splat(e.b.fdiv(e.real(1.0), e.load(F32, state, 4)))
    for j in range(dim // LANES):
        e.store(e.b.fmul(e.floats(state, 64 * (1 + j)), inverse), y, 64 * j)


def _combine(dim: int, e: Emitter, a: Arguments, chunk: Value) -> None:
    task = _Task(e, a, chunk)
    with e.b.goto_entry_block():
        stack = e.b.alloca(VF, size=ir.Constant(I32, state_floats(dim) // LANES))
    running = e.b.ptrtoint(stack, I64)
    with e.loop(task.queries) as query:
        total = e.add(e.add(task.position, e.div(query, task.group)), 1)
        count = e.div(e.add(total, SPLIT - 1), SPLIT)
        with e.loop(count) as split:
            state = e.add(a.partial, e.mul(_partial_index(e, a, task, split, query), 4 * state_floats(dim)))
            with e.b.if_else(e.equal(split, 0)) as (begin, later):
                with begin:
                    for j in range(state_floats(dim) // LANES):
                        e.store(e.floats(state, 64 * j), running, 64 * j)
                with later:
                    _merge(dim, e, running, state)
        _finish(dim, e, running, task.place(e, a.y, a.y_step, dim, query))
