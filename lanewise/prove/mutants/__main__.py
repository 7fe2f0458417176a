"""`python -m lanewise.prove.mutants`: every wrong kernel of the catalogue, and who notices; exit code 1 where one survives."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from lanewise.arch import TARGETS
from lanewise.prove.mutants.catalogue import MUTANTS
from lanewise.prove.mutants.run import fates, matrix

# One of each size of waves, with a matrix unit.
_TARGETS = tuple(next(name for name, row in TARGETS.items() if row.emulated and row.matrix and row.wave == wave) for wave in (32, 64))


@click.command()
@click.option("--kernel", default="", help="Only mutants whose kernel's name has this.")
@click.option("--target", "targets", multiple=True, default=_TARGETS, show_default=True, help="AMD targets whose emulated machine code is asked.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes at a time.")
@click.option("--part", nargs=2, type=int, default=(0, 1), show_default=True, help="I N: only the mutants I, I + N, I + 2 N and so on.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write what became of each to this file.")
def main(kernel: str, targets: tuple[str, ...], jobs: int, part: tuple[int, int], path: Path | None) -> None:
    """Run the proof on wrong kernels, each wrong in one way, and print who noticed which."""
    chosen = [mutant for mutant in MUTANTS if kernel in mutant.kernel][part[0] :: part[1]]
    if not chosen:
        raise click.UsageError(f"no mutant is of a kernel {kernel!r}; there are {', '.join(dict.fromkeys(one.kernel for one in MUTANTS))}")
    found = []
    for fate in fates(chosen, targets, jobs):
        found.append(fate)
        ((_, *words),) = matrix([fate], targets)
        click.echo(f"{fate.mutant.kernel:22} {words[0]:20} {words[1]:52} {' '.join(f'{word:9}' for word in words[2:])}{fate.broken}")
    alive = [fate for fate in found if not fate.dead and not fate.mutant.equivalent]
    for fate in alive:
        click.echo(f"ALIVE  {fate.mutant.kernel}: {fate.mutant.name} ({fate.broken or 'survived ' + ', '.join(fate.survived)})")
    dead = sum(fate.dead for fate in found)
    click.echo(f"mutants: {len(found)} of {len({one.mutant.kernel for one in found})} kernels, {dead} killed, {len(alive)} alive")
    if path:
        path.write_text(json.dumps([asdict(fate) for fate in found], indent=1) + "\n")
    raise SystemExit(bool(alive))


if __name__ == "__main__":
    main(prog_name="python -m lanewise.prove.mutants")
