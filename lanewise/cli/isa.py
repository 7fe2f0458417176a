"""`lanewise isa`: what compilers make of the GPU kernels, for targets that need not be here, and whether it is what was declared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.terminal import as_json, print_json

if TYPE_CHECKING:
    from lanewise.arch import Arch
    from lanewise.isa.catalogue import Case
    from lanewise.isa.compile import Body
    from lanewise.isa.gate import Verdict

_COLUMN = 16


@click.command()
@click.argument("kernel", required=False)
@click.option("--gate", is_flag=True, help="Compare with what is declared; exit code 1 on a miss.")
@click.option("--asm", is_flag=True, help="Print the assembly with source lines, and a summary.")
@click.option("--target", "-t", "names", multiple=True, help="A target, such as gfx1201. May be repeated.", show_default="every GPU")
@click.option("--jobs", default=2, type=click.IntRange(1, 256), help="Processes that compile.", show_default=True)
@as_json
def isa(kernel: str | None, gate: bool, asm: bool, names: tuple[str, ...], jobs: int, as_json: bool) -> None:
    """Look at the machine code of GPU kernels. KERNEL is skinny, quant_gemv, ..., or more words of one case, such as "quant_gemv Q4_K m=1"."""
    if asm == gate:
        raise click.UsageError("say either --gate or --asm")
    if asm and (kernel is None or len(names) != 1):
        raise click.UsageError("--asm takes a KERNEL and one --target")
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except ImportError as error:
        raise click.UsageError(f"{error.name} is missing; pip install 'lanewise[gpu]'") from None
    from lanewise import arch
    from lanewise.isa import catalogue

    cases = catalogue.find(kernel) if kernel is not None else catalogue.CASES
    rows = tuple(dict.fromkeys(arch.parse(name) for name in names)) or catalogue.ROWS
    if others := [str(row) for row in rows if not row.is_gpu]:
        raise click.UsageError(f"{', '.join(others)} is no GPU; Triton's kernels are for those of AMD and NVIDIA")
    if asm:
        _show(cases[0], rows[0], as_json)
    elif not _run_gate(cases, rows, jobs, as_json, everything=kernel is None):
        raise click.exceptions.Exit(1)


def _run_gate(cases: "Sequence[Case]", rows: "Sequence[Arch]", jobs: int, as_json: bool, everything: bool) -> bool:
    """Whether nothing misses."""
    from lanewise.isa.gate import judge_all, unlisted

    missing = unlisted() if everything else []
    verdicts: list[Verdict] = []
    if as_json:
        verdicts += judge_all(cases, rows, jobs)
        print_json({"unlisted": missing, "verdicts": [asdict(one) for one in verdicts]})
    else:
        kernels = list(dict.fromkeys(case.kernel for case in cases))
        click.echo("".join([f"{'target':<10}", *(f"{kernel:>{_COLUMN}}" for kernel in kernels)]))
        for line in _lines(judge_all(cases, rows, jobs), kernels, len(cases), verdicts):
            click.echo(line)
        for line in missing:
            click.echo(f"MISS {line}")
    # nothing asked is nothing held
    return bool(verdicts) and not missing and all(one.state != "MISS" for one in verdicts)


def _lines(found: "Iterable[Verdict]", kernels: Sequence[str], each: int, verdicts: "list[Verdict]") -> Iterator[str]:
    """As soon as a target is done how many cases of each kernel hold; then every miss, every reason of a compiler, and what was not read."""
    for one in found:
        verdicts.append(one)
        if len(verdicts) % each == 0:
            yield _line(verdicts[-each:], kernels)
    for one in verdicts:
        for miss in one.misses:
            yield f"MISS {one.case} on {one.target}: {miss}"
    for target, reason in dict.fromkeys((one.target, one.reason.partition(": ")[2]) for one in verdicts if one.state == "refused"):
        yield f"refused by the compiler, and by dispatch: {target}: {reason}"
    for target, why in dict.fromkeys((one.target, one.unread) for one in verdicts if one.unread):
        yield f"read by the compiler's own assembler alone: {target}: {why}"


def _line(verdicts: "Sequence[Verdict]", kernels: Sequence[str]) -> str:
    cells = []
    for kernel in kernels:
        states = [one.state for one in verdicts if one.kernel == kernel]
        missed, refused = states.count("MISS"), states.count("refused")
        cells.append(f"{missed} of {len(states)} miss" if missed else "refused" if refused == len(states) else f"{len(states) - refused} ok")
    return "".join([f"{verdicts[0].target:<10}", *(f"{cell:>{_COLUMN}}" for cell in cells)])


def _show(case: "Case", row: "Arch", as_json: bool) -> None:
    """Raises LanewiseError, with the reason, for a target that is refused."""
    from lanewise.isa.compile import compile_for
    from lanewise.isa.gate import facts
    from lanewise.isa.summary import annotated

    bodies = compile_for(case, row)
    if as_json:
        code = [[{"pc": i.pc, "text": i.text, "source": i.source, "inline": i.inline} for i in body.code.instructions] for body in bodies]
        found = [{"name": body.name, **facts(body), "instructions": lines} for body, lines in zip(bodies, code, strict=True)]
        print_json({"case": str(case), "target": str(row), "kernels": found})
        return
    for body in bodies:
        click.echo(f"{body.name} of {case} on {row}")
        for line in (*annotated(body.code), "", *_summed_up(body, facts(body)), ""):
            click.echo(line)


def _summed_up(body: "Body", known: dict[str, Any]) -> Iterator[str]:
    amd = "vgprs" in known
    size = f", {known['bytes']} bytes" if amd else " of PTX"
    yield f"  {len(body.code.instructions)} instructions{size}: {', '.join(f'{n} {kind}' for kind, n in known['mix'].items())}"
    if amd:
        memory = f"{known['scratch']} of scratch, {known['spills']} spills"
        yield f"  {known['vgprs']} VGPRs, {known['sgprs']} SGPRs, {body.shared} bytes of LDS, {memory}"
    else:
        memory = f"{known['stack']} of stack and {known['local']} of local memory a thread"
        yield f"  {known['registers']} registers, {body.shared} bytes of shared memory, {memory}"
    wide = f"{sum(one == 16 for one in known['loads'])} of {len(known['loads'])} loads of 16 bytes"
    yield f"  {known['waves']} waves of a SIMD; {known['flight']} bytes a lane in flight at most, {wide}" if amd else f"  {wide}"
    dots = ", ".join(f"{n} {name}" for name, n in known["dots"].items()) or "no dots"
    products = f"{known['fast']} integer products of 24 bits and {known['slow']} of 32" if amd else f"{known['slow']} integer products"
    yield f"  {dots}, {known['matrix']} of the matrix unit, {products}"
