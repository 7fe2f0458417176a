"""Which configuration runs `grouped_linear` at a shape: tables as in `table.py`, in files of their own, and reasoned defaults behind them.

A problem's m is the number of pairs. A row speaks for about as many experts as it was measured with. As of `quant_linear` a table never changes the
body that multiplies on a target, and so no bits.

>>> from lanewise import arch
>>> print(choose_grouped(arch.parse("gfx1100"), "Q4_K", m=8, n=768, k=2048, experts=128).config)
dots warps=8 ahead=1 tokens=4 pair by pair
"""

import functools
from dataclasses import dataclass
from math import log2
from typing import Any

from lanewise import settings
from lanewise.arch import Arch
from lanewise.kernels.gpu.grouped_config import GroupedConfig, default
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.table import CACHES, Kind, configuration, nearest, sizes

__all__ = ["GROUPED", "GroupedChoice", "GroupedRow", "choose_grouped"]

_MOST_EXPERTS = 1 << 20


@dataclass(frozen=True, slots=True)
class GroupedRow:
    """What won at one shape. m: pairs; seconds: with the quantization of x; blas_seconds: of experts dequantized one by one in front of BLAS."""

    format: str
    m: int
    n: int
    k: int
    experts: int
    config: GroupedConfig
    seconds: float
    blas_seconds: float

    @property
    def name(self) -> str:
        return _name(self.format, self.experts)


@dataclass(frozen=True, slots=True)
class GroupedChoice:
    """A configuration and where it comes from, in words."""

    config: GroupedConfig
    source: str


def choose_grouped(arch: Arch, fmt: str, m: int, n: int, k: int, experts: int, card: str | None = None) -> GroupedChoice:
    """The configuration for m pairs on a target; `card` is the name that its driver gives the device, where it is known."""
    return _chosen(arch, fmt, m, n, k, experts, card, settings.get("CACHE_DIR"))


@functools.lru_cache(maxsize=4096)
def _chosen(arch: Arch, fmt: str, m: int, n: int, k: int, experts: int, card: str | None, _cache: str | None) -> GroupedChoice:
    row, source = nearest(GROUPED, arch, _name(fmt, experts), m, n, k, card)
    return GroupedChoice(row.config if row else default(arch, m, experts, k), source)


CACHES.append(_chosen.cache_clear)


def _name(fmt: str, experts: int) -> str:
    """Rows of numbers of experts that are nearest to the same power of two stand for each other: 144 as 128.

    >>> _name("Q4_K", 144), _name("Q4_K", 200)
    ('Q4_K of 128 experts', 'Q4_K of 256 experts')
    """
    return f"{fmt} of {2 ** round(log2(max(1, experts)))} experts"


def _row(one: dict[str, Any]) -> GroupedRow:
    m, n, k = sizes(one)
    if one["format"] not in LAYOUTS:
        raise ValueError(f"a row has format {str(one['format'])[:40]}; tables are of {', '.join(LAYOUTS)}")
    if type(one["experts"]) is not int or not 1 <= one["experts"] <= _MOST_EXPERTS:
        raise ValueError(f"a row has experts={str(one['experts'])[:40]}; it is a whole number from 1 to {_MOST_EXPERTS}")
    config = configuration(one, GroupedConfig)
    if type(config.ordered) is not bool:
        raise ValueError(f"a configuration has ordered={str(config.ordered)[:40]}; it is true or false")
    return GroupedRow(one["format"], m, n, k, one["experts"], config, float(one["seconds"]), float(one["blas_seconds"]))


def _fits(config: GroupedConfig, arch: Arch, m: int) -> bool:
    """Only the body that the target's default has: bits may not depend on which shapes somebody measured."""
    return config.body == default(arch, 1, 1, 1).body


GROUPED = Kind("lanewise.grouped-table", "grouped", _row, _fits)
