"""`lanewise explain`: which kernel would run a problem, and why the others would not."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.terminal import Json, print_json

if TYPE_CHECKING:
    from lanewise.contract import Problem
    from lanewise.dispatch import Verdict


def explain(
    op: Annotated[str, typer.Argument(metavar="OP", help="An op, such as linear or quant_linear.", show_default=False)],
    arch: Annotated[str | None, typer.Option(help="The target, such as gfx1100 or sm_90.", show_default="this machine")] = None,
    m: Annotated[int, typer.Option("--m", help="Tokens.")] = 1,
    n: Annotated[int, typer.Option("--n", help="Output features.")] = 4096,
    k: Annotated[int, typer.Option("--k", help="Reduction.")] = 4096,
    dtype: Annotated[str, typer.Option(help="Type of the activations: f32, f16 or bf16.")] = "f32",
    fmt: Annotated[str | None, typer.Option("--format", help="Format of the weights, such as Q4_K.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Print which kernel would run a problem, and every refusal. Exit code 1 when none would."""
    import lanewise.backends  # noqa: F401  (registers the kernels)
    from lanewise import arch as targets
    from lanewise import formats
    from lanewise.contract import Problem
    from lanewise.dispatch import explain as ask

    target = targets.parse(arch) if arch is not None else targets.host()
    problem = Problem(op, target, m, n, k, dtype, formats.get(fmt).name if fmt else None)
    verdicts = ask(problem)
    if as_json:
        print_json(_machine(problem, verdicts))
    else:
        typer.echo(str(problem))
        for verdict in verdicts:
            typer.echo(f"  {_words(verdict)}")
        if not verdicts:
            typer.echo("  no kernel is registered for this op")
    if not any(verdict.chosen for verdict in verdicts):
        raise typer.Exit(1)


def _words(verdict: "Verdict") -> str:
    if verdict.refusal:
        return str(verdict.refusal)
    kernel = f"{verdict.kernel.name} ({verdict.kernel.body})"
    return f"{kernel} runs" if verdict.chosen else f"{kernel} would accept, but comes later"


def _machine(problem: "Problem", verdicts: "tuple[Verdict, ...]") -> dict[str, Any]:
    p = problem
    return {
        "problem": {"op": p.op, "arch": str(p.arch), "m": p.m, "n": p.n, "k": p.k, "dtype": p.dtype, "format": p.format},
        "chosen": next((v.kernel.name for v in verdicts if v.chosen), None),
        "kernels": [
            {
                "name": v.kernel.name,
                "body": v.kernel.body,
                "accepts": v.refusal is None,
                "guard": v.refusal.guard if v.refusal else None,
                "why": v.refusal.why if v.refusal else None,
            }
            for v in verdicts
        ],
    }
