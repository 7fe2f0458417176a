"""Every leaf of a good manifest is changed in turn. The seal notices each; and all but a few are refused for what they say, so that a
forger who makes a new seal does not get away with it."""

import json
import re
from pathlib import Path

import pytest
from support.bundles import changed, good, good_command

from lanewise.bench import manifest as schema
from lanewise.bench import stats
from lanewise.bench.seal import seal_text
from lanewise.evidence import Bundle, verify


def sealed(manifest):
    """A seal of any bytes that change with the manifest."""
    return seal_text(json.dumps(manifest).encode())


KERNEL, COMMAND = good(), good_command()
SEALS = {one["kind"]: sealed(one) for one in (KERNEL, COMMAND)}
UNREADABLE = "unreadable"  # not what the schema allows: one line, exit code 2

# (path, codes of which one is given). The first row that matches counts.
FITTING = [
    (r"schema.*|kind", {UNREADABLE}),
    (r"question", {"question"}),
    (r"command\[\d+\]", {"command"}),
    (r"began|ended", {"chronology"}),
    (r"commit\.dirty", {"dirty"}),
    (r"machine\.(flags|row|usable_cores)", {"machine"}),
    (r"machine\.last_level_cache", {"residency", "probe"}),
    (r"plan\.pairs", {"rounds", "plan"}),
    (r"plan\.most_rounds|plan\.bootstrap\..*|plan\.rule\.(busy|throttled)", {"plan", UNREADABLE}),
    (r"plan\.(min_seconds|timeout)", {"command"}),
    (r"plan\.(metric|better)", {"command", "question", UNREADABLE}),
    (r"plan\.seed", {"sample-order", "control"}),
    (r"plan\.buffers_bytes", {"residency"}),
    (r"plan\.residency", {"residency", UNREADABLE}),
    (r"plan\.threads", {"machine", "question"}),
    (r"problem\.(op|m|n|k|format|bytes|operations)", {"problem"}),
    (r"problem\.phase", {"phase", UNREADABLE}),
    (r"inputs\.seed", {"inputs"}),
    (r"arms\..\.(label|spec\..*)", {"witness", "command"}),
    (r"inputs\.declared\[0\]", {"command"}),
    (r"inputs\.files\..*\.(sha256|after)", {"input-changed"}),
    (r"plan\.output", {"command", "figure"}),
    (r"plan\.device", {"plan"}),
    (r"arms\..\.witness\[0\]\.prompt", {"witness", "prompts"}),
    (r"arms\..\.witness\[0\]\..*", {"witness", UNREADABLE}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.output", {"exact"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.witness", {"witness"}),
    (r"arms\..\.witness\.(kernel|body|isa|calls)", {"witness"}),
    (r"arms\..\.witness\.m", {"witness", "phase"}),
    (r"arms\..\.output", {"output", "exact"}),
    (r"rounds\[\d+\]\.number", {"rounds"}),
    (r"rounds\[\d+\]\.order\[\d\]", {"balance", "sample-missing"}),
    (r"rounds\[\d+\]\.samples\[\d\]\.arm", {"sample-missing"}),
    (r"rounds\[\d+\]\.control\[\d\]\.arm", {"control"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.seconds", {"sample-order", "chronology", "figure"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.value", {"figure"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.repeats", {"repeats", "witness"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.started", {"sample-order", "chronology"}),
    (r"rounds\[\d+\]\.probes\..*\.(bytes|macs)", {"probe"}),
    (r"rounds\[\d+\]\.probes", {UNREADABLE}),
    (r"rounds\[\d+\]\.(before|after)\.time", {"chronology"}),
    (r"rounds\[\d+\]\.(before|after)\.ticks\..*|rounds\[\d+\]\.(before|after)\.throttle\..*", {"chronology", "left-out-kept"}),
    (r"rounds\[\d+\]\.after\.neighbours\[0\]\.cpu_seconds", {"left-out-kept"}),
    (r"rounds\[\d+\]\.left_out", {"kept-left-out"}),
    (r"figures\..*", {"figure"}),
]
# What nothing else in a bundle contradicts, and no figure depends on: the seal alone notices. With --repo those marked * are found too.
SEALED_ONLY = [
    r"sources\..*|commit\.id",  # *
    r"versions\..*",  # *, the version of Lanewise
    r"settings\..*",
    r"machine\.(cpu|system|memory|logical_cores)",
    r"plan\.warmup",
    r"plan\.rule\.clock",  # a stricter rule, that these rounds pass too
    r"inputs\.sha256\..*",  # *
    r"arms\..\.artifact",  # *
    r"command (problem|machine\.last_level_cache)",  # of commands: null, or not asked for
    r"inputs\.files\..*\.bytes|rounds\[\d+\]\.(samples|control)\[\d\]\.memory",  # only what no machine has is refused
    r"rounds\[\d+\]\.probes\..*\.seconds\[\d\]",  # the best pass counts, and the median over rounds
    r"rounds\[\d+\]\.(before|after)\.(load\[\d\]|clock_mhz|temperature|power|memory_available|peak_memory)",
    r"rounds\[\d+\]\.(before|after)\.neighbours\[0\]\.(pid|parent|name)",
    r"rounds\[\d+\]\.before\.neighbours\[0\]\.cpu_seconds",
]


def paths(value, where=""):
    """Every leaf's path; dots inside keys as slashes, slashes as `|`, so that it leads back to the leaf."""
    if isinstance(value, dict):
        for key, one in value.items():
            name = key.replace("/", "|").replace(".", "/")
            yield from paths(one, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from paths(one, f"{where}[{i}]")
    else:
        yield where, value


def other(path, value):
    """A value of the same kind that says something else."""
    if path in ("began", "ended"):
        return value.replace("2026", "2027" if path == "began" else "2025")
    if isinstance(value, bool):
        return not value
    if path.endswith("last_level_cache"):
        return 3 * value
    if path.endswith("calls"):
        return value - 1
    if isinstance(value, int):
        return value + (10**9 if path.endswith("started") else 10**6 if ".ticks." in path else 1)
    if isinstance(value, float):
        return value * 3
    if isinstance(value, str):
        swapped = {"a": "b", "b": "a", "decode": "prefill", "cold": "warm", "lower": "higher"}
        return swapped.get(value) or (("1" if value[0] == "0" else "0") + value[1:] if re.fullmatch("[0-9a-f]{40,}", value) else f"{value}x")
    return "others used 0.50 of a core" if path.endswith("left_out") else 0.5 if "rule" in path or "rounds" in path else "0" * 64


def judged(manifest, seal):
    """The codes of the reasons against a manifest, as open_bundle and verify find them."""
    wrong = schema.complaints(manifest)
    faults = [one for one in wrong if re.match(r"rounds\[\d+\] is in order", one)]
    if len(faults) < len(wrong):
        return {UNREADABLE}
    return {reason.code for reason in verify(Bundle("x", Path("x"), manifest, seal, sealed(manifest), tuple(faults)))}


def leaves_of(manifest):
    return [pytest.param(path, value, id=path) for path, value in paths(manifest)]


@pytest.mark.parametrize(("path", "value"), leaves_of(KERNEL))
def test_no_changed_leaf_of_a_kernels_bundle_slips(path, value):
    require_refused(KERNEL, path, value)


@pytest.mark.parametrize(("path", "value"), leaves_of(COMMAND))
def test_no_changed_leaf_of_a_commands_bundle_slips(path, value):
    require_refused(COMMAND, path, value)


def require_refused(manifest, path, value):
    made = changed(manifest, path, other(path, value))
    codes = judged(made, SEALS[manifest["kind"]])
    if codes == {UNREADABLE}:
        assert UNREADABLE in fitting(path) or sealed_only(manifest, path)
        return
    assert "digest" in codes
    # one more outlier on the side of an outlier moves no median
    if not sealed_only(manifest, path) and not (path.endswith(".value") and stats.figures(made) == manifest["figures"]):
        assert codes & fitting(path), codes


def sealed_only(manifest, path):
    return any(re.fullmatch(row, path) or re.fullmatch(row, f"{manifest['kind']} {path}") for row in SEALED_ONLY)


def fitting(path):
    return next((codes for row, codes in FITTING if re.fullmatch(row, path)), set())


def test_the_good_bundles_are_good():
    for manifest in (KERNEL, COMMAND):
        assert judged(manifest, SEALS[manifest["kind"]]) == set()


def test_every_row_of_the_tables_is_about_a_leaf_that_is_there():
    there = [path for manifest in (KERNEL, COMMAND) for path, _ in paths(manifest)]
    there += [f"command {path}" for path, _ in paths(COMMAND)]
    for row in (*(row for row, _ in FITTING), *SEALED_ONLY):
        assert any(re.fullmatch(row, path) for path in there), row
