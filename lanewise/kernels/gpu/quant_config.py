"""How the quantized kernels are cut: what one program does, chosen by a table for each target, format and shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from lanewise.arch import Arch
from lanewise.errors import ShapeError

__all__ = ["BODIES", "STRANDS", "QuantConfig", "as_written", "candidates", "default", "straight"]

BODIES = ("tiles", "dots", "blas")
STRANDS = 8  # sums that a row's blocks are spread over, whatever the cut, and added in one order: all cuts give the same bits
_MOST_TOKENS = {"tiles": 64, "dots": 8}
_TILES_M = 96  # tokens up to which tiles are the faster ones
_WARPS = 1536  # of all programs together, that keep a large card at work
_AHEAD = 3
_FEW_TILES, _MOST_TILES = 8, 32  # that are written out
_LEAST_REGISTERS = 64
# A multiprocessor has 65536 registers (CUDA C++ programming guide, technical specifications): two programs of eight warps, three or two of four.
_REGISTERS = {1: (0,), 2: (0,), 4: (168, 208), 8: (128,)}
_RANGES = (("warps", 1, STRANDS, True), ("ahead", 1, 16, False), ("tokens", 1, 64, True), ("splits", 1, STRANDS, True), ("registers", 0, 255, False))


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """One way to run `quant_linear` on packed weights. Every one is right for every shape, and those of one body give the same bits.

    body:   "tiles" (8 tokens at a time by the int8 matrix unit, NVIDIA from sm_80 on), "dots" (4-way int8 dots, a token at a time),
            or "blas" (the weights dequantized in front of the vendor's library)
    warps:  of a program; its blocks of 256 columns lie side by side over them
    ahead:  tiles of w that a warp loads before anything else; each that is multiplied makes room for the one that comes so many later
    tokens: of a program
    splits: programs along k, whose sums a second kernel adds
    registers: of a thread at most, of tiles; 0 leaves it to the compiler, which takes more and so keeps fewer programs on a multiprocessor

    Raises ShapeError for what cannot be cut.
    """

    body: str
    warps: int = 8
    ahead: int = 2
    tokens: int = 8
    splits: int = 1
    registers: int = 0

    def __post_init__(self) -> None:
        if self.body not in BODIES:
            raise ShapeError(f"body {self.body!r} of a configuration; bodies are {', '.join(BODIES)}")
        for name, least, most, power in _RANGES:
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most or (power and value & (value - 1)):
                raise ShapeError(f"{name}={value!r} of a configuration; it takes {'a power of two' if power else 'a number'} from {least} to {most}")
        if self.warps * self.splits > STRANDS:
            raise ShapeError(f"warps={self.warps}, splits={self.splits} of a configuration; together they are at most {STRANDS}")
        if self.body == "tiles" and self.tokens < 8:
            raise ShapeError(f"tokens={self.tokens} of tiles; the matrix unit takes 8 at a time")
        if self.registers and (self.body != "tiles" or self.registers < _LEAST_REGISTERS):
            raise ShapeError(f"registers={self.registers} of {self.body}; of tiles it takes 0 or at least {_LEAST_REGISTERS}")
        if self.tokens > _MOST_TOKENS.get(self.body, 64):
            raise ShapeError(f"tokens={self.tokens} of {self.body}; it takes up to {_MOST_TOKENS[self.body]}")

    def __str__(self) -> str:
        if self.body == "blas":
            return self.body
        rest = f" splits={self.splits}" * (self.splits > 1) + f" registers={self.registers}" * (self.registers > 0)
        return f"{self.body} warps={self.warps} ahead={self.ahead} tokens={self.tokens}{rest}"


def as_written(arch: Arch) -> dict[str, Any]:
    """Options of a launch by which every product is rounded before it is added.

    LLVM makes one instruction of a product and a sum in one cut and two in another, and the bits of a token are the same in each. ptxas has been
    consistent in that on the cards that were looked at (`python -m lanewise.prove --device cuda`), and is left to it.
    """
    return {"enable_fp_fusion": False} if arch.vendor == "amd" else {}


def straight(arch: Arch, tokens: int) -> int:
    """Tiles times tokens of a program of dots, up to which its tiles may be straight code and no loop.

    LLVM loads everything first where nothing keeps it from that, which for one token nothing does, and moves together what unpacks bytes where there
    is no dot: 14 tiles of a warp, which are 28672 columns, then spilled on wave32 (`lanewise isa --gate`).
    """
    return _FEW_TILES if arch.dot4 is None or (arch.vendor == "amd" and tokens == 1) else _MOST_TILES


def default(arch: Arch, fmt: str, m: int, n: int, k: int) -> QuantConfig:
    """What should do well on a target that nobody has measured."""
    blocks, panels = -(-k // 256), -(-n // 16)
    if arch.mma16:
        if m > _TILES_M:
            return QuantConfig("blas")
        # enough warps for the card, and from two on as few a program as that takes
        warps = min(STRANDS, 1 << max(1, -(-_WARPS // max(1, panels)) - 1).bit_length(), 1 << (blocks - 1).bit_length())
        ahead = min(2 if warps == STRANDS else _AHEAD, -(-blocks // warps))
        return QuantConfig("tiles", warps, ahead, 8 if m <= 8 else 16, registers=_REGISTERS[warps][-1] if m <= 8 else 0)
    if m > 32:
        return QuantConfig("blas")
    # where bytes are multiplied one by one, several tokens do not fit into the registers
    tokens = 1 if m == 1 or arch.dot4 is None else 2 if m == 2 else 4
    return QuantConfig("dots", 8 if blocks >= 8 else 4, 1, tokens)


def candidates(arch: Arch, fmt: str, m: int, n: int, k: int) -> tuple[QuantConfig, ...]:
    """Everything worth measuring at a shape; BLAS last."""
    found = [*_tiles(m, n, k)] if arch.mma16 else [*_dots(m, n, k)]
    return (*dict.fromkeys(found), QuantConfig("blas"))


def _tiles(m: int, n: int, k: int) -> Iterator[QuantConfig]:
    blocks, panels = -(-k // 256), -(-n // 16)
    for warps, splits, ahead, tokens in product((1, 2, 4, 8), (1, 2), (1, 2, 3, 4), (8, 16, 32, 64)):
        if warps * splits > STRANDS or warps * splits > 2 * blocks or tokens >= 2 * max(8, m) or (splits > 1 and panels > 132):
            continue
        tiles, strands = -(-blocks // (warps * splits)), STRANDS // (warps * splits)
        if ahead > max(tiles, 1) or (tiles > 16 and ahead % strands) or (ahead > 4 and (tokens > 8 or ahead < tiles)):
            continue
        yield from (QuantConfig("tiles", warps, ahead, tokens, splits, registers) for registers in _REGISTERS[warps])


def _dots(m: int, n: int, k: int) -> Iterator[QuantConfig]:
    blocks = -(-k // 256)
    for warps, ahead, tokens in product((1, 2, 4, 8), (1, 2), (1, 2, 4, 8)):
        if warps <= 2 * blocks and tokens < 2 * m:
            yield QuantConfig("dots", warps, ahead, tokens)
