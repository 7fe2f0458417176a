"""`lanewise explain`: which kernel would run a problem, and why the others would not."""

from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.terminal import as_json, print_json

if TYPE_CHECKING:
    from lanewise.contract import Problem
    from lanewise.dispatch import Verdict


@click.command()
@click.argument("op", metavar="OP")
@click.option("--arch", help="The target, such as gfx1100 or sm_90.", show_default="this machine")
@click.option("--m", default=1, help="Tokens.")
@click.option("--n", default=4096, help="Output features.")
@click.option("--k", default=4096, help="Reduction.")
@click.option("--dtype", default="f32", help="Type of the activations: f32, f16 or bf16.")
@click.option("--format", "fmt", help="Format of the weights, such as Q4_K.")
@click.option("--experts", default=0, help="Of grouped_linear: how many there are; m counts pairs of a token and one of its experts.")
@click.option("--out", help="Type of the result.", show_default="that of the activations")
@click.option("--fused", default="", help="What else the call wants, with commas: norm, bias, gated, residual.")
@click.option("--grad", is_flag=True, help="A gradient is wanted.")
@click.option("--torch", is_flag=True, help="Operands are torch tensors, as they always are on a GPU.")
@click.option("--card", help="What the driver calls the GPU, such as 'NVIDIA H200', for what was measured on it.")
@as_json
def explain(
    op: str,
    arch: str | None,
    m: int,
    n: int,
    k: int,
    dtype: str,
    fmt: str | None,
    experts: int,
    out: str | None,
    fused: str,
    grad: bool,
    torch: bool,
    card: str | None,
    as_json: bool,
) -> None:
    """Print which kernel would run a problem, and every refusal. OP is linear, quant_linear, ...; exit code 1 when no kernel would."""
    import lanewise.backends  # noqa: F401  (registers the kernels)
    from lanewise import arch as targets
    from lanewise import formats
    from lanewise.contract import Problem
    from lanewise.dispatch import explain as ask

    target = targets.parse(arch) if arch is not None else targets.host()
    problem = Problem(
        op,
        target,
        m,
        n,
        k,
        dtype,
        formats.get(fmt).name if fmt else None,
        out=out,
        fused=tuple(part.strip() for part in fused.split(",") if part.strip()),
        grad=grad,
        torch=torch or None,
        card=card,
        experts=experts,
    )
    verdicts = ask(problem)
    if as_json:
        print_json(_machine(problem, verdicts))
    else:
        click.echo(str(problem))
        for verdict in verdicts:
            click.echo(f"  {_words(problem, verdict)}")
        if not verdicts:
            click.echo("  no kernel is registered for this op")
    if not any(verdict.chosen for verdict in verdicts):
        raise click.exceptions.Exit(1)


def _words(problem: "Problem", verdict: "Verdict") -> str:
    if verdict.refusal:
        return str(verdict.refusal)
    kernel, note = f"{verdict.kernel.name} ({verdict.kernel.body})", _note(problem, verdict)
    return (f"{kernel} runs" if verdict.chosen else f"{kernel} would accept, but comes later") + (f": {note}" if note else "")


def _note(problem: "Problem", verdict: "Verdict") -> str | None:
    note = verdict.kernel.note
    return note(problem) if note and not verdict.refusal else None


def _machine(problem: "Problem", verdicts: "tuple[Verdict, ...]") -> dict[str, Any]:
    p = problem
    return {
        "problem": {"op": p.op, "arch": str(p.arch), "m": p.m, "n": p.n, "k": p.k, "dtype": p.dtype, "format": p.format, "out": p.out}
        | {"fused": list(p.fused), "grad": p.grad, "torch": p.torch, "card": p.card}
        | ({"experts": p.experts} if p.experts else {}),
        "chosen": next((v.kernel.name for v in verdicts if v.chosen), None),
        "kernels": [
            {
                "name": v.kernel.name,
                "body": v.kernel.body,
                "accepts": v.refusal is None,
                "guard": v.refusal.guard if v.refusal else None,
                "why": v.refusal.why if v.refusal else None,
                "note": _note(p, v),
            }
            for v in verdicts
        ],
    }
