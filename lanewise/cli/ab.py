"""`lanewise ab`: which of two commands is better by a number that both print, and whether the run shows it."""

import shlex
from typing import Any

import click

from lanewise.cli.evidence_out import destination, plotted, print_run, written
from lanewise.cli.terminal import Progress, as_json, print_table
from lanewise.errors import LanewiseError

__all__ = ["ab"]


@click.command()
@click.option("--a", required=True, help="A shell command.")
@click.option("--b", required=True, help="Another one, or the same with another commit or other variables.")
@click.option("--metric", required=True, help="A regular expression with one group, around the number that a command prints once.")
@click.option("--lower-is-better", is_flag=True, help="A smaller number is the better one, as it is when nothing is said.")
@click.option("--higher-is-better", is_flag=True, help="A larger number is the better one.")
@click.option("--pairs", default=30, help="Pairs of runs, at least 15; two are a round.")
@click.option("--a-commit", help="Run a at this commit of the repository here, in an environment of its own.")
@click.option("--b-commit", help="The same for b.")
@click.option("--a-env", multiple=True, metavar="K=V", help="A variable for a. May be repeated.")
@click.option("--b-env", multiple=True, metavar="K=V", help="A variable for b. May be repeated.")
@click.option("--output", help="A regular expression with one group, around the answer in stdout: is it the same in every run?")
@click.option("--file", "files", multiple=True, metavar="PATH", help="A file or folder that the commands read, to be hashed. May be repeated.")
@click.option("--device", default="cpu", help="What is locked and watched: cpu, or cuda, or cuda:1. It chooses nothing for the commands.")
@click.option("--timeout", default=600.0, help="Most seconds of one run.")
@click.option("--seed", type=int, help="Same seed, same order.", show_default="a new one each time")
@click.option("--record", help="Write an evidence bundle to this new directory.")
@click.option("--plot", help="Write a picture of the run to this file (.svg, .png, .pdf).")
@as_json
def ab(
    a: str,
    b: str,
    metric: str,
    lower_is_better: bool,
    higher_is_better: bool,
    pairs: int,
    a_commit: str | None,
    b_commit: str | None,
    a_env: tuple[str, ...],
    b_env: tuple[str, ...],
    output: str | None,
    files: tuple[str, ...],
    device: str,
    timeout: float,
    seed: int | None,
    record: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Compare two commands, commits or settings by a number that they print. Every sample is a fresh process."""
    from lanewise.bench.ab import Command, CommandPlan, bench_commands

    if lower_is_better and higher_is_better:
        raise LanewiseError("--lower-is-better and --higher-is-better exclude each other")
    where, picture = destination(record), plotted(plot)
    better = "higher" if higher_is_better else "lower"
    arms = Command(a, a_commit, _variables("--a-env", a_env)), Command(b, b_commit, _variables("--b-env", b_env))
    plan = CommandPlan(*arms, metric, pairs, better, timeout, seed, output, files, device)
    command = ["lanewise", "ab", "--a", a, "--b", b, "--metric", metric, f"--{better}-is-better", "--pairs", str(pairs)]
    for name, value in (("--a-commit", a_commit), ("--b-commit", b_commit), ("--seed", seed), ("--output", output)):
        command += [name, str(value)] if value is not None else []
    command += [word for name, values in (("--a-env", a_env), ("--b-env", b_env), ("--file", files)) for value in values for word in (name, value)]
    command += ["--device", device, "--timeout", f"{timeout:g}"]
    with Progress() as bar:
        found = bench_commands(plan, command, bar)
    written(found, where)
    print_run(found, as_json, _print)
    if picture is not None:
        picture(found)


def _variables(option: str, words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for word in words:
        if "=" not in word:
            raise LanewiseError(f"{option} is {word[:64]!r}; it takes NAME=VALUE")
    return tuple((name, value) for name, _, value in (word.partition("=") for word in words))


def _print(found: dict[str, Any]) -> None:
    from lanewise.evidence.ran import output_words, witness_words
    from lanewise.evidence.summary import quantity

    plan, arms = found["plan"], found["arms"]
    click.echo(f"metric:   {shlex.quote(plan['metric'])}, {plan['better']} is better")
    card = found["machine"].get("gpu")
    click.echo(", ".join((f"device:   {plan['device']}", *([str(card["name"])] if card else []))) + "\n")
    rows = []
    for key in ("a", "b"):
        value = found["figures"][key]["value"]
        rows.append((key, arms[key]["label"], "" if value is None else f"{value:.6g}", quantity(found["figures"][key]["memory"], "B")))
    print_table(("arm", "", "median", "memory"), rows, right=("median", "memory"))
    click.echo(f"\noutput:   {output_words(found)}")
    for key in ("a", "b"):
        click.echo(f"ran {key}:    {witness_words(arms[key])}")
    for name, one in found["inputs"]["files"].items():
        click.echo(f"file:     {name}, sha256 {one['sha256'][:12]}{'' if one['after'] == one['sha256'] else ', changed while the run went on'}")
