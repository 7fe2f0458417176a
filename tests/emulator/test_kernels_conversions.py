"""Machine code of conversions among all types, on two targets each."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.conversions import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_conversions_give_what_the_formats_say(case, target):
    case.on(target)
