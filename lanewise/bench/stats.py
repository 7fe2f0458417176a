"""What the samples of an A/B run say: the median of paired log ratios with a bootstrap interval, the A/A control, and the verdict.

Pure functions of a manifest. Random numbers are raw words of Philox, which numpy keeps the same from version to version, so that anyone
who recomputes a figure gets it.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from statistics import NormalDist, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FEWEST_PAIRS", "MOST_PAIRS", "NO_DIFFERENCE", "NO_OUTPUT", "OTHER_PROMPTS", "TOKEN_EXACT", "bootstrap", "control_logs", "figures", "kept",
    "pair_logs", "peak", "products", "rounds_for", "schedule", "value",
]  # fmt: skip

FEWEST_PAIRS, MOST_PAIRS = 15, 10_000
NO_DIFFERENCE = "no difference shown"
NO_OUTPUT = "no output asked for"
OTHER_PROMPTS = "other prompts"  # by the witnesses: what came out of them is not compared
TOKEN_EXACT = "token-exact"  # the ids are those of Lanewise's own witness; what --output finds may be any text
_ORDERS = (("a", "b", "b", "a"), ("b", "a", "a", "b"))
_BLOCK = 1000  # resamples that are drawn at a time
_FLOATS = ("F32", "F16", "BF16")  # formats whose products are not those of the int8 probe


def products(problem: Mapping[str, Any]) -> str:
    """The probe whose products are those of a problem: int8 where weights are quantized, float for all else.

    >>> products({"op": "quant_linear", "format": "Q4_K"}), products({"op": "quant_linear", "format": "F16"}), products({"op": "attention"})
    ('int8', 'float', 'float')
    """
    return "int8" if problem["op"] in ("quant_linear", "grouped_linear") and problem.get("format") not in _FLOATS else "float"


def schedule(seed: int, number: int) -> tuple[tuple[str, ...], str]:
    """The order of a round's four samples, and the arm whose two control samples follow them.

    Each run of four rounds has every order with every control arm once, shuffled.
    """
    block, place = divmod(number, 4)
    words = np.random.Philox(np.random.SeedSequence([seed, block])).random_raw(4)
    chosen = int(np.argsort(words, kind="stable")[place])
    return _ORDERS[chosen % 2], "ab"[chosen // 2]


def rounds_for(pairs: int) -> int:
    """Rounds that hold so many pairs, two each."""
    return -(-pairs // 2)


def value(sample: Mapping[str, Any]) -> float:
    """What a sample says: seconds of one repeat, or a command's metric."""
    return float(sample["seconds"] / sample["repeats"] if "seconds" in sample else sample["value"])


