"""The skinny kernels in Triton's interpreter, over the whole list of cases, and every way of cutting them over a small one.

Triton reads TRITON_INTERPRET when it is imported, so each part of the list is a process of its own.
"""

import json
import os
import subprocess
import sys

import pytest

from lanewise.prove.bodies import CONFIGS
from lanewise.prove.linear_cases import CASES, SMALL

PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_every_case_lies_within_its_bound_in_the_interpreter(part, tmp_path):
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "lanewise.prove", "--op", "linear", "--interpret", "--part", str(part), str(PARTS), "--json", str(path)]
    ran = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads(path.read_text())
    assert len(results) >= (sum(not case.heavy for case in CASES) + len(CONFIGS) * len(SMALL)) // PARTS
    assert sum("skinny" in result["through"] for result in results) > len(results) * 0.9


def test_without_the_interpreter_the_command_says_what_is_missing():
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run([sys.executable, "-m", "lanewise.prove", "--interpret"], env=env, capture_output=True, text=True)
    assert (ran.returncode, "TRITON_INTERPRET=1" in ran.stderr) == (2, True)
