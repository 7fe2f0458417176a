"""Machine code of atomics, on two targets each."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.atomics import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_atomics_change_memory_as_their_order_says(case, target):
    case.on(target)
