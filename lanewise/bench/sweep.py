"""The kernels of a GPU against BLAS at many shapes, an evidence bundle each: what a claim about a kernel, and not about one shape, rests on."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lanewise.bench.gpu_code import ARMS
from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
from lanewise.bench.manifest import write
from lanewise.bench.problem import Call
from lanewise.contract import dtype as known
from lanewise.errors import EvidenceError, NoKernelError
from lanewise.kernels.gpu.quant_layout import LAYOUTS

__all__ = ["ROWS", "SHAPES", "calls_of", "name_of", "quantized_calls", "sweep"]

# (n, k) of the weights of Qwen3-0.6B (head included) and Qwen3-8B.
SHAPES = ((5120, 1024), (1024, 2048), (3072, 1024), (6144, 1024), (1024, 3072), (151936, 1024), (4096, 4096), (12288, 4096), (4096, 12288))
ROWS = (1, 2, 3, 4, 8, 16)  # values of m
# Of quantized weights: every format at a large down projection of a decoder; a head; and gate and up of one, decoded and with prompts.
_EVERY, _EVERY_M = (4096, 14336), (1, 4, 8)
_SOME: tuple[tuple[str, int, int, tuple[int, ...]], ...]
_SOME = (("Q6_K", 151936, 1024, (1,)), ("Q4_K", 24576, 4096, (1,)), ("Q4_K", 12288, 4096, (1, 32, 512, 2048)))


def name_of(call: Call) -> str:
    """What the bundle of a call is called."""
    what = f"quant-{call.fmt.lower()}" if call.fmt else "skinny"
    return f"{what}-{call.dtype}-m{call.m}-{call.n}x{call.k}"


def calls_of(shapes: Sequence[tuple[int, int]] = SHAPES, rows: Sequence[int] = ROWS, dtypes: Sequence[str] = ("bf16",)) -> list[Call]:
    """linear at every shape and m, in every type."""
    return [Call("linear", m, n, k, dtype=known(dtype).name) for dtype in dtypes for n, k in shapes for m in rows]


def quantized_calls(
    formats: Sequence[str] = tuple(LAYOUTS),
    shapes: Sequence[tuple[int, int]] | None = None,
    rows: Sequence[int] | None = None,
    dtype: str = "bf16",
) -> list[Call]:
    """quant_linear in these formats at every shape and m; where neither is named at those that are worth knowing, each with its own m."""
    chosen = [one.upper() for one in formats]
    if shapes is None and rows is None:
        sizes = [(fmt, *_EVERY, _EVERY_M) for fmt in chosen] + [one for one in _SOME if one[0] in chosen]
    else:
        sizes = [(fmt, n, k, tuple(rows or _EVERY_M)) for fmt in chosen for n, k in shapes or (_EVERY,)]
    return [Call("quant_linear", m, n, k, fmt, known(dtype).name) for fmt, n, k, several in sizes for m in several]


def sweep(
    folder: Path,
    calls: Sequence[Call],
    device: str = "cuda",
    pairs: int = 15,
    seed: int | None = None,
    told: Callable[[str], None] | None = None,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Bundles into new folders of `folder`, one after the other, each with its manifest as soon as it is written.

    Where the table says BLAS there is no other arm of linear: `told` hears of it, and of runs that prove nothing. Raises EvidenceError before
    anything is measured where one of the folders is there already.
    """
    there = [path for path in (folder / name_of(call) for call in calls) if path.exists()]
    if there:
        raise EvidenceError(f"{there[0]} is there already; bundles are written to new directories")
    for call in calls:
        a, b = list(ARMS[call.op])[:2]
        plan = KernelPlan(call, (a, b), device, pairs, seed=seed)
        try:
            found = bench_kernel(plan, command_of(plan))
        except (NoKernelError, EvidenceError) as error:
            if told:
                told(f"{call}: {error}")
            continue
        yield write(folder / name_of(call), found).parent, found
