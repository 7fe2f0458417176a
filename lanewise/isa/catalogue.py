"""Every GPU kernel of the registry, in the ways in which it is cut, as calls that can be compiled for any target.

A case goes through the kernel's own launcher, with operands that hold nothing, cut as dispatch would cut it for the target. What the launcher
launches beside the kernel, such as the quantization of activations or the sum of splits, is part of it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise import dispatch
from lanewise.arch import TARGETS, Arch
from lanewise.contract import Problem
from lanewise.errors import LanewiseError
from lanewise.kernels.gpu import experts, linear, quant  # noqa: F401  (they register the kernels)
from lanewise.kernels.gpu.grouped_table import choose_grouped
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_table import choose_quant
from lanewise.kernels.gpu.table import choose

if TYPE_CHECKING:
    from lanewise.kernels.gpu.quant_pack import QuantWeight

__all__ = ["CASES", "ROWS", "Case", "few", "find", "registered"]

_EXPERTS, _TOP = 128, 8


@dataclass(frozen=True, slots=True)
class Case:
    """One call of `kernel`: sizes as a Problem has them (of grouped_linear m is the number of pairs); fused: with everything that the op can fuse."""

    kernel: str
    m: int
    n: int
    k: int
    format: str | None = None
    dtype: str = "bf16"
    fused: bool = False

    def __str__(self) -> str:
        what = self.format or self.dtype
        return f"{self.kernel} {what} m={self.m} {self.n}x{self.k}{' fused' if self.fused else ''}"

    @property
    def op(self) -> str:
        found = [op for op, names in registered().items() if self.kernel in names]
        if not found:
            raise LanewiseError(f"{self.kernel} is in the catalogue and not registered")
        return found[0]

    def problem(self, row: Arch) -> Problem:
        parts = {"linear": ("norm", "bias", "gated", "residual"), "quant_linear": ("norm", "bias", "gated", "residual"), "grouped_linear": ("gated",)}
        grouped = self.op == "grouped_linear"
        return Problem(
            self.op, row, self.m, self.n, self.k, self.dtype, self.format, fused=parts[self.op] if self.fused else (), torch=True,
            experts=_EXPERTS if grouped else 0,
        )  # fmt: skip

    def refusal(self, row: Arch) -> str:
        """Why dispatch does not give the kernel this call on a target; empty where it does, or where another is merely asked before."""
        kernel = next(one for one in dispatch.kernels(self.op) if one.name == self.kernel)
        refused = next((guard for guard in kernel.guards if not guard.holds(self.problem(row))), None)
        return refused.words(self.problem(row)) if refused else ""

    def config(self, row: Arch) -> Any:
        """How dispatch cuts the call on a target; None of what is cut in one way only."""
        if self.kernel == "skinny":
            return choose(row, self.dtype, self.m, self.n, self.k, None).config
        if self.kernel == "quant_gemv":
            return choose_quant(row, str(self.format), self.m, self.n, self.k, None).config
        if self.kernel == "grouped_quant":
            return choose_grouped(row, str(self.format), self.m, self.n, self.k, _EXPERTS, None).config
        return None

    def launch(self, row: Arch) -> None:
        """Call the kernel's launcher. Raises LanewiseError for a kernel that has none here."""
        if self.kernel not in _LAUNCHERS:
            raise LanewiseError(f"the catalogue has no launcher for {self.kernel}; it has those of {', '.join(_LAUNCHERS)}")
        _LAUNCHERS[self.kernel](self, row)

    @property
    def parts(self) -> dict[str, Any]:
        """bias and residual of what is fused."""
        import torch

        new = functools.partial(torch.empty, dtype=torch.bfloat16)
        return {"bias": new(2 * self.n), "residual": new(self.m, self.n)} if self.fused else {}

    def weight(self, *leading: int) -> "QuantWeight":
        import torch

        from lanewise.kernels.gpu.quant_pack import QuantWeight

        rows = self.n * (1 + self.fused)
        tiles = torch.empty(*leading, -(-rows // 16), -(-self.k // 256), LAYOUTS[str(self.format)].record, dtype=torch.int32)
        return QuantWeight(str(self.format), self.n, self.k, self.fused, tiles)


def _skinny(case: Case, row: Arch) -> None:
    import torch

    from lanewise.kernels.gpu.skinny import skinny

    new = functools.partial(torch.empty, dtype={"bf16": torch.bfloat16, "f16": torch.float16}[case.dtype])
    x, w, norm = new(case.m, case.k), new(case.n * (1 + case.fused), case.k), new(case.k) if case.fused else None
    skinny(x, w, norm=norm, gated=case.fused, constant_w=True, config=case.config(row), arch=row, **case.parts)


def _quant_gemv(case: Case, row: Arch) -> None:
    import torch

    from lanewise.kernels.gpu.act_quant import act_quant
    from lanewise.kernels.gpu.quant_gemv import quant_gemv

    w, new = case.weight(), functools.partial(torch.empty, dtype=torch.bfloat16)
    a = act_quant(new(case.m, case.k), w.layout.activation, norm=new(case.k) if case.fused else None, arch=row)
    quant_gemv(a, w, out=torch.bfloat16, constant_w=True, config=case.config(row), arch=row, **case.parts)


def _quant_gemm(case: Case, row: Arch) -> None:
    import torch

    from lanewise.kernels.gpu.quant_gemm import dequantize

    dequantize(case.weight(), torch.bfloat16, arch=row)


def _grouped(case: Case, row: Arch) -> None:
    import torch

    from lanewise.kernels.gpu.grouped import grouped

    tokens, config = case.m // _TOP, case.config(row)
    x, ids = torch.empty(tokens, case.k, dtype=torch.bfloat16), torch.zeros(tokens, _TOP, dtype=torch.int32)
    weights = None if case.fused else torch.empty(tokens, _TOP)
    grouped(x, case.weight(_EXPERTS), ids, weights, out=torch.bfloat16, constant_w=True, ids_ready=True, ordered=config.ordered,
            config=config.cut, arch=row)  # fmt: skip


_LAUNCHERS: dict[str, Callable[[Case, Arch], None]] = {
    "skinny": _skinny,
    "quant_gemv": _quant_gemv,
    "quant_gemm": _quant_gemm,
    "grouped_quant": _grouped,
}


def _cases() -> tuple[Case, ...]:
    """Every format of every kernel, and every way to cut that is reasoned for a target of AMD at the sizes of models (a test holds both)."""
    found = [Case("skinny", m, 4096, 4096, dtype=dtype) for dtype in ("bf16", "f16") for m in (1, 4, 16)]
    found += [Case("skinny", m, 4096, 1024, dtype="f16") for m in (1, 4)]
    found += [Case("skinny", 1, 1000, 1040, fused=True), Case("skinny", 1, 1536, 576), Case("skinny", 1, 1024, 512)]
    found += [Case("skinny", 16, 512, 4096), Case("skinny", 16, 12288, 2048)]  # the first is split along k, the second is not
    found += [Case("quant_gemv", m, 4096, 2048, fmt) for m in (1, 4) for fmt in LAYOUTS]
    found += [Case("quant_gemv", m, 4096, k, "Q4_K") for m, k in ((1, 1024), (2, 1024), (4, 1024), (2, 2048), (16, 2048), (1, 14336))]
    found += [Case("quant_gemv", 2, 1000, 2304, "Q4_K", fused=True), Case("quant_gemv", 4, 1024, 28672, "Q4_K")]
    found += [Case("quant_gemv", 1, 1024, 28672, fmt) for fmt in ("Q4_K", "Q8_0")] + [Case("grouped_quant", 8, 256, 28672, "Q4_K")]  # loops on AMD
    found += [Case("quant_gemm", 512, 4096, 2048, fmt) for fmt in LAYOUTS] + [Case("quant_gemm", 512, 1000, 2304, "Q4_K", fused=True)]
    found += [Case("grouped_quant", 8, 768, 2048, fmt) for fmt in LAYOUTS] + [Case("grouped_quant", 8, 768, 2048, "Q4_K", fused=True)]
    found += [Case("grouped_quant", 512, 768, 2048, "Q4_K", fused=True), Case("grouped_quant", 512, 768, 2048, "Q6_K")]
    found += [Case("grouped_quant", m, 768, k, "Q4_K") for m in (8, 512) for k in (512, 768)]
    return tuple(found)


CASES = _cases()
# GPUs that Triton compiles for and those that it refuses, which is looked at too.
ROWS = tuple(row for row in TARGETS.values() if row.is_gpu)


def registered() -> dict[str, tuple[str, ...]]:
    """op -> the GPU kernels that are registered for it."""
    return {op: tuple(one.name for one in dispatch.kernels(op) if one.body == "gpu") for op in ("linear", "quant_linear", "grouped_linear")}


def few() -> tuple[Case, ...]:
    """One case of each kernel, the quickest to compile."""
    return (
        Case("skinny", 1, 4096, 1024, dtype="f16"),
        Case("quant_gemv", 1, 4096, 2048, "Q4_K"),
        Case("quant_gemm", 512, 4096, 2048, "Q8_0"),
        Case("grouped_quant", 8, 768, 2048, "Q8_0"),
    )


def find(words: str) -> tuple[Case, ...]:
    """The cases whose name has all of some words. Raises LanewiseError, saying what there is, where none has.

    >>> [str(case) for case in find("quant_gemv Q4_K m=1 4096x2048")]
    ['quant_gemv Q4_K m=1 4096x2048']
    """
    found = tuple(case for case in CASES if all(word in str(case).split() for word in words.split()))
    if not found:
        raise LanewiseError(f"no case is {words!r}; kernels are {', '.join(_LAUNCHERS)}, a case is such as '{CASES[0]}'")
    return found
