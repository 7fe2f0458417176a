"""`lanewise emulate`: run one case of a GPU kernel as the machine code of an AMD target, on this processor."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.terminal import as_json, print_json, print_table, size

if TYPE_CHECKING:
    import torch

    from lanewise.emulator.launch import Ran
    from lanewise.emulator.measure import Access, Counter
    from lanewise.emulator.origin import Stores

_MOST_MNEMONICS = 12
_SHOWN = 6
_SEGMENT = "the kernel's arguments"  # what a launch passes, which is no operand


@click.command()
@click.argument("kernel")
@click.option("--target", "-t", required=True, help="An AMD target that the emulator has, such as gfx1100.")
@click.option("--m", default=1, help="Tokens.")
@click.option("--n", default=256, help="Output features.")
@click.option("--k", default=1024, help="Reduction.")
@click.option("--dtype", default="bf16", help="Of activations: bf16 or f16, of quantized weights also f32.")
@click.option("--format", "fmt", default="Q4_K", help="Of the weights of what multiplies quantized ones.")
@click.option("--fused", is_flag=True, help="With everything that the kernel fuses: norm, bias, gate, residual.")
@click.option("--schedule", default="lockstep", help="lockstep, serial, reversed, random or random:SEED: in which order waves run.")
@click.option("--bare", is_flag=True, help="Count instructions alone; what moves takes time to count.")
@click.option("--trace", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write every instruction that runs to this file.")
@as_json
def emulate(
    kernel: str,
    target: str,
    m: int,
    n: int,
    k: int,
    dtype: str,
    fmt: str,
    fused: bool,
    schedule: str,
    bare: bool,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Run a kernel's machine code on this processor and compare with the oracle.

    KERNEL is skinny, quant_gemv, quant_gemm, grouped_quant or act_quant. Exit code 1 where the result is wrong, or where the kernel does what no
    card would forgive.
    """
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except ImportError as error:
        raise click.UsageError(f"{error.name} is missing; pip install 'lanewise[gpu]'") from None
    from lanewise import arch
    from lanewise.emulator.measure import Counter
    from lanewise.emulator.origin import Stores
    from lanewise.emulator.schedule import schedule as by_name
    from lanewise.emulator.trace import Trace
    from lanewise.errors import KernelFaultError
    from lanewise.prove.emulated import emulating
    from lanewise.prove.single import single

    by_name(schedule)  # a wrong one is said at once
    row, counter, stores, problem, worst, case = arch.parse(target), Counter(), Stores(), "", 0.0, None
    with ExitStack() as stack:
        watch = Trace(stack.enter_context(trace.open("w"))) if trace else None
        ran = stack.enter_context(emulating(row, schedule=schedule, measure=None if bare else counter, watch=watch, stores=stores))
        case = single(kernel, m, n, k, dtype, fmt, fused)
        try:
            result = case.prove()
            problem, worst = result.problem, result.worst
        except KernelFaultError as fault:
            problem = str(fault)
    origin = _origin(problem, case.y, stores)
    y = [] if case.y is None else [float(value) for value in case.y.flatten()[:_SHOWN]]
    facts = {"case": case.name, "target": str(row), "schedule": schedule, "problem": problem, "origin": origin, "worst": worst, "y": y}
    launches = [_facts(one) for one in ran]
    accesses = [_access(one) for one in counter.accesses.values()]
    if as_json:
        print_json({**facts, "launches": launches, "accesses": accesses})
    else:
        _print(facts, ran, counter)
    if problem:
        raise click.exceptions.Exit(1)


def _origin(problem: str, y: "torch.Tensor | None", stores: "Stores") -> str:
    """Who stored the element that a problem names, in words."""
    found = re.search(r"\by\[([\d, ]+)\]", problem)
    if not found or y is None:
        return ""
    at = [int(part) for part in found[1].split(",")]
    flat = sum(index * stride for index, stride in zip(at, y.flatten(0, -2).stride(), strict=False))
    origin = stores.of("y", flat * y.element_size())
    return f"y{at} was {origin}" if origin else ""


def _facts(one: "Ran") -> dict[str, Any]:
    return {
        "kernel": one.code.kernel, "workgroups": one.groups, "waves": one.groups * one.code.warps, "instructions": one.instructions,
        "seconds": one.seconds, "mnemonics": one.by_mnemonic(),
    }  # fmt: skip


def _access(one: "Access") -> dict[str, Any]:
    where = f"{one.one.source[0]}:{one.one.source[1]}" if one.one.source else None
    return {
        "kernel": one.kernel, "pc": one.one.pc, "text": one.one.text, "source": where, "buffer": one.buffer, "stores": one.stores, "waves": one.waves,
        "used": one.used, "distinct": one.distinct, "fetched": one.fetched, "coalescing": one.coalescing, "turns": one.turns, "best": one.best,
    }  # fmt: skip


def _print(facts: dict[str, Any], ran: "list[Ran]", counter: "Counter") -> None:
    click.echo(f"{facts['case']} on {facts['target']}, {facts['schedule']}")
    for one in ran:
        speed = one.instructions / one.seconds / 1e6 if one.seconds else 0.0
        sizes = f"{one.groups} workgroups of {one.code.warps} waves"
        click.echo(f"  {one.code.kernel}: {sizes}, {one.instructions} instructions, {speed:.1f} million a second")
        frequent = list(one.by_mnemonic().items())
        words = ", ".join(f"{count} {name}" for name, count in frequent[:_MOST_MNEMONICS])
        rest = sum(count for _, count in frequent[_MOST_MNEMONICS:])
        click.echo(f"    {words}{f', {rest} others' if rest else ''}")
    memory = [one for one in counter.accesses.values() if one.buffer not in ("LDS", _SEGMENT)]
    shared = [one for one in counter.accesses.values() if one.buffer == "LDS"]
    if memory:
        print_table(("kernel", "source", "buffer", "", "used", "fetched", "of it used"), _by_line(memory), right=("used", "fetched", "of it used"))
        loads, stores = (sum(one.distinct for one in memory if one.stores == kind) for kind in (False, True))
        click.echo(f"read {size(loads)}, wrote {size(stores)}; a byte counts once for each wave and instruction")
    if shared:
        turns, best = sum(one.turns for one in shared), sum(one.best for one in shared)
        click.echo(f"LDS: {turns} turns of the banks, {best} without conflicts")
    if facts["y"]:
        click.echo(f"y: {' '.join(f'{value:.6g}' for value in facts['y'])} ...")
    if facts["origin"]:
        click.echo(facts["origin"])
    click.echo(f"WRONG: {facts['problem']}" if facts["problem"] else f"right: the worst error is {facts['worst']:.3f} of what is allowed")


def _by_line(accesses: "list[Access]") -> list[tuple[str, ...]]:
    """Rows of the table: what one source line does to one buffer."""
    lines: dict[tuple[str, str, str, str], list[Access]] = {}
    for one in accesses:
        where = f"{one.one.source[0]}:{one.one.source[1]}" if one.one.source else ""
        lines.setdefault((one.kernel, where, one.buffer, "store" if one.stores else "load"), []).append(one)
    found: list[tuple[str, ...]] = []
    for key, several in lines.items():
        used, distinct, fetched = (sum(getattr(one, name) for one in several) for name in ("used", "distinct", "fetched"))
        found.append((*key, size(used), size(fetched), f"{distinct / fetched:.0%}"))
    return found
