"""`lanewise tune`: which configuration of the skinny kernel is fastest at a shape on this GPU, or whether the vendor's BLAS is.

Candidates are compiled ahead, timed for a moment by graph replay over rotating weights, and the best few, with BLAS among them, longer and in
turns. The fastest whose result is right is kept. Not everything is tried everywhere: what is good for one m is tried for its neighbours, and
what is good in one type in the other.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lanewise.arch import Arch
from lanewise.backends import Progress
from lanewise.bench.gpu_compile import compile_all, wanted
from lanewise.bench.lock import held
from lanewise.bench.replay import TYPES, Gpu, Piece, gpu_index
from lanewise.bench.right import worst
from lanewise.bench.sweep import ROWS
from lanewise.errors import DeviceError, LanewiseError, ShapeError
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu import skinny
from lanewise.kernels.gpu.config import BODIES, Config
from lanewise.kernels.gpu.defaults import candidates
from lanewise.kernels.gpu.linear import MOST_ROWS
from lanewise.kernels.gpu.table import Row, Table, forget, here

__all__ = ["TunePlan", "tune", "write_table"]

_BLAS = Config("blas")
_ROTATION = 4  # L2 caches
_MOST_COPIES = 512
_SEEDED = 8  # configurations of each body that a neighbour passes on
_BRIEF_SECONDS, _FASTEST_READ, _MOST_BRIEF = 3e-4, 4e12, 64  # of a graph; bytes a second; calls, but at least one rotation
_LONG_CALLS = 256
_BRIEF_TURNS, _LONG_TURNS = 3, 9
_FINALISTS = 6
_FEW = 4  # tokens up to which lanes are worth trying
_SECONDS = 20.0
_MOST_SIZE = 2**30  # of n and k: what the kernel counts in 32 bits
_READABLE = 0o644


class _Problem(NamedTuple):
    dtype: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.dtype} m={self.m} {self.n}x{self.k}"


@dataclass(frozen=True, slots=True)
class TunePlan:
    """shapes: (n, k); rows: values of m; seconds: most for one (dtype, shape, m), compiling left out. Raises ShapeError for what cannot be."""

    shapes: tuple[tuple[int, int], ...]
    rows: tuple[int, ...] = ROWS
    dtypes: tuple[str, ...] = ("bf16", "f16")
    device: str = "cuda"
    seconds: float = _SECONDS

    def __post_init__(self) -> None:
        for n, k in self.shapes:
            if not (1 <= n < _MOST_SIZE and 1 <= k < _MOST_SIZE):
                raise ShapeError(f"a shape of {str(n)[:40]}x{str(k)[:40]}; n and k are from 1 to {_MOST_SIZE - 1}")
        if not self.shapes or not self.rows or not all(1 <= m <= MOST_ROWS for m in self.rows):
            raise ShapeError(f"m of {', '.join(map(str, self.rows)) or 'nothing'}; it is 1 to {MOST_ROWS}, and there is a shape")
        if not self.dtypes or any(dtype not in TYPES for dtype in self.dtypes):
            raise ShapeError(f"dtypes {', '.join(self.dtypes)}; they are {', '.join(TYPES)}")
        if not self.seconds > 0:
            raise LanewiseError(f"{self.seconds:g} seconds were given for a shape; it takes some")


def tune(plan: TunePlan, progress: Progress | None = None) -> tuple[Table, list[str]]:
    """The table, and what went wrong on the way. Raises DeviceError where there is no such GPU."""
    index = gpu_index(plan.device)
    with held(f"cuda:{index}"):
        gpu = Gpu(index)
        try:
            row = devices.row(devices.named(gpu.device)[0])
            if not row.triton:
                raise DeviceError(f"{row} on {plan.device}: Triton does not compile for it, so that there is nothing to tune")
            key = {**here(str(gpu.properties.name)), "target": row.name, "torch": torch.__version__}
            for n, k in plan.shapes:
                gpu.room(1, n, k)
            tuner = _Tuner(plan, gpu, row, progress)
            return Table(key, tuner.rows()), list(dict.fromkeys(tuner.notes))
        finally:
            gpu.close()


def write_table(table: Table, path: Path) -> None:
    """All of it or, when the system refuses, nothing. Raises LanewiseError then."""
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8") as file:
            part = Path(file.name)
            file.write(table.text())
        part.chmod(_READABLE)  # to whoever else uses the directory
        part.replace(path)
    except OSError as error:
        if part:
            part.unlink(missing_ok=True)
        raise LanewiseError(f"{path} cannot be written: {error.strerror}") from None
    forget()


class _Tuner:
    def __init__(self, plan: TunePlan, gpu: Gpu, row: Arch, progress: Progress | None) -> None:
        self.notes: list[str] = []
        self._plan, self._gpu, self._row = plan, gpu, row
        self._told: Progress = progress or (lambda what, done, total: None)
        self._times: dict[_Problem, dict[Config, float]] = {}

    def rows(self) -> tuple[Row, ...]:
        plan = self._plan
        explored = {_Problem(plan.dtypes[0], m, *shape): self._explored(m, *shape) for shape in plan.shapes for m in plan.rows}
        self._compiled(explored)
        for problem, x, w in self._operands("explore"):
            self._brief(problem, x, w, explored.get(problem, ()))
        rest = {_Problem(dtype, m, *shape): self._rest(dtype, m, *shape) for dtype in plan.dtypes for shape in plan.shapes for m in plan.rows}
        self._compiled(rest)
        found = []
        for problem, x, w in self._operands("tune"):
            self._brief(problem, x, w, rest[problem])
            found.append(self._fastest(problem, x, w))
        return tuple(found)

    def _explored(self, m: int, n: int, k: int) -> list[Config]:
        """What is tried of each body, and for which m; its best are passed on to the others."""
        rows, every = self._plan.rows, candidates(self._row, self._plan.dtypes[0], m, n, k)
        return [c for c in every if m in _explorers(c.body, rows)]

    def _rest(self, dtype: str, m: int, n: int, k: int) -> list[Config]:
        """The best of what was explored for other m, or in another type, as far as it is a candidate here."""
        rows, first = self._plan.rows, self._plan.dtypes[0]
        own = set(candidates(self._row, dtype, m, n, k)) - {_BLAS}
        found: dict[Config, None] = {}
        for body in BODIES:
            explorers = _explorers(body, rows)
            passed = [self._best(_Problem(first, other, n, k), body) for other in ((m,) if m in explorers else explorers)]
            found |= dict.fromkeys(config for configs in passed for config in configs if config in own)
        return list(found or own)

    def _best(self, problem: _Problem, body: str) -> list[Config]:
        times = self._times.get(problem, {})
        return sorted((config for config in times if config.body == body), key=lambda config: times[config])[:_SEEDED]

    def _operands(self, what: str) -> Iterator[tuple[_Problem, Any, list[Any]]]:
        """Every problem with its x and rotating w, those of one w together. The first pass is of the first type alone."""
        plan = self._plan
        dtypes = plan.dtypes[:1] if what == "explore" else plan.dtypes
        total, done = len(dtypes) * len(plan.shapes) * len(plan.rows), 0
        for n, k in plan.shapes:
            for dtype in dtypes:
                w = _weights(self._gpu, dtype, n, k)
                for m in plan.rows:
                    self._told(what, done, total)
                    done += 1
                    yield _Problem(dtype, m, n, k), torch.randn(m, k, device=self._gpu.device).to(TYPES[dtype]), w
                del w
        self._told(what, total, total)

    def _compiled(self, chosen: Mapping[_Problem, Sequence[Config]]) -> None:
        """Compile whatever will be launched, once for all shapes that share it."""
        with wanted() as kernels:
            for problem, configs in chosen.items():
                x, w = (torch.empty(rows, problem.k, dtype=TYPES[problem.dtype], device=self._gpu.device) for rows in (problem.m, problem.n))
                for config in configs:
                    if config not in self._times.get(problem, {}):
                        self._skinny(x, w, config)
        self.notes += compile_all(kernels, self._row, os.cpu_count() or 1, lambda done, of: self._told("compile", done, of))

    def _brief(self, problem: _Problem, x: Any, w: list[Any], configs: Sequence[Config]) -> None:
        until, times = time.monotonic() + self._plan.seconds, self._times.setdefault(problem, {})
        calls = min(_MOST_BRIEF, ceil(_BRIEF_SECONDS * _FASTEST_READ / w[0].nbytes))
        for config in configs:
            if time.monotonic() > until:
                self.notes.append(f"{problem}: {self._plan.seconds:g} s were over before every candidate was timed")
                return
            if config not in times:
                times.update((one, taken) for taken, one, _ in self._timed(problem, x, w, [config], calls, _BRIEF_TURNS))

    def _fastest(self, problem: _Problem, x: Any, w: list[Any]) -> Row:
        times = self._times[problem]
        final = self._timed(problem, x, w, [_BLAS, *sorted(times, key=lambda c: times[c])[:_FINALISTS]], _LONG_CALLS, _LONG_TURNS)
        blas = next((taken for taken, config, _ in final if config == _BLAS), None)
        if blas is None:
            raise DeviceError(f"{problem}: BLAS, which everything is compared with, does not run: {self.notes[-1]}")
        for taken, config, piece in sorted(final, key=lambda one: one[0]):
            if config == _BLAS:
                break
            piece.result.fill_(float("nan"))
            self._gpu.run(piece)
            if (share := worst(piece.result, x, w[0], problem.dtype)) <= 1:  # all copies hold the same numbers
                return Row(*problem, config, taken, blas)
            self.notes.append(f"{problem}: {config} gives a wrong result, {share:.3g} times the error that is allowed")
        return Row(*problem, _BLAS, blas, blas)

    def _timed(self, problem: _Problem, x: Any, w: list[Any], configs: Sequence[Config], calls: int, turns: int) -> list[tuple[float, Config, Piece]]:
        """Median seconds of a call, in turns; what cannot run is noted and left out."""
        pieces, ran = [], []
        for config in configs:
            try:
                pieces.append(self._gpu.capture(self._call(x, w, config), len(w) * ceil(calls / len(w))))
                ran.append(config)
            except Exception as error:  # noqa: BLE001 - too much shared memory, too many registers: Triton raises what it likes
                self.notes.append(f"{problem}: {config}: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
        return list(zip(self._gpu.medians(pieces, turns), ran, pieces, strict=True)) if pieces else []

    def _call(self, x: Any, w: list[Any], config: Config) -> Callable[[int], Any]:
        if config == _BLAS:
            return lambda i: torch.nn.functional.linear(x, w[i % len(w)])
        return lambda i: self._skinny(x, w[i % len(w)], config)

    def _skinny(self, x: Any, w: Any, config: Config) -> Any:
        return skinny.skinny(x, w, constant_w=True, config=config, arch=self._row)


def _weights(gpu: Gpu, dtype: str, n: int, k: int) -> list[Any]:
    """Enough copies of random weights that a rotation is 4 L2 caches; each is there once in a graph at least."""
    gpu.room(1, n, k)
    first = torch.empty(n, k, dtype=TYPES[dtype], device=gpu.device).normal_()
    copies = min(_MOST_COPIES, ceil(_ROTATION * (gpu.cache or 0) / first.nbytes) or 1)
    return gpu.copies(first, copies)


def _explorers(body: str, rows: Sequence[int]) -> tuple[int, ...]:
    """The values of m for which a body's candidates are all tried: its smallest or largest, and where what it costs grows with m, both."""
    few, many = [m for m in rows if m <= _FEW], [m for m in rows if m > _FEW]
    found = {"lanes": few[:1], "mma": few[:1] + few[-1:], "fragments": many[:1] or few[-1:], "matrix": rows[-1:]}
    return tuple(dict.fromkeys(found.get(body, ())))
