"""What `lanewise tune --format --experts` times: `grouped_linear` on packed experts, x quantized at every call as in the op, ids at rest.

Which experts have rows is drawn anew for every call, as `bench kernel` does (`routing.py`): no call finds those of the calls before it in the cache.
Beside it stand experts dequantized one by one for BLAS, which is told the ids. Dispatch has no such path; the kernel runs where that is faster too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch

from lanewise import formats
from lanewise.arch import Arch
from lanewise.bench.quant_right import QuantReference
from lanewise.bench.replay import TYPES, Gpu
from lanewise.bench.routing import routings
from lanewise.bench.shapes import random_rows
from lanewise.bench.tune_subject import TuneProblem, best, copies_of
from lanewise.kernels.gpu.grouped import grouped
from lanewise.kernels.gpu.grouped_config import GroupedConfig, candidates
from lanewise.kernels.gpu.grouped_table import GROUPED, GroupedRow
from lanewise.kernels.gpu.quant_gemm import dequantize
from lanewise.kernels.gpu.quant_layout import BLOCK, ROWS, layout_of
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack

__all__ = ["Experts"]

_PASSED = 4  # cuts that the smallest m passes on
_SEED = 0
_BETWEEN = 2  # copies that a whole copy's bytes ask for times this: of many tokens a rotation reads only some of a copy, at least half


@dataclass(frozen=True, slots=True)
class _Turn:
    """A copy of the experts, and which of the routings comes to it. nbytes: that one token reads."""

    weight: QuantWeight
    number: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Routed:
    """x[m,k], and ids[m,top] of every call on a copy; on the host too."""

    x: Any
    ids: tuple[Any, ...]
    known: Any

    def at(self, turn: _Turn) -> Any:
        return self.ids[turn.number % len(self.ids)]


class Experts:
    """`grouped_linear` in the formats of `names`, on x of one dtype."""

    kind = GROUPED
    blas = GroupedConfig("blas")
    instead = False

    def __init__(self, gpu: Gpu, row: Arch, names: Sequence[str], rows: Sequence[int], dtype: str, experts: int, top: int) -> None:
        self.names = self.explored_names = names
        self._gpu, self._arch, self._rows, self._dtype, self._experts, self._top = gpu, row, rows, dtype, experts, top
        self._x: Any = None
        self._raw: Any = None

    def explored(self, problem: TuneProblem) -> list[Any]:
        return self._candidates(problem) if problem.m == min(self._rows) else []

    def rest(self, problem: TuneProblem, times: Mapping[TuneProblem, Mapping[Any, float]]) -> list[Any]:
        own, first = self._candidates(problem), problem._replace(m=min(self._rows))
        passed = {_cut(config) for config in best(times.get(first, {}), lambda config: True, _PASSED)}
        return [config for config in own if _cut(config) in passed] or own

    def weights(self, name: str, n: int, k: int) -> list[Any]:
        form = formats.get(name)
        self._raw = random_rows(form, self._experts * n, k, np.random.default_rng(_SEED)).reshape(self._experts, n, -1)
        self._gpu.room(1, self._experts * n, k, 2 * self._raw.nbytes)  # while it is packed the bytes are there too
        first = pack(torch.from_numpy(self._raw).to(self._gpu.device), name)
        tiles = self._gpu.copies(first.tiles, _BETWEEN * copies_of(self._gpu, first.nbytes), self._experts * n, k)
        self._x = torch.randn(max(self._rows), k, device=self._gpu.device).to(TYPES[self._dtype])
        copies, read = [QuantWeight(name, n, k, False, one) for one in tiles], first.nbytes // self._experts * self._top
        return [_Turn(copy, number, read) for number in range(self._experts // self._top) for copy in copies]

    def x(self, problem: TuneProblem) -> Any:
        return self._routed(problem, self._x[: problem.m])

    def stand_ins(self, problem: TuneProblem) -> tuple[Any, Any]:
        device, layout = self._gpu.device, layout_of(problem.name)
        shape = self._experts, ceil(problem.n / ROWS), ceil(problem.k / BLOCK), layout.record
        x = torch.empty(problem.m, problem.k, dtype=TYPES[self._dtype], device=device)
        weight = QuantWeight(problem.name, problem.n, problem.k, False, torch.empty(shape, dtype=torch.int32, device=device))
        return self._routed(problem, x), _Turn(weight, 0, weight.nbytes)

    def call(self, x: _Routed, w: _Turn, config: GroupedConfig) -> Any:
        if config == self.blas:
            return self._dequantized(x, w)
        return grouped(
            x.x, w.weight, x.at(w), out=x.x.dtype, constant_w=True, ids_ready=True, ordered=config.ordered, config=config.cut, arch=self._arch
        )

    def worst(self, problem: TuneProblem, y: Any, x: _Routed, w: _Turn) -> float:
        ids, rows = x.known[w.number % len(x.ids)].reshape(-1), y.reshape(-1, problem.n)
        share = 0.0
        for e in np.unique(ids):
            pairs = torch.from_numpy(np.flatnonzero(ids == e)).to(y.device)
            mine = QuantReference(x.x[pairs // self._top], self._raw[e], problem.name, self._dtype)
            share = max(share, mine.integer(rows[pairs], w.weight.layout.activation))
        return share

    def row(self, problem: TuneProblem, config: Any, seconds: float, blas_seconds: float) -> GroupedRow:
        return GroupedRow(problem.name, problem.m * self._top, problem.n, problem.k, self._experts, config, seconds, blas_seconds)

    def _routed(self, problem: TuneProblem, x: Any) -> _Routed:
        known = routings(problem.m, self._experts, self._top, _SEED)
        return _Routed(x, tuple(torch.from_numpy(one.copy()).to(self._gpu.device) for one in known), known)

    def _candidates(self, problem: TuneProblem) -> list[GroupedConfig]:
        return list(candidates(self._arch, problem.m * self._top, problem.k))

    def _dequantized(self, x: _Routed, turn: _Turn) -> Any:
        ids, w = x.known[turn.number % len(x.ids)].reshape(-1), turn.weight
        y = []
        for e in np.unique(ids):
            one = dequantize(QuantWeight(w.format, w.n, w.k, w.gated, w.tiles[int(e)]), x.x.dtype, arch=self._arch)
            y.append(torch.nn.functional.linear(x.x[: int(np.count_nonzero(ids == e))], one))  # any rows: they take as long
        return torch.cat(y)


def _cut(config: GroupedConfig) -> tuple[str, int, int]:
    """A configuration but for its tokens and the order."""
    return config.body, config.warps, config.ahead
