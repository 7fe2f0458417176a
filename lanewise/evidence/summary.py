"""What a bundle says, in rows of words: the terminal and the page show the same."""

from collections.abc import Mapping, Sequence
from typing import Any

from lanewise.bench.figures import figures as rates_of
from lanewise.bench.stats import OTHER_PROMPTS
from lanewise.evidence.bundle import Bundle
from lanewise.evidence.ran import has_processes, output_words, witness_words

__all__ = ["about", "arms", "headline", "interval", "phases", "quantity", "title"]

Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def quantity(value: float | None, unit: str) -> str:
    """A number with a prefix before its unit, four digits.

    >>> quantity(0.0123, "s"), quantity(25_579_473_382, "B/s"), quantity(None, "s")
    ('12.3 ms', '25.58 GB/s', '-')
    """
    if value is None:
        return "-"
    if not unit:
        return f"{value:.5g}"
    factor, prefix = next(((f, p) for f, p in _PREFIXES if abs(value) >= f), _PREFIXES[-1])
    return f"{value / factor:.4g} {prefix}{unit}"


def interval(figure: Mapping[str, Any]) -> str:
    """`1.43 (1.41 to 1.45)`: a median and its interval."""
    middle, low, high = ("-" if figure[key] is None else f"{figure[key]:.4f}" for key in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"


def title(bundle: Bundle) -> str:
    """The question that was asked, or the model that was measured."""
    return str(bundle.manifest["model"]["name"] if bundle.is_record else bundle.manifest["question"])


def headline(bundle: Bundle) -> str:
    """The verdict, with the arm's label; of a record, what it is."""
    if bundle.is_record:
        return "rates of a model, measured beside the limits of the machine"
    verdict = str(bundle.figures["verdict"])
    arm, _, rest = verdict.partition(" ")
    words = f"{bundle.manifest['arms'][arm]['label']} {rest}" if arm in ("a", "b") else verdict
    return words + ("; the prompts differ" if (bundle.figures.get("output") or {}).get("verdict") == OTHER_PROMPTS else "")


def about(bundle: Bundle) -> list[tuple[str, str]]:
    """Where, when, how and with what."""
    found = bundle.manifest
    commit, machine = found["commit"], found["machine"]
    gpu = machine.get("gpu")
    card = [("GPU", ", ".join(f"{name} {value}" for name, value in gpu.items()))] if isinstance(gpu, dict) else []
    rows = [("bundle", bundle.id), ("command", " ".join(map(str, found["command"])))]
    if bundle.is_record:
        run = found["run"]
        rows.append(("run", f"{run['rounds']} rounds, {run['device']}, {run['isa']}, {run['threads'] or 'numpy'} threads, {run['residency']}"))
    else:
        rows += _of_plan(bundle)
    return [
        *rows,
        ("began, ended", f"{found['began']}, {found['ended']}"),
        ("commit", "unknown" if commit is None else f"{commit['id'][:12]}{', with changes' if commit['dirty'] else ', clean tree'}"),
        ("machine", f"{machine.get('cpu', '')}, {machine.get('row', '')}, {machine.get('usable_cores', '?')} cores, {machine.get('system', '')}"),
        *card,
        ("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())),
    ]


def _of_plan(bundle: Bundle) -> list[tuple[str, str]]:
    found, figures = bundle.manifest, bundle.figures
    plan, problem = found["plan"], found["problem"]
    how = plan["bootstrap"]
    rows = [("ratio b / a", interval(figures["ratio"])), ("control", interval(figures["control"]))]
    if problem:
        rows.append(("problem", ", ".join(f"{key} {value}" for key, value in problem.items())))
    if "residency" in plan:
        rows.append(("buffers", f"{plan['residency']}, {quantity(plan['buffers_bytes'], 'B')} in one rotation"))
    if has_processes(found):
        rows.append(("device", found["plan"].get("device", "cpu")))
        rows.append(("output", output_words(found)))
        rows += [("file", _file(name, one)) for name, one in found["inputs"]["files"].items()]
    rows.append(("pairs", f"{figures['pairs']} kept of {2 * len(found['rounds'])}, {plan['pairs']} planned"))
    return [*rows, ("interval", f"{100 * how['level']:g} % bootstrap of {how['resamples']} resamples, seed {how['seed']}")]


def arms(bundle: Bundle) -> Table:
    """Head and rows: an arm each."""
    found, figures = bundle.manifest, bundle.figures
    if found["kind"] == "command":
        return _commands(found, figures)
    limit = "float" if "of_float" in figures["a"] else "int8"
    head = ("arm", "label", "time", "bytes", "operations", "of read", f"of {limit}", "what ran")
    kernels = []
    for arm in ("a", "b"):
        one, witness = figures[arm], found["arms"][arm]["witness"]
        rates = (quantity(one["seconds"], "s"), quantity(one["bytes_per_second"], "B/s"), quantity(one["operations_per_second"], "op/s"))
        shares = (_share(one["of_read"]), _share(one[f"of_{limit}"]))
        kernels.append((arm, str(found["arms"][arm]["label"]), *rates, *shares, f"{witness['kernel']}, {witness['isa']}, m {witness['m']}"))
    return head, kernels


def _commands(found: Mapping[str, Any], figures: Mapping[str, Any]) -> Table:
    rows, second = [], has_processes(found)
    for name in ("a", "b"):
        arm, memory = found["arms"][name], (quantity(figures[name]["memory"], "B"),) if second else ()
        rows.append((name, str(arm["label"]), quantity(figures[name]["value"], ""), *memory, witness_words(arm)))
    return ("arm", "label", "median", *(("memory",) if second else ()), "what ran"), rows


def phases(bundle: Bundle) -> Table:
    """Head and rows: a phase of a record each."""
    rows = []
    for name, one in rates_of(bundle.manifest)["phases"].items():
        decode = one["kind"] == "decode"
        rate = quantity(one["bytes_per_second"], "B/s") if decode else quantity(one["macs_per_second"], "MAC/s")
        limit = f"{_share(one['of_read'])} of read" if decode else f"{_share(one['of_int8'])} of int8"
        rates = one["rate"]
        rows.append((name, str(one["kind"]), f"{rates['median']:.1f}", f"{rates['best']:.1f}", f"{100 * rates['spread']:.0f} %", rate, limit))
    return ("phase", "kind", "tok/s", "best", "spread", "rate", "of limit"), rows


def _file(name: str, one: Mapping[str, Any]) -> str:
    changed = "" if one["after"] == one["sha256"] else ", which changed while the run went on"
    return f"{name}, {one['bytes']} bytes, sha256 {one['sha256'][:12]}{changed}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
