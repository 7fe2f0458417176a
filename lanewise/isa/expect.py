"""What must stand in the machine code of each kernel of the catalogue: declared from how it is cut, and compared with the object by `gate.py`.

A tile of 16 rows by 256 columns is 8 units of 4 words to each of 32 lanes, and every word is one 4-way dot a token. Scales and minima are multiplied
as integers beside the dots, as many a tile as `SCALED` says; whatever is more would be products of single codes.
"""

from collections.abc import Callable

from lanewise.arch import Arch
from lanewise.errors import LanewiseError
from lanewise.isa import expect_mma
from lanewise.isa.catalogue import Case
from lanewise.isa.expectation import ADDRESSES, ANY, NONE, PRODUCTS, SCALED, VECTOR_BYTES, Expectation, Range
from lanewise.kernels.gpu.quant_config import STRANDS, straight
from lanewise.kernels.gpu.quant_layout import BLOCK, LAYOUTS

__all__ = ["expected"]

_WORDS, _X_LOADS = 32, 4
_NARROW = 10  # loads of d and sums of a tile and token; PTX has each once for every word of a lane, of which ptxas makes one
_LEAVES_ROOM = 4  # tiles times tokens that are written out: more take the registers of a second wave where a SIMD has the fewest


def expected(case: Case, row: Arch, body: str) -> Expectation:
    """What a kernel that a case launches has to be on a target. Raises LanewiseError for one that nobody has declared."""
    if body not in _BODIES:
        raise LanewiseError(f"{case} launches {body} on {row}, of which nothing is declared; declared are {', '.join(_BODIES)}")
    return _BODIES[body](case, row)


def _lanes(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    if config.body == "mma" and not case.fused:
        return expect_mma.paired(case, row)
    each = config.rows * config.tile * config.groups // (row.wave * config.warps)  # elements of w that a lane multiplies in a tile
    whole = case.n % config.rows == 0 and case.k % config.tile == 0 and not case.fused
    ahead = min(config.ahead, -(-case.k // config.tile))
    loads = Range(2 * ahead * each * 2 // VECTOR_BYTES) if whole else Range(1)  # as many of x as of w, at least
    if case.dtype == "bf16" or not row.dot2_f16 or case.fused:
        return Expectation(slow=Range(0, PRODUCTS), wide=loads, other=NONE if whole else ANY, waves=4)
    held, turn = ahead * each * case.m // 2, each * case.m // 2
    looped = ahead * config.tile < case.k
    dots = Range(held + turn, None, turn) if looped else Range(held, held)
    return Expectation("v_dot2_f32_f16", dots, slow=Range(0, PRODUCTS), wide=loads, other=NONE if whole else ANY, waves=4)


def _matrix(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    products = config.rows // 16 * config.tile // 16 // config.warps  # 16 by 16 of a turn, dealt out to the warps
    return Expectation(matrix=Range(max(1, products)) if row.dot_by_matrix else NONE, slow=Range(0, PRODUCTS), wide=Range(1))


def _tiles(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    return _dotted(case, row, config.warps, config.tokens, 8 if case.fused else 0)


def _grouped(case: Case, row: Arch) -> Expectation:
    config = case.config(row)
    if config.body == "tiles":
        return expect_mma.grouped(case, row)
    return _dotted(case, row, config.warps, min(config.tokens, 8) if config.ordered else 1, 8)


def _dotted(case: Case, row: Arch, warps: int, tokens: int, behind: int) -> Expectation:
    """Of so many warps that lie side by side in k. behind: loads of what is fused, and of which expert it is"""
    layout, tiles = LAYOUTS[str(case.format)], -(-case.k // (BLOCK * warps))
    scaled, per_tile = SCALED[layout.scale] * tokens, layout.quants + layout.high + layout.scales
    if tiles * tokens > straight(row, tokens):
        # a loop over as many tiles as there are strands, which LLVM may write out a few times
        turn = _WORDS * max(1, STRANDS // warps) * tokens
        return Expectation(
            row.dot4, Range(turn, None, turn) if row.dot4 else NONE, slow=_slow(row, ANY), wide=Range(2 * per_tile + _X_LOADS * tokens)
        )
    products = Range(max(0, scaled * tiles - ADDRESSES), scaled * tiles + ADDRESSES) if row.dot4 else ANY
    return Expectation(
        row.dot4,
        Range(_WORDS * tiles * tokens, _WORDS * tiles * tokens) if row.dot4 else NONE,
        fast=products if row.vendor == "amd" else NONE,
        slow=_slow(row, products),
        wide=Range(*[tiles * (per_tile + _X_LOADS * tokens)] * 2),
        other=Range(0, (_NARROW if row.vendor == "amd" else 4 * _NARROW) * tiles * tokens + tiles + behind),
        waves=2 if tiles * tokens <= _LEAVES_ROOM else 1,
    )


def _slow(row: Arch, products: Range) -> Range:
    """Where 24 bits are multiplied faster all of them are; without a dot bytes are multiplied one by one, and nothing is promised."""
    return ANY if row.dot4 is None else Range(0, PRODUCTS) if row.vendor == "amd" else products


def _dequantize(case: Case, row: Arch) -> Expectation:
    layout = LAYOUTS[str(case.format)]
    wide = layout.quants + layout.high + layout.scales
    return Expectation(slow=Range(0, PRODUCTS), wide=Range(wide, wide), other=Range(0, 1), waves=4)


def _quantize(case: Case, row: Arch) -> Expectation:
    return Expectation(slow=Range(0, PRODUCTS), fast=Range(0, ADDRESSES), waves=4)


def _combine(case: Case, row: Arch) -> Expectation:
    return Expectation(slow=Range(0, PRODUCTS), fast=Range(0, ADDRESSES), waves=8)


_BODIES: dict[str, Callable[[Case, Arch], Expectation]] = {
    "_lanes": _lanes,
    "_matrix": _matrix,
    "_fragments": expect_mma.fragments,
    "_combine": _combine,
    "_tiles": _tiles,
    "one": expect_mma.one,
    "octets": expect_mma.octets,
    "_grouped": _grouped,
    "grouped_one": expect_mma.grouped_one,
    "_dequantize": _dequantize,
    "_quantize": _quantize,
}
