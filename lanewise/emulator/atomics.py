"""Read, change and write, lane by lane in order: what atomic instructions of memory and LDS do."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.emulator.memory import Bytes
from lanewise.emulator.registers import Array

__all__ = ["OPERATIONS", "atomic"]

# By the name's end: dtype, and the new value of (old value, operand). Facts: AMD's ISA guides, "atomic".
OPERATIONS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {}


def _fill() -> None:
    sizes: dict[str, Any] = {"u32": np.uint32, "i32": np.int32, "b32": np.uint32, "u64": np.uint64, "i64": np.int64, "b64": np.uint64}
    for kind, dtype in sizes.items():
        operations: dict[str, Callable[[Any, Any], Any]] = {
            "add": lambda old, new: old + new,
            "sub": lambda old, new: old - new,
            "and": lambda old, new: old & new,
            "or": lambda old, new: old | new,
            "xor": lambda old, new: old ^ new,
            "swap": lambda old, new: new,
            "min": min,
            "max": max,
            "inc": lambda old, new: old + old.dtype.type(1) if old < new else old.dtype.type(0),
            "dec": lambda old, new: new if old == 0 or old > new else old - old.dtype.type(1),
        }
        for name, run in operations.items():
            OPERATIONS[f"{name}_{kind}"] = (dtype, run)
    floats: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
    for kind, dtype in floats.items():
        OPERATIONS[f"add_{kind}"] = (dtype, lambda old, new: old + new)
        OPERATIONS[f"min_{kind}"] = OPERATIONS[f"min_num_{kind}"] = (dtype, np.fmin)
        OPERATIONS[f"max_{kind}"] = OPERATIONS[f"max_num_{kind}"] = (dtype, np.fmax)
    # The old names say the width alone, or a sign.
    for name in ("add", "sub", "and", "or", "xor", "swap", "inc", "dec"):
        OPERATIONS[name], OPERATIONS[f"{name}_x2"] = OPERATIONS[f"{name}_u32"], OPERATIONS[f"{name}_u64"]
    for name in ("min", "max"):
        for sign in "us":
            like = "u" if sign == "u" else "i"
            OPERATIONS[f"{sign}{name}"], OPERATIONS[f"{sign}{name}_x2"] = OPERATIONS[f"{name}_{like}32"], OPERATIONS[f"{name}_{like}64"]
    OPERATIONS["pk_add_f16"] = (np.uint32, lambda old, new: (_halves(old) + _halves(new)).view(np.uint32)[0])
    OPERATIONS["pk_add_bf16"] = (np.uint32, _add_bf16)


def _halves(word: Any) -> Array:
    return np.array([word], np.uint32).view(np.float16)


def _add_bf16(old: Any, new: Any) -> Any:
    def wide(word: Any) -> Array:
        return (np.array([word], np.uint32).view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    total = (wide(old) + wide(new)).view(np.uint32)
    rounded = (total.astype(np.uint64) + 0x7FFF + (total >> 16 & 1)) >> 16
    return np.uint32(rounded[0] | rounded[1] << np.uint64(16))


def atomic(store: Bytes, index: Array, dtype: Any, run: Callable[[Any, Any], Any], values: Array, compare: Array | None, mask: Array) -> Array:
    """The old values [waves, lanes]; compare: what must be there for the new value to be written."""
    old = np.zeros(index.shape, dtype)
    size = np.dtype(dtype).itemsize
    view = (store.u32 if size == 4 else store.u64).view(dtype)
    for wave, lane in zip(*np.nonzero(mask), strict=True):
        at = (int(index[wave, lane]) + store.shift) // size
        old[wave, lane] = before = view[at]
        if compare is None:
            view[at] = run(before, values[wave, lane])
        elif before == compare[wave, lane]:
            view[at] = values[wave, lane]
    return old


_fill()
