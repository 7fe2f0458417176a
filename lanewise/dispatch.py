"""The registry: kernels in order of preference, and the first whose guards hold runs.

`select` never answers with nothing: when every kernel refuses it raises NoKernelError with all the reasons.
Nothing here remembers a target: `problem.arch` comes from the tensors of each call.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lanewise.contract import OPS, Kernel, Problem, Refusal
from lanewise.errors import NoKernelError

__all__ = ["Selection", "Verdict", "bind", "explain", "kernels", "register", "run", "select", "witness"]

_REGISTRY: dict[str, list[Kernel]] = {op: [] for op in OPS}
_WITNESSES: list[Counter[str]] = []


@dataclass(frozen=True, slots=True)
class Selection:
    """The kernel that runs, and the refusals met on the way to it."""

    kernel: Kernel
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one kernel says of a problem: `refusal` is None when it accepts, `chosen` when it is the one that runs."""

    kernel: Kernel
    refusal: Refusal | None
    chosen: bool


def register(kernel: Kernel, *, before: str | None = None) -> Kernel:
    """Add a kernel behind those of its op, or in front of the one named `before`. Names are unique within an op."""
    row = _REGISTRY[kernel.op]
    names = [k.name for k in row]
    if kernel.name in names:
        raise ValueError(f"{kernel.op} already has a kernel named {kernel.name!r}")
    row.insert(names.index(before) if before else len(row), kernel)
    return kernel


def kernels(op: str | None = None) -> tuple[Kernel, ...]:
    """The kernels of an op, or of all, in the order in which they are asked."""
    return tuple(_REGISTRY[op]) if op else tuple(k for row in _REGISTRY.values() for k in row)


def explain(problem: Problem) -> tuple[Verdict, ...]:
    """What every kernel of the op says of the problem, in order; at most one is chosen."""
    verdicts: list[Verdict] = []
    taken = False
    for kernel in _REGISTRY[problem.op]:
        refusal = kernel.refusal(problem)
        verdicts.append(Verdict(kernel, refusal, refusal is None and not taken))
        taken = taken or refusal is None
    return tuple(verdicts)


def select(problem: Problem, body: str | None = None) -> Selection:
    """The first kernel that accepts, of one body where it is named. Raises NoKernelError, with every refusal, when none does."""
    refusals: list[Refusal] = []
    for kernel in (k for k in _REGISTRY[problem.op] if body in (None, k.body)):
        refusal = kernel.refusal(problem)
        if refusal is None:
            return Selection(kernel, tuple(refusals))
        refusals.append(refusal)
    raise NoKernelError(problem, refusals)


def bind(problem: Problem, body: str | None = None) -> Callable[..., Any]:
    """Select a kernel once, for calls that are all alike; what comes back calls it and tells the witnesses."""
    kernel = select(problem, body).kernel

    def call(*args: Any, **kwargs: Any) -> Any:
        for counter in _WITNESSES:
            counter[kernel.name] += 1
        return kernel.run(*args, **kwargs)

    return call


def run(problem: Problem, *args: Any, **kwargs: Any) -> Any:
    """Select a kernel, tell the witnesses, and call it."""
    return bind(problem)(*args, **kwargs)


@contextmanager
def witness() -> Iterator[Counter[str]]:
    """Count, by name, the kernels that really ran inside the block: proof that a path was taken."""
    counter: Counter[str] = Counter()
    _WITNESSES.append(counter)
    try:
        yield counter
    finally:
        _WITNESSES[:] = [c for c in _WITNESSES if c is not counter]
