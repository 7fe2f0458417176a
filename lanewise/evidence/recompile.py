"""Make again, on this machine, what a bundle gives only the hash of: the arms' machine code and the inputs."""

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from lanewise import arch
from lanewise.bench.cpu_call import kernels_of
from lanewise.bench.gpu_code import compiled_again, constants_of
from lanewise.bench.machine import versions
from lanewise.bench.manifest import digest, sources
from lanewise.bench.problem import Call
from lanewise.errors import EvidenceError, LanewiseError
from lanewise.evidence.claims import call_of
from lanewise.evidence.cpu_kernels import MOST_HEAD, kernel_named
from lanewise.evidence.elsewhere import asked_of
from lanewise.evidence.ran import has_processes, processes_of
from lanewise.evidence.reasons import Reason
from lanewise.evidence.repo import KERNELS, Repo
from lanewise.kernels.cpu.compile import compile_object
from lanewise.kernels.cpu.isa import ISAS, Isa, runnable

__all__ = ["check_recompiled", "code_of_process"]

_COMPILERS = ("llvm", "llvmlite")
_MOST = {"M": 16, "HALVES": 2, "WARPS": 32, "ROWS": 1024, "TILE": 32768, "AHEAD": 16, "STAGES": 8, "GROUPS": 16}  # as Config has them
_MOST |= {"W": 8, "STRANDS": 8, "SPLITS": 64, "TOKENS": 64, "PARTS": 8, "TILES": 64, "EACH": 16}  # and QuantConfig, and a program of act_quant
_MOST_WARPS = 32
_MOST_UNROLLED = 1 << 20  # products of a warp
_MOST_HELD = 512  # tokens of a quantized kernel times the tiles that they meet without a loop
_MOST_BYTES = 1 << 30  # of inputs that are made again


def check_recompiled(found: Mapping[str, Any], repo: Repo | None = None, *, run_commits: bool = False) -> list[Reason]:
    """Reasons where compiling now, or drawing the inputs now, gives something else. Compiles with the Lanewise that runs this.

    repo: where arms that are commits are looked up; run_commits: whether such an arm with other kernels is compiled by its own Lanewise, which
    runs code of the repository
    """
    if has_processes(found):
        return [reason for name in ("a", "b") for reason in _processes(name, found, repo, run_commits)]
    if found["kind"] != "kernel":
        return []
    try:
        call = call_of(found["problem"])
    except LanewiseError:
        return []  # the problem is refused already
    return [*(reason for name in ("a", "b") for reason in _code(name, found, call)), *_drawn(found, call)]


def _processes(name: str, found: Mapping[str, Any], repo: Repo | None, run_commits: bool) -> Iterator[Reason]:
    arm = found["arms"][name]
    commit = str(arm["spec"].get("commit") or "")
    for i, process in enumerate(processes_of(arm)):
        where = f"arms.{name}.witness[{i}]"
        wrong = code_of_process(where, process, found["versions"])
        if wrong and repo and _other_kernels(commit, repo):
            if run_commits:
                wrong = asked_of(commit, repo, where, process, found["versions"])
            else:
                words = f"the kernels of {commit[:12]}, which only its own Lanewise compiles; --run-commits runs it"
                wrong = Reason("recompile", f"{where}.code", words, "other kernels here")
        if wrong:
            yield wrong


def code_of_process(where: str, process: Mapping[str, Any], versions: Mapping[str, str]) -> Reason | None:
    """What speaks against the code of a process: its kernels are found by their names, or as they are described. versions: of the bundle"""
    if process["code"] is None:
        return None
    if "compiled" not in process:
        return _by_name(where, process, versions)
    row = arch.TARGETS.get(str(process["isa"]))
    if row is None or not row.is_gpu:
        return Reason("recompile", f"{where}.isa", "the row of one GPU", repr(process["isa"])[:64])
    there = process.get("compiler", {}).get("triton")
    return _triton((f"{where}.code", f"{where}.compiled"), process["compiled"], row, process["code"], there)


def _by_name(where: str, process: Mapping[str, Any], versions: Mapping[str, str]) -> Reason | None:
    kernels = {name: kernel for name in process["kernels"] if (kernel := kernel_named(name)) is not None}
    isas = _isas(process["isa"])
    if not isas or not kernels:
        return Reason("recompile", f"{where}.kernels", "kernels and an instruction set that there are", repr(process["isa"])[:64])
    now = [digest(b"".join(compile_object(kernels[name], isa) for name in sorted(kernels))) for isa in isas]
    if process["code"] in now:
        return None
    if other := _other_compilers(process.get("compiler") or versions):
        return Reason("recompile", f"{where}.code", "the compiler that was measured", other)
    return Reason("artifact", f"{where}.code", f"{now[0]}, for {process['isa']}", process["code"])


