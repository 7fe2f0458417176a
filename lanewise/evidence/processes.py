"""What one Lanewise process says that it ran: against the settings of its arm, the sources and versions of the bundle, the machine and the metric."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lanewise import arch, dispatch, settings
from lanewise.evidence.cpu_kernels import kernel_named
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.gpu import experts, linear, quant  # noqa: F401  (importing them fills the registry)
from lanewise.witness import package_digest

__all__ = ["check_process", "without_code"]

# Settings whose value a process itself shows.
_SHOWN = {settings.SETTINGS[name].variable: name.removeprefix("CPU_").lower() for name in ("CPU_ISA", "DEVICE", "THREADS")}
_CPU, _REFERENCE = "cpu", "reference"
_PHASES = ("decode", "prefill")


def check_process(where: str, process: Mapping[str, Any], arm: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    """Reasons against a process of an arm."""
    is_model = process["prompt"] is not None  # else one that called ops on torch tensors
    if is_model:
        yield from _switches(where, process, arm)
    # A commit brings its own package, which --repo looks at; all else is the package that measured.
    if arm["spec"].get("commit") is None:
        yield from _measured(where, process, found)
    for field in ("kernels", "phases"):
        if process[field] != sorted(set(process[field])):
            yield Reason("witness", f"{where}.{field}", "each once, in order", shown(process[field]))
    if not process["kernels"] or bool(process["phases"]) != is_model:
        yield Reason("witness", where, "kernels that ran and, of a model, in which phases", "none" if is_model else "phases without a model")
    if (process["isa"] is None) != (process["code"] is None):
        yield Reason("witness", f"{where}.code", "the hash of machine code where there is an instruction set", shown(process["code"]))
    if ("compiled" in process) != (process["code"] is not None and not is_model):
        yield Reason("witness", f"{where}.compiled", "the kernels that Triton launched where they have code, and only there", "others")
    if (process["threads"] is None) != (process["code"] is None or not is_model):
        yield Reason("witness", f"{where}.threads", "how many threads walked compiled kernels, and only of those", shown(process["threads"]))
    yield from (_on_processor if is_model else _on_card)(where, process, found)


def _switches(where: str, process: Mapping[str, Any], arm: Mapping[str, Any]) -> Iterator[Reason]:
    env = arm["spec"].get("env")
    for variable, field in _SHOWN.items():
        wanted = env.get(variable) if isinstance(env, dict) else None
        if wanted and str(process[field]) != wanted:
            yield Reason("switch", f"{where}.{field}", f"{shown(wanted)}, by {variable}", shown(process[field]))


def _measured(where: str, process: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    """The package is the one that measured, with its version, compilers and kernels."""
    if process["package"] != (measured := package_digest(found["sources"])):
        yield Reason("source", f"{where}.package", f"{measured[:12]}, of the sources that the bundle lists", process["package"][:12])
    if process["lanewise"] != (version := found["versions"].get("lanewise")):
        yield Reason("versions", f"{where}.lanewise", f"{shown(version)}, that of the bundle", shown(process["lanewise"]))
    compiler = process.get("compiler", {})
    if bool(compiler) != (process["code"] is not None):
        yield Reason("witness", f"{where}.compiler", "what compiled the code, where there is some", shown(compiler))
    if ran := without_code(process):
        yield Reason("witness", f"{where}.code", f"the hash of the machine code of {', '.join(ran)}", "null")
    for name, version in compiler.items():
        if version != (there := found["versions"].get(name, version)):
            yield Reason("versions", f"{where}.compiler.{name[:64]}", f"{there}, that of the bundle", shown(version))
    known = {kernel.name for kernel in dispatch.kernels()}
    for name in process["kernels"]:
        if name not in known and (process["code"] is None or kernel_named(name) is None):
            yield Reason("witness", f"{where}.kernels", "kernels that there are", shown(name))


def without_code(process: Mapping[str, Any]) -> list[str]:
    """The kernels of Triton that ran on a GPU, where no hash of their code is told."""
    bodies = {kernel.name for kernel in dispatch.kernels() if kernel.body == "gpu"}
    return sorted(bodies & {*process["kernels"]}) if process["device"] != _CPU and process["code"] is None else []


def _on_processor(where: str, process: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    isa, row, rows = process["isa"], found["machine"].get("row"), list(ISAS)
    if process["device"] != (device := _REFERENCE if isa is None else _CPU):
        yield Reason("witness", f"{where}.device", f"{device!r}, by its instruction set", shown(process["device"]))
    if isa is not None and isa not in ISAS:
        yield Reason("machine", f"{where}.isa", f"one of {', '.join(ISAS)}", shown(isa))
    elif (
        isa is not None
        and isinstance(row, str)
        and row in ISAS
        and (ISAS[isa].arch.vendor != arch.TARGETS[row].vendor or rows.index(isa) < rows.index(row))
    ):
        yield Reason("machine", f"{where}.isa", f"an instruction set that {row} runs", isa)
    cores = found["machine"].get("logical_cores")
    if isinstance(cores, int) and (process["threads"] or 0) > cores:
        yield Reason("machine", f"{where}.threads", f"at most the {cores} of the machine's cores", str(process["threads"]))
    # A rate of one phase says nothing of a run that had none of it.
    asked = [phase for phase in _PHASES if re.search(rf"(?<![a-z]){phase}(?![a-z])", found["plan"]["metric"], re.IGNORECASE)]
    if len(asked) == 1 and asked[0] not in process["phases"]:
        yield Reason("phase", f"{where}.phases", f"{asked[0]}, which the metric is of", ", ".join(process["phases"]))


def _on_card(where: str, process: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Reason]:
    """Where Triton compiled a kernel, and where the driver's readings come from, it is the same card."""
    card, isa = found["machine"].get("gpu"), process["isa"]
    rows = [name for name, row in arch.TARGETS.items() if row.is_gpu]
    if isa is not None and any(name not in rows for name in isa.split(", ")):
        yield Reason("machine", f"{where}.isa", "the row of a GPU in `lanewise targets`", shown(isa))
    if isa is not None and process["device"] == _CPU:
        yield Reason("witness", f"{where}.device", f"a GPU, as its kernels are compiled for {isa}", shown(process["device"]))
    if isinstance(card, dict) and process["device"] != _CPU:
        for name, said, right in (("device", process["device"], card.get("name")), ("isa", isa, card.get("row"))):
            if said is not None and said != right:
                yield Reason("witness", f"{where}.{name}", f"{shown(right)}, the GPU that was watched", shown(said))
