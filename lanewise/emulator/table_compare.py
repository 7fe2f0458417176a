"""Comparisons: every relation with every type, and the class of a number. Lanes that are not active are cleared by whoever writes the mask."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.emulator.floats import bits_of
from lanewise.emulator.op import Op, ops
from lanewise.emulator.order import signalling

__all__ = ["COMPARISONS"]

Array = NDArray[Any]
_Compare = Callable[[Array, Array], Array]


def _always(value: bool) -> _Compare:
    return lambda a, b: np.full(np.broadcast_shapes(a.shape, b.shape), value)


_ORDERED: dict[str, _Compare] = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_WHOLE: dict[str, _Compare] = {**_ORDERED, "ne": np.not_equal, "f": _always(False), "t": _always(True)}
# n: not. A comparison with NaN is false, so "not less" is another relation than "greater or equal".
_REAL: dict[str, _Compare] = {
    **_ORDERED,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "f": _always(False),
    "t": _always(True),
    "tru": _always(True),
}


def _class(x: Array, wanted: Array) -> Array:
    """Whether the bit of x's class is set: signalling and quiet NaN, then -inf, -normal, -denormal, -0, and the same upwards."""
    size = x.dtype.itemsize
    smallest = {2: 2.0**-14, 4: 2.0**-126, 8: 2.0**-1022}[size]
    negative = bits_of(x) >> bits_of(x).dtype.type(8 * size - 1) == 1
    size_class = np.where(np.isinf(x), 0, np.where(np.abs(x) >= smallest, 1, np.where(x != 0, 2, 3)))
    which = np.where(np.isnan(x), np.where(signalling(x), 0, 1), np.where(negative, 2 + size_class, 9 - size_class))
    return np.asarray(wanted.astype(np.int64) >> which & 1).astype(bool)


def _table() -> dict[str, Op]:
    found: dict[str, Op] = {}
    for prefix in ("v_cmp", "v_cmpx"):
        for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
            found |= ops("mask", f"{kind} {kind}", {f"{prefix}_{name}_{kind}": run for name, run in _WHOLE.items()})
        for kind in ("f16", "f32", "f64"):
            found |= ops("mask", f"{kind} {kind}", {f"{prefix}_{name}_{kind}": run for name, run in _REAL.items()})
            found |= ops("mask", f"{kind} u32", {f"{prefix}_class_{kind}": _class})
    return found


COMPARISONS = _table()
