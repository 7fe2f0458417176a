"""Machine code of conversions among all types, on two targets each."""

import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.conversions import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_conversions_give_what_the_formats_say(case, target):
    case.on(target)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_floats_of_8_bits_where_the_target_has_instructions_of_its_own_for_them(target):
    """In a process of its own: see `Case.first`."""
    text = f"from support.torture import alone, conversions, dots; alone(conversions.CASES + dots.CASES, {target!r}); print('done')"
    found = subprocess.run([sys.executable, "-c", text], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "done", found.stderr[-2000:]
