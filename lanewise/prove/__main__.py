"""`python -m lanewise.prove`: exit code 0 when everything that was run is right, 1 when something is not, 2 for a wrong call."""

import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from lanewise.errors import LanewiseError

_SHOWN = 20
_JOB_SECONDS = 540
_EMULATED = 4  # times as long for each target: every case is compiled for it
# Each op's module, which has `runs` and `guarded`, and the module of what one call alone does not show, which has `all_of`.
_OPS = {
    "linear": ("linear", "together"),
    "quant_linear": ("quant_linear", "quant_together"),
    "grouped_linear": ("grouped_linear", "grouped_together"),
    "act_quant": ("act_quant", ""),
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is proven and where. target: of those in `targets` the one whose machine code runs at present; part: I, N of --part"""

    op: str
    device: str
    interpret: bool
    targets: tuple[str, ...]
    turn: int
    names: tuple[str, ...]
    part: tuple[int, int]
    together: bool
    target: str = ""

    def words(self, part: tuple[int, int]) -> list[str]:
        """The same as options of a process of its own, with another part."""
        options = ["--op", self.op, "--device", self.device, "--part", *map(str, part), "--turn", str(self.turn)]
        options += ["--interpret"] * self.interpret + ["--apart"] * (not self.together)
        return options + [word for name in self.names for word in ("--case", name)] + [word for name in self.targets for word in ("--target", name)]


@click.command()
@click.option("--op", default="all", show_default=True, type=click.Choice([*_OPS, "all"]), help="What is proven.")
@click.option("--device", default="cpu", show_default=True, help="Where the tensors are: cpu or cuda.")
@click.option("--interpret", is_flag=True, help="Run the Triton kernels on the CPU in Triton's interpreter; set TRITON_INTERPRET=1 for it.")
@click.option("--target", "targets", multiple=True, help="Run the machine code for this AMD target in the emulator, or 'all'; may be repeated.")
@click.option(
    "--turn", default=-1, help="With several targets: each case on one of them, which changes with the turn; as many turns as targets are all."
)
@click.option("--case", "names", multiple=True, help="Only this case, or this case and body, by the name that a result has; may be repeated.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write every result to this file.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes that share the work.")
@click.option("--part", nargs=2, type=int, default=(0, 1), show_default=True, help="I N: only the runs I, I + N, I + 2 N and so on.")
@click.option("--together/--apart", default=True, show_default=True, help="Also streams, graphs and torch.compile, on a card.")
def main(
    op: str, device: str, interpret: bool, targets: tuple[str, ...], turn: int, names: tuple[str, ...], path: Path | None, jobs: int,
    part: tuple[int, int], together: bool,
) -> None:  # fmt: skip
    """Prove `linear`, `quant_linear` and `grouped_linear` in every block format, and the activations that they quantize, case by case."""
    from lanewise.arch import TARGETS

    warnings.filterwarnings("ignore", category=UserWarning)  # torch, of what is not deterministic on a card
    warnings.filterwarnings("ignore", category=RuntimeWarning, message="overflow encountered|invalid value")
    if "all" in targets:
        targets = tuple(row.name for row in TARGETS.values() if row.emulated)
    asked = _Asked(op, device, interpret, targets, turn, names, part, together)
    _require_sense(asked, path, jobs)
    alone = (result for target in targets or ("",) for result in _here(replace(asked, target=target)))
    results = _spread(asked, jobs) if jobs > 1 else list(alone)
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")
    _report(results)
    raise SystemExit(any(result["problem"] for result in results) or not results)


def _require_sense(asked: _Asked, path: Path | None, jobs: int) -> None:
    """A call that would prove nothing, less than it seems, or lose what it proved, is refused before anything runs."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        raise click.UsageError(f"the proof runs with PyTorch and Triton, and {error.name} is not installed; pip install 'lanewise[gpu]'") from None
    device, part = asked.device, asked.part
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise click.UsageError(f"--device is {device[:64]!r}; it takes cpu, cuda, or cuda:1 for the second GPU")
    there, number = torch.cuda.device_count() if torch.cuda.is_available() else 0, int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= there:
        raise click.UsageError(f"there is no device {device}: PyTorch sees {there} GPU{'' if there == 1 else 's'} here")
    if asked.interpret and device != "cpu":
        raise click.UsageError(f"--interpret runs on the CPU, and --device is {device}")
    if asked.targets and (asked.interpret or device != "cpu"):
        raise click.UsageError("--target runs in the emulator, and neither in the interpreter nor on a card")
    if asked.turn >= max(1, len(asked.targets)):
        raise click.UsageError(f"--turn is {asked.turn}; {len(asked.targets)} targets have turns from 0 to {len(asked.targets) - 1}")
    if not 0 <= part[0] < part[1]:
        raise click.UsageError(f"--part is {part[0]} {part[1]}; it takes I N with I from 0 to N - 1")
    if jobs > 1 and part != (0, 1):
        raise click.UsageError("--jobs shares all of the work, and --part is a share of it; give one of them")
    if path and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise click.UsageError(f"--json is {path}, and {path.parent} is no folder that can be written to")


def _here(asked: _Asked) -> list[dict[str, Any]]:
    import torch

    from lanewise.arch import parse
    from lanewise.prove import interpreter
    from lanewise.prove.emulated import emulating

    if asked.interpret:
        if not interpreter.on():
            raise click.UsageError("--interpret needs TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported")
        interpreter.mend()
    # a sum of BLAS that passes through 16 bits has no bound that float32 explains
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    inside = ExitStack()
    if asked.target:
        inside.enter_context(emulating(parse(asked.target)))
    with inside:
        return _run(asked, torch.device(asked.device))


def _run(asked: _Asked, where: Any) -> list[dict[str, Any]]:
    import torch

    # torch and Triton are set up by now, which the modules of the ops import
    ops = [(import_module(f"lanewise.prove.{name}"), checks) for key, (name, checks) in _OPS.items() if asked.op in (key, "all")]
    every = [(run, module.guarded) for module, _ in ops for run in module.runs(where, asked.interpret or bool(asked.target))]
    if not every:
        raise click.UsageError(f"nothing of {asked.op} runs on {asked.device}; its kernel needs a card, --interpret or --target")
    names = asked.names
    chosen = [(run, guarded) for run, guarded in every if not names or {str(run), str(run.case)} & set(names)]
    unknown = set(names) - {name for run, _ in chosen for name in (str(run), str(run.case))}
    if unknown:
        raise click.UsageError(f"nothing that is run here is called {sorted(unknown)[0][:200]!r}")
    # gigabytes on a card: one process has them all, one after the other
    heavy = [pair for pair in chosen if pair[0].case.heavy and not asked.target]
    light = [pair for pair in chosen if pair not in heavy]
    first, share = asked.part
    if asked.turn >= 0:
        count = len(asked.targets)
        light = light[(asked.turn + asked.targets.index(asked.target)) % count :: count]
    results = []
    for run, guarded in light[first::share] + (heavy if first == 0 else []):
        result = asdict(guarded(run, where))
        results.append({**result, "through": f"{result['through']} on {asked.target}"} if asked.target else result)
        if run.case.heavy and where.type == "cuda":
            torch.cuda.empty_cache()
    if asked.together and where.type == "cuda" and first == 0 and not names:
        for _, checks in ops:
            results += [asdict(result) for result in import_module(f"lanewise.prove.{checks}").all_of(where)] if checks else []
    return results


def _spread(asked: _Asked, jobs: int) -> list[dict[str, Any]]:
    """The same in several processes: Triton compiles one kernel at a time in each."""
    results: list[dict[str, Any]] = []
    seconds = _JOB_SECONDS * max(1, _EMULATED * len(asked.targets))
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for job in range(jobs):
            file = Path(folder) / f"{job}.json"
            command = [sys.executable, "-m", "lanewise.prove", *asked.words((job, jobs)), "--json", str(file)]
            running.append((file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
        for job, (file, process) in enumerate(running):
            try:
                said, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            try:
                results += json.loads(file.read_text())
            except (OSError, ValueError):  # it never came to write, or not to the end
                last = said.strip().splitlines()[-1] if said.strip() else "nothing"
                results.append(_ended(job, jobs, process.returncode, last))
    return results


def _ended(job: int, jobs: int, code: int, last: str) -> dict[str, Any]:
    problem = f"the process ended with {code} and said: {last}"
    return {"case": f"part {job} of {jobs}", "through": "", "problem": problem, "refused": "", "worst": 0.0, "nonzero": 1.0, "seconds": 0.0}


def _report(results: list[dict[str, Any]]) -> None:
    bodies: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        name = result["through"]
        bodies.setdefault(" ".join(name.split()[:2]) if name.startswith("skinny") else name, []).append(result)
    for name, of in sorted(bodies.items()):
        wrong, refused = sum(bool(r["problem"]) for r in of), sum(bool(r["refused"]) for r in of)
        click.echo(f"{name:32} {len(of):5} runs {wrong:4} wrong {refused:4} refused {sum(r['seconds'] for r in of):7.1f} s")
    wrong_ones = [result for result in results if result["problem"]]
    for result in wrong_ones[:_SHOWN]:
        click.echo(f"WRONG  {result['case']} | {result['through']}: {result['problem']}")
    click.echo(f"prove: {len(results)} runs, {len(wrong_ones)} wrong")


if __name__ == "__main__":
    try:
        main(prog_name="python -m lanewise.prove")
    except LanewiseError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None