def kept(rounds: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rounds that no rule left out."""
    return [r for r in rounds if r["left_out"] is None]


def pair_logs(rounds: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """For each round log(b / a) of its first two samples and of its last two."""
    return [[_log_ratio(r["samples"][i : i + 2]) for i in (0, 2)] for r in rounds]


def control_logs(rounds: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """For each round log(second / first) of its control: two samples of one arm, whose ratio would be 1 on a quiet machine."""
    return [[log(value(r["control"][1]) / value(r["control"][0]))] for r in rounds]


def peak(rounds: Sequence[Mapping[str, Any]], probe: str, amount: str) -> float:
    """An amount a second of a probe: of each round the best pass, since any disturbance only slows one down; of those the median."""
    return float(median(r["probes"][probe][amount] / min(r["probes"][probe]["seconds"]) for r in rounds))


def bootstrap(groups: Sequence[Sequence[float]], resamples: int, seed: int, level: float) -> tuple[float, float, float]:
    """(median, low, high) of values that come in groups of one size: the expanded percentile interval over resampled groups.

    Groups are resampled whole, as the values of a round share its moment. Plain percentiles of few groups are too narrow; `_tail`.

    >>> bootstrap([[2.0], [2.0], [2.0]], 100, 0, 0.95)
    (2.0, 2.0, 2.0)
    """
    table = np.array(groups, np.float64)
    draw, medians = np.random.Philox(seed), []
    for start in range(0, resamples, _BLOCK):
        shape = (min(_BLOCK, resamples - start), len(table))
        picked = table[_indices(draw.random_raw(shape[0] * shape[1]), len(table)).reshape(shape)]
        medians.append(np.median(picked.reshape(shape[0], -1), axis=1))
    tail = _tail(level, len(table))
    low, high = np.quantile(np.concatenate(medians), [tail, 1 - tail])
    return float(np.median(table)), float(low), float(high)


def figures(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure of a manifest, from its kind, plan, problem and rounds. All are None, and nothing is shown, when no round was kept."""
    plan, rounds = manifest["plan"], kept(manifest["rounds"])
    found: dict[str, Any] = {
        "ratio": _ratios(pair_logs(rounds), plan["bootstrap"]),
        "control": _ratios(control_logs(rounds), plan["bootstrap"]),
    }
    ratio, control = found["ratio"], found["control"]
    control["spread"] = max(_away(control["low"]), _away(control["high"])) - 1 if rounds else None
    found |= {arm: _arm(arm, manifest, rounds) for arm in ("a", "b")}
    found["verdict"] = _verdict(manifest, ratio, control["spread"], 2 * len(rounds))
    if "output" in plan:
        found["output"] = _output(plan["output"], manifest["rounds"], [_prompts(manifest["arms"][arm]["witness"]) for arm in ("a", "b")])
    return {**found, "pairs": 2 * len(rounds), "left_out": len(manifest["rounds"]) - len(rounds)}


def _verdict(manifest: Mapping[str, Any], ratio: Mapping[str, float | None], spread: float | None, pairs: int) -> str:
    """Faster (of commands: better) is claimed from 15 pairs on, of an interval without 1 and an effect beyond the control's spread."""
    middle, low, high = (ratio[key] for key in ("median", "low", "high"))
    if pairs < FEWEST_PAIRS or middle is None or low is None or high is None or spread is None:
        return NO_DIFFERENCE
    if low <= 1 <= high or _away(middle) - 1 <= spread:
        return NO_DIFFERENCE
    higher = manifest["plan"].get("better", "lower") == "higher"
    winner = "a" if (middle > 1) != higher else "b"
    return f"{winner} is {'faster' if manifest['kind'] == 'kernel' else 'better'}"


def _prompts(witness: Any) -> list[str]:
    """The hashes of what the models of an arm were asked; nothing where nobody witnessed any."""
    return [one["prompt"] for one in witness if one["prompt"]] if isinstance(witness, list) else []


def _output(asked: str | None, rounds: Sequence[Mapping[str, Any]], prompts: Sequence[list[str]]) -> dict[str, Any]:
    """How many different outputs the samples of each arm gave, and whether all of both were one. A round that is left out gave its output
    all the same."""
    found: dict[str, set[str | None]] = {"a": set(), "b": set()}
    for one in rounds:
        for sample in (*one["samples"], *one["control"]):
            found[sample["arm"]].add(sample["output"])
    others = all(prompts) and prompts[0] != prompts[1]
    if None in found["a"] | found["b"]:
        return {"a": None, "b": None, "verdict": OTHER_PROMPTS if others else NO_OUTPUT}
    exact = TOKEN_EXACT if asked is None else "same output"
    verdict = "unsteady output" if max(map(len, found.values())) > 1 else exact if found["a"] == found["b"] else "another output"
    return {arm: len(outputs) for arm, outputs in found.items()} | {"verdict": OTHER_PROMPTS if others else verdict}


def _arm(arm: str, manifest: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The median sample of an arm and, of a kernel, what it moves and computes in that time beside the machine's limits."""
    values = [value(s) for r in rounds for s in r["samples"] if s["arm"] == arm]
    middle = median(values) if values else None
    if manifest["kind"] == "command":
        memory = (
            [s["memory"] for r in rounds for s in r["samples"] if s["arm"] == arm and s["memory"] is not None] if "output" in manifest["plan"] else []
        )
        return {"value": middle} | ({"memory": max(memory, default=None)} if "output" in manifest["plan"] else {})
    problem = manifest["problem"]
    empty: dict[str, float | None] = dict.fromkeys(("seconds", "bytes_per_second", "operations_per_second", "of_read", "of_int8"))
    probed = manifest["rounds"][0]["probes"]
    empty |= {"of_float": None} if "float" in probed else {}
    if middle is None:
        return empty
    peaks = {name: peak(rounds, name, "bytes" if name == "read" else "macs") for name in probed}
    nbytes, operations = problem["bytes"] / middle, problem["operations"] / middle
    rates = {"seconds": middle, "bytes_per_second": nbytes, "operations_per_second": operations, "of_read": nbytes / peaks["read"]}
    if (name := products(problem)) in peaks:
        rates[f"of_{name}"] = operations / (2 * peaks[name])  # a product and a sum each
    return {**empty, **rates}


def _ratios(groups: Sequence[Sequence[float]], how: Mapping[str, Any]) -> dict[str, Any]:
    if not groups:
        return {"median": None, "low": None, "high": None}
    logs = bootstrap(groups, how["resamples"], how["seed"], how["level"])
    return dict(zip(("median", "low", "high"), map(exp, logs), strict=True))


def _log_ratio(samples: Sequence[Mapping[str, Any]]) -> float:
    by_arm = {s["arm"]: value(s) for s in samples}
    return log(by_arm["b"] / by_arm["a"])


def _away(ratio: float) -> float:
    """How far a ratio lies from 1, in either direction."""
    return max(ratio, 1 / ratio) if ratio > 0 else inf


def _tail(level: float, groups: int) -> float:
    """The share of resamples to leave on each side, so that few groups cover a `level` as many do.

    Hesterberg, What Teachers Should Know About the Bootstrap (The American Statistician 69, 2015), expanded percentile interval; the
    quantile of Student's t is Abramowitz and Stegun 26.7.5.
    """
    if groups < 2:
        return 0.0
    normal, nu = NormalDist(), groups - 1
    z = normal.inv_cdf((1 + level) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    t = z + sum(term / nu**i for i, term in enumerate(terms, 1))
    return normal.cdf(-t * (groups / nu) ** 0.5)


def _indices(words: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Raw words as indices below `count`, by their upper 53 bits."""
    return np.asarray((words >> np.uint64(11)) * 2.0**-53 * count, np.int64)
