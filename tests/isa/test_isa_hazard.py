"""Results of dots that are touched too early, in code that is written out here."""

from types import SimpleNamespace

import pytest

from lanewise.arch import TARGETS
from lanewise.isa.assembly import parse
from lanewise.isa.hazard import hazards, registers, unwaited

DOT = "v_dot4_i32_i8 v1, v2, v3, 0"


def code(*lines, row="gfx90a", inline=False):
    before, after = (["\t;;#ASMSTART"], ["\t;;#ASMEND"]) if inline else ([], [])
    assembly = parse(
        "\n".join(["f:", *before, *(f"\t{line}" if ":" not in line[-1] else line for line in lines), *after, "\ts_endpgm", ".amdhsa_kernel f"])
    )
    return SimpleNamespace(row=TARGETS[row], instructions=assembly.instructions, labels=assembly.labels)


FILL = ["v_mov_b32_e32 v9, 0", "s_mov_b32 s1, 0", "v_mov_b32_e32 v8, 0"]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([DOT, "v_add_u32_e32 v4, v1, v5"], 1),
        ([DOT, "v_mov_b32_e32 v1, 0"], 1),
        ([DOT, "global_store_dword v0, v1, s[0:1]"], 1),
        ([DOT, "v_pk_add_f32 v[4:5], v[0:1], v[6:7]"], 1),
        ([DOT, "s_nop 1", "v_add_u32_e32 v4, v1, v5"], 1),
        ([DOT, "s_nop 2", "v_add_u32_e32 v4, v1, v5"], 0),
        ([DOT, *FILL, "v_add_u32_e32 v4, v1, v5"], 0),
        ([DOT, *FILL[1:], "v_add_u32_e32 v4, v1, v5"], 1),
        ([DOT, "v_dot4_i32_i8 v1, v4, v5, v1"], 0),
        ([DOT, "v_dot4_i32_i8 v6, v1, v5, v7"], 1),
        ([DOT, "v_dot2_f32_f16 v6, v4, v5, v1"], 1),
        ([DOT, "v_add_u32_e32 v4, v6, v5"], 0),
        ([DOT, "s_cbranch_scc1 .LBB0_1", *FILL, ".LBB0_1:", "v_add_u32_e32 v4, v1, v5"], 1),
        ([DOT, "s_branch .LBB0_1", "v_add_u32_e32 v4, v1, v5", ".LBB0_1:", *FILL, "v_add_u32_e32 v4, v1, v5"], 0),
        ([".LBB0_1:", "v_add_u32_e32 v4, v1, v5", DOT, "s_cbranch_scc1 .LBB0_1"], 1),
    ],
)
def test_a_result_is_touched_too_early_or_not(lines, count):
    assert len(hazards(code(*lines))) == count
    assert hazards(code(*lines, row="gfx1100")) == []


def test_a_hazard_says_where_who_and_how_long():
    (words,) = hazards(code(DOT, "s_nop 0", "v_add_u32_e32 v4, v1, v5"))
    assert words == f"'{DOT}' at -0x1 has 1 of 3 wait states before 'v_add_u32_e32 v4, v1, v5' at -0x1"


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([DOT], 1),
        ([DOT, "s_nop 1"], 1),
        ([DOT, "s_nop 2"], 0),
        ([DOT, "s_nop 2", "v_perm_b32 v4, v5, v6, v7"], 0),
        (["s_nop 2", DOT, "v_perm_b32 v4, v5, v6, v7"], 1),
        (["v_mov_b32 v1, v2"], 0),
    ],
)
def test_dots_of_inline_assembly_end_in_their_own_wait(lines, count):
    assert len(unwaited(code(*lines, inline=True))) == count
    assert unwaited(code(*lines)) == []
    assert unwaited(code(*lines, inline=True, row="gfx1201")) == []


def test_registers_of_operands():
    assert registers("v[4:6]") == {4, 5, 6}
    assert registers("-|v7|") == {7}
    assert registers("vcc_lo") == registers("s4") == registers("0x3f80") == frozenset()
