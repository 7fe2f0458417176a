"""Machine code that puts registers into a lane's own memory; and what a kernel asks of a system that is not here."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
from support.torture import NARROW, WIDE, private, running

from lanewise.arch import TARGETS
from lanewise.errors import LanewiseError

# What reaches scratch: instructions for it, or buffer instructions and a descriptor.
SCRATCH, BUFFER = ("scratch_store_", "scratch_load_"), ("buffer_store_", "buffer_load_")


@pytest.mark.parametrize("target", [*NARROW, *WIDE])
def test_lanes_find_in_scratch_what_they_have_put_there(target):
    with running(TARGETS[target]) as ran:
        private.held(TARGETS[target], 1)
    code = ran[-1].code
    assert code.spills > 0
    assert code.scratch > 0
    wanted = BUFFER if code.descriptor.properties & 1 else SCRATCH
    assert all(any(one.mnemonic.startswith(name) for one in code.instructions) for name in wanted)


@pytest.mark.parametrize("target", ["gfx1030", "gfx1200", "gfx90a", "gfx942"])
@pytest.mark.parametrize("case", private.CASES[1:], ids=lambda case: case.name)
def test_scratch_is_each_lanes_own_in_every_wave_and_program(case, target):
    case.on(target)


@pytest.mark.parametrize("target", ["gfx1100", "gfx942"])
@pytest.mark.parametrize(
    ("kernel", "words"), [(private.printing, "prints or asserts"), (private.asserting, "functions beside it")], ids=["print", "assert"]
)
def test_what_asks_for_a_system_is_refused_with_words(kernel, words, target):
    with pytest.raises(LanewiseError, match=words), running(TARGETS[target]):
        kernel[(1,)](torch.ones(64), 64, num_warps=1, debug=True)
