"""Machine code of loads, stores and what moves elements between lanes, on two targets each."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.shapes import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_elements_arrive_where_they_are_meant(case, target):
    case.on(target)
