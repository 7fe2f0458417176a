"""The gate on machine code, asked about one case of each kernel on one target of each kind; all of them: `lanewise isa --gate`."""

import sys

import pytest

from lanewise.arch import TARGETS
from lanewise.isa import catalogue, gate

# One row of each kind of dot, wave, matrix unit and wait, those that the compiler refuses, and two of NVIDIA. Triton is only built for Linux.
KINDS = (
    [
        *{(row.dot4, row.dot2_f16, row.wave, row.matrix, row.dot_wait, row.triton): row for row in catalogue.ROWS if row.vendor == "amd"}.values(),
        TARGETS["sm_80"],
        TARGETS["sm_90"],
    ]
    if sys.platform == "linux"
    else []
)


@pytest.mark.parametrize("row", KINDS, ids=str)
def test_every_kernel_is_what_was_declared_or_refused_by_dispatch_too(row):
    for verdict in gate.judge_all(catalogue.few(), [row]):
        assert (verdict.state, verdict.misses) == ("ok" if row.triton else "refused", ()), verdict.case
        assert row.triton or row.name in verdict.reason
