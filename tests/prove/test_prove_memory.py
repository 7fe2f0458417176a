"""Guarded memory: what is written around, between or into operands is found, and distances past 2^31 cost no memory on a CPU."""

import resource

import pytest
import torch

from lanewise.prove.memory import FAR, GUARD, Guarded

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_everything_is_poison_until_it_is_written(dtype):
    made = Guarded((2, 3), (5, 1), dtype, CPU)
    assert bool(made.tensor.isnan().all())
    assert made.overrun() == ""
    whole = made.tensor.as_strided((GUARD + 8 + GUARD,), (1,), 0)
    assert bool(whole.isnan().all())


@pytest.mark.parametrize(("at", "where"), [(0, "a guard band"), (GUARD - 1, "a guard band"), (GUARD + 3, "padding"), (GUARD + 8, "a guard band")])
def test_a_write_outside_is_found_and_named(at, where):
    made = Guarded((2, 3), (5, 1), torch.float16, CPU)
    made.tensor.fill_(0.5)
    made.seal()
    made.tensor.as_strided((1,), (1,), at).fill_(0)
    assert made.broken() == f"element {at} of the buffer was changed: it is in {where}".replace("in padding", "padding")


@pytest.mark.parametrize(("at", "side"), [(GUARD - 1, "before"), (GUARD + 6, "behind")])
def test_a_result_that_is_overrun_is_found(at, side):
    made = Guarded((2, 3), (3, 1), torch.bfloat16, CPU)
    made.tensor.as_strided((1,), (1,), at).fill_(0)
    assert side in made.overrun()


def test_rows_that_lie_far_apart_are_guarded_and_cost_nothing():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = Guarded((3, 40), (FAR, 1), torch.bfloat16, CPU)
    made.tensor.fill_(1)
    made.seal()
    assert made.broken() == ""
    made.tensor.as_strided((1,), (1,), made.tensor.storage_offset() + 2 * FAR + 40).fill_(0)
    assert "a guard band" in made.broken()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KB: a sixteenth of one row's distance


def test_an_operand_may_begin_at_any_element():
    made = Guarded((2, 3), (3, 1), torch.float16, CPU, offset=1)
    assert made.tensor.data_ptr() % 4 == 2
