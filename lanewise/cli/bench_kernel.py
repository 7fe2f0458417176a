"""`lanewise bench kernel`: which of two kernels is faster, and whether the run shows it."""

from typing import Any

import click

from lanewise.cli import options
from lanewise.cli.evidence_out import destination, plotted, print_run, rate, share, written
from lanewise.cli.terminal import Progress, as_json, print_table, size
from lanewise.errors import LanewiseError

__all__ = ["kernel"]


@click.command()
@click.argument("op", metavar="OP")
@click.option("--m", default=1, help="Tokens.")
@click.option("--n", default=4096, help="Output features; of attention the positions that are cached.")
@click.option("--k", default=4096, help="Reduction; of attention the size of a head.")
@click.option("--dtype", default="f32", help="Type of the activations.")
@click.option("--format", "fmt", help="Format of the weights of quant_linear and grouped_linear, such as Q4_K.")
@click.option("--experts", type=int, help="Of grouped_linear: how many there are.", show_default="128")
@click.option("--top", type=int, help="Of grouped_linear: how many a token has.", show_default="8")
@click.option("--heads", default=32, help="Of attention: heads of the queries.")
@click.option("--kv-heads", default=8, help="Of attention: heads of keys and values.")
@click.option("--ab", required=True, help="The two arms, with a comma between.")
@click.option("--device", default="cpu", help="Where both run: cpu, or cuda, or cuda:1.")
@options.threads
@click.option("--pairs", default=30, help="Pairs of samples, at least 15; two are a round.")
@click.option("--sample-ms", type=float, help="Least length of a sample, in ms; at least 0.2.", show_default="20, on a GPU 2")
@click.option("--copies", type=int, help="Copies of the weights that rotate.", show_default="as many as make 4 last-level caches")
@click.option("--cold", is_flag=True, help="Refuse a run whose weights a cache could hold.")
@click.option("--seed", type=int, help="Same seed, same inputs and order.", show_default="a new one each time")
@click.option("--record", help="Write an evidence bundle to this new directory.")
@click.option("--plot", help="Write a picture of the run to this file (.svg, .png, .pdf).")
@as_json
def kernel(
    op: str,
    m: int,
    n: int,
    k: int,
    dtype: str,
    fmt: str | None,
    experts: int | None,
    top: int | None,
    heads: int,
    kv_heads: int,
    ab: str,
    device: str,
    threads: int | None,
    pairs: int,
    sample_ms: float | None,
    copies: int | None,
    cold: bool,
    seed: int | None,
    record: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Compare two kernels at one call of an op. OP is quant_linear, grouped_linear, linear or attention.

    An arm of device cpu is an instruction set that the processor runs (a CPU row of `lanewise targets`, such as x86-64-v3), `cpu` for
    the one that it would choose, or `reference` for the numpy body. Arms of device cuda, with --dtype bf16 or fp16, are `skinny` and `blas` of
    linear; and of quant_linear `quant`, `quantized` (the kernel alone, x quantized before), `blas` (weights expanded before) and `expand` (at
    every call). Of grouped_linear they are `grouped`, `late` (the same, of ids that the kernel in front may still write) and `blas` (one expanded
    expert after the other).
    """
    from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
    from lanewise.bench.problem import Call

    arms = [name.strip() for name in ab.split(",")]
    if len(arms) != 2:
        raise LanewiseError(f"--ab names {len(arms)} arm{'' if len(arms) == 1 else 's'}; it takes two, with a comma between")
    where, picture = destination(record), plotted(plot)
    of = (128 if experts is None else experts, 8 if top is None else top) if op == "grouped_linear" else (experts or 0, top or 0)
    call = Call(op, m, n, k, fmt, dtype, heads, kv_heads, *of)
    plan = KernelPlan(call, (arms[0], arms[1]), device, pairs, threads, copies, cold, None if sample_ms is None else sample_ms / 1e3, seed)
    with Progress() as bar:
        found = bench_kernel(plan, command_of(plan), bar)
    written(found, where)
    print_run(found, as_json, _print)
    if picture is not None:
        picture(found)


def _print(found: dict[str, Any]) -> None:
    plan, problem, arms = found["plan"], found["problem"], found["arms"]
    cache = found["machine"]["last_level_cache"]
    beside = f"a last-level cache of {size(cache)}" if cache else "a last-level cache of unknown size"
    click.echo(f"operands: {size(plan['buffers_bytes'])} in rotation beside {beside}: {plan['residency']}; phase {problem['phase']}")
    same = arms["a"]["output"] == arms["b"]["output"]
    click.echo(f"outputs:  {'the same bits' if same else 'different bits'}\n")
    limit = "float" if "of_float" in found["figures"]["a"] else "int8"
    rows = []
    for key in ("a", "b"):
        one, witness = found["figures"][key], arms[key]["witness"]
        microseconds = "" if one["seconds"] is None else f"{1e6 * one['seconds']:.1f}"
        moved, computed = rate(one["bytes_per_second"], "GB/s"), rate(one["operations_per_second"], "Gop/s")
        speeds = (moved, share(one["of_read"]), computed, share(one[f"of_{limit}"]))
        rows.append((key, arms[key]["label"], f"{witness['kernel']} ({witness['isa']})", microseconds, *speeds))
    head = ("arm", "", "kernel", "us", "moved", "of read", "computed", f"of {limit}")
    print_table(head, rows, right=head[3:])
