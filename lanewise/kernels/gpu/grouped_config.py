"""How the kernel for rows of experts is cut: reasoned from sizes, as nobody has measured it yet."""

from lanewise.arch import Arch
from lanewise.kernels.gpu.quant_config import STRANDS, QuantConfig

__all__ = ["default"]

_FEW = 32  # pairs up to which putting them in order, some fifteen kernels, takes longer than reading an expert more than once
_REREAD = 2  # times that an expert is read on average, most of them out of the cache, before the order pays


def default(arch: Arch, pairs: int, experts: int, k: int) -> tuple[QuantConfig, bool]:
    """(configuration, whether pairs are put in order by expert) of pairs of a token and a slot.

    >>> from lanewise.arch import TARGETS
    >>> print(*default(TARGETS["gfx1100"], pairs=8, experts=128, k=2048))
    dots warps=8 ahead=1 tokens=4 False
    """
    blocks, warps = -(-k // 256), 1
    held = 2 if arch.mma16 else 1  # tiles of a warp: dots need registers for tokens
    while warps < STRANDS and held * warps < blocks:
        warps *= 2
    tokens = 1 if arch.dot4 is None else 4  # where bytes are multiplied one by one, several do not fit into the registers
    config = QuantConfig("tiles", warps, held, 8) if arch.mma16 else QuantConfig("dots", warps, held, tokens)
    return config, pairs > max(_FEW, _REREAD * experts)
