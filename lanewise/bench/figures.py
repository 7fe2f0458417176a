"""What raw samples say: every figure of a record follows from its samples and sizes, by the functions here and nothing else.

A rate is tokens a second; seconds of a phase are the sum of its steps.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["figures", "limits", "residency", "spread"]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, best (the largest), and how far the values lie apart, (largest - smallest) / median.

    >>> spread([90.0, 100.0, 110.0])
    {'median': 100.0, 'best': 110.0, 'spread': 0.2}
    """
    middle = median(values)
    return {"median": middle, "best": max(values), "spread": (max(values) - min(values)) / middle}


def limits(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Bytes or multiplications a second of each probe: of each round its best pass, since any disturbance only slows one down."""
    return {name: spread([r["probes"][name]["amount"] / min(r["probes"][name]["seconds"]) for r in rounds]) for name in rounds[0]["probes"]}


def residency(nbytes: int, cache: int | None) -> str:
    """Whether weights of that size are read from the last-level cache ("warm"), from memory ("cold"), or from both ("mixed").

    A cache still holds part of what is up to four times as large, as it does not evict strictly in order.
    """
    if cache is None:
        return "unknown"
    return "warm" if nbytes <= cache else "cold" if nbytes >= 4 * cache else "mixed"


def figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a record, from its "model" and "rounds".

    Decode: bytes of weights that a token reads, and their share of what the probes read. Prefill: multiplications of weights (those of
    attention are not counted, its time is), and their share of the int8 peak.
    """
    rounds, model = record["rounds"], record["model"]
    peaks = limits(rounds)
    found: dict[str, Any] = {"limits": peaks, "phases": {}}
    for name in rounds[0]["phases"]:
        kind, tokens = rounds[0]["phases"][name]["kind"], rounds[0]["phases"][name]["tokens"]
        rates = spread([r["phases"][name]["tokens"] / sum(r["phases"][name]["seconds"]) for r in rounds])
        phase: dict[str, Any] = {"kind": kind, "tokens": tokens, "rate": rates}
        if kind == "decode":
            bandwidth = model["weight_bytes"] * rates["median"]
            phase |= {"bytes_per_second": bandwidth, "of_read": bandwidth / peaks["read"]["median"]}
            phase["of_read_at_size"] = bandwidth / peaks["read_at_size"]["median"]
        else:
            macs = (model["layer_macs"] * tokens + model["head_macs"]) * rates["median"] / tokens
            phase |= {"macs_per_second": macs, "of_int8": macs / peaks["int8"]["median"]}
        found["phases"][name] = phase
    return found
