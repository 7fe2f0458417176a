"""`lanewise isa`: what compilers make of the GPU kernels, for targets that need not be here, and whether it is what was declared."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lanewise.cli.terminal import as_json, print_json

if TYPE_CHECKING:
    from lanewise.arch import Arch
    from lanewise.isa.catalogue import Case
    from lanewise.isa.gate import Verdict


@click.command()
@click.argument("kernel", required=False)
@click.option("--gate", is_flag=True, help="Compare with what is declared; exit code 1 on a miss.")
@click.option("--asm", is_flag=True, help="Print the assembly with source lines, and a summary.")
@click.option("--target", "-t", "names", multiple=True, help="A target, such as gfx1201. May be repeated.", show_default="every GPU")
@click.option("--jobs", default=2, help="Processes that compile.")
@as_json
def isa(kernel: str | None, gate: bool, asm: bool, names: tuple[str, ...], jobs: int, as_json: bool) -> None:
    """Look at the machine code of GPU kernels. KERNEL is skinny, quant_gemv, ..., or more words of one case, such as "quant_gemv Q4_K m=1"."""
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except ImportError as error:
        raise click.UsageError(f"{error.name} is missing; pip install 'lanewise[gpu]'") from None
    from lanewise import arch
    from lanewise.isa import catalogue

    cases = catalogue.find(kernel) if kernel else catalogue.CASES
    rows = tuple(arch.parse(name) for name in names) or catalogue.ROWS
    if asm == gate:
        raise click.UsageError("say either --gate or --asm")
    if asm:
        if len(rows) != 1 or not kernel:
            raise click.UsageError("--asm takes a KERNEL and one --target")
        _print_assembly(cases[0], rows[0])
    elif not _run_gate(cases, rows, jobs, as_json, everything=kernel is None):
        raise click.exceptions.Exit(1)


def _run_gate(cases: "tuple[Case, ...]", rows: "tuple[Arch, ...]", jobs: int, as_json: bool, everything: bool) -> bool:
    """Whether nothing misses."""
    from lanewise.isa.gate import judge_all, unlisted

    missing = unlisted() if everything else []
    verdicts = list(judge_all(cases, rows, jobs))
    if as_json:
        print_json({"unlisted": missing, "verdicts": [asdict(one) for one in verdicts]})
    else:
        for line in (*_table(verdicts), *missing):
            click.echo(line)
    # nothing asked is nothing held
    return bool(verdicts) and not missing and all(one.state != "MISS" for one in verdicts)


def _table(verdicts: "list[Verdict]") -> Iterable[str]:
    """Kernel by target: how many cases hold; then every miss, and every reason of a compiler."""
    kernels = list(dict.fromkeys(one.kernel for one in verdicts))
    yield "".join([f"{'target':<10}", *(f"{kernel:>16}" for kernel in kernels)])
    for target in dict.fromkeys(one.target for one in verdicts):
        cells = []
        for kernel in kernels:
            states = [one.state for one in verdicts if (one.target, one.kernel) == (target, kernel)]
            missed, refused = states.count("MISS"), states.count("refused")
            cells.append(f"{missed} of {len(states)} miss" if missed else "refused" if refused == len(states) else f"{len(states) - refused} ok")
        yield "".join([f"{target:<10}", *(f"{cell:>16}" for cell in cells)])
    for one in verdicts:
        for miss in one.misses:
            yield f"MISS {one.case} on {one.target}: {miss}"
    for reason in dict.fromkeys((one.target, one.reason.partition(": ")[2]) for one in verdicts if one.state == "refused"):
        yield f"refused by the compiler, and by dispatch: {reason[0]}: {reason[1]}"


def _print_assembly(case: "Case", row: "Arch") -> None:
    from lanewise.isa.compile import compile_for
    from lanewise.isa.summary import annotated, summary

    for body in compile_for(case, row):
        click.echo(f"{body.name} of {case} on {row}")
        if body.code is None:
            click.echo(body.text)
            continue
        for line in annotated(body.code):
            click.echo(line)
        code, counted = body.code, summary(body.code)
        mix = ", ".join(f"{n} {kind}" for kind, n in counted.mix.items())
        click.echo(f"\n  {len(code.instructions)} instructions, {len(code.code)} bytes: {mix}")
        click.echo(f"  {code.vgprs} VGPRs, {code.sgprs} SGPRs, {body.shared} bytes of LDS, {code.scratch} of scratch, {code.spills} spills")
        wide = f"{counted.wide} of {len(counted.loads)} loads of 16 bytes"
        click.echo(f"  {counted.waves} waves of a SIMD; {counted.flight} bytes a lane in flight at most, {wide}")
        dots = ", ".join(f"{n} {name}" for name, n in counted.dots.items()) or "no dots"
        click.echo(f"  {dots}, {counted.matrix} of the matrix unit, {counted.fast} integer products of 24 bits and {counted.slow} of 32\n")
