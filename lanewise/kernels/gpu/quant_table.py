"""Which configuration runs `quant_linear` at a shape: tables as in `table.py`, in files of their own, and reasoned defaults behind them.

A table never changes which body multiplies on a target, only how it is cut, or that the weights are dequantized in front of BLAS: a token's bits are
the same at every m that runs a kernel.

>>> from lanewise import arch
>>> print(choose_quant(arch.parse("gfx1100"), "Q4_K", m=1, n=4096, k=4096).config)
dots warps=8 ahead=1 tokens=1
"""

import functools
from dataclasses import dataclass
from typing import Any

from lanewise import settings
from lanewise.arch import Arch
from lanewise.kernels.gpu.quant_config import QuantConfig, default
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.table import CACHES, Kind, configuration, nearest, sizes

__all__ = ["QUANT", "QuantChoice", "QuantRow", "choose_quant"]


@dataclass(frozen=True, slots=True)
class QuantRow:
    """What won at one shape. seconds: with the quantization of x; blas_seconds: of dequantizing w in front of BLAS, in the same run."""

    format: str
    m: int
    n: int
    k: int
    config: QuantConfig
    seconds: float
    blas_seconds: float

    @property
    def name(self) -> str:
        return self.format


@dataclass(frozen=True, slots=True)
class QuantChoice:
    """A configuration and where it comes from, in words."""

    config: QuantConfig
    source: str


def choose_quant(arch: Arch, fmt: str, m: int, n: int, k: int, card: str | None = None) -> QuantChoice:
    """The configuration for a problem on a target; `card` is the name that its driver gives the device, where it is known."""
    return _chosen(arch, fmt, m, n, k, card, settings.get("CACHE_DIR"))


@functools.lru_cache(maxsize=4096)
def _chosen(arch: Arch, fmt: str, m: int, n: int, k: int, card: str | None, _cache: str | None) -> QuantChoice:
    row, source = nearest(QUANT, arch, fmt, m, n, k, card)
    return QuantChoice(row.config if row else default(arch, fmt, m, n, k), source)


CACHES.append(_chosen.cache_clear)


def _row(one: dict[str, Any]) -> QuantRow:
    m, n, k = sizes(one)
    if one["format"] not in LAYOUTS:
        raise ValueError(f"a row has format {str(one['format'])[:40]}; tables are of {', '.join(LAYOUTS)}")
    return QuantRow(one["format"], m, n, k, configuration(one, QuantConfig), float(one["seconds"]), float(one["blas_seconds"]))


def _fits(config: QuantConfig, arch: Arch, m: int) -> bool:
    """Only the body that the target's default has: bits may not depend on which shapes somebody measured."""
    return config.body in ("blas", default(arch, "Q8_0", 1, 1, 1).body)


QUANT = Kind("lanewise.quant-table", "quant", _row, _fits)
