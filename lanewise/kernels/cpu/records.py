"""What quantized activations look like in memory: one record a block, everything that a multiply needs side by side.

The integers and scales are those of `formats.activations`; the rest is derived once here so that no multiply derives it again.
A row of x[m,k] is k / block records. `c<o>` holds -o times the sum of a group: the start value of a dot product whose
weights were stored with o added.

Rows that one tile multiplies lie together, their records interleaved word by word: word w of the tile's token i is word
w * tokens + i of the tile. So a tile reads x as one stream, from addresses that differ by constants. Many rows are tiles of
`isa.tokens`; what is left over, and fewer rows, are tiles of 4, 2 and 1.

BRAIN, for BF16 weights, is FLOAT but where the processor has a bf16 dot. There x is the sum of two bfloat16: its upper half as it
is, which covers float32's range, and the rest rounded to nearest even; |x| is off by at most 2^-16 of itself. Each two x are two
words: their upper parts, then their lower ones.
"""

import numpy as np

from lanewise.kernels.cpu.emit import Emitter, Value
from lanewise.kernels.cpu.isa import Isa

__all__ = ["BRAIN", "FLOAT", "MANY", "RECORDS", "field_offset", "record_bytes", "small_tiles", "spans", "tile_of"]

FLOAT, BRAIN = "float", "brain"
MANY = 24  # rows from which unpacking weights once beats unpacking them for every tile
# sums of q per 16 or per 32 weights; "ds" is d times the sum, what a format with a minimum multiplies the minimum by
RECORDS: dict[str, np.dtype] = {
    "q8_0": np.dtype([("q", "i1", 32), ("d", "f4"), ("ds", "f4"), ("c8", "i4"), ("c16", "i4"), ("c128", "i4")]),
    "q8_k": np.dtype(
        [("q", "i1", 256), ("d", "f4"), ("sum32", "i2", 8), ("sum16", "i2", 16), ("c4", "i4", 16), ("c32", "i4", 16), ("c128", "i4", 8)]
    ),
    FLOAT: np.dtype([("x", "f4")]),
    BRAIN: np.dtype([("x", "f4")]),
}
BLOCK = {"q8_0": 32, "q8_k": 256, FLOAT: 1, BRAIN: 1}


def record_bytes(kind: str, k: int) -> int:
    """Bytes of one row of k activations."""
    return k // BLOCK[kind] * RECORDS[kind].itemsize


def field_offset(kind: str, name: str) -> int:
    """Where a field starts in its record."""
    return int(RECORDS[kind].fields[name][1])  # type: ignore[index]


def spans(e: Emitter, m: Value) -> list[tuple[int, Value, Value]]:
    """(tokens of a tile, first row, end) for each size of tile: how m rows are cut into tiles, largest first."""
    largest, found, done = e.isa.tokens, [], e.index(0)
    if largest > 1:
        done = e.b.select(e.less(MANY - 1, m), e.sub(m, e.rem(m, largest)), done)
        found.append((largest, e.index(0), done))
    for size in small_tiles(e.isa):
        start, done = done, e.sub(m, e.rem(e.sub(m, done), size))
        found.append((size, start, done))
    return found


def small_tiles(isa: Isa) -> tuple[int, ...]:
    """The sizes of tiles whose weights are not unpacked beforehand, largest first; the last is 1."""
    return tuple(size for size in (4, 2, 1) if size <= isa.tokens)


def tile_of(e: Emitter, row: Value, m: Value) -> tuple[Value, Value]:
    """(first row, tokens) of the tile that a row of m rows belongs to."""
    first, tokens = row, e.index(1)
    for size, start, end in reversed(spans(e, m)):
        own = e.add(start, e.mul(e.div(e.sub(row, start), size), size))
        inside = e.less(row, end)
        first, tokens = e.b.select(inside, own, first), e.b.select(inside, e.index(size), tokens)
    return first, tokens
