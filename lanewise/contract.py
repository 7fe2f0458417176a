"""The words kernels are described in: Problem, Guard, Refusal, Kernel, Tolerance.

A kernel's preconditions are data: a tuple of guards, each with a name, a test and the reason to give when it fails.

>>> from lanewise import arch
>>> even = Guard("n_even", lambda p: p.n % 2 == 0, "each wave stores two columns")
>>> problem = Problem("linear", arch.parse("gfx1100"), m=1, n=3, k=64, dtype="bf16")
>>> print(Kernel("skinny", "linear", run=print, guards=(even,)).refusal(problem))
skinny refuses (n_even): each wave stores two columns
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise import settings
from lanewise.arch import Arch
from lanewise.errors import ShapeError, UnknownOpError

__all__ = ["DTYPES", "FUSED", "OPS", "DType", "Guard", "Kernel", "Problem", "Refusal", "Tolerance", "dtype"]

# Every op that a decoder is made of and what it computes. m = tokens, n = output features, k = reduction.
OPS: dict[str, str] = {
    "linear": "y[m,n] = x[m,k] @ w[n,k].T (+ bias[n]); optional: RMSNorm of x in front, SiLU(gate) * up and residual[m,n] behind",
    "quant_linear": "y[m,n] = x[m,k] @ dequantize(w)[n,k].T (+ bias[n]); optional: what linear has in front and behind",
    "grouped_linear": "y[m,n] = x[m,k] @ w[expert[m],n,k].T; of packed w optional: SiLU(gate) * up, and weight[m] behind",
    "embedding": "y[m,n] = w[token[m],n]",
    "rms_norm": "y[m,k] = x[m,k] / sqrt(mean(x[m,:]^2) + eps) * weight[k]",
    "rope": "y[m,heads,dim] = x rotated pairwise by position[m] * inv_freq[dim/2]",
    "attention": "y[m,heads,dim] = softmax(q @ k.T * scale) @ v over each sequence's pages",
    "silu_mul": "y[m,n] = gate[m,n] * sigmoid(gate[m,n]) * up[m,n]",
    "sample": "token = the first whose cumulative filtered probability exceeds u",
}

# What can be asked of a linear besides the product, in the order in which it is computed.
FUSED = ("norm", "bias", "gated", "residual")


@dataclass(frozen=True, slots=True)
class DType:
    """A floating-point type: its name, bytes, unit roundoff (half an ulp of 1), and smallest subnormal."""

    name: str
    size: int
    roundoff: float
    tiny: float


DTYPES: dict[str, DType] = {
    "f32": DType("f32", 4, 2.0**-24, 2.0**-149),
    "f16": DType("f16", 2, 2.0**-11, 2.0**-24),
    "bf16": DType("bf16", 2, 2.0**-8, 2.0**-133),
}
_ALIASES = {"fp32": "f32", "float32": "f32", "fp16": "f16", "float16": "f16", "half": "f16", "bfloat16": "bf16"}


def dtype(name: str) -> DType:
    """The dtype of that name or alias (fp16, float16, bfloat16, ...). Raises ShapeError for any other."""
    found = DTYPES.get(_ALIASES.get(name, name))
    if found is None:
        raise ShapeError(f"unknown dtype {name!r}; known dtypes: {', '.join(DTYPES)}")
    return found


@dataclass(frozen=True, slots=True)
class Problem:
    """One call of an op, as a guard sees it. `arch` is the target of the tensors' own device.

    out:     dtype of y; x's where none is named
    x_inner, w_inner: elements from one k to the next in x and w
    fused:   which of FUSED the call wants
    grad:    whether somebody will ask for a gradient
    torch:   whether operands are torch tensors; on a GPU they always are, on a CPU numpy arrays unless it is said
    experts: how many there are, of grouped_linear; 0 where nobody says
    card:    what the driver calls the device, where a choice may depend on more than its target
    """

    op: str
    arch: Arch
    m: int = 1
    n: int = 1
    k: int = 1
    dtype: str = "f32"
    format: str | None = None
    out: str | None = None
    x_inner: int = 1
    w_inner: int = 1
    fused: tuple[str, ...] = ()
    grad: bool = False
    torch: bool | None = None
    card: str | None = None
    experts: int = 0

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise UnknownOpError(f"unknown op {self.op!r}; known ops: {', '.join(OPS)}")
        if min(self.m, self.n, self.k, self.experts) < 0:
            raise ShapeError(f"m={self.m}, n={self.n}, k={self.k}{f', experts={self.experts}' if self.experts else ''}: sizes are not negative")
        for part in self.fused:
            if part not in FUSED:
                raise ShapeError(f"unknown fused part {part!r}; known parts: {', '.join(FUSED)}")
        object.__setattr__(self, "dtype", dtype(self.dtype).name)
        object.__setattr__(self, "out", dtype(self.out).name if self.out else self.dtype)
        object.__setattr__(self, "torch", self.arch.is_gpu if self.torch is None else self.torch)

    def __str__(self) -> str:
        said = [f"{self.op} m={self.m} n={self.n} k={self.k} {self.dtype}"]
        said += [f"format={self.format}"] if self.format else []
        said += [f"experts={self.experts}"] if self.experts else []
        said += [f"out={self.out}"] if self.out != self.dtype else []
        said += [f"{name}={step}" for name, step in (("x_inner", self.x_inner), ("w_inner", self.w_inner)) if step != 1]
        said += [f"fused={','.join(self.fused)}"] if self.fused else []
        said += ["with gradient"] if self.grad else []
        said += ["of torch tensors"] if self.torch and not self.arch.is_gpu else []
        return f"{' '.join(said)} on {self.arch}" + (f" ({self.card})" if self.card else "")


@dataclass(frozen=True, slots=True)
class Guard:
    """A precondition: `holds(problem)`, and `why` it is needed, said when it does not hold."""

    name: str
    holds: Callable[[Problem], bool]
    why: str | Callable[[Problem], str]

    def words(self, problem: Problem) -> str:
        return self.why if isinstance(self.why, str) else self.why(problem)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kernel's no: which guard did not hold and why it is there."""

    kernel: str
    guard: str
    why: str

    def __str__(self) -> str:
        return f"{self.kernel} refuses ({self.guard}): {self.why}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One body of an op. `switch` names the setting that takes it out of dispatch; `body` is where it runs.

    `note` says of a problem that it accepts how it would run, and where that choice comes from.
    """

    name: str
    op: str
    run: Callable[..., Any]
    guards: tuple[Guard, ...] = ()
    switch: str | None = None
    body: str = "reference"
    note: Callable[[Problem], str] | None = None

    def refusal(self, problem: Problem) -> Refusal | None:
        """The first guard that does not hold, in order; None means that the kernel accepts."""
        if not settings.enabled(self.switch):
            variable = settings.SETTINGS[str(self.switch)].variable
            return Refusal(self.name, "switch", f"{variable} has switched it off")
        for guard in self.guards:
            if not guard.holds(problem):
                return Refusal(self.name, guard.name, guard.words(problem))
        return None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An elementwise error bound: |got - want| <= summing * magnitude + rounding * |want| + floor.

    `magnitude` is the sum of the absolute values that were added up; see `dot` for where the factors come from.
    """

    summing: float
    rounding: float = 0.0
    floor: float = 0.0

    @classmethod
    def dot(cls, k: int, out: str = "f32", accumulate: str = "f32") -> "Tolerance":
        """For a sum of k products in any order: gamma(k) = k*u / (1 - k*u) times sum |x*w|, then one rounding to `out`.

        Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1.
        """
        ku = k * dtype(accumulate).roundoff
        if ku >= 1:
            raise ShapeError(f"k={k} is too long for {accumulate}: its error has no bound")
        # the last rounding acts on a value that is off already
        return cls(ku / (1 - ku) * (1 + dtype(out).roundoff), _once(out), (k + 1) * dtype(accumulate).tiny + dtype(out).tiny)

    @classmethod
    def chain(cls, operations: int, out: str = "f32") -> "Tolerance":
        """For `operations` roundings one after another, relative to the result: gamma(operations), plus rounding to `out`."""
        return cls(0.0, cls.dot(operations).summing + _once(out), (operations + 1) * dtype(out).tiny)

    def bound(self, want: NDArray[np.float64], magnitude: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """The largest |got - want| allowed at each element; `want` and `magnitude` in float64."""
        return np.asarray(self.summing * magnitude + self.rounding * np.abs(want) + self.floor, dtype=np.float64)


def _once(out: str) -> float:
    """One rounding to `out`, of a value that itself may be off by a roundoff."""
    return dtype(out).roundoff * (1 + dtype("f32").roundoff)
