"""Launches for GPUs that are not here: what a driver would have been given, and who gets it."""

import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from lanewise.arch import TARGETS
from lanewise.errors import DeviceError
from lanewise.isa.launches import taken, target
from lanewise.kernels.gpu.quant_gemm import dequantize
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_pack import QuantWeight


@triton.jit
def _scaled(x, y, factor, n, stride, nothing, size: tl.constexpr):
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(y + at * stride, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def _turned(x, y, size: tl.constexpr):
    row, column = tl.arange(0, size)[:, None], tl.arange(0, size)[None, :]
    tl.store(y + row * size + column, tl.trans(tl.load(x + row * size + column)))


def scale(n=1000, stride=1, offset=0, warps=2):
    x, y = torch.arange(n + 16.0)[offset:], torch.zeros(n + 16)
    _scaled[triton.cdiv(n, 256), 3](x, y, 2.5, n, stride, None, size=256, num_warps=warps)
    return x, y


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "sm_90"])
def test_a_launch_has_what_the_driver_would_get(name):
    row = TARGETS[name]
    with taken(row) as launches:
        x, y = scale()
    (one,) = launches
    assert (one.name, one.row, one.grid, one.shared, one.warps) == ("_scaled", row, (4, 3, 1), 0, 2)
    assert one.arguments["x"] is x
    assert one.arguments["y"] is y
    assert name in one.text
    assert one.binary[:4] == b"\x7fELF"
    assert not y.any()


def test_what_is_compiled_in_is_no_argument():
    with taken(TARGETS["gfx1100"]) as launches:
        scale(stride=1)
        scale(stride=7)
    assert [list(one.arguments) for one in launches] == [["x", "y", "factor", "n"], ["x", "y", "factor", "n", "stride"]]
    assert (launches[1].arguments["factor"], launches[1].arguments["stride"]) == (2.5, 7)


def test_what_is_known_of_the_arguments_decides_what_is_compiled():
    with taken(TARGETS["gfx1100"]) as launches:
        scale(n=1024)
        scale(n=1024, offset=1)
        scale(n=1001)
        scale(n=1024)
    texts = [one.text for one in launches]
    assert len(set(texts[:3])) == 3
    assert launches[3].compiled is launches[0].compiled


def test_each_launch_is_given_away_when_it_happens():
    def run(launch):
        launch.arguments["y"].copy_(launch.arguments["x"] * launch.arguments["factor"])

    with taken(TARGETS["gfx1100"], run):
        x, y = scale()
        assert torch.equal(y, x * 2.5)


def test_the_launchers_of_our_own_kernels_are_taken():
    w = QuantWeight("Q4_K", 40, 512, False, torch.zeros(3, 2, LAYOUTS["Q4_K"].record, dtype=torch.int32))
    with taken(TARGETS["gfx1201"]) as launches:
        dequantize(w, torch.bfloat16, arch=TARGETS["gfx1201"])
    assert [one.arguments["w"] is w.tiles for one in launches] == [True]


def test_outside_of_the_block_everything_is_as_before():
    before = JITFunction.run, triton.runtime.driver._active
    with pytest.raises(ZeroDivisionError), taken(TARGETS["gfx1100"]):
        raise ZeroDivisionError
    assert (JITFunction.run, triton.runtime.driver._active) == before


def test_more_shared_memory_than_the_target_has_is_refused_as_on_a_card():
    x = torch.zeros(64, 64)
    with taken(replace(TARGETS["gfx1100"], lds=1024)), pytest.raises(OutOfResources, match="shared memory"):
        _turned[(1,)](x, torch.zeros_like(x), size=64)


def test_what_is_no_gpu_and_what_is_interpreted_is_refused(monkeypatch):
    with pytest.raises(DeviceError, match="x86-64-v3 is no GPU"):
        target(TARGETS["x86-64-v3"])
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    with pytest.raises(DeviceError, match="TRITON_INTERPRET"), taken(TARGETS["gfx1100"]):
        pass
