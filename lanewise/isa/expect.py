"""What must stand in the machine code of each kernel of the catalogue: declared from how it is cut, and compared with the object by `gate.py`.

A tile of 16 rows by 256 columns is 8 units of 4 words to each of 32 lanes, and every word is one 4-way dot a token. Scales and minima are multiplied
as integers of 24 bits beside the dots, as many a tile as `_SCALED` says; whatever is more would be products of single codes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lanewise.arch import Arch
from lanewise.errors import LanewiseError
from lanewise.isa.catalogue import Case
from lanewise.kernels.gpu.quant_layout import BLOCK, LAYOUTS

__all__ = ["Expectation", "Range", "expected"]


@dataclass(frozen=True, slots=True)
class Range:
    """least to most, where most is None without an end; a `step` above 1: least + any multiple of it."""

    least: int = 0
    most: int | None = None
    step: int = 1

    def __contains__(self, count: int) -> bool:
        return count >= self.least and (self.most is None or count <= self.most) and (count - self.least) % self.step == 0

    def __str__(self) -> str:
        if self.most == self.least:
            return str(self.least)
        words = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
        return words + f" by {self.step}" * (self.step > 1)


NONE, ANY = Range(0, 0), Range()


@dataclass(frozen=True, slots=True)
class Expectation:
    """dot:     which instruction the products are made of, None where they are not made of dots
    dots:       how many of it; every other dot is one too many, and so is one that the compiler made by itself
    matrix:     instructions of the matrix unit
    fast, slow: integer products of 24 and of 32 bits, which scales and addresses need; `slow` is on vectors alone
    wide, other: loads from memory of 16 bytes, and of fewer
    waves:      of a SIMD at least
    """

    dot: str | None = None
    dots: Range = NONE
    matrix: Range = NONE
    fast: Range = ANY
    slow: Range = ANY
    wide: Range = ANY
    other: Range = ANY
    waves: int = 1


_SCALED = {"half": 0, "half+min": 0, "bytes": 32, "bytes+min": 36, "nibbles+min": 40}
_WORDS, _X_LOADS, _VECTOR_BYTES = 32, 4, 16
_ADDRESSES = 16  # products of 24 bits that addresses take
_SLOW = 8
_LEAVES_ROOM = 4  # tiles times tokens that are written out: more take the registers of a second wave where a SIMD has the fewest
_UNROLLED = 32  # tiles times tokens up to which quant_gemv writes them all out


def expected(case: Case, row: Arch, body: str) -> Expectation:
    """What a kernel that a case launches has to be on a target. Raises LanewiseError for one that nobody has declared."""
    if body not in _BODIES:
        raise LanewiseError(f"{case} launches {body} on {row}, of which nothing is declared; declared are {', '.join(_BODIES)}")
    return _BODIES[body](case, row)


def _lanes(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    each = config.rows * config.tile * config.groups // (row.wave * config.warps)  # elements of w that a lane multiplies in a tile
    whole = case.n % config.rows == 0 and case.k % config.tile == 0 and not case.fused
    ahead = min(config.ahead, -(-case.k // config.tile))
    loads = Range(2 * ahead * each * 2 // _VECTOR_BYTES) if whole else Range(1)  # as many of x as of w, at least
    if case.dtype == "bf16" or not row.dot2_f16 or case.fused:
        return Expectation(slow=Range(0, _SLOW), wide=loads, other=NONE if whole else ANY, waves=4)
    held, turn = ahead * each * case.m // 2, each * case.m // 2
    looped = ahead * config.tile < case.k
    dots = Range(held + turn, None, turn) if looped else Range(held, held)
    return Expectation("v_dot2_f32_f16", dots, slow=Range(0, _SLOW), wide=loads, other=NONE if whole else ANY, waves=4)


def _matrix(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    products = config.rows // 16 * config.tile // 16 // config.warps  # 16 by 16 of a turn, dealt out to the warps
    return Expectation(matrix=Range(max(1, products)) if row.dot_by_matrix else NONE, wide=Range(1), waves=1)


def _tiles(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    return _dotted(case, row, config.warps, config.tokens, 8 if case.fused else 0)


def _grouped(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    return _dotted(case, row, config.warps, min(config.tokens, 8) if config.ordered else 1, 8)


def _dotted(case: Case, row: Arch, warps: int, tokens: int, behind: int) -> Expectation:
    """Of so many warps that lie side by side in k. behind: loads of what is fused, and of which expert it is"""
    layout, tiles = LAYOUTS[str(case.format)], -(-case.k // BLOCK // warps)
    if tiles * tokens > _UNROLLED:
        raise LanewiseError(f"{case} on {row} is a loop over {tiles} tiles; only what is written out is declared")
    scaled = _SCALED[layout.scale] * tiles * tokens
    return Expectation(
        row.dot4,
        Range(_WORDS * tiles * tokens, _WORDS * tiles * tokens) if row.dot4 else NONE,
        fast=Range(max(0, scaled - _ADDRESSES), scaled + _ADDRESSES) if row.dot4 else ANY,
        slow=Range(0, _SLOW) if row.dot4 else ANY,
        wide=Range(*[tiles * (layout.quants + layout.high + layout.scales + _X_LOADS * tokens)] * 2),
        other=Range(0, 10 * tiles * tokens + tiles + behind),
        waves=2 if tiles * tokens <= _LEAVES_ROOM else 1,
    )


def _dequantize(case: Case, row: Arch) -> Expectation:
    layout = LAYOUTS[str(case.format)]
    wide = layout.quants + layout.high + layout.scales
    return Expectation(slow=Range(0, _SLOW), wide=Range(wide, wide), other=Range(0, 1), waves=4)


def _quantize(case: Case, row: Arch) -> Expectation:
    return Expectation(slow=Range(0, _SLOW), fast=Range(0, _ADDRESSES), waves=4)


def _combine(case: Case, row: Arch) -> Expectation:
    return Expectation(slow=Range(0, _SLOW), fast=Range(0, _ADDRESSES), waves=8)


_BODIES: dict[str, Callable[[Case, Arch], Expectation]] = {
    "_lanes": _lanes,
    "_matrix": _matrix,
    "_combine": _combine,
    "_tiles": _tiles,
    "_grouped": _grouped,
    "_dequantize": _dequantize,
    "_quantize": _quantize,
}
