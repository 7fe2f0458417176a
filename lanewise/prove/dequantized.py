"""Packed weights back to floating point: each is what `Format.dequantize` gives, rounded to the type that was asked for."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from lanewise.formats import FORMATS, get
from lanewise.prove.bodies import poisoned
from lanewise.prove.operands import DTYPES
from lanewise.prove.quant_bodies import MODULES, QuantBody, target
from lanewise.prove.quant_cases import NAMES, TILE, QuantCase
from lanewise.prove.quant_operands import Given, given
from lanewise.prove.result import Result

__all__ = ["WeightRun", "runs"]

_TYPES = ("bf16", "f16", "f32")


@dataclass(frozen=True, slots=True)
class WeightRun:
    """Weights of a case, whose dtype is what they become, and the body that they are run through; into memory of its own, and into the caller's."""

    case: QuantCase
    through: str
    body: QuantBody

    def __str__(self) -> str:
        return f"{self.case} | {self.through}"

    def proven(self, device: torch.device) -> Result:
        """Every weight, once, and nothing else written to. A zero has either sign."""
        began = time.perf_counter()
        operands = given(self.case, device)
        want = torch.from_numpy(get(self.case.format).dequantize(operands.raw)).to(device, DTYPES[self.case.dtype])
        problem = self._wrong(operands, want, None) or self._wrong(operands, want, torch.full_like(want, float("nan")))
        nonzero = float((want != 0).double().mean()) if want.numel() else 1.0
        return Result(str(self.case), self.through, problem, "", 0.0, nonzero, time.perf_counter() - began)

    def _wrong(self, operands: Given, want: torch.Tensor, out: torch.Tensor | None) -> str:
        with poisoned(want.device, *MODULES) as made:
            got = self.body(operands.arguments["w"], want.dtype, out, arch=target(want.device))
        if out is not None and got.data_ptr() != out.data_ptr():
            return "the caller's memory was not used"
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"w is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
        differ = torch.nonzero(got != want)
        if len(differ):
            at = tuple(int(i) for i in differ[0])
            return f"{len(differ)} of {want.numel()} weights are others; w{list(at)} is {float(got[at])!r}, not {float(want[at])!r}"
        return next((words for guard in made if (words := guard.overrun())), "") or operands.broken()


def runs(device: torch.device) -> Iterator[WeightRun]:
    """Every format: tails of both directions, gates, any bytes; on a card each in every type and at the sizes of the list's ends."""
    for i, (name, gated) in enumerate(product(NAMES, (False, True))):
        block = FORMATS[name].block
        for n, k in ((11, 3 * TILE if block == TILE else TILE + 3 * block), *(() if device.type == "cpu" else ((1, block), (4097, 48 * TILE)))):
            for dtype in _TYPES if device.type != "cpu" else (_TYPES[i % 3],):
                yield WeightRun(QuantCase(name, (1,), n, k, dtype, dtype, gated=gated, values=("bytes", "even")[i % 2]), "dequantize", kernel)


def kernel(*operands: object, **named: object) -> torch.Tensor:
    from lanewise.kernels.gpu.quant_gemm import dequantize  # Triton has to be told of its interpreter before

    call: QuantBody = dequantize
    return call(*operands, **named)
