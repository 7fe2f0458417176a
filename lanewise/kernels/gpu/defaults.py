"""Configurations by reasoning, for targets and shapes that nobody has measured, and the candidates that `lanewise tune` tries.

A lane loads 16 bytes, 8 elements, at a time, and should have several such loads in flight before it needs the first. A program should be small
enough that all multiprocessors have work, and hold enough of w that starting it is worth it.
"""

from collections.abc import Iterator
from itertools import product

from lanewise.arch import Arch
from lanewise.kernels.gpu.config import Config

__all__ = ["candidates", "default", "fits"]

_VECTOR = 8  # elements of 16 bytes
_BYTES = 2  # of an element of w and x
_PADDED = 16  # tokens of the matrix body
_LANES_M = 4  # tokens up to which lanes multiply as fast as w arrives
_HELD = (16, 128)  # elements of w that a lane holds: fewer leave memory idle, more leave no registers
_MOST_THREADS = 1024  # of a program
_MOST_TILES = 12  # of fragments, of 8 registers each, that a lane holds
_PROGRAMS = 256  # along k a problem is split until there are about as many: two for each multiprocessor of a large card


def default(arch: Arch, dtype: str, m: int, n: int, k: int) -> Config:
    """What should do well on a target of this wave width, with a matrix unit that Triton reaches or without."""
    warp_tile = _VECTOR * arch.wave
    if m > _LANES_M and arch.dot_by_matrix:
        splits = max(1, min(8, _PROGRAMS * 32 // max(1, n), k // 512))
        return Config("matrix", rows=32, tile=128, warps=4, ahead=0, splits=splits, stages=3 if arch.pdl else 2)
    if m > _LANES_M:
        return Config("lanes", rows=4, tile=warp_tile, warps=4, ahead=1, stages=1)
    # Each wave has a row of its own: no trip through LDS, and one reduction inside a wave.
    ahead = max(1, min(4 * 32 // arch.wave, -(-k // warp_tile)))
    return Config("lanes", rows=4, tile=warp_tile, warps=4, ahead=ahead)


def fits(config: Config, arch: Arch, m: int) -> bool:
    """Whether the target has the LDS and the threads that a configuration asks for."""
    through = config.body == "matrix" or config.stages > 1  # lanes hold their tiles in registers
    staged = (config.rows + _PADDED) * config.tile * _BYTES * max(1, config.stages if config.stages > 1 else config.ahead)
    return config.warps * arch.wave <= _MOST_THREADS and (not through or staged <= arch.lds)


def candidates(arch: Arch, dtype: str, m: int, n: int, k: int) -> tuple[Config, ...]:
    """Everything worth measuring at a shape, and BLAS last."""
    found = [
        *(_lanes(arch, m, k) if m <= _LANES_M or not arch.dot_by_matrix else ()),
        *(_mma(arch, k) if arch.mma16 and m <= _LANES_M else ()),
        *(_fragments(n, k) if arch.mma16 and m > 1 else ()),
        *(_matrix(n, k) if m > 1 and arch.dot_by_matrix else ()),
    ]
    return (*dict.fromkeys(c for c in found if fits(c, arch, m)), Config("blas"))


def _lanes(arch: Arch, m: int, k: int) -> Iterator[Config]:
    most = _HELD[1]
    for rows, factor, warps in product((2, 4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8)):
        tile = _VECTOR * arch.wave * factor
        each, tiles = rows * tile // (arch.wave * warps), -(-k // tile)
        # Waves that lie side by side in rows load x once each: only worth it for one row a wave.
        if not _HELD[0] <= each <= most or tile >= 2 * k or (factor < warps and rows > warps // factor):
            continue
        for ahead in sorted({a for a in (1, 2, 3, 4, 8, tiles) if a <= tiles and 2 * _HELD[0] <= a * each <= most}):
            for stages in (1,) if ahead == tiles else (1, 3):
                yield Config("lanes", rows, tile, warps, ahead, 1, stages)


def _mma(arch: Arch, k: int) -> Iterator[Config]:
    """Every warp has rows, or parts of rows, of its own, so that x need not pass through shared memory."""
    for warps, side, groups in product((1, 2, 4, 8), (1, 2, 4, 8), (2, 4, 6)):
        if side > warps:
            continue
        tile, rows = _VECTOR * arch.wave * side, warps // side
        tiles = -(-k // tile)
        for ahead in sorted({a for a in (1, 2, 3, 4, tiles) if a <= tiles and a * groups <= _MOST_TILES * 2}):
            if ahead < tiles and (groups > 2 or ahead == 3):
                continue
            if ahead * groups >= 4:
                for stages in (1,) if ahead == tiles else (1, 3):
                    yield Config("mma", rows, tile, warps, ahead, 1, stages, groups)


def _fragments(n: int, k: int) -> Iterator[Config]:
    for warps, ahead, groups, stages, splits in product((1, 2, 4, 8), (2, 4, 8, 12), (1, 2, 3), (1, 3), (1, 2, 4)):
        tiles, programs = -(-k // (32 * warps) // splits), -(-n // (16 * groups)) * splits
        held = min(ahead, tiles)
        if ahead - held > 3 or held * groups > _MOST_TILES or (held == tiles and stages > 1) or (held < tiles and groups > 1):
            continue
        if programs < 60 or (splits > 1 and programs > 2 * _PROGRAMS):
            continue
        yield Config("fragments", 16, 32 * warps, warps, held, splits, stages, groups)


def _matrix(n: int, k: int) -> Iterator[Config]:
    for rows, tile, warps, ahead, stages, splits in product((16, 32, 64), (128, 256, 512), (1, 2, 4), (0, 1), (1, 4, 6), (1, 2, 4, 8)):
        tiles, programs = -(-k // tile // splits), -(-n // rows) * splits
        if tile > k or rows * tile < 2048 or not 1 <= ahead + (stages > 1) <= tiles or (stages > 1) != (tiles > ahead):
            continue
        if (warps > 4 and rows < 64) or (warps == 1 and rows > 32) or ahead * rows * tile > 64 * 32 * warps:
            continue
        if (tiles - ahead < 2 and stages > 3) or programs < 100 or (splits > 1 and programs > 2 * _PROGRAMS):
            continue
        yield Config("matrix", rows, tile, warps, ahead, splits, stages)
