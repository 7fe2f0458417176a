"""Rounds and samples: all there, each once, in order, long enough, and left out by the rule and nothing else."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from lanewise.bench.around import left_out
from lanewise.bench.stats import kept, rounds_for, schedule
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown

__all__ = ["check_samples"]

_NS = 1e9
_TICKS = 100  # a second: USER_HZ of Linux (proc(5))
_LATE = 0.1  # seconds by which the kernel's counters may run behind its clock
_CLOCKS = 1.0  # seconds that the wall clock may be set by while a run goes on
_ROUNDING = 1000  # ns: a time of 200 us is kept to less than that as a float


def check_samples(found: Mapping[str, Any]) -> list[Reason]:
    """What speaks against the rounds of a manifest. They may hold other samples than their order names."""
    return [
        *_numbers(found),
        *(reason for i, one in enumerate(found["rounds"]) for reason in _round(f"rounds[{i}]", one, found)),
        *_twice(found["rounds"]),
        *_repeats(found),
        *_times(found),
        *_probes(found["rounds"]),
        *_whole_run(found),
    ]


def _numbers(found: Mapping[str, Any]) -> Iterator[Reason]:
    """A run stops with the round that completes the planned pairs, or with the most that it may take; no round is missing before."""
    rounds, plan = found["rounds"], found["plan"]
    numbers = [one["number"] for one in rounds]
    if numbers != list(range(len(rounds))):
        wrong = next(i for i, number in enumerate(numbers) if number != i)
        yield Reason("rounds", f"rounds[{wrong}].number", f"{wrong}: rounds count up from 0", str(numbers[wrong]))
    needed, have = rounds_for(plan["pairs"]), len(kept(rounds))
    if len(rounds) > plan["most_rounds"]:
        yield Reason("rounds", "rounds", f"at most {plan['most_rounds']}, by the plan", str(len(rounds)))
    elif have < needed and len(rounds) < plan["most_rounds"]:
        yield Reason("rounds", "rounds", f"{needed} that are kept, for {plan['pairs']} pairs", str(have))
    elif have > needed or (have == needed and rounds[-1]["left_out"] is not None):
        yield Reason("rounds", "rounds", f"an end with round {needed} that is kept, as planned", f"{have} kept of {len(rounds)}")


def _round(where: str, one: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    order, control = schedule(found["plan"]["seed"], one["number"])
    arms, twice = [s["arm"] for s in one["samples"]], [s["arm"] for s in one["control"]]
    if one["order"] not in (list("abba"), list("baab")):
        yield Reason("balance", f"{where}.order", "a, b, b, a or b, a, a, b", shown(one["order"]))
    elif one["order"] != list(order):
        yield Reason("sample-order", f"{where}.order", f"{', '.join(order)}, by the plan's seed", ", ".join(one["order"]))
    if len(arms) != 4 or Counter(arms) != Counter(one["order"]):
        yield Reason("sample-missing", f"{where}.samples", f"{', '.join(one['order'])}", ", ".join(arms) or "none")
    elif arms != one["order"]:
        yield Reason("sample-order", f"{where}.samples", f"{', '.join(one['order'])}, as the order says", ", ".join(arms))
    if len(twice) != 2:
        yield Reason("sample-missing", f"{where}.control", "two samples of one arm", f"{len(twice)}")
    elif len(set(twice)) != 1 or twice[0] != control:
        yield Reason("control", f"{where}.control", f"{control} twice, by the plan's seed", ", ".join(twice))
    least = found["plan"].get("min_seconds")
    for name in ("samples", "control"):
        for i, sample in enumerate(one[name]):
            if least is not None and sample["seconds"] < least:
                yield Reason("sample-short", f"{where}.{name}[{i}].seconds", f"{least:g} s or more", f"{sample['seconds']:g} s")
    yield from _rule(where, one, found["plan"]["rule"])


def _rule(where: str, one: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[Reason]:
    why = left_out(rule, one["before"], one["after"])
    if why is not None and one["left_out"] is None:
        yield Reason("left-out-kept", f"{where}.left_out", f"left out, as {why}", "kept")
    elif why is None and one["left_out"] is not None:
        yield Reason("kept-left-out", f"{where}.left_out", "kept: the rule has nothing against it", shown(one["left_out"]))
    elif why != one["left_out"]:
        yield Reason("left-out-words", f"{where}.left_out", shown(why), shown(one["left_out"]))


def _repeats(found: Mapping[str, Any]) -> Iterator[Reason]:
    """A command runs once a sample. A kernel's repeats only grow, when a sample was too short and was made again."""
    most = dict.fromkeys("ab", 1)
    for where, sample in _flat(found["rounds"]):
        had, has = most[sample["arm"]], sample["repeats"]
        if has < had or (has > 1 and found["kind"] == "command"):
            expected = "1" if found["kind"] == "command" else f"{had} or more, as before"
            yield Reason("repeats", f"{where}.repeats", expected, str(has))
        most[sample["arm"]] = max(had, has)


def _twice(rounds: list[Mapping[str, Any]]) -> Iterator[Reason]:
    seen: dict[int, str] = {}
    for where, sample in _flat(rounds):
        if sample["started"] in seen:
            yield Reason("sample-duplicate", where, "a start of its own", f"that of {seen[sample['started']]}")
        seen.setdefault(sample["started"], where)
    whole: dict[tuple[Any, ...], int] = {}
    for i, one in enumerate(rounds):
        # A command may print its number to few digits; a clock has too many for a whole round to come again.
        values = tuple(s.get("seconds", s["started"]) for s in (*one["samples"], *one["control"]))
        if whole.setdefault(values, i) != i:
            yield Reason("sample-duplicate", f"rounds[{i}]", "samples of its own", f"those of rounds[{whole[values]}], to the last digit")


