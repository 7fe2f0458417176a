"""The gate on machine code, asked about one case of each kernel on one target of each kind; all of them: `lanewise isa --gate`."""

import sys

import pytest

from lanewise.isa import catalogue, gate


def kind(row):
    """What kernels and their machine code depend on: dots, wave, matrix unit, waits; of those that the compiler refuses there is one kind."""
    if not row.triton:
        return ("refused",)
    if row.vendor == "nvidia":
        return row.mma16, row.pdl
    return row.dot4, row.dot2_f16, row.wave, row.matrix, row.dot_wait


# One row of each kind, the first in the table. Triton is only built for Linux.
EVERY = {kind(row): row for row in reversed(catalogue.ROWS)}
KINDS = [*EVERY.values()] if sys.platform == "linux" else []


@pytest.mark.parametrize("row", KINDS, ids=str)
def test_every_kernel_is_what_was_declared_or_refused_by_dispatch_too(row):
    for verdict in gate.judge_all(catalogue.few(), [row]):
        assert (verdict.state, verdict.misses) == ("ok" if row.triton else "refused", ()), verdict.case
        assert row.triton or row.name in verdict.reason


def test_one_target_of_each_kind_is_asked_about_every_kernel():
    known = {name for names in catalogue.registered().values() for name in names}
    assert {case.kernel for case in catalogue.few()} == known
    assert {kind(row) for row in catalogue.ROWS} == set(EVERY)
    assert sys.platform != "linux" or [*EVERY.values()] == KINDS
