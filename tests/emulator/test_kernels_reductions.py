"""Machine code of reductions, scans, norms, sorts and gathers, on two targets each."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.torture import ids, rotated
from support.torture.reductions import CASES

PAIRS = rotated(CASES)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_reductions_give_what_their_elements_say(case, target):
    case.on(target)
