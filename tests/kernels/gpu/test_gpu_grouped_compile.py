"""The kernel for rows of experts, compiled for every target without a GPU: its dots are all there, and w is read wide, in time, and into registers.

That it compiles says nothing about its numbers; those are proven in Triton's interpreter (`test_gpu_grouped_cases.py`).
"""

import functools
import os
import re
import sys
from dataclasses import dataclass

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
from support.gpu_launch import Code, compiled

from lanewise.arch import TARGETS
from lanewise.kernels.gpu.grouped import grouped
from lanewise.kernels.gpu.grouped_config import default
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_pack import QuantWeight

ROWS = [row for row in TARGETS.values() if row.is_gpu and row.triton]
# One row of each vendor, wave, matrix unit and dot also compiles what is put in order, and what waits; quant_gemv's tests have every format's tile.
FAMILIES = {(row.vendor, row.wave, row.matrix, row.dot4): row for row in ROWS}.values()
TOGETHER = 4  # tokens of a program of dots, where pairs are put in order
UNITS, WORDS = 8, 4  # of a tile, and of a unit that a lane has


@dataclass(frozen=True)
class Case:
    """128 experts w[768, 2048], 8 of them for a token; early: w and ids may be read before the kernel in front has ended."""

    format: str = "Q4_K"
    ordered: bool = False
    early: bool = True
    gated: bool = True


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield


@functools.cache
def built(row, case) -> Code:
    n, k = 768, 2048
    tiles = torch.empty(128, n // (8 if case.gated else 16), k // 256, LAYOUTS[case.format].record, dtype=torch.int32)
    w, ids, x = QuantWeight(case.format, n, k, case.gated, tiles), torch.zeros(16, 8, dtype=torch.int32), torch.empty(16, k, dtype=torch.bfloat16)
    config = default(row, ids.numel(), w.experts, k).cut
    weights = None if case.gated else torch.empty(16, 8)
    call = functools.partial(grouped, out=torch.bfloat16, constant_w=case.early, ids_ready=case.early, ordered=case.ordered, config=config, arch=row)
    return compiled(row, lambda: call(x, w, ids, weights))[-1]


def cases(row) -> list[Case]:
    return [Case(), Case(ordered=True, gated=False), Case("Q8_0", early=False), Case("Q6_K", gated=False)][: 4 if row in FAMILIES else 1]


def held(row) -> int:
    """Tiles that a warp has: there are four warps for eight blocks, or eight."""
    return 2 if row.mma16 else 1


def alone(row, case) -> bool:
    """Whether a kernel takes one row of x, whose groups are the matrix unit's columns, and quantizes it itself."""
    return row.mma16 and not case.ordered and not LAYOUTS[case.format].scale.startswith("half")


def dots(row, case) -> int:
    """Of a warp's tiles: in every unit a lane has four words, which of all lanes one mma takes, or two where a scale is that of 16 columns."""
    if alone(row, case):
        return held(row) * UNITS
    if row.mma16:
        return held(row) * UNITS * (32 // LAYOUTS[case.format].group)
    return held(row) * UNITS * WORDS * (TOGETHER if case.ordered else 1) if row.dot4 else 0


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_product_is_a_dot_of_the_target_and_nothing_spills(row):
    name = (
        r"mma\.sync\.aligned\.m16n8k(?:32|16)\.row\.col\.s32\.s8\.s8" if row.mma16 else r"dp4a\.s32\.s32" if row.vendor == "nvidia" else str(row.dot4)
    )
    for case in cases(row):
        code = built(row, case)
        spilled = code.spilled()
        if row.vendor == "nvidia" and spilled == {"stack": 8}:  # one word around a call: what a division does with the rarest of numbers
            spilled = {}
        assert (len(re.findall(rf"\b{name}\b", code.text)), spilled) == (dots(row, case), {}), case


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_words_of_w_are_loaded_sixteen_bytes_at_a_time(row):
    for case in cases(row):
        layout = LAYOUTS[case.format]
        if alone(row, case):
            wide = len(re.findall(r"ld\.global\.L1::no_allocate\.v4\.b32", built(row, case).text))
            assert wide == held(row) * (layout.quants + layout.high), case
            continue
        # dots read minima byte by byte
        assert sum(built(row, case).loads()) >= held(row) * (layout.quants + layout.high + layout.scales - (layout.scale == "bytes+min")), case


@pytest.mark.parametrize("row", [row for row in ROWS if row.vendor == "nvidia"], ids=str)
def test_w_and_ids_that_are_ready_are_read_before_the_kernel_in_front_has_ended_and_nothing_else(row):
    for case in cases(row):
        code, layout = built(row, case), LAYOUTS[case.format]
        assert (code.late, code.count(r"griddepcontrol\.wait")) == (row.pdl, int(row.pdl)), case
        if row.pdl:
            before = re.findall(r"\bld\.global", code.text.partition("griddepcontrol.wait")[0])
            of_tile = layout.quants + layout.high + layout.scales + bool(layout.tail)
            if alone(row, case):
                of_tile += layout.scales  # a word for either row
            assert len(before) == (1 + held(row) * of_tile if case.early and not case.ordered else 0), case