def _other_kernels(commit: str, repo: Repo) -> bool:
    """Whether the kernels of a commit are others than those of the Lanewise that runs this."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        return False  # no commit, or refused already
    there, here = repo.hashes(commit), sources()
    return {path: there[path] for path in there if path.startswith(KERNELS)} != {path: here[path] for path in here if path.startswith(KERNELS)}


def _other_compilers(there: Mapping[str, str]) -> str:
    here = versions()
    return ", ".join(f"{key} {there.get(key)} there and {here[key]} here" for key in _COMPILERS if there.get(key) != here[key])


def _code(name: str, found: Mapping[str, Any], call: Call) -> Iterator[Reason]:
    arm = found["arms"][name]
    if arm["witness"]["body"] == "gpu":
        yield from _gpu_code(name, found)
    if arm["witness"]["body"] != "cpu":
        return  # a body of numpy is source, whose hash is checked as that, and BLAS is its versions
    if call.op == "attention" and call.k > MOST_HEAD:
        yield Reason("recompile", "problem.k", f"a head of at most {MOST_HEAD}", str(call.k))
        return
    isas = _isas(arm["witness"]["isa"])
    if not isas:
        yield Reason("recompile", f"arms.{name}.witness.isa", f"one of {', '.join(ISAS)}", repr(arm["witness"]["isa"][:64]))
        return
    now = [digest(b"".join(compile_object(kernel, isa) for kernel in kernels_of(call))) for isa in isas]
    if arm["artifact"] in now:
        return
    if other := _other_compilers(found["versions"]):
        yield Reason("recompile", f"arms.{name}.artifact", "the compiler that was measured", other)
    else:
        yield Reason("artifact", f"arms.{name}.artifact", f"{now[0]}, for {arm['witness']['isa']}", arm["artifact"])


def _gpu_code(name: str, found: Mapping[str, Any]) -> Iterator[Reason]:
    """Triton compiles for a GPU that is not here: what the spec describes must be what was measured."""
    arm, card = found["arms"][name], found["machine"].get("gpu")
    row = arch.TARGETS.get(str(card.get("row"))) if isinstance(card, dict) else None
    compiled = arm["spec"].get("compiled")
    if row is None or not isinstance(compiled, list):
        return  # refused already
    places = f"arms.{name}.artifact", f"arms.{name}.spec.compiled"
    wrong = _triton(places, compiled, row, arm["artifact"], found["versions"].get("triton"))
    if wrong:
        yield wrong


def _triton(places: tuple[str, str], compiled: list[Any], row: arch.Arch, claimed: str, there: str | None) -> Reason | None:
    """What speaks against the code that is claimed of kernels that are described so. places: of code and descriptions; there: version of Triton"""
    code, spec = places
    try:
        here = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return Reason("recompile", code, "Triton, which the kernels were compiled with", "no Triton here")
    if here != there:
        return Reason("recompile", code, "the compiler that was measured", f"triton {there} there and {here} here")
    try:
        _require_small(compiled)
        now = compiled_again(compiled, row)
    except (EvidenceError, ImportError) as error:
        return Reason("recompile", spec, "kernels that can be compiled again", str(error)[:200])
    return None if claimed == now else Reason("artifact", code, f"{now}, for {row.name}", claimed)


def _require_small(compiled: list[Any]) -> None:
    """Raises EvidenceError for a kernel that no configuration is cut like: unrolled so far, compiling it would not end."""
    for one in compiled:
        try:
            constants, options = constants_of(one), dict(one.get("options") or {})
        except (ValueError, TypeError, AttributeError) as error:
            raise EvidenceError(str(error)) from None
        sizes = [(name, constants.get(name, 0), most) for name, most in _MOST.items()] + [("num_warps", options.get("num_warps", 0), _MOST_WARPS)]
        for name, value, most in sizes:
            if not isinstance(value, int) or not 0 <= value <= most:
                raise EvidenceError(f"{name} of a kernel is {str(value)[:40]}; it is at most {most}")
        tokens = max(1, constants.get("TOKENS", 1), 8 * constants.get("PARTS", 0))
        met = tokens * max(1, constants.get("AHEAD", 1), constants.get("TILES", 1))
        if met > _MOST_HELD and ("TOKENS" in constants or "PARTS" in constants):
            raise EvidenceError(f"a kernel of {met} tokens and tiles in one program; at most {_MOST_HELD} are compiled again")
        held = max(1, constants.get("ROWS", 1)) * max(1, constants.get("TILE", 1))
        unrolled = max(1, constants.get("M", 1)) * max(1, constants.get("AHEAD", 1)) * max(1, constants.get("GROUPS", 1))
        if held * unrolled > _MOST_UNROLLED * max(1, options.get("num_warps", 1)):
            raise EvidenceError(f"a kernel of {held * unrolled} products in one program; no configuration has so many")


def _isas(name: str) -> list[Isa]:
    """What the name can have stood for: a processor may run one instruction set in the encoding of another."""
    found = [isa for isa in runnable() if isa.name == name] + ([ISAS[name]] if name in ISAS else [])
    return list(dict.fromkeys(found))


def _drawn(found: Mapping[str, Any], call: Call) -> Iterator[Reason]:
    if (needed := call.facts()["bytes"] + call.idle_bytes) > _MOST_BYTES:
        yield Reason("recompile", "inputs.sha256", f"at most {_MOST_BYTES} bytes to draw again", str(needed))
        return
    for name, array in call.inputs(found["plan"]["seed"]).items():
        now = digest(array.tobytes())
        if found["inputs"]["sha256"].get(name) != now:
            claimed = str(found["inputs"]["sha256"].get(name))
            yield Reason("inputs", f"inputs.sha256.{name}", f"{now}, from seed {found['plan']['seed']}", claimed)
