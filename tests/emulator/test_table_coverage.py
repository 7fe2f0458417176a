"""Every vector and scalar instruction that the project's kernels are compiled to is in the table, or is one that the machine itself does."""

import re
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
from support.gpu_launch import compiled
from support.quant_launch import Case, multiplied

from lanewise.arch import TARGETS
from lanewise.emulator.matrix import shape
from lanewise.emulator.table import OPS
from lanewise.errors import EmulatorLimitError
from lanewise.kernels.gpu import act_quant, skinny
from lanewise.kernels.gpu.config import Config

ROWS = [TARGETS[name] for name in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")]
# What needs the wave's state and is no function of operands: lanes of other lanes, EXEC, the program counter, constants of 16 bits, waits.
_MACHINE = re.compile(
    r"s_(waitcnt|wait_|cbranch|branch|barrier|endpgm|nop$|clause|delay_alu|sendmsg|setprio|set_inst|sleep|load|buffer_load|movk_|addk_|mulk_|cmpk_|cmovk_"
    r"|\w+_saveexec|\w+_wrexec|getpc|setreg|getreg|version|code_end|trap)|v_(readlane|readfirstlane|writelane|permlane|accvgpr|mbcnt|swap|nop)"
)


def unknown(row, text):
    """Instructions of a kernel that neither the table nor the rule of the matrix units has."""
    names = set(re.findall(r"(?:^\s*|:: )([sv]_\w+)", text.split(".rodata")[0], re.MULTILINE))
    found = set()
    for name in names:
        base = re.sub(r"(_e32|_e64|_dpp|_sdwa)+$", "", name).replace("v_dual_", "v_")
        if base in OPS or _MACHINE.match(base):
            continue
        try:
            shape(base, row)
        except EmulatorLimitError:
            found.add(base)
    return found


def kernels(row):
    """A kernel of each family: activations with a norm, a quantized product with all that is fused, and a matrix product."""
    x, w = torch.empty(16, 1056, dtype=torch.bfloat16), torch.empty(1000, 1056, dtype=torch.bfloat16)
    norm = torch.empty(1056, dtype=torch.bfloat16)
    yield from compiled(row, lambda: act_quant.act_quant(x, "q8_0", norm=norm, arch=row))
    yield from multiplied(row, Case("Q4_K", 2, 1000, 2304, fused=True))
    yield from compiled(row, lambda: skinny.skinny(x, w, config=Config("matrix", 32, 64, 4), arch=row))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_table_has_what_the_kernels_of_a_target_compile_to(row):
    assert {code.name: names for code in kernels(row) if (names := unknown(row, code.text))} == {}


def test_an_instruction_that_is_nowhere_is_named():
    assert unknown(ROWS[5], "\tv_add_f32_e32 v0, v0, v0\n\tv_cubeid_f32 v0, v1, v2\n\tv_dual_mov_b32 v1, v2 :: v_dual_fmac_f32 v3, v4, v5\n") == {
        "v_cubeid_f32"
    }
