"""What a command's bundle says that ran, came out and was read: each against the samples, the settings of its arm, and the sources."""

from collections.abc import Iterator, Mapping
from typing import Any

from lanewise.bench.inputs import named_in
from lanewise.bench.process import NO_WITNESS, digest_of, without_effect
from lanewise.bench.stats import NO_OUTPUT, OTHER_PROMPTS
from lanewise.evidence.processes import check_process
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown

__all__ = ["check_exact", "check_ran", "has_processes", "output_words", "processes_of", "witness_words"]


def has_processes(found: Mapping[str, Any]) -> bool:
    """Whether the schema of a bundle has processes: that of a command, from version 2 on."""
    return bool(found["kind"] == "command" and found["schema_version"] > 1)


def processes_of(arm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What Lanewise ran in a command; nothing where it wrote no witness."""
    return [] if isinstance(arm["witness"], str | None) else list(arm["witness"])


def check_ran(found: Mapping[str, Any]) -> Iterator[Reason]:
    """Every reason that lies in witnesses, outputs, memory and files of a command's bundle."""
    if not has_processes(found):
        return
    yield from _files(found)
    if idle := without_effect(found["arms"]):
        yield Reason("switch", "arms.b.witness", f"other kernels or code than arm a ran, by {idle}", "the same")
    for name, arm in found["arms"].items():
        yield from _samples(name, arm, found)
        for i, process in enumerate(processes_of(arm)):
            yield from check_process(f"arms.{name}.witness[{i}]", process, arm, found)


def check_exact(said: Mapping[str, Any], follows: Mapping[str, Any]) -> Iterator[Reason]:
    """Whether what is said of the outputs is what the samples show; of arms that were asked other things nothing else is said."""
    if "output" not in follows or said["output"]["verdict"] == follows["output"]["verdict"]:
        return
    if follows["output"]["verdict"] == OTHER_PROMPTS:
        yield Reason("prompts", "figures.output.verdict", f"{OTHER_PROMPTS!r}, as the witnesses of a and b say", shown(said["output"]["verdict"]))
    else:
        yield Reason("exact", "figures.output.verdict", shown(follows["output"]["verdict"]), shown(said["output"]["verdict"]))


def _files(found: Mapping[str, Any]) -> Iterator[Reason]:
    """Each declared file is there and stayed as it was; each other one is named by a command."""
    declared, files = found["inputs"]["declared"], found["inputs"]["files"]
    named = {word for arm in found["arms"].values() for word in (*named_in(str(arm["spec"].get("shell"))), *_values(arm))}
    for word in declared:
        if not any(_is_under(name, word) for name in files):
            yield Reason("inputs", "inputs.files", f"the hash of {shown(word)}, which was declared", "none")
    for name, one in files.items():
        where = f"inputs.files.{name[:100]}"
        if any(_is_under(name, word) for word in declared):
            if one["after"] != one["sha256"]:
                yield Reason("input-changed", where, f"{one['sha256'][:12]} after the run too, as it was declared", (one["after"] or "nothing")[:12])
        elif name not in named:
            yield Reason("inputs", where, "a file that is declared or that a command names", "neither")


def _values(arm: Mapping[str, Any]) -> list[str]:
    env = arm["spec"].get("env")
    return [str(text) for text in env.values()] if isinstance(env, dict) else []


def _is_under(name: str, word: str) -> bool:
    return name == word or name.startswith(word.rstrip("/") + "/")


def _samples(name: str, arm: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    processes, asked, memory = processes_of(arm), found["plan"]["output"], found["machine"].get("memory")
    expected, outputs = digest_of(processes), set()
    for i, one in enumerate(found["rounds"]):
        for kind in ("samples", "control"):
            for j, sample in enumerate(one[kind]):
                where = f"rounds[{i}].{kind}[{j}]"
                if sample["arm"] != name:
                    continue
                outputs.add(sample["output"])
                if sample["witness"] != expected:
                    yield Reason("witness", f"{where}.witness", f"{shown(expected)}, of what arm {name} ran", shown(sample["witness"]))
                if sample["output"] is None and asked is not None:
                    yield Reason("sample-missing", f"{where}.output", "a hash, as the plan asks for one", "null")
                if sample["output"] is not None and asked is None and not any(process["prompt"] for process in processes):
                    yield Reason("exact", f"{where}.output", "null, as neither the plan nor a witness gives one", shown(sample["output"]))
                if isinstance(memory, int) and (sample["memory"] or 0) > memory:
                    yield Reason("machine", f"{where}.memory", f"at most the {memory} bytes of the machine", str(sample["memory"]))
    one_output = next(iter(outputs)) if len(outputs) == 1 else None
    if arm["output"] != one_output:
        yield Reason("exact", f"arms.{name}.output", f"{shown(one_output)}, of {len(outputs)} different outputs of its samples", shown(arm["output"]))


def output_words(found: Mapping[str, Any]) -> str:
    """What a bundle says of outputs, for people."""
    output = found["figures"]["output"]
    if output["verdict"] == NO_OUTPUT:
        return f"{NO_OUTPUT}: no --output, and no witness with token ids"
    if output["verdict"] == OTHER_PROMPTS:
        counts = "" if output["a"] is None else f"; different ones in all samples: {output['a']} of a, {output['b']} of b"
        return f"{OTHER_PROMPTS}: a and b were asked different things, so that no answers are compared, and times are of different work{counts}"
    return f"{output['verdict']}; different ones in all samples: {output['a']} of a, {output['b']} of b"


def witness_words(arm: Mapping[str, Any]) -> str:
    """What ran in an arm, for people."""
    if not (processes := processes_of(arm)):
        return NO_WITNESS
    return "; ".join(", ".join(p["kernels"]) + f" on {p['device']}" + (f" {p['isa']}, {p['threads']} threads" if p["isa"] else "") for p in processes)
