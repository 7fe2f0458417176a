"""What `lanewise tune` asks of an op whose configurations it times."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple, Protocol

from lanewise.bench.replay import Gpu
from lanewise.kernels.gpu.table import Kind, Measured

__all__ = ["Subject", "TuneProblem", "best", "copies_of"]

_ROTATION = 4  # L2 caches
_MOST_COPIES = 512


class TuneProblem(NamedTuple):
    """name: the dtype, or the format of quantized weights."""

    name: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.name} m={self.m} {self.n}x{self.k}"


class Subject(Protocol):
    """An op on one GPU. Weights are so many copies that a rotation is 4 L2 caches, each with `nbytes`."""

    @property
    def kind(self) -> Kind: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def explored_names(self) -> Sequence[str]:
        """Those of which candidates are tried without knowing anything."""
        ...

    @property
    def blas(self) -> Any: ...
    @property
    def instead(self) -> bool:
        """Whether dispatch goes to BLAS where the table says that it is faster."""
        ...

    def explored(self, problem: TuneProblem) -> list[Any]:
        """What is tried first."""
        ...

    def rest(self, problem: TuneProblem, times: Mapping[TuneProblem, Mapping[Any, float]]) -> list[Any]:
        """What is tried then, from what is good elsewhere."""
        ...

    def weights(self, name: str, n: int, k: int) -> list[Any]: ...

    def x(self, problem: TuneProblem) -> Any: ...

    def stand_ins(self, problem: TuneProblem) -> tuple[Any, Any]:
        """(x, w) for a call that only says what it would compile."""
        ...

    def call(self, x: Any, w: Any, config: Any) -> Any:
        """y[m,n]; `blas` is a configuration too."""
        ...

    def worst(self, problem: TuneProblem, y: Any, x: Any, w: Any) -> float:
        """The largest error as a share of what is allowed."""
        ...

    def row(self, problem: TuneProblem, config: Any, seconds: float, blas_seconds: float) -> Measured: ...


def copies_of(gpu: Gpu, nbytes: int) -> int:
    """How many weights of so many bytes are 4 L2 caches."""
    return min(_MOST_COPIES, ceil(_ROTATION * (gpu.cache or 0) / nbytes) or 1)


def best(times: Mapping[Any, float], among: Callable[[Any], bool], most: int) -> list[Any]:
    """The fastest configurations of those that are meant, at most so many."""
    return sorted(filter(among, times), key=lambda config: times[config])[:most]
