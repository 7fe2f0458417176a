"""Machine code of kernels that compute one element a lane: every type, on two targets each."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.arithmetic import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_kernels_of_one_element_a_lane_give_what_arithmetic_says(case, target):
    case.on(target)
