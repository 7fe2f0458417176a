"""From a case of linear to tensors in guarded memory, and to the enclosure that their result must lie in."""

import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.oracle.chain import Enclosure, linear_chain
from lanewise.oracle.rounding import F64
from lanewise.prove.linear_cases import LinearCase
from lanewise.prove.memory import FAR, Guarded

__all__ = ["DTYPES", "EPS", "Operands", "enclosure", "operands", "products"]

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
EPS = 1e-6
_DRAWN = 1_000_003  # a prime: numbers beyond so many repeat, and rows of no length in use repeat with them
_BLOCK = 1 << 23  # elements of w in float64 at a time
_TINY = {"bf16": 2.0**-128, "f16": 2.0**-18}
_HUGE = {"bf16": 2.0**60, "f16": 2.0**6}


@dataclass(slots=True)
class Operands:
    """What a body is called with, and the memory behind each tensor."""

    arguments: dict[str, Any]
    guards: dict[str, Guarded] = field(default_factory=dict)

    def seal(self) -> None:
        for guard in self.guards.values():
            guard.seal()

    def broken(self) -> str:
        """The first operand that was written to or around, in words."""
        return next((f"{name}: {words}" for name, guard in self.guards.items() if (words := guard.broken())), "")


def operands(case: LinearCase, device: torch.device) -> Operands:
    """The tensors of a case: the same numbers on any device and in any run."""
    made = _Maker(case, device)
    x = made.matrix("x", case.m, case.k, case.pad_x, _x_size(case))
    w = made.matrix("w", case.weights, case.k, case.pad_w, _w_size(case))
    if case.values == "cancelling":
        half = case.k // 2
        x[:, half:], w[:, half:] = -x[:, :half], w[:, :half] * (1 + 2.0**-6)
    arguments: dict[str, Any] = {"x": made.shaped(x), "w": w, "bias": made.bias(), "residual": made.residual(), "norm": made.norm()}
    arguments |= {"eps": EPS, "gated": case.gated, "out": DTYPES[case.out] if case.out else None, "constant_w": case.constant_w}
    made.result.arguments.update(arguments)
    made.result.seal()
    return made.result


def enclosure(case: LinearCase, given: dict[str, Any], sums: str) -> Enclosure:
    """Where each element of y[m,n] must lie; the products are made in float64 where w is."""
    exact = case.values == "whole" and not case.norm and not case.gated
    bias, residual, norm = (None if given[name] is None else _host(given[name]) for name in ("bias", "residual", "norm"))
    x, out = _host(given["x"].reshape(case.m, case.k)), case.out or None
    options: dict[str, Any] = {"residual": residual, "norm": norm, "eps": EPS, "gated": case.gated, "exact": exact, "sums": sums}
    return linear_chain(x, given["w"], bias, dtype=case.dtype, out=out, multiply=products, **options)


def _host(tensor: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray(tensor.double().cpu().numpy(), dtype=np.float64)


def products(x: F64, w: torch.Tensor) -> tuple[F64, F64]:
    """(x @ w.T, |x| @ |w|.T) in float64 from x[m,k] and w[n,k], on w's device with a part of w in float64 at a time."""
    wide = torch.from_numpy(x).to(w.device)
    both = torch.zeros((2, len(x), len(w)), dtype=torch.float64, device=w.device)
    rows = max(1, _BLOCK // max(1, w.shape[1]))
    for start in range(0, len(w), rows):
        block = w[start : start + rows].double()
        torch.mm(wide, block.T, out=both[0, :, start : start + rows])
        torch.mm(wide.abs(), block.abs_().T, out=both[1, :, start : start + rows])
    signed, absolute = both.cpu().numpy()
    return signed, absolute


class _Maker:
    def __init__(self, case: LinearCase, device: torch.device) -> None:
        self.case, self.device, self.result = case, device, Operands({})
        self.rng = np.random.default_rng(zlib.crc32(str(case).encode()))
        self.offset = 1 if case.layout == "off by one" else 0
        self.side = DTYPES[case.side or case.dtype]

    def matrix(self, name: str, rows: int, k: int, pad: int, size: float) -> torch.Tensor:
        """x or w as the case's layout has it."""
        shape, strides, view = self.laid(name, rows, k, k + pad)
        tensor = self.guarded(name, shape, strides, DTYPES[self.case.dtype])
        tensor.copy_(self.numbers(shape, size))
        return view(tensor)  # type: ignore[no-any-return]

    def laid(self, name: str, rows: int, k: int, stride: int) -> tuple[tuple[int, int], tuple[int, int], Any]:
        layout = self.case.layout
        if layout == f"{name} transposed":
            return (k, rows), (rows, 1), torch.t
        if layout == f"{name} row repeated":
            return (1, k), (stride, 1), lambda t: t.expand(rows, k)
        if layout == f"{name} element repeated":
            return (rows, 1), (1, 1), lambda t: t.expand(rows, k)
        return (rows, k), (self.apart(name, stride), 1), lambda t: t

    def apart(self, name: str, stride: int) -> int:
        return FAR if self.case.layout == f"{name} far rows" else stride

    def shaped(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, -1, self.case.k) if self.case.layout == "x 3-D" else x

    def bias(self) -> torch.Tensor | None:
        if not self.case.bias:
            return None
        n, step = self.case.weights, 2 if self.case.layout == "bias with a stride" else 1
        shape, strides = ((n,), (step,)) if self.case.bias == 1 else ((self.case.m, n), (self.apart("bias", n + 3), 1))
        return self.filled("bias", shape, strides)

    def residual(self) -> torch.Tensor | None:
        if not self.case.residual:
            return None
        m, n = self.case.m, self.case.n
        return (
            self.filled("residual", (n, m), (m + 1, 1)).t()
            if self.case.layout == "residual transposed"
            else self.filled("residual", (m, n), (self.apart("residual", n + 5), 1))
        )

    def norm(self) -> torch.Tensor | None:
        return self.filled("norm", (self.case.k,), (1,), 0.25, 1.0) if self.case.norm else None

    def filled(self, name: str, shape: tuple[int, ...], strides: tuple[int, ...], size: float = 1.0, around: float = 0.0) -> torch.Tensor:
        tensor = self.guarded(name, shape, strides, self.side)
        tensor.copy_(self.numbers(shape, size) + around)
        return tensor

    def guarded(self, name: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self.result.guards[name] = Guarded(shape, strides, dtype, self.device, self.offset)
        return self.result.guards[name].tensor

    def numbers(self, shape: tuple[int, ...], size: float) -> torch.Tensor:
        count = math.prod(shape)
        drawn = min(count, _DRAWN)
        if self.case.values == "whole":
            few = self.rng.integers(-8, 9, drawn).astype(np.float32)
        else:
            few = self.rng.standard_normal(drawn, dtype=np.float32) * np.float32(size)
        values = torch.from_numpy(few).to(DTYPES[self.case.dtype] if count > drawn else torch.float32).to(self.device)
        return values.repeat(-(-count // max(1, drawn)))[:count].view(shape)


def _x_size(case: LinearCase) -> float:
    return {"tiny": _TINY[case.dtype], "huge": _HUGE[case.dtype]}.get(case.values, 1.0)


def _w_size(case: LinearCase) -> float:
    return {"tiny": 1.0, "huge": _HUGE[case.dtype]}.get(case.values, float(max(1, case.k) ** -0.5))
