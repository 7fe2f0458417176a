"""What quantized activations look like in memory: one record a block, everything that a multiply needs side by side.

The integers and scales are those of `formats.activations`; the rest is derived once here so that no multiply derives it again.
A row of x[m,k] is k / block records. `c<o>` holds -o times the sum of a group: the start value of a dot product whose
weights were stored with o added.
"""

import numpy as np

__all__ = ["FLOAT", "RECORDS", "field_offset", "record_bytes"]

FLOAT = "float"
# sums of q per 16 or per 32 weights; "ds" is d times the sum, what a format with a minimum multiplies the minimum by
RECORDS: dict[str, np.dtype] = {
    "q8_0": np.dtype([("q", "i1", 32), ("d", "f4"), ("ds", "f4"), ("c8", "i4"), ("c16", "i4"), ("c128", "i4")]),
    "q8_k": np.dtype(
        [("q", "i1", 256), ("d", "f4"), ("sum32", "i2", 8), ("sum16", "i2", 16), ("c4", "i4", 16), ("c32", "i4", 16), ("c128", "i4", 8)]
    ),
    FLOAT: np.dtype([("x", "f4")]),
}
BLOCK = {"q8_0": 32, "q8_k": 256, FLOAT: 1}


def record_bytes(kind: str, k: int) -> int:
    """Bytes of one row of k activations."""
    return k // BLOCK[kind] * RECORDS[kind].itemsize


def field_offset(kind: str, name: str) -> int:
    """Where a field starts in its record."""
    return int(RECORDS[kind].fields[name][1])  # type: ignore[index]
