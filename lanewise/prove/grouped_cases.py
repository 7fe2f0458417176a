"""The cases of grouped_linear on packed experts, for Triton's interpreter and for a card. This file loads no torch.

A case is one call: tokens, the experts that a router chose for each, and what x and the experts hold. Its name says everything about it, so
`python -m lanewise.prove --op grouped_linear --case NAME` runs it again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from lanewise.formats import FORMATS
from lanewise.prove.quant_cases import BLOCKS, NAMES, SIZES, TILE, VALUES, QuantCase, pairwise

__all__ = ["CASES", "INTERPRETED", "OPERATOR", "ROUTES", "SMALL", "GroupedCase"]

# Which experts the pairs of a token and a slot go to.
ROUTES = (
    "apart",  # a token's experts are as many as there can be, drawn anew for each token
    "twice",  # every slot of a token has the same expert: its row is read by one expert several times
    "one",  # all pairs go to the last expert, and the others have no rows
    "few",  # any of every third expert
    "bad",  # as "few", but some ids are no expert's: the next after the last, -1, and far ones of both signs
)


@dataclass(frozen=True, slots=True)
class GroupedCase:
    """One call of grouped_linear: its sizes, which parts are there, and what is in it."""

    format: str
    tokens: int
    top: int
    experts: int
    n: int
    k: int
    route: str = "apart"
    dtype: str = "bf16"  # of x
    out: str = "bf16"
    own: bool = False  # x has a row for each pair
    gated: bool = False
    weights: str = ""  # dtype of the router's weights, where there are any
    long: bool = False  # int64 ids
    spaced: bool = False  # room between ids
    early: bool = False  # constant_w and ids_ready
    values: str = "even"
    size: float = 1.0  # of x
    device_only: str = ""  # why the CPU does not run it

    @property
    def pairs(self) -> int:
        return self.tokens * self.top

    @property
    def alone(self) -> QuantCase:
        """The rows of x and the rows of one expert, as a case of quant_linear."""
        rows = self.pairs if self.own else self.tokens
        return QuantCase(self.format, (rows,), self.n, self.k, self.dtype, self.out, gated=self.gated, values=self.values, size=self.size)

    @property
    def heavy(self) -> bool:
        """Whether it is much for a card too."""
        return bool(self.device_only)

    def __str__(self) -> str:
        plain = {f.name: f.default for f in fields(self)}
        said = [f"{self.format} tokens={self.tokens} top={self.top} experts={self.experts} n={self.n} k={self.k} {self.route}"]
        said += [f"{self.dtype} to {self.out}"]
        for name in ("own", "gated", "weights", "long", "spaced", "early", "values", "size"):
            value = getattr(self, name)
            if value != plain[name]:
                said.append(name if value is True else f"{name}={value:g}" if name == "size" else f"{name}={value}")
        return " ".join(said)


_PARTS = ("route", "dtype", "out", "own", "gated", "weights", "long", "spaced", "early", "values", "size")
_FLAGS, _TYPES = (False, True), ("bf16", "f16", "f32")
_AXES = (ROUTES, _TYPES, _TYPES, _FLAGS, _FLAGS, ("", "x", "f32"), _FLAGS, _FLAGS, _FLAGS, VALUES[:4], SIZES)
_TAILS: list[dict[str, Any]] = [dict(zip(_PARTS, row, strict=True)) for row in pairwise(_AXES)]
# (tokens, top, experts): decode and prompts, one expert, fewer pairs than experts and more.
_ROUTED = ((1, 8, 128), (1, 6, 144), (4, 8, 128), (33, 8, 128), (33, 6, 144), (512, 8, 128), (17, 2, 8), (40, 1, 1))
_ROWS = (1, 7, 8, 16, 17, 576)


def _sound(case: GroupedCase) -> GroupedCase:
    """The case without what would leave nothing to compare, as in quant_linear's; router's weights of x's type by its name."""
    case = replace(case, weights=case.dtype if case.weights == "x" else case.weights)
    if case.values == "exact":
        case = replace(case, size=1.0)
    if case.out == "f16" and (case.gated or case.weights):
        case = replace(case, values="exact" if case.values == "exact" else "even", size=1.0)
    return case


def _widths(name: str) -> tuple[int, ...]:
    block = FORMATS[name].block
    return tuple(dict.fromkeys(unit * count for count in BLOCKS for unit in (block, TILE)))


def _product() -> Iterator[GroupedCase]:
    """Every format at every routed size, and at every n and k; the parts take turns, so that no configuration is compiled for many of them."""
    turn = 0
    for name, route in product(NAMES, ROUTES):
        tail = _TAILS[turn % len(_TAILS)] | {"route": route}
        turn += 1
        for routed in _ROUTED:
            yield _sound(GroupedCase(name, *routed, 40, 2 * TILE, **tail))
    for name in NAMES:
        for k in _widths(name):
            tail = _TAILS[turn % len(_TAILS)]
            turn += 1
            for n in _ROWS:
                yield _sound(GroupedCase(name, *((3, 2, 5), (24, 2, 5))[turn % 2], n, k, **tail))


def _exact() -> Iterator[GroupedCase]:
    """Where the integers alone decide."""
    for name, (tokens, out) in product(NAMES, ((2, "f32"), (70, "f32"), (3, "bf16"), (70, "f16"))):
        yield GroupedCase(name, tokens, 3, 6, 24, 3 * TILE, out=out, dtype="f16" if out == "f16" else "bf16", values="exact")


