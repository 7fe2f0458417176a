"""Wrong kernels of the catalogue: each is one change of the source as it stands, and the proof notices; what it does not notice is said."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import lanewise
from lanewise.prove.mutants.catalogue import MUTANTS
from lanewise.prove.mutants.mutant import KINDS

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from lanewise.prove.mutants.__main__ import main
from lanewise.prove.mutants.run import fates, matrix

HERE = Path(lanewise.__file__).parent
ONE = next(mutant for mutant in MUTANTS if mutant.name == "a sum has no scale")


def test_every_mutant_changes_the_source_as_it_stands():
    for mutant in MUTANTS:
        text = (HERE / f"{mutant.module.replace('.', '/')}.py").read_text()
        assert mutant.changed(text) != text
        compile(mutant.changed(text), mutant.name, "exec")


def test_names_are_unique_and_kinds_are_known():
    assert len({(mutant.kernel, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.kind for mutant in MUTANTS} <= set(KINDS)


def test_a_mutant_that_the_source_has_left_behind_is_broken_and_not_dead():
    (fate,) = fates([replace(ONE, old="nothing of the kind")], ["gfx1100"])
    assert "has the text 0 times and not 1" in fate.broken
    assert not fate.dead


def test_what_is_wrong_is_killed_and_what_is_right_survives():
    same = replace(ONE, name="the same in other words", new=ONE.old.replace("0.0, scale", "0.0,  scale"))
    worse = replace(ONE, name="no kernel at all", new="tl.nothing(scale)")
    killed, alive, broken = fates([ONE, same, worse], ["gfx1100"])
    assert killed.dead
    assert "words of sums differ" in killed.killed["gfx1100"]
    assert (alive.killed, alive.survived, alive.broken, alive.dead) == ({}, ("gfx1100",), "", False)
    assert broken.broken.startswith("CompilationError")
    rows = list(matrix([killed, alive, broken], ["gfx1100", "gfx942"]))
    assert [row[3:] for row in rows] == [("killed", "-"), ("SURVIVED", "-"), ("-", "-")]


def test_one_that_survives_is_said_and_ends_with_1(monkeypatch):
    same = replace(ONE, new=ONE.old.replace("0.0, scale", "0.0,  scale"))
    monkeypatch.setattr("lanewise.prove.mutants.__main__.MUTANTS", (same,))
    done = CliRunner().invoke(main, ["--target", "gfx1100"])
    assert done.exit_code == 1
    assert "ALIVE  act_quant: numbers: a sum has no scale (survived gfx1100)" in done.output
    assert "mutants: 1 of 1 kernels, 0 killed, 1 alive" in done.output
    assert CliRunner().invoke(main, ["--kernel", "nobody's"]).exit_code == 2
