"""One case of one kernel, chosen by its sizes: what `lanewise emulate` runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS
from lanewise.kernels.gpu.linear import MOST_ROWS
from lanewise.prove import act_quant, dequantized, grouped_linear, linear, quant_linear
from lanewise.prove.act_cases import ActCase
from lanewise.prove.bodies import config_for, skinny_with
from lanewise.prove.grouped_bodies import by_default
from lanewise.prove.grouped_cases import GroupedCase
from lanewise.prove.linear_cases import LinearCase
from lanewise.prove.quant_bodies import gemv_by_default
from lanewise.prove.quant_cases import QuantCase
from lanewise.prove.result import Result

__all__ = ["KERNELS", "Single", "single"]

_OF_LINEAR = ("bf16", "f16")


@dataclass
class Single:
    """A case and its proof; y is what the kernel gave last, once `prove` was called."""

    name: str
    _run: Callable[["Single"], Result]
    y: torch.Tensor | None = None

    def prove(self) -> Result:
        """Raises what the kernel raises, above all `KernelFaultError`."""
        return self._run(self)

    def keep(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """The body, whose result is noted."""

        def kept(*operands: Any, **named: Any) -> Any:
            made = body(*operands, **named)
            self.y = made if isinstance(made, torch.Tensor) else None
            return made

        return kept


def _skinny(m: int, n: int, k: int, dtype: str, fmt: str, fused: bool) -> Single:
    case = LinearCase(m, k, n, dtype, bias=int(fused), norm=fused, gated=fused, residual=fused)
    return Single(str(case), lambda one: linear.prove(linear.Run(case, "skinny", one.keep(skinny_with(config_for(case)))), _CPU))


def _quant_gemv(m: int, n: int, k: int, dtype: str, fmt: str, fused: bool) -> Single:
    case = QuantCase(fmt, (m,), n, k, dtype, dtype, bias=int(fused), norm=fused, gated=fused, residual=fused)
    return Single(str(case), lambda one: quant_linear.prove(quant_linear.QuantRun(case, "quant_gemv", (one.keep(gemv_by_default),)), _CPU))


def _quant_gemm(m: int, n: int, k: int, dtype: str, fmt: str, fused: bool) -> Single:
    case = QuantCase(fmt, (1,), n, k, dtype, dtype, gated=fused)
    return Single(str(case), lambda one: dequantized.WeightRun(case, "quant_gemm", one.keep(dequantized.kernel)).proven(_CPU))


def _grouped(m: int, n: int, k: int, dtype: str, fmt: str, fused: bool) -> Single:
    case = GroupedCase(fmt, m, 2, 4, n, k, dtype=dtype, out=dtype, gated=fused, weights="" if fused else "f32")
    run = grouped_linear.GroupedRun
    return Single(str(case), lambda one: grouped_linear.prove(run(case, "grouped_quant", (one.keep(by_default()),)), _CPU))


def _act_quant(m: int, n: int, k: int, dtype: str, fmt: str, fused: bool) -> Single:
    case = ActCase(FORMATS[fmt].activation, m, k, dtype, norm=dtype if fused else "")
    return Single(str(case), lambda one: act_quant.prove(act_quant.ActRun(case, "act_quant", act_quant.kernel), _CPU))


KERNELS: dict[str, Callable[[int, int, int, str, str, bool], Single]] = {
    "skinny": _skinny,
    "quant_gemv": _quant_gemv,
    "quant_gemm": _quant_gemm,
    "grouped_quant": _grouped,
    "act_quant": _act_quant,
}
_CPU = torch.device("cpu")


def single(kernel: str, m: int, n: int, k: int, dtype: str, fmt: str, fused: bool = False) -> Single:
    """A case by the kernel's name; of grouped_quant m tokens go to two of four experts each, quant_gemm unpacks w alone and act_quant has no n.

    Raises LanewiseError for what no such kernel takes.
    """
    if kernel not in KERNELS:
        raise LanewiseError(f"no kernel is called {kernel!r}; there are {', '.join(KERNELS)}")
    if min(m, n, k) < 1:
        raise LanewiseError(f"m={m} n={n} k={k}: sizes are 1 or more")
    if kernel == "skinny" and dtype not in _OF_LINEAR:
        raise LanewiseError(f"skinny multiplies {' and '.join(_OF_LINEAR)}; --dtype is {dtype}")
    if kernel != "skinny" and (fmt not in FORMATS or k % FORMATS[fmt].block):
        there = f"blocks of {FORMATS[fmt].block}; k={k} is no multiple" if fmt in FORMATS else f"no such format; there are {', '.join(FORMATS)}"
        raise LanewiseError(f"{fmt}: {there}")
    if kernel == "skinny":
        case = LinearCase(m, k, n, dtype)
        if not linear.reached_by_skinny(case):
            raise LanewiseError(f"skinny takes up to {MOST_ROWS} tokens; m={m}")
    return KERNELS[kernel](m, n, k, dtype, fmt, fused)
