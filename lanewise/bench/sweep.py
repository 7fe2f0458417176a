"""The skinny kernel against BLAS at many shapes, an evidence bundle each: what a claim about the kernel, and not about one shape, rests on."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lanewise.bench.gpu_code import ARMS
from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
from lanewise.bench.manifest import write
from lanewise.bench.problem import Call
from lanewise.contract import dtype as known
from lanewise.errors import EvidenceError, NoKernelError

__all__ = ["ROWS", "SHAPES", "name_of", "sweep"]

# (n, k) of the weights of Qwen3-0.6B (head included) and Qwen3-8B.
SHAPES = ((5120, 1024), (1024, 2048), (3072, 1024), (6144, 1024), (1024, 3072), (151936, 1024), (4096, 4096), (12288, 4096), (4096, 12288))
ROWS = (1, 2, 3, 4, 8, 16)  # values of m


def name_of(call: Call) -> str:
    """What the bundle of a call is called."""
    return f"skinny-{call.dtype}-m{call.m}-{call.n}x{call.k}"


def sweep(
    folder: Path,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    rows: Sequence[int] = ROWS,
    dtypes: Sequence[str] = ("bf16",),
    device: str = "cuda",
    pairs: int = 15,
    seed: int | None = None,
    told: Callable[[str], None] | None = None,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Bundles into new folders of `folder`, one after the other, each with its manifest as soon as it is written.

    Where the table says BLAS there is no other arm: `told` hears of it, and of runs that prove nothing. Raises EvidenceError before anything
    is measured where one of the folders is there already.
    """
    calls = [Call("linear", m, n, k, dtype=known(dtype).name) for dtype in dtypes for n, k in shapes for m in rows]
    there = [path for path in (folder / name_of(call) for call in calls) if path.exists()]
    if there:
        raise EvidenceError(f"{there[0]} is there already; bundles are written to new directories")
    a, b = ARMS
    for call in calls:
        plan = KernelPlan(call, (a, b), device, pairs, seed=seed)
        try:
            found = bench_kernel(plan, command_of(plan))
        except (NoKernelError, EvidenceError) as error:
            if told:
                told(f"{call}: {error}")
            continue
        yield write(folder / name_of(call), found).parent, found
