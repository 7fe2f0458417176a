"""`lanewise bench`: how fast something is, beside what the machine can do."""

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli import options
from lanewise.cli.terminal import Progress, as_json, complain, print_json, print_table, printable, size
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.files import ModelFile

__all__ = ["app"]


@click.group(name="bench")
def app() -> None:
    """Measure how fast something is, beside what the machine can do."""


@app.command()
@click.argument("path", metavar="[MODEL]", required=False)
@click.option("--shape", help="Random weights of a model's true shape, such as qwen3-0.6b.")
@click.option("--type", "type_name", help="With --shape: the type of its weights.", show_default="Q4_K_M")
@options.device
@options.threads
@click.option("--pp", default="28,128,512", help="Prompt lengths, with commas; 0 for none.")
@click.option("--tg", default=128, help="Tokens to decode; 0 for none.")
@click.option("--rounds", default=5, help="How often everything is measured, in turns.")
@click.option("--profile", is_flag=True, help="Also time every op of a decode step and of a prefill step.")
@click.option("--record", help="Write everything measured to this file, as JSON.")
@as_json
def model(
    path: str | None,
    shape: str | None,
    type_name: str | None,
    device: str | None,
    threads: int | None,
    pp: str,
    tg: int,
    rounds: int,
    profile: bool,
    record: str | None,
    as_json: bool,
) -> None:
    """Measure a model's prefill and decode speed. MODEL is a .gguf file or a directory; or --shape."""
    from lanewise import settings
    from lanewise.bench import Plan, bench_model

    if (path is None) == (shape is None):
        raise LanewiseError("a model file or a --shape is measured; give one of the two")
    if type_name is not None and shape is None:
        raise LanewiseError("--type says how the weights of a --shape are quantized; a model file has its own")
    target = _target(record) if record is not None else None
    type_name = (type_name or "Q4_K_M") if shape else None
    plan = Plan(
        prompts=_lengths(pp),
        tokens=tg,
        rounds=rounds,
        device=device or settings.get("DEVICE"),
        threads=threads,
        profile=profile,
        chunk=settings.get("PREFILL_CHUNK"),
    )
    command = ["lanewise", "bench", "model", *([path] if path else ["--shape", str(shape), "--type", str(type_name)])]
    command += ["--device", plan.device, "--pp", pp, "--tg", str(tg), "--rounds", str(rounds)]
    command += (["--threads", str(threads)] if threads else []) + (["--profile"] if profile else [])
    with Progress() as bar, _opened(path, shape, type_name) as file:
        found = bench_model(file, plan, command, bar)
    for note in found["run"]["notes"]:
        complain("note", note)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if target is not None:
        _write(target, found)
        complain("note", f"record written: {target}")


def _lengths(text: str) -> tuple[int, ...]:
    if text.strip() == "0":
        return ()
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise LanewiseError(f"--pp is {text[:64]!r}; it takes numbers of tokens with commas between, such as 28,128,512") from None


def _target(name: str) -> Path:
    """Where the record goes; refused before minutes are spent on what it would hold."""
    path = Path(name)
    if path.exists():
        raise LanewiseError(f"{name} is there already; a record is written to a new file")
    if not path.parent.is_dir():
        raise LanewiseError(f"{name}: there is no directory {str(path.parent)!r}")
    return path


def _write(path: Path, found: dict[str, Any]) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(found, file, indent=1, allow_nan=False)
            file.write("\n")
    except OSError as error:
        raise LanewiseError(f"{path} cannot be written: {error.strerror}") from None


def _opened(path: str | None, shape: str | None, type_name: str | None) -> "ModelFile":
    from lanewise.bench import random_model
    from lanewise.files import open_model

    return open_model(path) if path is not None else random_model(str(shape), str(type_name))


