"""From a case of quant_linear to operands in guarded memory, and to what their result may be."""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.formats import get
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.oracle.chain import Enclosure, enclosed, summing
from lanewise.prove.memory import Guarded
from lanewise.prove.operands import DTYPES, EPS
from lanewise.prove.quant_cases import QuantCase
from lanewise.prove.quant_exact import largest, products, terms
from lanewise.prove.quant_weights import weights

__all__ = ["Given", "Maker", "enclosure", "expected_broken", "given", "seed_of"]

_PAD = 24  # elements between rows of x, bias and residual
_SMALL = 3  # |q| of exact activations, but for the 127 of each group that fixes their scale
_ROOM = 1 << 23  # what an exact sum may come to, in units of the smallest product: half of float32's whole numbers, and room for a bias
_UNIT = 2.0**-6  # of exact biases and residuals, a multiple of that unit
_LARGEST = {"bf16": 3e38, "f16": 65504.0, "f32": 3e38}


@dataclass(slots=True)
class Given:
    """What a body is called with, the bytes of the weights, and the memory behind each tensor."""

    arguments: dict[str, Any]
    raw: NDArray[np.uint8]
    guards: dict[str, Guarded] = field(default_factory=dict)

    def first(self, m: int) -> dict[str, Any]:
        """The arguments for the first m tokens."""
        rows = {name: self.arguments[name] for name in ("x", "bias", "residual")}
        return self.arguments | {name: t if t is None or t.dim() == 1 else t[:m] for name, t in rows.items()}

    def host(self, name: str) -> NDArray[np.float64] | None:
        t = self.arguments[name]
        return None if t is None else np.asarray(t.double().cpu().numpy(), dtype=np.float64)

    def broken(self) -> str:
        """The first operand that was written to or around, in words."""
        return next((f"{name}: {words}" for name, guard in self.guards.items() if (words := guard.broken())), "")


def given(case: QuantCase, device: torch.device) -> Given:
    """The operands of a case: the same numbers on any device and in any run."""
    return Maker(case, device).made()


def enclosure(case: QuantCase, given: Given, q: NDArray[np.int8], d: NDArray[np.float32]) -> Enclosure:
    """Where each element of y[tokens,n] must lie, from the quantized activations; what is broken is no number in it."""
    bias, residual = given.host("bias"), given.host("residual")
    device = given.arguments["x"].device
    t, magnitude = products(q, d, given.raw, case.format, device)
    if bias is not None:
        t, magnitude = t + bias, magnitude + np.abs(bias)
    sums = "any" if case.values in ("extreme", "bytes") else "random"
    with np.errstate(invalid="ignore"):
        off = np.zeros(t.shape) if case.values == "exact" and not case.norm else summing(terms(case.k) + (bias is not None), sums).bound(t, magnitude)
        return enclosed(t, off, residual=residual, gated=case.gated, out=case.out)


def expected_broken(case: QuantCase) -> NDArray[np.bool_]:
    """[tokens,n]: which elements of y may not be finite, because x or w is not where they come from."""
    broken = np.zeros((case.tokens, case.n), bool)
    if case.values == "broken x":
        broken[[0, -1]] = True
    if case.values == "broken w":
        broken[:, [1, -1]] = True
    return broken


