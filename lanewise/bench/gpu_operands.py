"""What the arms of a GPU are called with: x, and so many copies of w, as each arm wants it; and what their results have to be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise import ops
from lanewise.arch import Arch
from lanewise.bench.problem import Call
from lanewise.bench.quant_right import QuantReference
from lanewise.bench.replay import Gpu
from lanewise.bench.right import worst
from lanewise.kernels.gpu.act_quant import act_quant
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_gemm import dequantize
from lanewise.kernels.gpu.quant_gemv import quant_gemv
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.kernels.gpu.quant_table import choose_quant

__all__ = ["Operands", "Ready", "operands"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A call of an arm: run(i) works on copy i % copies, of nbytes each."""

    run: Callable[[int], Any]
    nbytes: int


class Operands(Protocol):
    def ready(self, label: str) -> Ready: ...

    def share(self, y: Any, kernel: str) -> float:
        """The largest error of what a kernel gave as a share of what is allowed: right up to 1."""
        ...


def operands(gpu: Gpu, row: Arch, card: str | None, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> Operands:
    """Raises DeviceError when there is no memory for them."""
    return (_Linear if call.op == "linear" else _Quantized)(gpu, row, card, call, inputs, copies)


class _Linear:
    def __init__(self, gpu: Gpu, row: Arch, card: str | None, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> None:
        self._call = call
        self._x, w = (_tensor(inputs[name]).to(gpu.device) for name in ("x", "w"))
        self._w = gpu.copies(w, copies, call.n, call.k)

    def ready(self, label: str) -> Ready:
        x, w = self._x, self._w
        return Ready(lambda i: ops.linear(x, w[i % len(w)], constant_w=True), w[0].nbytes)

    def share(self, y: Any, kernel: str) -> float:
        return worst(y, self._x, self._w[0], self._call.dtype)


class _Quantized:
    """w is packed once, and expanded once for the arm that has nothing else; each is there only when an arm asks for it."""

    def __init__(self, gpu: Gpu, row: Arch, card: str | None, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> None:
        self._gpu, self._row, self._card, self._call, self._copies = gpu, row, card, call, copies
        self._x = _tensor(inputs["x"]).to(gpu.device)
        first = pack(torch.from_numpy(inputs["w"]).to(gpu.device), str(call.fmt))
        tiles = gpu.copies(first.tiles, copies, call.n, call.k)
        self._packed = [QuantWeight(first.format, first.n, first.k, False, one) for one in tiles]
        self._wide: list[Any] = []
        self._reference = QuantReference(self._x, inputs["w"], first.format, call.dtype)

    def ready(self, label: str) -> Ready:
        x, packed = self._x, self._packed
        if label == "blas":
            wide = self._expanded()
            return Ready(lambda i: ops.linear(x, wide[i % len(wide)], constant_w=True), wide[0].nbytes)
        if label == "quantized":
            return Ready(
                self._alone(choose_quant(self._row, packed[0].format, self._call.m, self._call.n, self._call.k, self._card).config), packed[0].nbytes
            )
        return Ready(lambda i: ops.quant_linear(x, packed[i % len(packed)], constant_w=True), packed[0].nbytes)

    def share(self, y: Any, kernel: str) -> float:
        if kernel == "quant_gemv":
            return self._reference.integer(y, self._packed[0].layout.activation)
        return self._reference.expanded(y, dequantize(self._packed[0], y.dtype, arch=self._row))

    def _alone(self, config: QuantConfig) -> Callable[[int], Any]:
        """The product alone: x has been quantized in front of everything."""
        packed, row, out = self._packed, self._row, self._x.dtype
        a = act_quant(self._x, packed[0].layout.activation, arch=row)
        return lambda i: quant_gemv(a, packed[i % len(packed)], out=out, constant_w=True, config=config, arch=row)

    def _expanded(self) -> list[Any]:
        if not self._wide:
            self._gpu.room(1, self._call.n, self._call.k, self._call.n * self._call.k * self._x.element_size())
            self._wide = self._gpu.copies(expand(self._packed[0], self._x.dtype), self._copies, self._call.n, self._call.k)
        return self._wide


def _tensor(array: NDArray[Any]) -> Any:
    """bf16, which numpy has not, comes as its bits. Copied, as what was drawn is not written to."""
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array.copy())
