"""What a launch moved: bytes, sectors and banks, against numbers counted by hand."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest

from lanewise.arch import parse
from lanewise.emulator.measure import Counter
from lanewise.emulator.tensors import running
from lanewise.emulator.trace import Trace

torch = pytest.importorskip("torch")
ONE = SimpleNamespace(index=7, source=None)


def counted(index, width, mask=None, *, shift=0, buffer="x"):
    counter = Counter()
    where = None if buffer is None else SimpleNamespace(name=buffer, bytes=SimpleNamespace(shift=shift))
    counter.access("kernel", ONE, where, np.asarray(index, np.int64), width, mask, False)
    (found,) = counter.accesses.values()
    return found


def test_lanes_side_by_side_fetch_what_they_use():
    found = counted(4 * np.arange(32)[None], 4)
    assert (found.used, found.distinct, found.fetched, found.coalescing) == (128, 128, 128, 1.0)


def test_a_stride_fetches_a_sector_for_every_lane():
    found = counted(64 * np.arange(32)[None], 4)
    assert (found.used, found.fetched, found.coalescing) == (128, 32 * 64, 1 / 16)


def test_an_access_across_two_sectors_fetches_both():
    found = counted([[56]], 16)
    assert found.fetched == 128
    assert counted([[56]], 16, shift=8).fetched == 64  # the buffer begins eight bytes behind a sector


def test_what_all_lanes_read_is_fetched_once_and_lanes_that_are_off_read_nothing():
    found = counted(np.zeros((1, 32)), 4)
    assert (found.used, found.distinct, found.fetched) == (128, 4, 64)
    half = counted(4 * np.arange(32)[None], 4, np.arange(32)[None] < 16)
    assert (half.waves, half.used, half.fetched) == (1, 64, 64)
    assert counted(4 * np.arange(32)[None], 4, np.zeros((1, 32), bool)).waves == 0


@pytest.mark.parametrize(("stride", "turns"), [(4, 1), (8, 2), (16, 4), (128, 32), (132, 1), (0, 1)])
def test_banks_that_several_lanes_want_take_a_turn_for_each_word(stride, turns):
    found = counted(stride * np.arange(32)[None], 4, buffer=None)
    assert (found.turns, found.best, found.fetched) == (turns, 1, 0)


def test_sixteen_bytes_a_lane_are_served_eight_lanes_at_a_time():
    found = counted(16 * np.arange(32)[None], 16, buffer=None)
    assert (found.turns, found.best) == (4, 4)
    assert counted(128 * np.arange(32)[None], 16, buffer=None).turns == 32


def test_a_kernel_is_measured_and_traced_as_it_runs():
    from lanewise.kernels.gpu.skinny import skinny
    from lanewise.kernels.gpu.table import choose

    row, (m, n, k) = parse("gfx1100"), (1, 64, 512)
    x, w = torch.ones(m, k, dtype=torch.float16), torch.ones(n, k, dtype=torch.float16)
    counter, file = Counter(), io.StringIO()
    with running(row, measure=counter, watch=Trace(file)) as ran:
        y = skinny(x, w, config=choose(row, "f16", m, n, k, None).config, arch=row)
    assert torch.equal(y, torch.full((1, n), 512.0, dtype=torch.float16))
    of = {(one.buffer, one.stores): one for one in counter.accesses.values()}
    loads = [one for one in counter.accesses.values() if one.buffer == "w" and not one.stores]
    assert sum(one.distinct for one in loads) == sum(one.fetched for one in loads) == 2 * n * k
    assert of["y", True].used == 2 * n
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["n"] for line in lines] == list(range(len(lines)))
    stores = [line for line in lines if "store" in line["text"] and not line["text"].startswith("ds_")]
    assert stores
    assert all(line["source"].partition(":")[0].endswith(".py") for line in stores)
    moved = next(line for line in lines if line["text"].startswith("v_and_b32"))
    assert len(next(iter(moved["writes"].values())).split()) == 32
    assert sum(line["waves"] for line in lines) < ran[0].instructions  # waits and branches are no lines
