"""What `lanewise tune --format` times: `quant_linear` on packed weights, x quantized at every call as in the op, beside weights dequantized for BLAS.

All cuts of a kernel are tried at the smallest m that it gets, one token having a kernel of its own; for more tokens only the best of those, with
every number of tokens in a program, as compiling them all would take the longest of everything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lanewise import formats
from lanewise.arch import Arch
from lanewise.bench.quant_right import QuantReference
from lanewise.bench.replay import TYPES, Gpu
from lanewise.bench.shapes import random_rows
from lanewise.bench.tune_subject import TuneProblem, best, copies_of
from lanewise.kernels.gpu.act_quant import act_quant
from lanewise.kernels.gpu.quant_config import QuantConfig, candidates
from lanewise.kernels.gpu.quant_gemm import dequantize
from lanewise.kernels.gpu.quant_gemv import quant_gemv
from lanewise.kernels.gpu.quant_layout import BLOCK, ROWS, layout_of
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.kernels.gpu.quant_table import QUANT, QuantRow

__all__ = ["Quantized"]

_PASSED = 4  # cuts that the smallest m passes on
_SEED = 0
_OCTET = 8  # tokens up to which a program has one sum for each of a matrix unit's columns


class Quantized:
    """`quant_linear` in the formats of `names`, on x of one dtype."""

    kind = QUANT
    blas = QuantConfig("blas")
    instead = True

    def __init__(self, gpu: Gpu, row: Arch, names: Sequence[str], rows: Sequence[int], dtype: str) -> None:
        self.names = self.explored_names = names
        self._gpu, self._arch, self._rows, self._dtype = gpu, row, rows, dtype
        self._x: Any = None
        self._reference: QuantReference | None = None

    def explored(self, problem: TuneProblem) -> list[Any]:
        return self._candidates(problem) if problem.m == self._first(problem.m) else []

    def rest(self, problem: TuneProblem, times: Mapping[TuneProblem, Mapping[Any, float]]) -> list[Any]:
        own, first = self._candidates(problem), problem._replace(m=self._first(problem.m))
        passed = {_cut(config) for config in best(times.get(first, {}), lambda config: True, _PASSED)}
        return [config for config in own if _cut(config) in passed] or own

    def _first(self, m: int) -> int:
        """The smallest m whose cuts say something of this one's."""
        return m if m == 1 else min((rows for rows in self._rows if 1 < rows <= _OCTET), default=min(self._rows))

    def weights(self, name: str, n: int, k: int) -> list[Any]:
        form = formats.get(name)
        raw = random_rows(form, n, k, np.random.default_rng(_SEED))
        self._gpu.room(1, n, k, 2 * raw.nbytes)  # while it is packed the bytes are there too
        first = pack(torch.from_numpy(raw).to(self._gpu.device), name)
        tiles = self._gpu.copies(first.tiles, copies_of(self._gpu, first.nbytes), n, k)
        self._x = torch.randn(max(self._rows), k, device=self._gpu.device).to(TYPES[self._dtype])
        self._reference = QuantReference(self._x, raw, name, self._dtype)
        return [QuantWeight(name, n, k, False, one) for one in tiles]

    def x(self, problem: TuneProblem) -> Any:
        return self._x[: problem.m]

    def stand_ins(self, problem: TuneProblem) -> tuple[Any, Any]:
        device, layout = self._gpu.device, layout_of(problem.name)
        tiles = torch.empty(-(-problem.n // ROWS), -(-problem.k // BLOCK), layout.record, dtype=torch.int32, device=device)
        x = torch.empty(problem.m, problem.k, dtype=TYPES[self._dtype], device=device)
        return x, QuantWeight(problem.name, problem.n, problem.k, False, tiles)

    def call(self, x: Any, w: QuantWeight, config: QuantConfig) -> Any:
        if config == self.blas:
            return torch.nn.functional.linear(x, dequantize(w, x.dtype, arch=self._arch))
        a = act_quant(x, w.layout.activation, arch=self._arch)
        return quant_gemv(a, w, out=x.dtype, constant_w=True, config=config, arch=self._arch)

    def worst(self, problem: TuneProblem, y: Any, x: Any, w: QuantWeight) -> float:
        assert self._reference is not None
        return self._reference.integer(y, w.layout.activation)

    def row(self, problem: TuneProblem, config: Any, seconds: float, blas_seconds: float) -> QuantRow:
        return QuantRow(*problem, config, seconds, blas_seconds)

    def _candidates(self, problem: TuneProblem) -> list[QuantConfig]:
        return [config for config in candidates(self._arch, *problem) if config != self.blas]


def _cut(config: QuantConfig) -> tuple[str, int, int, int]:
    """A configuration but for its tokens."""
    return config.body, config.warps, config.ahead, config.splits
