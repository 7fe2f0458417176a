"""How the kernel for rows of experts is cut: what one program does, and whether pairs are put in order; chosen by a table or by reasoning."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from lanewise.arch import Arch
from lanewise.kernels.gpu.quant_config import STRANDS, QuantConfig

__all__ = ["GroupedConfig", "candidates", "default"]

_FEW = 32  # pairs up to which putting them in order, some fifteen kernels, takes longer than reading an expert more than once
_REREAD = 2  # times that an expert is read on average, most of them out of the cache, before the order pays
_EITHER = 8  # pairs above which both ways are worth measuring


@dataclass(frozen=True, slots=True)
class GroupedConfig:
    """One way to run `grouped_linear`. Every one is right for every shape, and those of one body give the same bits.

    body, warps, ahead, tokens: as of QuantConfig, which raises ShapeError for what cannot be cut; tokens are those of an expert in one program
    ordered: whether pairs are put in order by expert, or a program takes one pair
    """

    body: str
    warps: int = 4
    ahead: int = 2
    tokens: int = 8
    ordered: bool = False

    def __post_init__(self) -> None:
        _ = self.cut

    @property
    def cut(self) -> QuantConfig:
        return QuantConfig(self.body, self.warps, self.ahead, self.tokens)

    def __str__(self) -> str:
        return self.body if self.body == "blas" else f"{self.cut} {'in order' if self.ordered else 'pair by pair'}"


def default(arch: Arch, pairs: int, experts: int, k: int) -> GroupedConfig:
    """What should do well on a target that nobody has measured, for so many pairs of a token and a slot.

    >>> from lanewise.arch import TARGETS
    >>> print(default(TARGETS["gfx1100"], pairs=8, experts=128, k=2048))
    dots warps=8 ahead=1 tokens=4 pair by pair
    """
    blocks, warps = -(-k // 256), 1
    held = 2 if arch.mma16 else 1  # tiles of a warp: dots need registers for tokens
    while warps < STRANDS and held * warps < blocks:
        warps *= 2
    tokens = 1 if arch.dot4 is None else 4  # where bytes are multiplied one by one, several do not fit into the registers
    ordered = pairs > max(_FEW, _REREAD * experts)
    return GroupedConfig("tiles", warps, held, 8, ordered) if arch.mma16 else GroupedConfig("dots", warps, held, tokens, ordered)


def candidates(arch: Arch, pairs: int, k: int) -> tuple[GroupedConfig, ...]:
    """Everything worth measuring at a shape."""
    orders = (False, True) if pairs > _EITHER else (False,)
    return tuple(dict.fromkeys(one for ordered in orders for one in (_tiles if arch.mma16 else _dots)(k, ordered)))


def _tiles(k: int, ordered: bool) -> Iterator[GroupedConfig]:
    blocks = -(-k // 256)
    for warps, ahead in product((1, 2, 4, 8), (1, 2, 3, 4, 8)):
        if warps <= 2 * blocks and ahead <= -(-blocks // warps):
            yield GroupedConfig("tiles", warps, ahead, 8, ordered)


def _dots(k: int, ordered: bool) -> Iterator[GroupedConfig]:
    blocks = -(-k // 256)
    for warps, ahead, tokens in product((1, 2, 4, 8), (1, 2), (1, 2, 4, 8) if ordered else (1,)):
        if warps <= 2 * blocks and ahead <= -(-blocks // warps):
            yield GroupedConfig("dots", warps, ahead, tokens, ordered)
