"""Rows of experts on a GPU, in Triton's interpreter: the bits that one expert alone gives, and none of the mutants passes for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support import grouped


def found(what: str) -> dict[str, str]:
    """What `python -m support.grouped` says; a process of its own, as Triton reads the setting when it is imported."""
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join((here, *filter(None, [os.environ.get("PYTHONPATH")])))
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-m", "support.grouped", what], env=env, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_every_row_has_the_bits_of_its_expert_alone_behind_the_unfused_chain():
    results = found("kernel")
    assert set(results) == {str(case) for case in grouped.cases()} | {"rows"}
    assert {case: text for case, text in results.items() if text} == {}


def test_every_kernel_that_is_wrong_in_one_way_is_noticed():
    results = found("mutants")
    assert set(results) == set(grouped.MUTANTS)
    assert [name for name, text in results.items() if not text] == []
