"""A forger who makes everything again: after each changed leaf of a bundle of `ab`, witness hashes, figures and seal are those that fit. What is
not refused then is what nobody else can know, and stands in one list here and in docs/evidence.md."""

import re

import pytest
from support.bundles import changed, good_command, refigured, witnessed_again, written
from test_evidence_leaves import other, paths

from lanewise.evidence import open_bundle, verify
from lanewise.evidence.bundle import EvidenceError

GOOD = good_command()
LAST = len(GOOD["rounds"]) - 1
# What a measurement alone knows, or --repo (*).
NOBODY_KNOWS = [
    r"commit\.id|arms\..\.witness\[0\]\.code",  # *
    r"versions\.(python|numpy)|settings\..*|machine\.(cpu|system|memory|logical_cores|last_level_cache)",
    r"plan\.rule\.clock",  # a stricter rule, that these rounds pass too
    r"inputs\.files\..*\.bytes",
    r"arms\..\.witness\[0\]\.prompt",  # the verdict on the outputs then is: other prompts
    r"rounds\[\d+\]\.(samples|control)\[\d\]\.(value|memory)",
    r"rounds\[\d+\]\.(before|after)\.(load\[\d\]|clock_mhz|temperature|power|memory_available)",
    rf"rounds\[{LAST}\]\.after\.peak_memory",
    r"rounds\[\d+\]\.(before|after)\.neighbours\[0\]\.(parent|name)",
    r"rounds\[\d+\]\.before\.neighbours\[0\]\.cpu_seconds",
]
MADE_AGAIN = r"figures\..*|rounds\[\d+\]\.(samples|control)\[\d\]\.witness"  # by the forger, and so the true ones


def leaves():
    """Every leaf; of the rounds, which are alike, the first and the last."""
    for path, value in paths(GOOD):
        if not re.match(rf"rounds\[(?!0\]|{LAST}\])", path) and not re.fullmatch(MADE_AGAIN, path):
            yield pytest.param(path, value, id=path)


def forged(path, value):
    made = changed(GOOD, path, other(path, value))
    if ".witness[" in path:
        made["rounds"] = [{**one, **{kind: [dict(sample) for sample in one[kind]] for kind in ("samples", "control")}} for one in made["rounds"]]
        witnessed_again(made)
    try:
        return refigured(made)
    except (KeyError, TypeError, ValueError, ArithmeticError, IndexError):  # from some samples no figure follows
        return made


def codes(folder, manifest):
    try:
        return {reason.code for reason in verify(open_bundle(written(folder, manifest)))}
    except EvidenceError:
        return {"unreadable"}


@pytest.mark.parametrize(("path", "value"), list(leaves()))
def test_each_leaf_of_a_commands_bundle_is_refused_though_all_that_follows_from_it_was_made_again(tmp_path, path, value):
    found = codes(tmp_path / "run", forged(path, value))
    assert "digest" not in found
    assert bool(found) is not any(re.fullmatch(row, path) for row in NOBODY_KNOWS), found


def test_every_row_of_the_list_is_about_a_leaf_that_is_there():
    there = [path for path, _ in paths(GOOD)]
    for row in NOBODY_KNOWS:
        assert any(re.fullmatch(row, path) for path in there), row
