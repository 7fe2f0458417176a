"""What the format tests share: inputs, and facts about each format written down a second time, apart from the code under test."""

from dataclasses import dataclass

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize
from numpy.typing import NDArray

from lanewise.contract import dtype
from lanewise.formats import FORMATS, Format, get

ALL = tuple(FORMATS)
LEGACY = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
SEARCHED = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
BLOCKS = LEGACY + SEARCHED
SIGNED = ("Q4_0", "Q5_0", "Q8_0", "Q3_K", "Q6_K")  # zero is one of their codes
TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)


@dataclass(frozen=True, slots=True)
class Fact:
    """How many codes a format has, and the bytes that give every weight of a block code c: field -> (right shift, mask, times)."""

    codes: int
    bytes: dict[str, tuple[int, int, int]]


_NIBBLE, _TOP_BIT = (0, 15, 0x11), (4, 1, 0xFF)
FACTS = {
    "Q4_0": Fact(16, {"qs": _NIBBLE}),
    "Q4_1": Fact(16, {"qs": _NIBBLE}),
    "Q5_0": Fact(32, {"qs": _NIBBLE, "qh": _TOP_BIT}),
    "Q5_1": Fact(32, {"qs": _NIBBLE, "qh": _TOP_BIT}),
    "Q8_0": Fact(256, {"qs": (0, 255, 1)}),
    "Q2_K": Fact(4, {"qs": (0, 3, 0x55)}),
    "Q3_K": Fact(8, {"qs": (0, 3, 0x55), "hmask": (2, 1, 0xFF)}),
    "Q4_K": Fact(16, {"qs": _NIBBLE}),
    "Q5_K": Fact(32, {"qs": _NIBBLE, "qh": _TOP_BIT}),
    "Q6_K": Fact(64, {"ql": _NIBBLE, "qh": (4, 3, 0x55)}),
    "IQ4_NL": Fact(16, {"qs": _NIBBLE}),
    "IQ4_XS": Fact(16, {"qs": _NIBBLE}),
}


def with_code(raw: NDArray[np.uint8], fmt: Format, code: int) -> NDArray[np.uint8]:
    """raw with every weight's code set to `code` and all scales as they are."""
    changed = raw.copy()
    blocks = changed.view(fmt.layout)
    for field, (shift, mask, times) in FACTS[fmt.name].bytes.items():
        blocks[field] = np.uint8((code >> shift & mask) * times).astype(blocks[field].dtype)
    return changed


def official(raw: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    """What the `gguf` package makes of the bytes."""
    with np.errstate(all="ignore"):
        return np.asarray(gguf_dequantize(raw, GGMLQuantizationType[name]), np.float32)


def random_bytes(name: str, rows: int, blocks: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks * get(name).nbytes), dtype=np.uint8)


def weights(kind: str, rows: int = 64, k: int = 1024, seed: int = 0) -> NDArray[np.float32]:
    """float32[rows, k] from one of KINDS."""
    rng = np.random.default_rng(seed)
    shape = (rows, k)
    made = {
        "normal": lambda: rng.standard_normal(shape),
        "laplace": lambda: rng.laplace(size=shape),
        "outliers": lambda: rng.standard_t(3, size=shape),
        "uniform": lambda: rng.uniform(-1, 1, shape),
        "shifted": lambda: rng.standard_normal(shape) + 3,
        "positive": lambda: rng.exponential(size=shape),
        "rows of many sizes": lambda: rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 3, (rows, 1)),
    }[kind]()
    return made.astype(np.float32)


KINDS = ("normal", "laplace", "outliers", "uniform", "shifted", "positive", "rows of many sizes")


def rmse(x: NDArray[np.float32], y: NDArray[np.floating]) -> float:
    return float(np.sqrt(np.mean((x.astype(np.float64) - y) ** 2)))


def half_error(scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far rounding to fp16 can have moved a number that became `scale`."""
    half = dtype("f16")
    return np.abs(scale) * half.roundoff / (1 - half.roundoff) + half.tiny / 2
