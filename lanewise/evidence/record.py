"""Records of `lanewise bench model`: whether they are built as records are, and whether their figures follow from their samples."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import StatisticsError
from typing import Any

from lanewise.bench.figures import figures, residency
from lanewise.bench.model import SCHEMA, SCHEMA_VERSION, prompt_ids
from lanewise.engine.witness import token_digest
from lanewise.errors import EvidenceError
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import differing, shown

__all__ = ["check_record", "require_record"]

_FIELDS = (
    "schema", "schema_version", "command", "began", "ended", "commit", "versions", "settings", "machine", "model", "run", "rounds",
    "profile", "figures",
)  # fmt: skip
_VERSIONS = (1, SCHEMA_VERSION)  # 1 had no hashes of tokens
_MOST_TOKENS = 1 << 20  # that are drawn again
_MANGLED = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, StatisticsError)


def require_record(path: Path, found: Mapping[str, Any]) -> None:
    """Raises EvidenceError unless every field that a figure or a check needs is there and of its type."""
    if found.get("schema_version") not in _VERSIONS:
        raise EvidenceError(f"{path}: schema_version is {shown(found.get('schema_version'))}; this version reads {SCHEMA} 1 and {SCHEMA_VERSION}")
    missing = [f"{name} is missing" for name in _FIELDS if name not in found] + [f"{name[:64]} is unknown" for name in found if name not in _FIELDS]
    if missing:
        raise EvidenceError(f"{path}: no record: {missing[0]}")
    try:
        claimed = found["figures"]["phases"]
        if set(claimed) != set(figures(found)["phases"]) or not all(isinstance(one, dict) for one in claimed.values()):
            raise ValueError("the phases of figures")
        for name in ("versions", "machine", "settings"):
            found[name].items()
        if found["commit"] is not None and not isinstance(found["commit"]["id"], str):
            raise ValueError("the commit")
        list(_all(found))
    except _MANGLED as error:
        raise EvidenceError(f"{path}: no record of lanewise bench model: {type(error).__name__} at {str(error)[:80]}") from None


def check_record(found: Mapping[str, Any]) -> list[Reason]:
    """Every reason to refuse a record, as far as it can be told from the record alone."""
    return [*differing(figures(found), found["figures"]), *_all(found)]


def _all(found: Mapping[str, Any]) -> Iterator[Reason]:
    if found["commit"] is None:
        yield Reason("commit", "commit", "the commit that was measured", "null")
    elif type(found["commit"]["dirty"]) is not bool or found["commit"]["dirty"]:
        yield Reason("dirty", "commit.dirty", "a clean tree", shown(found["commit"]["dirty"]))
    began, ended = (datetime.fromisoformat(found[name]) for name in ("began", "ended"))
    spent = math.fsum(s for r in found["rounds"] for p in (*r["probes"].values(), *r["phases"].values()) for s in p["seconds"])
    if (ended - began).total_seconds() < spent:
        yield Reason("chronology", "ended", f"at least {spent:.3f} s of samples after it began", f"{(ended - began).total_seconds():.3f} s")
    yield from _run(found)
    for number, one in enumerate(found["rounds"]):
        yield from _round(f"rounds[{number}]", number, one, found)
    yield from _command(found)
    if found["schema_version"] > 1:
        yield from _tokens(found)


def _run(found: Mapping[str, Any]) -> Iterator[Reason]:
    run, rounds, model = found["run"], found["rounds"], found["model"]
    if run["rounds"] != len(rounds):
        yield Reason("rounds", "rounds", f"{run['rounds']} rounds, as planned", f"{len(rounds)}")
    label = residency(model["weight_bytes"], found["machine"]["last_level_cache"])
    if run["residency"] != label:
        where = f"{model['weight_bytes']} bytes of weights and a cache of {found['machine']['last_level_cache']}"
        yield Reason("residency", "run.residency", f"{label}, of {where}", shown(run["residency"]))
    if model["layer_macs"] + model["head_macs"] > 2 * model["parameters"]:  # a tied head is one more than the parameters count
        yield Reason("figure", "model.layer_macs", f"no more than {model['parameters']} parameters multiply", shown(model["layer_macs"]))
    if not model["random"] and not model["sha256"]:
        yield Reason("inputs", "model.sha256", "the hash of each file of the model", "none")


def _round(where: str, number: int, one: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    run = found["run"]
    phases = {f"pp{length}": ("prefill", length) for length in run["prompts"]} | (
        {f"tg{run['tokens']}": ("decode", run["tokens"])} if run["tokens"] else {}
    )
    order = ["read", "read_at_size", "int8", *phases]
    if list(one["order"]) != order[:: 1 if number % 2 == 0 else -1]:
        yield Reason("sample-order", f"{where}.order", "every probe and phase once, every second round backwards", shown(one["order"]))
    if set(one["phases"]) != set(phases):
        yield Reason("sample-missing", f"{where}.phases", ", ".join(phases), ", ".join(one["phases"]))
    for name in phases.keys() & one["phases"].keys():
        kind, tokens = phases[name]
        phase = one["phases"][name]
        steps = tokens if kind == "decode" else -(-tokens // run["chunk"])
        if (phase["kind"], phase["tokens"]) != (kind, tokens):
            yield Reason("phase", f"{where}.phases.{name}", f"{kind} of {tokens} tokens", f"{shown(phase['kind'])} of {shown(phase['tokens'])}")
        if len(phase["seconds"]) != steps:
            yield Reason("sample-missing", f"{where}.phases.{name}.seconds", f"{steps} steps", f"{len(phase['seconds'])}")
        if min(phase["seconds"]) <= 0:
            yield Reason("sample-short", f"{where}.phases.{name}.seconds", "more than no time", shown(min(phase["seconds"])))
    backwards = [name for name, ticks in one["before"]["ticks"].items() if one["after"]["ticks"][name] < ticks]
    if backwards:
        yield Reason("chronology", f"{where}.after.ticks", "no fewer ticks than before", f"fewer of {', '.join(map(str, backwards))}")


def _tokens(found: Mapping[str, Any]) -> Iterator[Reason]:
    """The ids that went in are those that every run draws; what came out is the same in every round."""
    run, first = found["run"], found["rounds"][0]["phases"]
    sizes = {name: phase["tokens"] for name, phase in first.items()}
    if not 0 < max(sizes.values()) <= _MOST_TOKENS or not 0 < run["vocab"] < 2**31 or set(run["prompt"]) != set(sizes):
        yield Reason("inputs", "run.prompt", f"a hash of token ids for each of {', '.join(sizes)}", shown(run["prompt"]))
        return
    ids = prompt_ids(run["vocab"], max(sizes.values())).tolist()
    for name, tokens in sizes.items():
        if run["prompt"][name] != (drawn := token_digest([ids[:tokens]])):
            yield Reason("inputs", f"run.prompt.{name}", f"{drawn}, of the ids that every run draws", shown(run["prompt"][name]))
    for number, one in enumerate(found["rounds"]):
        for name, phase in one["phases"].items():
            if name in first and (not re.fullmatch(r"[0-9a-f]{64}", phase["output"]) or phase["output"] != first[name]["output"]):
                where = f"rounds[{number}].phases.{name}.output"
                yield Reason("exact", where, "the hash of the ids that came out, as in round 0", shown(phase["output"]))


def _command(found: Mapping[str, Any]) -> Iterator[Reason]:
    """The options that the command line writes agree with what was run."""
    run, words = found["run"], [str(word) for word in found["command"]]
    said = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}
    truth = {"--device": run["device"], "--tg": run["tokens"], "--rounds": run["rounds"], "--pp": ",".join(map(str, run["prompts"])) or "0"}
    for option, value in truth.items():
        if option in said and said[option] != str(value):
            yield Reason("command", "command", f"{option} {value}, as it was run", f"{option} {said[option]}"[:100])
