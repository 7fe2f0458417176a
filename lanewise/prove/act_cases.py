"""The cases of act_quant: every class of input, type, layout and shape, for both kinds of activations. This file loads no torch."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product

from lanewise.prove.linear_cases import covering

__all__ = ["CASES", "LAYOUTS", "VALUES", "ActCase"]

# How x lies; inner strides are 1.
LAYOUTS = ("rows", "padded", "one token repeated", "off by one", "far rows")
# What is in x; the first six are the classes of formats/activations.py.
VALUES = (
    "normal",
    "zeros",  # of both signs
    "spike",  # one value that is not zero
    "halves",  # ties in the rounding of q, in groups whose scale is a power of two
    "subnormal",  # of x's type, and around the threshold under which a group is zero
    "huge",  # a scale that fp16 would not hold, up to the largest number of x's type
    "next to halves",  # where 1/d, x/d or an approximate reciprocal gives another q
    "of many sizes",  # each group has its own
    "broken",  # NaN and Inf of both signs, in some groups
)
_DTYPES = ("bf16", "f16", "f32")
_KINDS = ("q8_0", "q8_k")
_TOKENS = (1, 2, 3, 5, 8, 33)
_BLOCKS = (1, 2, 3, 5, 7, 16, 33)
_PROGRAMS = 24  # of the interpreter, for one case
_LONG = "more programs than the interpreter has time for"
_SIZES = (1e-8, 1.0, 2000.0, 60000.0)


@dataclass(frozen=True, slots=True)
class ActCase:
    """One call of act_quant."""

    kind: str
    m: int
    k: int
    dtype: str = "bf16"
    values: str = "normal"
    layout: str = "rows"
    norm: str = ""  # the dtype of the norm's weight, where there is a norm
    size: float = 1.0
    device_only: str = ""  # why the CPU does not run it

    @property
    def heavy(self) -> bool:
        """Whether a card needs gigabytes for it."""
        return self.device_only not in ("", _LONG) or self.layout == "far rows"

    def __str__(self) -> str:
        plain = {f.name: f.default for f in fields(self)}
        said = [f"{self.kind} m={self.m} k={self.k} {self.dtype} {self.values}"]
        said += [f"{name}={getattr(self, name)}" for name in ("layout", "norm", "size") if getattr(self, name) != plain[name]]
        return ", ".join(said)


def _classes() -> Iterator[ActCase]:
    for kind, dtype, values in product(_KINDS, _DTYPES, VALUES):
        yield ActCase(kind, 3, 768 if kind == "q8_k" else 800, dtype, values)


def _shapes() -> Iterator[ActCase]:
    for kind in _KINDS:
        for i, (m, count) in enumerate(product(_TOKENS, _BLOCKS)):
            k = count * (256 if kind == "q8_k" or i % 2 else 32)
            yield ActCase(kind, m, k, _DTYPES[i % 3], VALUES[i % 8], device_only=_LONG if m * count > _PROGRAMS else "")
        yield ActCase(kind, 0, 512)
        yield ActCase(kind, 3, 0)
        # a program takes several blocks, and the last has some that are not there
        yield ActCase(kind, 34, 33 * 256, "bf16", "of many sizes", device_only=_LONG)
        yield ActCase(kind, 205, 5 * 256, "bf16", "of many sizes", device_only=_LONG)


def _layouts() -> Iterator[ActCase]:
    for kind, dtype, layout in product(_KINDS, _DTYPES, LAYOUTS[1:]):
        yield ActCase(kind, 2 if layout == "far rows" else 3, 512, dtype, "of many sizes", layout)


def _norms() -> Iterator[ActCase]:
    rows = covering((_KINDS, _DTYPES, ("x", "f32"), (1, 4), (1, 3, 17), ("normal", "spike", "zeros", "broken"), _SIZES))
    for kind, dtype, weight, m, count, values, size in rows:
        assert isinstance(size, float)
        k = int(str(count)) * 256 - (32 if kind == "q8_0" else 0)
        yield ActCase(str(kind), int(str(m)), k, str(dtype), str(values), "rows", str(dtype) if weight == "x" else "f32", size)
    for dtype in _DTYPES:
        yield ActCase("q8_k", 3, 1024, dtype, "normal", "padded", "f32")


def _limits() -> Iterator[ActCase]:
    much = "more tokens or groups than a grid's second dimension holds are minutes in the interpreter"
    yield ActCase("q8_k", 65_543, 512, "bf16", "of many sizes", device_only=much)
    yield ActCase("q8_0", 65_543, 544, "f16", "normal", device_only=much)
    yield ActCase("q8_0", 1, 70_000 * 256, "bf16", "of many sizes", device_only=much)


CASES: tuple[ActCase, ...] = tuple(dict.fromkeys((*_classes(), *_shapes(), *_layouts(), *_norms(), *_limits())))
