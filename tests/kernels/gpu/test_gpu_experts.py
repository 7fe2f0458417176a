"""Dispatch of grouped_linear on torch tensors: every guard refuses in words, a switch takes the kernel out, and a launch has room for many pairs."""

import sys

import pytest
import torch

from lanewise import arch, dispatch
from lanewise.contract import Problem
from lanewise.kernels.gpu import experts  # noqa: F401  (fills the registry)
from lanewise.kernels.gpu.grouped_config import default
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_pack import QuantWeight


def refusal(target="gfx1100", kernel="grouped_quant", **more):
    given = {"m": 8, "n": 64, "k": 256, "dtype": "bf16", "format": "Q4_K", "torch": True, **more}
    verdicts = dispatch.explain(Problem("grouped_linear", arch.of_gpu(target), **given))
    return next(str(v.refusal) if v.refusal else None for v in verdicts if v.kernel.name == kernel)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "cpu"}, "(gpu): cpu is no GPU of AMD or NVIDIA; the kernel is written for theirs"),
        ({"target": "gfx906"}, "(triton): Triton does not compile for gfx906, as far as is known"),
        ({"format": None}, "(format): the problem names no format of the weights"),
        ({"format": "F16"}, f"(format): F16 is no block format, and linear multiplies it; the kernel takes {', '.join(LAYOUTS)}"),
        ({"k": 288}, "(blocks): k=288 is not a whole number of blocks of 256 weights, as Q4_K has them"),
        ({"fused": ("norm", "gated", "residual")}, "(fused): norm, residual would be fused; grouped_linear has gated weights and the router's"),
        ({"k": 0}, "(reduction): k=0; the kernel adds up at least one block"),
        ({"out": "f16"}, "(out): y is f16; the kernel stores bf16 or f32"),
        ({"m": 2**24}, "(extent): m=16777216, n=64, k=256; the kernel takes m below 16777216, n up to 524280 and k up to 8388608"),
        ({"n": 524281}, "(extent): m=8, n=524281, k=256; the kernel takes m below 16777216, n up to 524280 and k up to 8388608"),
        ({"grad": True}, "(gradient): a gradient is wanted; the kernel has no backward"),
        ({"x_inner": 2}, "(x_inner): neighbours in a row of x lie 2 elements apart; the kernel needs 1"),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_guard_refuses_in_words(change, words):
    assert refusal(**change) == f"grouped_quant refuses {words}"


def test_what_the_kernel_is_for_it_accepts_on_every_target_that_triton_has():
    for row in arch.TARGETS.values():
        if row.is_gpu and row.triton:
            for change in ({}, {"m": 0}, {"m": 70000 * 8}, {"format": "Q8_0", "k": 288, "out": "f32"}, {"dtype": "f32"}, {"fused": ("gated",)}):
                assert refusal(row.name, **change) is None


def test_the_switch_of_the_kernels_on_packed_weights_takes_it_out(monkeypatch):
    monkeypatch.setenv("LANEWISE_QUANT_GEMV", "0")
    assert refusal() == "grouped_quant refuses (switch): LANEWISE_QUANT_GEMV has switched it off"
    assert refusal(kernel="grouped_blas") is None


def test_numpy_arrays_are_left_to_the_reference():
    problem = Problem("grouped_linear", arch.TARGETS["x86-64"], 8, 64, 256)
    assert dispatch.select(problem).kernel.name == "reference_grouped_linear"
    assert refusal("cpu", "grouped_blas", torch=False) == "grouped_blas refuses (torch): operands are numpy arrays; this kernel takes torch tensors"


@pytest.mark.parametrize(
    ("pairs", "count", "ordered"), [(1, 1, False), (8, 128, False), (32, 8, False), (33, 8, True), (256, 128, False), (257, 128, True)]
)
def test_pairs_are_put_in_order_where_experts_would_be_read_several_times(pairs, count, ordered):
    assert default(arch.TARGETS["gfx1100"], pairs, count, 2048).ordered is ordered


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is only built for Linux")
@pytest.mark.parametrize("ordered", [False, True])
def test_pairs_lie_along_the_side_of_the_grid_that_holds_more_than_65535(ordered, monkeypatch):
    from lanewise.kernels.gpu import grouped

    grids = []

    class Noted:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args, **named: None

    row, tokens, top = arch.TARGETS["gfx1100"], 9000, 8
    monkeypatch.setattr(grouped, "_grouped", Noted())
    monkeypatch.setattr(grouped, "act_quant", lambda x, kind, *, arch, rows=None: grouped.Activations(kind, tokens, 256, x, x, x))
    w = QuantWeight("Q4_K", 48, 256, False, torch.zeros(128, 3, 1, LAYOUTS["Q4_K"].record, dtype=torch.int32))
    ids = torch.arange(tokens * top, dtype=torch.int32).reshape(tokens, top) % 128
    config = default(row, tokens * top, 128, 256).cut
    grouped.grouped(torch.zeros(tokens, 256), w, ids, out=torch.float32, constant_w=False, ids_ready=False, ordered=ordered, config=config, arch=row)
    # 563 pairs of some experts and 562 of others are 71 octets each; a place is kept for what ids that are no expert's would take
    assert grids == [((tokens * top + 7 * 129) // 8 * (8 // config.tokens) if ordered else tokens * top, 3)]