def _edges() -> Iterator[GroupedCase]:
    """Ends of the numbers, operands that are not numbers, nothing to do."""
    for i, name in enumerate(NAMES):
        for size in SIZES:
            yield GroupedCase(name, 3, 2, 4, 19, 2 * TILE, dtype="f32", out="f32", values="bytes", size=size)
        yield GroupedCase(name, 40, 2, 4, 17, 2 * TILE, "few", dtype="f32", out="f32", values="extreme", own=bool(i % 2))
        for tokens in (4, 40):
            yield GroupedCase(name, tokens, 2, 3, 20, 2 * TILE, out="f32", values="broken x", own=bool(i % 2))
            yield GroupedCase(name, tokens, 2, 3, 20, 2 * TILE, values="broken w", weights="f32", gated=bool(i % 2))
    yield from _nothing()


def _nothing() -> Iterator[GroupedCase]:
    yield GroupedCase("Q4_K", 0, 8, 16, 20, 2 * TILE)
    yield GroupedCase("Q8_0", 3, 0, 4, 20, 2 * TILE)
    yield GroupedCase("Q6_K", 3, 2, 4, 0, 2 * TILE)
    yield GroupedCase("Q4_K", 3, 2, 0, 20, 2 * TILE, "bad")


def _limits() -> Iterator[GroupedCase]:
    """More pairs, or panels, than 16 bits count."""
    much = "more pairs or panels than 16 bits count are minutes in the interpreter"
    for name in ("Q8_0", "Q4_K", "Q6_K"):
        yield GroupedCase(name, 8_200, 8, 128, 24, TILE, weights="f32", device_only=much)
        yield GroupedCase(name, 8_200, 8, 128, 9, TILE, "bad", own=True, gated=True, long=True, device_only=much)
    yield GroupedCase("Q4_K", 2, 2, 2, 8 * 65535, TILE, gated=True, device_only=much)


def _interpreted() -> Iterator[GroupedCase]:
    """Every pair of values of two axes, as far as a program of the interpreter takes long, which is a third of a second."""
    sizes = ((1, 2, 3), (2, 2, 4), (3, 1, 2), (5, 2, 2))
    for name, (tokens, top, experts), n, count, *parts in pairwise((NAMES, sizes, (1, 16, 17), (1, 2, 3), *_AXES)):
        k = count * (TILE if count % 2 else FORMATS[name].block)
        yield _sound(GroupedCase(name, tokens, top, experts, n, k, **dict(zip(_PARTS, parts, strict=True))))
    for i, name in enumerate(NAMES):
        yield GroupedCase(name, 2, 1, 2, 9, (3, 3, 3, 9)[i % 4] * TILE, out="f32", values="exact")
        yield GroupedCase(name, 3, 2, 3, 5, 2 * TILE, out="f32", values=("broken x", "broken w", "extreme")[i % 3], own=i % 2 > 0)
    yield GroupedCase("Q4_K", 1, 8, 128, 5, TILE, gated=True, weights="f32")
    yield GroupedCase("Q6_K", 1, 6, 144, 5, TILE, weights="bf16", early=True)
    yield from _nothing()


# What every configuration is tried on: several tiles, a tail of n and of k, more rows of an expert than an octet has, each part once.
SMALL: tuple[GroupedCase, ...] = (
    GroupedCase("Q8_0", 9, 1, 2, 13, 3 * TILE + 96, "one", weights="f32"),
    GroupedCase("Q4_K", 3, 2, 3, 9, 9 * TILE, "bad", out="f32", early=True, spaced=True),
    GroupedCase("Q6_K", 4, 2, 4, 18, 5 * TILE, "twice", out="f32", values="exact"),
    GroupedCase("Q2_K", 3, 2, 3, 7, 4 * TILE, dtype="f32", out="f32", gated=True, own=True, weights="f32"),
    GroupedCase("IQ4_XS", 2, 2, 3, 16, 8 * TILE, gated=True, values="bytes", long=True),
    GroupedCase(
        "Q5_0", 9, 1, 2, 5, 34 * TILE, "one", out="f32", device_only="as many tiles as are no longer written out are minutes in the interpreter"
    ),
)


def _operator() -> Iterator[GroupedCase]:
    """What the op itself is asked: only types of y that it has; no fp16 that any bytes would overflow as weights, no weights that cannot be."""
    prompts = (
        GroupedCase(name, 70, 2, 6, 40, 2 * TILE, ROUTES[i % 5], out=("bf16", "f32")[i % 2], weights="f32", own=i % 3 == 1, gated=i % 4 == 2)
        for i, name in enumerate(NAMES)
    )
    for case in (*prompts, *_interpreted()):
        if case.out in (case.dtype, "f32") and not (case.values == "bytes" and case.dtype == "f16") and case.values not in ("broken x", "broken w"):
            yield case


CASES: tuple[GroupedCase, ...] = tuple(dict.fromkeys((*_exact(), *_edges(), *_product(), *_limits())))
INTERPRETED: tuple[GroupedCase, ...] = tuple(dict.fromkeys(_interpreted()))
OPERATOR: tuple[GroupedCase, ...] = tuple(dict.fromkeys(_operator()))
