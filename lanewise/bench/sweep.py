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

__all__ = ["ROWS", "SHAPES", "calls_of", "grouped_calls", "name_of", "quantized_calls", "sweep"]

# (n, k) of the weights of Qwen3-0.6B (head included) and Qwen3-8B.
SHAPES = ((5120, 1024), (1024, 2048), (3072, 1024), (6144, 1024), (1024, 3072), (151936, 1024), (4096, 4096), (12288, 4096), (4096, 12288))
ROWS = (1, 2, 3, 4, 8, 16)  # values of m
# Of quantized weights: every format at a large down projection of a decoder; a head; and gate and up of one, decoded and with prompts.
_EVERY, _EVERY_M = (4096, 14336), (1, 4, 8)
_SOME: tuple[tuple[str, int, int, tuple[int, ...]], ...]
_SOME = (("Q6_K", 151936, 1024, (1,)), ("Q4_K", 24576, 4096, (1,)), ("Q4_K", 12288, 4096, (1, 32, 512, 2048)))

# Of experts: one half of gate and up of Qwen3-30B-A3B (its config.json on Hugging Face).
_EXPERT, _EXPERT_M, _EXPERTS, _TOP = (768, 2048), (1, 4, 16), 128, 8


def name_of(call: Call) -> str:
    """What the bundle of a call is called."""
    what = f"{'grouped' if call.experts else 'quant'}-{call.fmt.lower()}" if call.fmt else "skinny"
    return f"{what}-{call.dtype}-m{call.m}-{call.n}x{call.k}" + (f"-{call.top}of{call.experts}" if call.experts else "")


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
    calls = [Call("quant_linear", m, n, k, fmt, known(dtype).name) for fmt, n, k, several in sizes for m in several]
    return calls + (grouped_calls(("Q4_K",), dtype=dtype) if shapes is None and rows is None and "Q4_K" in chosen else [])


def grouped_calls(
    formats: Sequence[str],
    shapes: Sequence[tuple[int, int]] | None = None,
    rows: Sequence[int] | None = None,
    dtype: str = "bf16",
    experts: int = _EXPERTS,
    top: int = _TOP,
) -> list[Call]:
    """grouped_linear in these formats at every shape and m; where none is named, gate or up of the experts of Qwen3-30B-A3B, decoded and a prompt."""
    sizes = [(n, k, m) for n, k in shapes or (_EXPERT,) for m in rows or _EXPERT_M]
    return [Call("grouped_linear", m, n, k, fmt, known(dtype).name, experts=experts, top=top) for fmt in formats for n, k, m in sizes]


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