def _flat(rounds: list[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for i, one in enumerate(rounds):
        for name in ("samples", "control"):
            yield from ((f"rounds[{i}].{name}[{j}]", sample) for j, sample in enumerate(one[name]))


def _times(found: Mapping[str, Any]) -> Iterator[Reason]:
    """One monotonic clock runs through everything: before a round, its samples, after it, and on to the next."""
    moments: list[tuple[str, float, float]] = []  # where, from, until, in ns
    for i, one in enumerate(found["rounds"]):
        before, after = one["before"]["time"] * _NS, one["after"]["time"] * _NS
        samples = [(where.replace("[0]", f"[{i}]", 1), s) for where, s in _flat([one])]
        moments.append((f"rounds[{i}].before.time", before, before))
        moments += [(f"{where}.started", s["started"], s["started"] + s.get("seconds", 0.0) * _NS) for where, s in samples]
        moments.append((f"rounds[{i}].after.time", after, after))
    for (earlier, _, until), (later, start, _) in pairwise(moments):
        if start < until - _ROUNDING:
            code = "sample-order" if later.endswith("started") and earlier.endswith("started") else "chronology"
            yield Reason(code, later, f"{until / _NS:.6f} s or later, when {earlier.removesuffix('.started')} was over", f"{start / _NS:.6f} s")


def _whole_run(found: Mapping[str, Any]) -> Iterator[Reason]:
    times: dict[str, datetime] = {}
    for name in ("began", "ended"):
        try:
            times[name] = datetime.fromisoformat(found[name])
        except ValueError:
            yield Reason("chronology", name, "a date and time in ISO 8601", shown(found[name]))
    if len(times) < 2:
        return
    if any(time.tzinfo is None for time in times.values()):
        yield Reason("chronology", "began", "times with their zone", f"{found['began']}, {found['ended']}"[:100])
        return
    rounds = found["rounds"]
    spent = rounds[-1]["after"]["time"] - rounds[0]["before"]["time"]
    whole = (times["ended"] - times["began"]).total_seconds()
    if whole + _CLOCKS < spent:
        yield Reason("chronology", "ended", f"{spent:.1f} s or more after it began: so long the rounds took", f"{whole:.1f} s")
    yield from _surroundings(found)


def _surroundings(found: Mapping[str, Any]) -> Iterator[Reason]:
    """Counters only grow, and no memory is larger than the machine's."""
    moments = [(f"rounds[{i}].{side}", one[side]) for i, one in enumerate(found["rounds"]) for side in ("before", "after")]
    memory, cores = found["machine"].get("memory"), found["machine"].get("logical_cores")
    for (_, earlier), (where, later) in pairwise(moments):
        for name in ("throttle", "ticks"):
            had, has = earlier[name] or {}, later[name] or {}
            if set(had) != set(has) or any(has[key] < count for key, count in had.items()):
                yield Reason("chronology", f"{where}.{name}", "the counters of the moment before, and none of them lower", shown(has))
        most = (later["time"] - earlier["time"] + _LATE) * _TICKS * (cores if isinstance(cores, int) else 1)
        if sum(has.values()) - sum(had.values()) > most > 0:
            ticks = sum(has.values()) - sum(had.values())
            yield Reason("chronology", f"{where}.ticks", f"at most {most:.0f} more than before, of {cores} cores in that time", f"{ticks} more")
        if (later["peak_memory"] or 0) < (earlier["peak_memory"] or 0):
            yield Reason("chronology", f"{where}.peak_memory", f"{earlier['peak_memory']} or more: it is the most so far", str(later["peak_memory"]))
    for where, one in moments:
        if one["load"] is not None and min(one["load"]) < 0:
            yield Reason("chronology", f"{where}.load", "no load below 0", shown(one["load"]))
        largest = max(one["memory_available"] or 0, one["peak_memory"] or 0)
        if isinstance(memory, int) and largest > memory:
            yield Reason("machine", f"{where}.memory_available", f"at most the {memory} bytes of the machine", str(largest))


def _probes(rounds: list[Mapping[str, Any]]) -> Iterator[Reason]:
    """Each round asks the machine the same, as often."""
    if rounds[0]["probes"] is None and all(one["probes"] is None for one in rounds):
        return
    first = rounds[0]["probes"]
    for i, one in enumerate(rounds):
        probes = one["probes"]
        if (probes is None) != (first is None):
            yield Reason("probe", f"rounds[{i}].probes", "probes in every round, or in none", "null" if probes is None else "probes")
            continue
        for name in first:
            amount = "bytes" if name == "read" else "macs"
            if probes[name][amount] != first[name][amount]:
                yield Reason("probe", f"rounds[{i}].probes.{name}.{amount}", f"{first[name][amount]}, as in round 0", str(probes[name][amount]))
            if len(probes[name]["seconds"]) != len(first[name]["seconds"]):
                expected = f"{len(first[name]['seconds'])} passes, as in round 0"
                yield Reason("sample-missing", f"rounds[{i}].probes.{name}.seconds", expected, str(len(probes[name]["seconds"])))
