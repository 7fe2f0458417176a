"""What the arms of a GPU are called with: x, and so many copies of w, as each arm wants it; and what their results have to be."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
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
from lanewise.bench.routing import active
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
    kinds: dict[str, Callable[..., Operands]] = {"linear": _Linear, "quant_linear": _Quantized, "grouped_linear": _Experts}
    return kinds[call.op](gpu, row, card, call, inputs, copies)


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


class _Experts:
    """Experts of several copies in turn, each with all the routings that have no expert in common: `copies` calls until one is read again."""

    def __init__(self, gpu: Gpu, row: Arch, card: str | None, call: Call, inputs: dict[str, NDArray[Any]], copies: int) -> None:
        self._gpu, self._call, self._calls, self._given = gpu, call, copies, inputs
        self._x = _tensor(inputs["x"]).to(gpu.device)
        self._ids = [_tensor(one).to(gpu.device) for one in inputs["ids"]]
        first = pack(torch.from_numpy(inputs["w"]).to(gpu.device), str(call.fmt))
        self._copies = ceil(copies / len(self._ids))
        tiles = gpu.copies(first.tiles, self._copies, call.experts * call.n, call.k)
        self._packed = [QuantWeight(first.format, first.n, first.k, False, one) for one in tiles]
        self._active = active(call.m, call.experts, call.top)

    def ready(self, label: str) -> Ready:
        if label == "blas":
            return self._one_by_one()
        x, packed, ids, calls, early = self._x, self._packed, self._ids, self._calls, label == "grouped"

        def run(i: int) -> Any:
            copy, turn = divmod(i % calls, len(ids))
            return ops.grouped_linear(x, packed[copy], ids[turn], constant_w=True, ids_ready=early, check=False)

        return Ready(run, packed[0].nbytes // self._call.experts * self._active)

    def share(self, y: Any, kernel: str) -> float:
        """Of what the last of the calls gave, expert by expert."""
        ids, rows = self._given["ids"][(self._calls - 1) % len(self._ids)].reshape(-1), y.reshape(-1, self._call.n)
        worst = 0.0
        for e in np.unique(ids):
            pairs = torch.from_numpy(np.flatnonzero(ids == e)).to(y.device)
            mine = QuantReference(self._x[pairs // self._call.top], self._given["w"][e], self._packed[0].format, self._call.dtype)
            worst = max(worst, mine.integer(rows[pairs], self._packed[0].layout.activation))
        return worst

    def _one_by_one(self) -> Ready:
        """Experts that were expanded before, by BLAS one after the other. It is told the ids, and need not put pairs in order, which favours it."""
        call, x = self._call, self._x
        self._gpu.room(1, call.experts * call.n, call.k, call.experts * call.n * call.k * x.element_size())
        wide = self._gpu.copies(expand(self._packed[0], x.dtype), self._copies, call.experts * call.n, call.k)
        plans = [_Plan.of(ids, call.top, self._gpu.device) for ids in self._given["ids"]]

        def run(i: int) -> Any:
            copy, turn = divmod(i % self._calls, len(plans))
            y = torch.cat([ops.linear(x if rows is None else x[rows], wide[copy][e], constant_w=True) for e, rows in plans[turn].experts])
            return (y if plans[turn].back is None else y[plans[turn].back]).reshape(call.m, call.top, call.n)

        return Ready(run, wide[0].nbytes // call.experts * self._active)


@dataclass(frozen=True, slots=True)
class _Plan:
    """experts: each with its rows of x, None where they are all of them in their order; back: where what they give belongs, if elsewhere."""

    experts: tuple[tuple[int, Any], ...]
    back: Any

    @classmethod
    def of(cls, ids: NDArray[np.int32], top: int, device: torch.device) -> "_Plan":
        flat, tokens = ids.reshape(-1).astype(np.int64), np.arange(len(ids))
        pairs = [np.flatnonzero(flat == e) for e in dict.fromkeys(flat.tolist())]
        back = np.argsort(np.concatenate(pairs), kind="stable")
        experts = tuple((int(flat[one[0]]), _unless_plain(one // top, tokens, device)) for one in pairs)
        return cls(experts, _unless_plain(back, np.arange(len(flat)), device))


def _unless_plain(rows: NDArray[np.int64], plain: NDArray[np.int64], device: torch.device) -> Any:
    return None if np.array_equal(rows, plain) else torch.from_numpy(rows).to(device)


def _tensor(array: NDArray[Any]) -> Any:
    """bf16, which numpy has not, comes as its bits. Copied, as what was drawn is not written to."""
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array.copy())