def _print(found: dict[str, Any]) -> None:
    run, shown, host = found["run"], found["model"], found["machine"]
    commit = found["commit"]
    formats = ", ".join(f"{count} {name}" for name, count in shown["formats"].items())
    cache = host["last_level_cache"]
    fits = {
        "warm": f"warm: they fit the last-level cache of {size(cache or 0)}",
        "mixed": f"mixed: part of them stays in the last-level cache of {size(cache or 0)}",
        "cold": f"cold: at least 4 times the last-level cache of {size(cache or 0)}",
        "unknown": "the size of the last-level cache is unknown",
    }[run["residency"]]
    click.echo(f"model:    {printable(shown['name'])}{' (random weights)' if shown['random'] else ''}, {shown['parameters']:,} parameters, {formats}")
    click.echo(f"weights:  {size(shown['weight_bytes'])} a token, {fits}")
    click.echo(f"machine:  {printable(host['cpu'])}, {run['isa']}, {run['device']}, {_threads(run)}; peak memory {size(run['peak_memory'])}")
    click.echo(f"versions: {', '.join(f'{k} {v}' for k, v in found['versions'].items())}; commit {_commit(commit)}")
    limits = found["figures"]["limits"]
    click.echo(f"limits:   read {_each(limits['read'], 'GB/s')}, {_each(limits['read_at_size'], 'GB/s')} at the weights' size;")
    load = found["rounds"][-1]["after"]["load"][0]
    click.echo(f"          int8 {_each(limits['int8'], 'GMAC/s')}, medians of {_count(run['rounds'], 'round')}; load {load:.1f}\n")
    head = ("phase", "tok/s", "best", "spread", "rate", "of limit")
    print_table(head, [_phase(name, p) for name, p in found["figures"]["phases"].items()], right=("tok/s", "best", "spread"))
    for name, one in (found["profile"] or {}).items():
        _print_profile(name, one)


def _threads(run: dict[str, Any]) -> str:
    return "numpy's threads" if run["threads"] is None else _count(run["threads"], "thread")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _commit(commit: dict[str, Any] | None) -> str:
    return "unknown" if commit is None else commit["id"][:12] + (", with changes" if commit["dirty"] else "")


def _each(limit: dict[str, float], unit: str) -> str:
    return f"{limit['median'] / 1e9:.1f} {unit} (±{50 * limit['spread']:.0f} %)"


def _phase(name: str, phase: dict[str, Any]) -> tuple[str, ...]:
    rate = phase["rate"]
    words = (name, f"{rate['median']:.1f}", f"{rate['best']:.1f}", f"{100 * rate['spread']:.0f} %")
    if phase["kind"] == "decode":
        share = f"{100 * phase['of_read']:.0f} % of read, {100 * phase['of_read_at_size']:.0f} % at the weights' size"
        return (*words, f"{phase['bytes_per_second'] / 1e9:.1f} GB/s", share)
    return (*words, f"{phase['macs_per_second'] / 1e9:.0f} GMAC/s", f"{100 * phase['of_int8']:.0f} % of int8")


def _print_profile(name: str, one: dict[str, Any]) -> None:
    """Ops that are alike in one line, the largest first; seconds are medians over the passes."""
    from statistics import median

    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for op in one["ops"]:
        alike[op["kernel"], op["m"], op["n"], op["k"]].append(op)
    took = {key: sum(median(op["seconds"]) for op in ops) for key, ops in alike.items()}
    total, plain = sum(took.values()), median(one["plain_seconds"])
    whole = median(map(sum, zip(*(op["seconds"] for op in one["ops"]), strict=True)))
    rows = []
    for key in sorted(took, key=lambda key: -took[key]):
        ops, seconds = alike[key], took[key]
        kernel, _, n, k = key
        nbytes, macs = (sum(op[field] for op in ops) for field in ("nbytes", "macs"))
        rate = "" if not nbytes else f"{nbytes / seconds / 1e9:.1f} GB/s" if one["rows"] == 1 else f"{macs / seconds / 1e9:.0f} GMAC/s"
        rows.append((kernel, f"{n}x{k}" if n else "", len(ops), f"{1e6 * seconds:.0f}", f"{100 * seconds / total:.1f}", rate))
    step = f"{_count(one['rows'], 'token')}, context {one['context']}"
    totals = f"ops {1e6 * total:.0f} us (medians); with a barrier behind each {1e6 * whole:.0f} us, plain {1e6 * plain:.0f} us"
    click.echo(f"\n{name}, one step of {step}: {totals}")
    print_table(("kernel", "weight", "calls", "us", "%", "rate"), rows, right=("calls", "us", "%"))