class Maker:
    """Draws the operands of a case, each into memory of its own."""

    def __init__(self, case: QuantCase, device: torch.device) -> None:
        self.case, self.device = case, device
        self.rng = np.random.default_rng(zlib.crc32(str(case).encode()))
        self.raw = weights(case.format, case.weights, case.k, case.values, seed_of(case))
        self.guards: dict[str, Guarded] = {}

    def made(self) -> Given:
        case = self.case
        arguments: dict[str, Any] = {"x": self.x(), "w": self.w(), "bias": None, "residual": None, "norm": None}
        if case.bias:
            shape = (case.weights,) if case.bias == 1 else (case.tokens, case.weights)
            arguments["bias"] = self.side("bias", shape)
        if case.residual:
            arguments["residual"] = self.side("residual", (case.tokens, case.n))
        if case.norm:
            arguments["norm"] = self.side("norm", (case.k,), 0.25, 1.0)
        arguments |= {"eps": EPS, "out": DTYPES[case.out], "constant_w": case.constant_w}
        for guard in self.guards.values():
            guard.seal()
        return Given(arguments, self.raw, self.guards)

    def x(self) -> torch.Tensor:
        case = self.case
        numbers = {"exact": self.exact_x, "extreme": self.extreme_x}.get(case.values, self.normal_x)()
        if case.values == "broken x" and case.tokens:
            numbers[0, case.k // 2], numbers[-1, case.k - 1] = np.nan, -np.inf
        return self.filled("x", numbers, case.dtype)

    def normal_x(self) -> NDArray[np.float32]:
        case = self.case
        drawn = self.rng.standard_normal((case.tokens, case.k), dtype=np.float32)
        return np.clip(drawn, -1, 1) * np.float32(case.size) if case.size > 1 else drawn * np.float32(case.size)

    def extreme_x(self) -> NDArray[np.float32]:
        """One size and any signs, by spans of a token: sums of products that nothing takes away."""
        case = self.case
        signs = self.rng.choice([-1.0, 1.0], (case.tokens, -(-case.k // 64))).repeat(64, axis=1)[:, : case.k]
        return np.asarray(signs * np.float32(case.size), np.float32)

    def exact_x(self) -> NDArray[np.float32]:
        """Whole numbers times a power of two, +-127 once in each group: its scale then is that power. Where sums get too long, groups are zero."""
        case = self.case
        group = 32 if get(case.format).activation == "q8_0" else 256
        shape = (case.tokens, case.k // group, group)
        q = self.rng.integers(-_SMALL, _SMALL + 1, shape) * (self.rng.random(shape) < 0.5)
        at = self.rng.integers(0, group, shape[:2])
        np.put_along_axis(q, at[..., None], self.rng.choice([-127, 127], shape[:2])[..., None], axis=2)
        d = 2.0 ** self.rng.integers(-1, 1, shape[:2])
        most, step = largest(self.raw, case.format)
        mass = np.einsum("tgk,gk->tg", np.abs(q) * d[..., None], most.reshape(shape[1:]))
        order = self.rng.permuted(np.broadcast_to(np.arange(shape[1]), shape[:2]), axis=1)
        fits = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1) <= _ROOM * step * np.min(d, initial=1.0)
        live = np.zeros(shape[:2], bool)
        np.put_along_axis(live, order, fits, axis=1)
        return (q * (d * live)[..., None]).reshape(case.tokens, case.k).astype(np.float32)

    def w(self) -> QuantWeight:
        """Packed, in guarded memory; what unpacks to other bytes is refused here."""
        packed = pack(torch.from_numpy(self.raw.copy()).to(self.device), self.case.format, self.case.gated)
        tiles = self.guarded("w", tuple(packed.tiles.shape), torch.int32)
        tiles.copy_(packed.tiles)
        return QuantWeight(packed.format, packed.n, packed.k, packed.gated, tiles)

    def side(self, name: str, shape: tuple[int, ...], size: float = 1.0, around: float = 0.0) -> torch.Tensor:
        case = self.case
        if case.values == "exact" and not case.norm:
            numbers = self.rng.integers(-64, 65, shape) * _UNIT
        else:
            numbers = self.rng.standard_normal(shape) * size + around
        return self.filled(name, numbers.astype(np.float32), case.side or case.dtype)

    def filled(self, name: str, numbers: NDArray[np.float32], dtype: str) -> torch.Tensor:
        numbers = np.where(np.isfinite(numbers), np.clip(numbers, -_LARGEST[dtype], _LARGEST[dtype]), numbers)
        tensor = self.guarded(name, numbers.shape, DTYPES[dtype], 0 if numbers.ndim == 1 else _PAD)
        return tensor.copy_(torch.from_numpy(numbers))

    def guarded(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, pad: int = 0) -> torch.Tensor:
        strides = [1]
        for size in shape[:0:-1]:
            strides.insert(0, strides[0] * size + (pad if len(strides) == 1 else 0))
        self.guards[name] = Guarded(shape, strides, dtype, self.device)
        return self.guards[name].tensor


def seed_of(case: QuantCase) -> int:
    """Of the weights alone: cases that differ elsewhere have the same."""
    return zlib.crc32(f"{case.format} {case.weights} {case.k} {case.values}".encode())
