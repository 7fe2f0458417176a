"""`lanewise tune`: which configuration of the skinny kernel, or of the quantized ones, is fastest at a shape on this GPU, or whether BLAS is.

Candidates are compiled ahead, timed for a moment by graph replay over rotating weights, and the best few, with BLAS among them, longer and in
turns. The fastest whose result is right is kept. Not everything is tried everywhere: what is good for one m is tried for its neighbours, and
what is good in one type in the other.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch

from lanewise.arch import Arch
from lanewise.backends import Progress
from lanewise.bench.gpu_compile import compile_all, wanted
from lanewise.bench.lock import held
from lanewise.bench.replay import TYPES, Gpu, Piece, gpu_index
from lanewise.bench.right import worst
from lanewise.bench.routing import MOST_DRAWN
from lanewise.bench.sweep import ROWS
from lanewise.bench.tune_grouped import Experts
from lanewise.bench.tune_quant import Quantized
from lanewise.bench.tune_subject import Subject, TuneProblem, best, copies_of
from lanewise.errors import DeviceError, LanewiseError, ShapeError
from lanewise.formats import get
from lanewise.kernels.gpu import device as devices
from lanewise.kernels.gpu import skinny
from lanewise.kernels.gpu.config import BODIES, Config
from lanewise.kernels.gpu.defaults import candidates
from lanewise.kernels.gpu.linear import MOST_ROWS
from lanewise.kernels.gpu.quant_layout import layout_of
from lanewise.kernels.gpu.table import LINEAR, Measured, Row, Table, forget, here, read

__all__ = ["TunePlan", "added", "tune", "write_table"]

_SEEDED = 8  # configurations of each body that a neighbour passes on
_BRIEF_SECONDS, _FASTEST_READ, _MOST_BRIEF = 3e-4, 4e12, 64  # of a graph; bytes a second; calls, but at least one rotation
_LONG_SECONDS, _LONG_CALLS = 0.02, 256
_BRIEF_TURNS, _LONG_TURNS = 3, 9
_FINALISTS = 6
_FEW = 4  # tokens up to which lanes are worth trying
_SECONDS = 20.0
_MOST_SIZE = 2**30  # of n and k: what the kernel counts in 32 bits
_MOST_TOKENS = 2**16  # of quantized weights
_READABLE = 0o644


@dataclass(frozen=True, slots=True)
class TunePlan:
    """shapes: (n, k); rows: values of m; seconds: most for one (dtype, shape, m), compiling left out; formats: of w, where `quant_linear` is meant;
    experts, top: where it is `grouped_linear`, and m are tokens that have so many each.

    Raises ShapeError for what cannot be, and FormatError for a format without kernels or a k that is no whole number of its blocks.
    """

    shapes: tuple[tuple[int, int], ...]
    rows: tuple[int, ...] = ROWS
    dtypes: tuple[str, ...] = ("bf16", "f16")
    device: str = "cuda"
    seconds: float = _SECONDS
    formats: tuple[str, ...] = ()
    experts: int = 0
    top: int = 0

    def __post_init__(self) -> None:
        for n, k in self.shapes:
            if not (1 <= n < _MOST_SIZE and 1 <= k < _MOST_SIZE):
                raise ShapeError(f"a shape of {str(n)[:40]}x{str(k)[:40]}; n and k are from 1 to {_MOST_SIZE - 1}")
        most = _MOST_TOKENS if self.formats else MOST_ROWS
        if not self.shapes or not self.rows or not all(1 <= m <= most for m in self.rows):
            raise ShapeError(f"m of {', '.join(map(str, self.rows)) or 'nothing'}; it is 1 to {most}, and there is a shape")
        if not (1 <= self.top <= self.experts and self.formats if self.experts or self.top else True):
            raise ShapeError(
                f"experts={self.experts}, top={self.top} of formats {', '.join(self.formats) or 'nothing'}; a token has 1 to all of them"
            )
        if max(self.rows) * self.experts > MOST_DRAWN:
            raise ShapeError(f"m={max(self.rows)} tokens over experts={self.experts}; a routing is drawn of at most {MOST_DRAWN} numbers")
        if not self.dtypes or any(dtype not in TYPES for dtype in self.dtypes):
            raise ShapeError(f"dtypes {', '.join(self.dtypes)}; they are {', '.join(TYPES)}")
        if self.formats and len(self.dtypes) != 1:
            raise ShapeError(f"dtypes {', '.join(self.dtypes)}; a table of quantized weights is measured with x of one")
        object.__setattr__(self, "formats", tuple(layout_of(fmt).format for fmt in self.formats))
        for fmt in self.formats:
            for _, k in self.shapes:
                get(fmt).row_bytes(k)
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
                gpu.room(
                    1,
                    n,
                    k,
                    max((max(1, plan.experts) * n * get(fmt).row_bytes(k) for fmt in plan.formats), default=n * k * TYPES[plan.dtypes[0]].itemsize),
                )
            tuner = _Tuner(plan, gpu, row, progress)
            return Table(key, tuner.rows(), tuner.subject.kind), list(dict.fromkeys(tuner.notes))
        finally:
            gpu.close()


def added(table: Table, path: Path) -> Table:
    """The table with the rows that a file has beside its own; just the table where there is no file.

    Raises ShapeError for a file that is no table of this kind, and LanewiseError for one of another device, driver or Triton.
    """
    if not path.exists():
        return table
    old = read(path, table.kind)
    if other := [f"{name} {old.key.get(name)} there and {now} here" for name, now in table.key.items() if old.key.get(name) != now]:
        raise LanewiseError(f"{path} is a table of something else: {', '.join(other)}; rows of both cannot stand in one")
    measured = {(row.name, row.m, row.n, row.k) for row in table.rows}
    return replace(table, rows=(*(row for row in old.rows if (row.name, row.m, row.n, row.k) not in measured), *table.rows))


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
        self._times: dict[TuneProblem, dict[Any, float]] = {}
        self.subject: Subject = _Linear(plan, gpu, row)
        if plan.formats:
            given = gpu, row, plan.formats, plan.rows, plan.dtypes[0]
            self.subject = Experts(*given, plan.experts, plan.top) if plan.experts else Quantized(*given)

    def rows(self) -> tuple[Measured, ...]:
        one = self.subject
        explored = {problem: one.explored(problem) for problem in self._problems(one.explored_names)}
        self._compiled(explored)
        for problem, x, w in self._operands("explore", explored):
            self._brief(problem, x, w, explored[problem])
        rest = {problem: one.rest(problem, self._times) for problem in self._problems(one.names)}
        self._compiled(rest)
        found = []
        for problem, x, w in self._operands("tune", rest):
            self._brief(problem, x, w, rest[problem])
            found.append(self._fastest(problem, x, w))
        return tuple(found)

    def _problems(self, names: Sequence[str]) -> list[TuneProblem]:
        """Those of one w together."""
        return [TuneProblem(name, m, n, k) for n, k in self._plan.shapes for name in names for m in self._plan.rows]

    def _operands(self, what: str, chosen: Mapping[TuneProblem, Sequence[Any]]) -> Iterator[tuple[TuneProblem, Any, list[Any]]]:
        """Every problem of which something is tried, with its x and rotating w."""
        problems = [problem for problem in chosen if chosen[problem] or what == "tune"]
        of: tuple[str, int, int] | None = None
        w: list[Any] = []
        for done, problem in enumerate(problems):
            self._told(what, done, len(problems))
            if of != (problem.name, problem.n, problem.k):
                of, w = (problem.name, problem.n, problem.k), []  # the last ones make room
                w = self.subject.weights(*of)
            yield problem, self.subject.x(problem), w
        self._told(what, len(problems), len(problems))

    def _compiled(self, chosen: Mapping[TuneProblem, Sequence[Any]]) -> None:
        """Compile whatever will be launched, once for all shapes that share it."""
        with wanted() as kernels:
            for problem, configs in chosen.items():
                if new := [config for config in configs if config not in self._times.get(problem, {})]:
                    x, w = self.subject.stand_ins(problem)
                    for config in new:
                        self.subject.call(x, w, config)
        self.notes += compile_all(kernels, self._row, os.cpu_count() or 1, lambda done, of: self._told("compile", done, of))

    def _brief(self, problem: TuneProblem, x: Any, w: list[Any], configs: Sequence[Any]) -> None:
        until, times = time.monotonic() + self._plan.seconds, self._times.setdefault(problem, {})
        calls = min(_MOST_BRIEF, ceil(_BRIEF_SECONDS * _FASTEST_READ / w[0].nbytes))
        for config in configs:
            if time.monotonic() > until:
                self.notes.append(f"{problem}: {self._plan.seconds:g} s were over before every candidate was timed")
                return
            if config not in times:
                times.update((one, taken) for taken, one, _ in self._timed(problem, x, w, [config], calls, _BRIEF_TURNS))

    def _fastest(self, problem: TuneProblem, x: Any, w: list[Any]) -> Measured:
        times, blas_config = self._times[problem], self.subject.blas
        calls = min(_LONG_CALLS, ceil(_LONG_SECONDS / min(times.values(), default=_LONG_SECONDS)))
        final = self._timed(problem, x, w, [blas_config, *best(times, lambda config: True, _FINALISTS)], calls, _LONG_TURNS)
        blas = next((taken for taken, config, _ in final if config == blas_config), None)
        if blas is None:
            raise DeviceError(f"{problem}: BLAS, which everything is compared with, does not run: {self.notes[-1]}")
        for taken, config, piece in sorted(final, key=lambda one: one[0]):
            if config == blas_config:
                if self.subject.instead:
                    break
                continue
            piece.result.fill_(float("nan"))
            self._gpu.run(piece)
            if (share := self.subject.worst(problem, piece.result, x, w[-1])) <= 1:  # all copies hold the same numbers
                return self.subject.row(problem, config, taken, blas)
            self.notes.append(f"{problem}: {config} gives a wrong result, {share:.3g} times the error that is allowed")
        if not self.subject.instead:
            raise DeviceError(f"{problem}: no configuration gives a right result, and nothing else runs it: {self.notes[-1]}")
        return self.subject.row(problem, blas_config, blas, blas)

    def _timed(self, problem: TuneProblem, x: Any, w: list[Any], configs: Sequence[Any], calls: int, turns: int) -> list[tuple[float, Any, Piece]]:
        """Median seconds of a call, in turns; what cannot run is noted and left out."""
        pieces, ran = [], []
        for config in configs:
            try:
                pieces.append(self._gpu.capture(self._call(x, w, config), len(w) * ceil(calls / len(w))))
                ran.append(config)
            except Exception as error:  # noqa: BLE001 - too much shared memory, too many registers: Triton raises what it likes
                self.notes.append(f"{problem}: {config}: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
        return list(zip(self._gpu.medians(pieces, turns), ran, pieces, strict=True)) if pieces else []

    def _call(self, x: Any, w: list[Any], config: Any) -> Callable[[int], Any]:
        return lambda i: self.subject.call(x, w[i % len(w)], config)


class _Linear:
    """`linear` in 16 bits. Not every body is tried at every m, nor in every type: what is good for one is tried for its neighbours."""

    kind = LINEAR
    blas = Config("blas")
    instead = True

    def __init__(self, plan: TunePlan, gpu: Gpu, row: Arch) -> None:
        self.names, self.explored_names = plan.dtypes, plan.dtypes[:1]
        self._plan, self._gpu, self._row = plan, gpu, row

    def explored(self, problem: TuneProblem) -> list[Any]:
        """What is tried of each body, and for which m; its best are passed on to the others."""
        return [c for c in candidates(self._row, *problem) if problem.m in _explorers(c.body, self._plan.rows)]

    def rest(self, problem: TuneProblem, times: Mapping[TuneProblem, Mapping[Any, float]]) -> list[Any]:
        """The best of what was explored for other m, or in another type, as far as it is a candidate here."""
        rows, (first,) = self._plan.rows, self.explored_names
        own = set(candidates(self._row, *problem)) - {self.blas}
        found: dict[Config, None] = {}
        for body in BODIES:
            explorers = _explorers(body, rows)
            passed = [
                best(times.get(problem._replace(name=first, m=other), {}), lambda config, body=body: bool(config.body == body), _SEEDED)  # type: ignore[misc]
                for other in ((problem.m,) if problem.m in explorers else explorers)
            ]
            found |= dict.fromkeys(config for configs in passed for config in configs if config in own)
        return list(found or own)

    def weights(self, name: str, n: int, k: int) -> list[Any]:
        self._gpu.room(1, n, k, n * k * TYPES[name].itemsize)
        first = torch.empty(n, k, dtype=TYPES[name], device=self._gpu.device).normal_()
        return self._gpu.copies(first, copies_of(self._gpu, first.nbytes), n, k)

    def x(self, problem: TuneProblem) -> Any:
        return torch.randn(problem.m, problem.k, device=self._gpu.device).to(TYPES[problem.name])

    def stand_ins(self, problem: TuneProblem) -> tuple[Any, Any]:
        x, w = (torch.empty(rows, problem.k, dtype=TYPES[problem.name], device=self._gpu.device) for rows in (problem.m, problem.n))
        return x, w

    def call(self, x: Any, w: Any, config: Config) -> Any:
        if config == self.blas:
            return torch.nn.functional.linear(x, w)
        return skinny.skinny(x, w, constant_w=True, config=config, arch=self._row)

    def worst(self, problem: TuneProblem, y: Any, x: Any, w: Any) -> float:
        return worst(y, x, w, problem.name)

    def row(self, problem: TuneProblem, config: Any, seconds: float, blas_seconds: float) -> Row:
        return Row(*problem, config, seconds, blas_seconds)


def _explorers(body: str, rows: Sequence[int]) -> tuple[int, ...]:
    """The values of m for which a body's candidates are all tried: its smallest or largest, and where what it costs grows with m, both."""
    few, many = [m for m in rows if m <= _FEW], [m for m in rows if m > _FEW]
    found = {"lanes": few[:1], "mma": few[:1] + few[-1:], "fragments": many[:1] or few[-1:], "matrix": rows[-1:]}
    return tuple(dict.fromkeys(found.get(body, ())))
