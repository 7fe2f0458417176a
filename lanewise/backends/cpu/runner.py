"""Lowers a spec to compiled kernels: weights stay as small as in the file, and a step is one walk of a program by all threads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise import settings
from lanewise.arch import host
from lanewise.backends.base import Batch, Progress
from lanewise.backends.cpu.buffers import Buffers, Cache, Widest
from lanewise.backends.cpu.kernels import require_kernel
from lanewise.backends.cpu.program import Model, Program, Shape, build, kernels_of, partial_bytes, widest
from lanewise.backends.cpu.sampling import CpuDistribution, Passes
from lanewise.backends.cpu.weights import Arena, aligned, pack_weight, padded_vector
from lanewise.backends.memory import require
from lanewise.backends.reference.ops import rotation
from lanewise.errors import SettingError, ShapeError
from lanewise.files import ModelFile
from lanewise.kernels.cpu.attention import SPLIT, TASK_ROWS
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import selected
from lanewise.kernels.cpu.threads import ThreadPool, physical_cores
from lanewise.models.spec import ModelSpec

__all__ = ["CpuBackend", "CpuRunner"]

_SEGMENT_WORK = 1e10  # multiplications between two looks at Ctrl-C
_ATTENTION_COST = 4  # multiplications of int8 in the time of one of attention's
_SPREAD_ROWS = 16  # more rows than this keep all threads busy without spreading their splits
_PROGRAMS = 64  # programs kept
_MOST_THREADS = 4096  # more than any processor has; a slip of the keyboard would keep the system busy for a minute


class CpuBackend:
    """Kernels compiled for this processor; quantized weights stay quantized."""

    name = "cpu"

    def lower(self, spec: ModelSpec, file: ModelFile, progress: Progress | None = None, threads: int | None = None) -> "CpuRunner":
        """Pack every weight of `spec`; `threads` is LANEWISE_THREADS, else the physical cores, when None.

        Raises FormatError for a format without a kernel, DeviceError when memory or threads do not suffice, SettingError for a number of threads
        that makes no sense.
        """
        if threads is None:
            threads = settings.get("THREADS") or min(physical_cores(), _MOST_THREADS)
        if not 1 <= threads <= _MOST_THREADS:
            raise SettingError(f"threads is {threads}; it takes a positive number, at most {_MOST_THREADS}")
        for layer in spec.layers:
            require_kernel("attention", host(), k=layer.mixer.head_dim)
        isa = selected()
        tensors = {w: file.tensor(w.name, w.shape) for w in spec.weights()}
        embedding = tensors[spec.embedding]
        if spec.head.weight != spec.embedding:
            del tensors[spec.embedding]  # rows of it are read from the file as they are needed
        formats = {w: t.format.name for w, t in tensors.items() if len(w.shape) == 2}
        require(sum(t.nbytes for t in tensors.values()), f"the weights of {file.path}")
        for (n, k), fmt in dict.fromkeys((weight.shape, fmt) for weight, fmt in formats.items()):
            require_kernel("quant_linear", host(), n=n, k=k, format=fmt)
        library = Library(kernels_of(spec, embedding.format.name, formats), isa)
        pool = ThreadPool(isa, threads)
        packed, vectors, arena = {}, {}, Arena()
        done, total = 0, sum(t.nbytes for t in tensors.values())
        for weight, tensor in tensors.items():
            if len(weight.shape) == 2:
                packed[weight] = pack_weight(tensor, library, pool, arena)
            else:
                vectors[weight] = padded_vector(tensor.dequantize())
            done += tensor.nbytes
            if progress:
                progress("load", done, total)
        sizes = widest(formats, isa)
        buffers, logits = Buffers.make(spec, 1, threads, sizes), np.empty((0, spec.vocab), np.float32)
        return CpuRunner(Model(spec, embedding, packed, vectors, buffers, None, library, threads, logits), pool, sizes)


class CpuRunner:
    """Walks programs. Rows may belong to any mix of sequences; what a row gives does not depend on the others."""

    notes: tuple[str, ...] = ()

    def __init__(self, model: Model, pool: ThreadPool, sizes: Widest) -> None:
        self.spec = model.spec
        self.model, self.pool, self._widest = model, pool, sizes
        self._passes = Passes(model.library, self.spec.vocab)
        self._programs: dict[Shape, Program] = {}
        self._parameters, self._work = self.spec.parameters, 0
        self._inv_freq = {rope: np.array(rope.inv_freq) for rope in model.buffers.turns}

    def allocate(self, pages: int, page_size: int) -> None:
        """float16 keys and values; the system commits them as they are written."""
        if page_size != LANES:
            raise ShapeError(f"the cpu backend has pages of {LANES} tokens; {page_size} was asked for")
        self.model.cache = Cache.make(self.spec, pages)
        self._programs.clear()
        self._fit(min(settings.get("PREFILL_CHUNK") + settings.get("MAX_BATCH") - 1, pages * LANES), 1)  # a chunk beside all others' tokens
        self._program(Shape(rows=1, logits=1, tasks=1, splits=0))  # a token's step, for the first one not to wait

    def step(self, batch: Batch) -> NDArray[np.float32]:
        """logits[r,vocab] at batch.logit_rows."""
        self.run(self.program(batch))
        return self.model.logits[: len(batch.logit_rows), : self.spec.vocab].copy()

    def distribution(self, logits: NDArray[np.float32]) -> CpuDistribution:
        """Picks by compiled passes over the vocabulary."""
        return CpuDistribution(self._passes, logits)

    def program(self, batch: Batch) -> Program:
        """The program of a step, with the batch's inputs laid out for one run of it."""
        rows = len(batch.tokens)
        self._fit(rows, len(batch.logit_rows))
        b = self.model.buffers
        if rows and not 0 <= batch.tokens.min() <= batch.tokens.max() < self.spec.vocab:
            raise ShapeError(f"token ids run from {batch.tokens.min()} to {batch.tokens.max()}; the vocabulary has {self.spec.vocab}")
        b.tokens[:rows] = batch.tokens
        for rope, freq in self._inv_freq.items():
            cos, sin = rotation(batch.positions, freq, rope.magnitude)
            b.turns[rope][0][:rows], b.turns[rope][1][:rows] = cos, sin
        b.slots[:rows] = batch.slots
        b.logit_rows[: len(batch.logit_rows)] = batch.logit_rows
        self._table = np.ascontiguousarray(batch.page_table, np.int32)  # the tasks point into it
        tasks = self._tasks(batch, self._table)
        splits = -(-int(batch.context.max(initial=1)) // SPLIT)
        spread = splits if splits > 1 and rows <= _SPREAD_ROWS else 0
        scores = int((np.diff(batch.query_start).astype(np.int64) * batch.context).sum())
        of_layers = [_ATTENTION_COST * scores * 2 * layer.mixer.heads * layer.mixer.head_dim for layer in self.spec.layers]
        self._work = rows * self._parameters + sum(of_layers)
        attends = 1 if spread else max(1, min(tasks, int(max(of_layers) / _SEGMENT_WORK)))
        return self._program(Shape(rows, len(batch.logit_rows), tasks, spread, attends))

    def run(self, program: Program) -> None:
        """Walk the program that was made last, in pieces short enough that Python, between them, can act on Ctrl-C."""
        pieces = max(1, int(self._work / _SEGMENT_WORK))
        per_piece = -(-len(program.ops) // pieces)
        for start in range(0, len(program.ops), per_piece):
            ops = program.ops[start : start + per_piece]
            self.pool.run(ops)

    def close(self) -> None:
        """End the threads and drop weights and cache."""
        self.pool.close()
        self._programs.clear()
        self.model.packed, self.model.vectors, self.model.cache = {}, {}, None

    def _tasks(self, batch: Batch, table: NDArray[np.int32]) -> int:
        count = 0
        tasks, start, step = self.model.buffers.tasks, table.ctypes.data, table.strides[0]
        for j, context in enumerate(batch.context.tolist()):
            first, end = int(batch.query_start[j]), int(batch.query_start[j + 1])
            for row in reversed(range(first, end, TASK_ROWS)):  # the longest first: threads then end together
                tasks[count] = row, min(TASK_ROWS, end - row), context - (end - row), start + j * step
                count += 1
        return count

    def _fit(self, rows: int, logits: int) -> None:
        """Buffers for that many rows; they grow by doubling, and programs that point into the old ones are dropped."""
        model = self.model
        if rows > model.buffers.rows:
            size = max(rows, 2 * model.buffers.rows)
            model.buffers = Buffers.make(self.spec, size, model.threads, self._widest)
            self._programs.clear()
        if logits > len(model.logits):
            width = self.spec.vocab
            model.logits = aligned(4 * logits * width).view(np.float32).reshape(logits, width)
            self._programs.clear()

    def _program(self, shape: Shape) -> Program:
        found = self._programs.get(shape)
        if found is None:
            needed = partial_bytes(shape, self.spec)
            if needed > self.model.partial.nbytes:
                self.model.partial = aligned(2 * needed)
                self._programs.clear()
            while len(self._programs) >= _PROGRAMS:
                del self._programs[next(iter(self._programs))]
            found = self._programs[shape] = build(self.model, shape)
        return found

    def __enter__(self) -> "CpuRunner":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
