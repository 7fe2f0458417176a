"""From a case of grouped_linear to operands in guarded memory, and to what their result may be."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.oracle.chain import Enclosure, enclosed, rounded, summing
from lanewise.oracle.rounding import F64
from lanewise.prove.grouped_cases import GroupedCase
from lanewise.prove.memory import Guarded
from lanewise.prove.operands import DTYPES
from lanewise.prove.quant_exact import products, terms
from lanewise.prove.quant_operands import Given, Maker, expected_broken, seed_of
from lanewise.prove.quant_weights import weights

__all__ = ["Routed", "broken", "enclosure", "routed", "weighted"]

_FAR = {False: 1 << 30, True: 1 << 40}  # ids that no process has memory for, of 32 bits and of 64
_STEP, _PAD = 2, 5  # ids apart, and room behind a token's
_THIRD = 3


@dataclass(slots=True)
class Routed(Given):
    """Operands whose `raw` is uint8[experts, rows, row_bytes]; ids [tokens, top] as they are in memory too."""

    ids: NDArray[np.int64] | None = None

    def chosen(self, case: GroupedCase) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """(expert, its pairs, and of each the row of x), for each expert that has rows."""
        assert self.ids is not None
        flat = self.ids.reshape(-1)
        for e in np.unique(flat):
            if 0 <= e < case.experts:
                pairs = np.flatnonzero(flat == e)
                yield int(e), pairs, pairs if case.own else pairs // case.top


def routed(case: GroupedCase, device: torch.device) -> Routed:
    """The operands of a case: the same numbers on any device and in any run."""
    return _Maker(case, device).all()


def broken(case: GroupedCase, given: Routed) -> NDArray[np.bool_]:
    """[pairs, n]: which elements of y may not be numbers, because x, w or the id is not where they come from."""
    assert given.ids is not None
    ids = given.ids.reshape(-1, 1)
    found = np.broadcast_to((ids < 0) | (ids >= case.experts), (case.pairs, case.n)).copy()
    rows = expected_broken(case.alone)
    for e, pairs, of in given.chosen(case):
        if case.values == "broken x":
            found[pairs] |= rows[of]
        if case.values == "broken w" and e == 0:
            found[pairs, 1] = True
        if case.values == "broken w" and e == case.experts - 1:
            found[pairs, -1] = True
    return found


def enclosure(case: GroupedCase, given: Routed, q: NDArray[np.int8], d: NDArray[np.float32]) -> Enclosure:
    """Where each element of y[pairs,n] must lie, from the quantized rows of x."""
    device = given.arguments["x"].device
    t, magnitude = np.full((2, case.pairs, case.alone.weights), np.nan)
    for e, pairs, rows in given.chosen(case):
        t[pairs], magnitude[pairs] = products(np.ascontiguousarray(q[rows]), np.ascontiguousarray(d[rows]), given.raw[e], case.format, device)
    sums = "any" if case.values in ("extreme", "bytes") else "random"
    with np.errstate(invalid="ignore"):
        off = np.zeros(t.shape) if case.values == "exact" else summing(terms(case.k), sums).bound(t, magnitude)
        return weighted(enclosed(t, off, gated=case.gated, out=case.out), given.host("weights"), case.out)


def weighted(y: Enclosure, by: F64 | None, out: str) -> Enclosure:
    """y times the router's weights: it is rounded without them, multiplied in float32, and rounded once more."""
    if by is None:
        return y
    each = by.reshape(-1, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        want = rounded(y.want, out) * each
        ends = [rounded(rounded(end * each, "f32"), out) for end in (y.low, y.high)]
        return Enclosure(want, np.minimum(*ends), np.maximum(*ends), enclosed(want, np.zeros(want.shape), out=out).step)


class _Maker(Maker):
    def __init__(self, case: GroupedCase, device: torch.device) -> None:
        self.routed, self.case, self.device = case, case.alone, device
        self.rng = np.random.default_rng(zlib.crc32(str(case).encode()))
        self.raw = weights(case.format, case.experts * self.case.weights, case.k, case.values, seed_of(self.case))
        self.guards: dict[str, Guarded] = {}

    def all(self) -> Routed:
        case, ids = self.routed, self.ids()
        x = self.x()
        arguments: dict[str, Any] = {
            "x": torch.unflatten(x, 0, (case.tokens, case.top)) if case.own else x, "w": self.w(), "ids": self.placed(ids), "weights": self.router(),
            "out": DTYPES[case.out], "constant_w": case.early, "ids_ready": case.early,
        }  # fmt: skip
        for guard in self.guards.values():
            guard.seal()
        return Routed(arguments, self.experts(), self.guards, ids)

    def experts(self) -> NDArray[np.uint8]:
        case = self.routed
        return self.raw.reshape(case.experts, self.case.weights, self.raw.shape[1])

    def w(self) -> QuantWeight:
        packed = pack(torch.from_numpy(self.experts().copy()).to(self.device), self.case.format, self.case.gated)
        tiles = self.guarded("w", tuple(packed.tiles.shape), torch.int32)
        tiles.copy_(packed.tiles)
        return QuantWeight(packed.format, packed.n, packed.k, packed.gated, tiles)

    def ids(self) -> NDArray[np.int64]:
        case, rng = self.routed, self.rng
        shape = case.tokens, case.top
        some = np.arange(0, max(1, case.experts), _THIRD)
        drawn: dict[str, Callable[[], NDArray[Any]]] = {
            "apart": lambda: rng.permuted(np.tile(np.arange(max(case.experts, case.top)), (case.tokens, 1)), axis=1),
            "twice": lambda: np.repeat(rng.integers(0, max(1, case.experts), (case.tokens, 1)), max(1, case.top), axis=1),
            "one": lambda: np.full(shape, case.experts - 1),
            "few": lambda: rng.choice(some, shape),
            "bad": lambda: rng.choice(some, shape),
        }
        ids = np.asarray(drawn[case.route](), np.int64)[:, : case.top].copy()
        if case.route == "apart" and case.experts:
            ids %= case.experts
        if case.route == "bad" and ids.size:
            far = _FAR[case.long]
            at = rng.random(shape) < 0.5
            at.flat[0] = True
            ids[at] = rng.choice([case.experts, -1, far, -far], int(at.sum()))
        return ids

    def placed(self, ids: NDArray[np.int64]) -> torch.Tensor:
        step, pad = (_STEP, _PAD) if self.routed.spaced else (1, 0)
        kind = torch.int64 if self.routed.long else torch.int32
        self.guards["ids"] = Guarded(ids.shape, (ids.shape[1] * step + pad, step), kind, self.device)
        return self.guards["ids"].tensor.copy_(torch.from_numpy(ids))

    def router(self) -> torch.Tensor | None:
        """[tokens, top], the tokens of a slot side by side."""
        case = self.routed
        if not case.weights:
            return None
        numbers = self.rng.uniform(0.05, 1, (case.tokens, case.top)) * self.rng.choice([1.0, 1.0, -1.0], (case.tokens, case.top))
        self.guards["weights"] = Guarded(numbers.shape, (1, case.tokens), DTYPES[case.weights], self.device)
        return self.guards["weights"].tensor.copy_(torch.from_numpy(numbers))
