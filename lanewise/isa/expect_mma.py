"""What must stand in the PTX of kernels that feed NVIDIA's matrix unit out of registers.

Of integers one m16n8k32 takes a unit of 32 columns of all lanes, so a tile of 8 units is 8 of them for eight tokens, and 16 of m16n8k16 where a scale
is that of 16 columns. Of 16 bits one m16n8k16 takes 16 rows by 16 columns.
"""

from lanewise.arch import Arch
from lanewise.errors import LanewiseError
from lanewise.isa.catalogue import Case
from lanewise.isa.expectation import ADDRESSES, PRODUCTS, VECTOR_BYTES, Expectation, Range
from lanewise.kernels.gpu.quant_layout import BLOCK, LAYOUTS

__all__ = ["fragments", "grouped", "grouped_one", "octets", "one", "paired"]

_UNITS = 8  # of a tile
_TOKENS = 8  # of the matrix unit
_LANES = 32
_UNROLLED = 32  # tiles times octets that are written out
_STACK = 8  # one word round the call that a division makes for its rarest numbers
# Where a configuration caps registers, so that two programs fit on a multiprocessor, ptxas may have to keep four words of a thread's straight code in
# memory (14 tiles, k=28672): once a program, and less than the second program is worth, which is what the cap is for (`QuantConfig`).
_CAPPED = 16
_NARROW_X = {"half": 0, "half+min": 0, "bytes": 2, "bytes+min": 2, "nibbles+min": 2}  # loads of d, of tokens by eight
_WIDE_X = {"half": 4, "half+min": 8, "bytes": 0, "bytes+min": 2, "nibbles+min": 4}  # loads of d or sums by fours


def one(case: Case, row: Arch) -> Expectation:
    """One token, whose groups are the unit's columns: a lane scales two sums of each of two rows, twice where a scale is that of 16 columns."""
    config = case.config(row)
    return _alone(case, _tiles(case, config.warps), narrow=6, behind=8 if case.fused else 0, stack=_CAPPED if config.registers else 0)


def grouped_one(case: Case, row: Arch) -> Expectation:
    """The same, with x quantized on the way: 8 numbers a lane; and which expert, and its weight."""
    return _alone(case, _tiles(case, case.config(row).warps), narrow=9, behind=2, stack=_STACK)


def _alone(case: Case, tiles: int, narrow: int, behind: int, stack: int) -> Expectation:
    layout = LAYOUTS[str(case.format)]
    scaled = tiles * (8 if layout.group == 16 else 4)
    return Expectation(
        matrix=Range(_UNITS * tiles, _UNITS * tiles),
        slow=Range(scaled, scaled + ADDRESSES),
        wide=Range(*[tiles * (layout.quants + layout.high)] * 2),
        other=Range(0, tiles * (2 * layout.scales + narrow) + behind),
        stack=stack,
    )


def octets(case: Case, row: Arch) -> Expectation:
    """Tokens by eight, one element a thread."""
    config, layout = case.config(row), LAYOUTS[str(case.format)]
    tiles, parts = _tiles(case, config.warps * config.splits), config.tokens // _TOKENS
    if tiles * parts > _UNROLLED:
        raise LanewiseError(f"{case} on {row}: {tiles} tiles of {config.tokens} tokens are cut anew; only what is cut as configured is declared")
    dots = _UNITS * 32 // layout.group * tiles * parts
    scaled = 0 if layout.scale.startswith("half") else 4 * dots
    return Expectation(
        matrix=Range(dots, dots),
        slow=Range(scaled, scaled + ADDRESSES + tiles),  # the address of a tile's x
        wide=Range(*[tiles * (layout.quants + layout.high + layout.scales + parts * (4 + _WIDE_X[layout.scale]))] * 2),
        other=Range(0, tiles * (layout.tail // 8 + parts * _NARROW_X[layout.scale]) + (8 * parts if case.fused else 0)),
        stack=_CAPPED if config.registers else 0,
    )


def grouped(case: Case, row: Arch) -> Expectation:
    """Tokens by eight in tensors of four elements a thread: PTX loads d and sums once for every word, which are the cache's, so only w is exact."""
    layout, tiles = LAYOUTS[str(case.format)], _tiles(case, case.config(row).warps)
    dots = _UNITS * 32 // layout.group * tiles
    scaled = 0 if layout.scale.startswith("half") else 4 * dots
    return Expectation(
        matrix=Range(dots, dots),
        slow=Range(scaled, scaled + ADDRESSES),
        wide=Range(tiles * (layout.quants + layout.high + layout.scales + 4)),
        other=Range(0, tiles * 4 + 8),
    )


def paired(case: Case, row: Arch) -> Expectation:
    """Lanes whose products come from the unit, two groups of rows at a time: two mma for 8 columns a lane, of both groups and a token."""
    config = case.config(row)
    each = config.rows * config.tile // (_LANES * config.warps)  # elements of a group of rows that a lane has of a tile
    turn = 2 * (each // 8) * case.m
    held = config.groups // 2 * config.ahead * turn
    looped = config.ahead * config.tile < case.k
    loads = config.groups * config.ahead * each * 2 // VECTOR_BYTES
    return Expectation(matrix=Range(held + turn, None, turn) if looped else Range(held, held), slow=Range(0, PRODUCTS), wide=Range(loads))


def fragments(case: Case, row: Arch) -> Expectation:
    """16 rows by 32 columns a warp and tile, which are two mma for eight tokens; of w two loads, of eight tokens one."""
    config = case.config(row)
    halves, tiles = -(-case.m // _TOKENS), -(-case.k // (config.splits * config.tile))
    turn, ahead = 2 * halves, min(config.ahead, tiles)
    held = turn * ahead * (config.groups if ahead == tiles else 1)
    dots = Range(held, held) if ahead == tiles else Range(held + turn, None, turn)
    return Expectation(matrix=dots, slow=Range(0, PRODUCTS), wide=Range(2 * held // turn + halves * ahead))


def _tiles(case: Case, warps: int) -> int:
    return -(-case.k // (BLOCK * warps))
