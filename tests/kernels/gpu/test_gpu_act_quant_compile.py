"""The quantization of activations, compiled for every target without a GPU: what its bits and its speed rely on stands in the machine code.

That it compiles says nothing about its numbers; those are proven in Triton's interpreter (`test_gpu_act_quant_cases.py`).
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
from support.act_quant import changed
from support.gpu_launch import Code, compiled

from lanewise.arch import TARGETS
from lanewise.kernels.gpu import act_quant

ROWS = [row for row in TARGETS.values() if row.is_gpu and row.triton]
# A division is two v_div_scale, v_rcp, five multiply-adds, v_div_fmas and v_div_fixup: what LLVM makes of a correctly rounded one on AMD.
DIVISION_FMAS = 5


@dataclass(frozen=True)
class Case:
    """x[m,k]; each: blocks that a lane has a part of, and with it eight elements of each."""

    kind: str
    m: int
    k: int
    dtype: torch.dtype
    each: int
    norm: bool = False

    @property
    def divisions(self) -> int:
        return 2 * self.each + self.norm


ONE = Case("q8_0", 1, 14336, torch.bfloat16, 1)
MANY = Case("q8_k", 512, 4096, torch.float16, 2)
NORM = Case("q8_0", 3, 4128, torch.bfloat16, 2, norm=True)
# One row of each vendor, wave and matrix unit also compiles the larger program.
FAMILIES = {(row.vendor, row.wave, row.matrix): row for row in ROWS}.values()


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield


def made(row, case, module=act_quant) -> Code:
    new = functools.partial(torch.empty, dtype=case.dtype)
    (code,) = compiled(row, lambda: module.act_quant(new(case.m, case.k), case.kind, norm=new(case.k) if case.norm else None, arch=row))
    return code


built = functools.cache(made)


@functools.cache
def machine(row, case) -> str:
    """NVIDIA's machine code, empty where it cannot be read."""
    return built(row, case).machine() if row.vendor == "nvidia" else ""


def cases(row) -> tuple[Case, ...]:
    return (ONE, NORM, MANY) if row in FAMILIES else (ONE, NORM)


def inexact(case: Case, code: Code, machine: str) -> str:
    """What would give other bits than the definition's: a division that is not correctly rounded, or a product fused with a sum."""
    if code.row.vendor == "amd":
        names = ("v_div_scale_f32", "v_rcp_f32", "v_div_fmas_f32", "v_div_fixup_f32")
        counts = [len(re.findall(name, code.text)) for name in names]
        fused = len(re.findall(r"\bv_(?:dual_|pk_)?(?:fma|mad|mac)[a-z]*_f(?:32|16)", code.text))
        wanted = [2 * case.divisions, case.divisions, case.divisions, case.divisions]
        extra = fused - DIVISION_FMAS * case.divisions
        return f"{counts} parts of divisions" if counts != wanted else f"{extra} fused products" if extra else ""
    divisions = re.findall(r"\b(?:div|rcp)\.[\w.]*f32", code.text)
    if divisions != ["div.rn.f32"] * case.divisions:
        return f"divisions {divisions}"
    # without .rn the assembler may fuse; that it did not is looked at where its code can be read
    fused = re.findall(r"\b(?:fma\.|(?:add|mul)\.f32)", code.text) + re.findall(r"\bFFMA2?\b[^;]*12582912", machine)
    return f"{len(fused)} products that are or may be fused" if fused else ""


def narrow(case: Case, code: Code) -> list[str]:
    """Loads and stores of codes that move less than what lies side by side: four elements of x, two words of q."""
    amd = code.row.vendor == "amd"
    loads = re.findall(r"^\s*(?:buffer|global)_load_\w+" if amd else r"\bld\.global[\w.:]*", code.text, re.MULTILINE)
    wide = ("_b64", "_dwordx2") if amd else (".v2.b32", ".b64")
    stores = re.findall(r"\b(?:buffer|global)_store_(?:b64|dwordx2)" if amd else r"\bst\.global\.(?:v2\.b32|b64)", code.text)
    return [load for load in loads if not load.endswith(wide)] + ["a store"] * (len(stores) < case.each)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_divisions_are_correctly_rounded_and_no_product_is_fused_with_a_sum(row):
    assert {case: text for case in cases(row) if (text := inexact(case, built(row, case), machine(row, case)))} == {}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_x_and_codes_move_as_wide_as_they_lie_and_nothing_by_way_of_memory(row):
    for case in cases(row):
        code = built(row, case)
        assert (narrow(case, code), code.spilled()) == ([], {}), case
        # a float of each warp, where the norm adds up what all of them have
        assert code.shared <= (act_quant._NORMED * act_quant._LANES // 2 // row.wave * 4 if case.norm else 0), case


@pytest.mark.parametrize("row", [row for row in ROWS if row.vendor == "nvidia"], ids=str)
def test_nothing_is_read_before_the_kernel_in_front_has_ended(row):
    for case in cases(row):
        code = built(row, case)
        found = tuple(code.count(rf"griddepcontrol\.{what}") for what in ("launch_dependents", "wait"))
        assert (code.late, found) == (row.pdl, (1, 1) if row.pdl else (0, 0)), case
        for text, wait, access in ((code.text, "griddepcontrol.wait", r"\b(?:ld|st)\.global"), (machine(row, case), "ACQBULK", r"\b(?:LDG|STG)\.")):
            if row.pdl and text:
                before, there, behind = text.partition(wait)
                assert (re.findall(access, before), bool(there), bool(re.search(access, behind))) == ([], True, True), case


FUSABLE = ("tl.minimum(value * tl.div_rn(127.0, amax), 127.0)", "value * tl.div_rn(127.0, amax)")
FUSING = ("enable_fp_fusion=False", "enable_fp_fusion=True")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        *((name, (FUSABLE, FUSING)) for name in ("gfx1100", "gfx942", "sm_90", "sm_120")),
        ("sm_120", (FUSABLE,)),
        ("sm_90", (("tl.div_rn(127.0, amax)", "(127.0 / amax)"),)),
        *((name, (("tl.div_rn(amax, 127.0)", "(amax * (1 / 127))"),)) for name in ("gfx1100", "sm_90")),
    ],
)
def test_a_fused_product_and_another_division_are_noticed(name, texts, tmp_path):
    code = made(TARGETS[name], ONE, changed(tmp_path, *texts))
    assert inexact(ONE, code, machine="" if code.row.vendor == "amd" else code.machine())


@pytest.mark.parametrize("name", ["gfx1100", "sm_90"])
def test_what_moves_through_shared_memory_and_narrow_loads_are_noticed(name, tmp_path):
    several = Case("q8_0", 512, 4096, torch.float16, 2)
    assert made(TARGETS[name], several).shared == 0
    assert made(TARGETS[name], several, changed(tmp_path, ("(u >> 1) * 16 + r * 2 + (u & 1)", "u // 2 * 16 + r * 2 + u % 2"))).shared
    assert narrow(ONE, made(TARGETS[name], ONE, changed(tmp_path, ("tl.load(at + columns)", "tl.load(at + columns, mask=columns < k - 1)"))))


def test_what_is_read_without_a_wait_is_noticed(tmp_path):
    code = made(
        TARGETS["sm_90"], ONE, changed(tmp_path, ("        gdc_launch_dependents()\n        gdc_wait()\n", "        gdc_launch_dependents()\n"))
    )
    assert code.count(r"griddepcontrol\.wait") == 0
