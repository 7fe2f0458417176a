"""Every rule of every gate finds the violations that are planted for it, in a copy of the repository."""

import importlib

import pytest
from planted import PLANTS
from support.repo import asked, changed


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_planted_violation_is_found(plant):
    (rule,) = (r for r in importlib.import_module(f"lanewise.gates.{plant.gate}").RULES if r.name == plant.rule)
    with changed(plant.edits) as repo:
        found = asked(rule, repo)
    assert [f.words for f in found if f.state == "FAIL" and plant.words in f.words], [str(f) for f in found]
