"""Single instructions where a kernel does not reach: lanes that are off, halves, constants, carries, and what has to be refused."""

import numpy as np
import pytest
from support.single import ran, scalar, vector, waves

from lanewise.emulator.fault import FaultError
from lanewise.emulator.registers import M0, VCC
from lanewise.errors import EmulatorLimitError

OLD = 0xDEAD0000  # what a register holds that no test has filled, plus its number
LANES = np.arange(32)
WIDE = np.arange(64)
EVEN, EVEN64 = LANES % 2 == 0, WIDE % 2 == 0


def where(active, new, old):
    return np.where(active, new, old).tolist()


# Sources from other lanes


def test_lanes_that_dpp_finds_no_source_for_keep_the_result_without_bound_ctrl_and_take_zero_with_it():
    shifted = LANES - 4
    there = LANES % 16 >= 4
    w = ran("v_mov_b32_dpp v1, v0 row_shr:4 row_mask:0xf bank_mask:0xf", "gfx1100", v={0: LANES + 100})
    assert vector(w, 1) == where(there, shifted + 100, OLD + 1)
    w = ran("v_add_u32_dpp v1, v0, v2 row_shr:4 row_mask:0xf bank_mask:0xf bound_ctrl:1", "gfx90a", v={0: WIDE + 100, 2: 1000})
    assert vector(w, 1) == where(WIDE % 16 >= 4, WIDE - 4 + 100 + 1000, 1000)


def test_a_source_lane_that_is_off_is_no_source_unless_fi_says_so():
    for ending, want in (
        ("", where(EVEN, OLD + 1, OLD + 1)),
        (" bound_ctrl:1", where(EVEN, 0, OLD + 1)),
        (" fi:1", where(EVEN, (LANES ^ 1) + 100, OLD + 1)),
    ):
        w = ran(f"v_mov_b32_dpp v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf{ending}", "gfx1100", v={0: LANES + 100}, active=EVEN)
        assert vector(w, 1) == want


def test_masks_of_rows_and_banks_leave_what_they_exclude():
    w = ran("v_mov_b32_dpp v1, v0 row_ror:1 row_mask:0xd bank_mask:0x3", "gfx942", v={0: WIDE})
    written = ((WIDE // 16) != 1) & (WIDE % 16 < 8)
    assert vector(w, 1) == where(written, WIDE // 16 * 16 + (WIDE - 1) % 16, OLD + 1)


def test_a_result_in_the_register_of_the_source_reads_every_lane_first():
    w = ran("v_add_u32_dpp v1, v1, v1 row_shr:4 row_mask:0xf bank_mask:0xf", "gfx942", v={1: WIDE})
    assert vector(w, 1) == where(WIDE % 16 >= 4, WIDE + WIDE - 4, WIDE)


def test_broadcasts_read_the_row_in_front():
    w = ran("v_mov_b32_dpp v1, v0 row_bcast:15 row_mask:0xa bank_mask:0xf", "gfx942", v={0: WIDE})
    assert vector(w, 1) == where(WIDE // 16 % 2 == 1, WIDE // 16 * 16 - 1, OLD + 1)
    w = ran("v_mov_b32_dpp v1, v0 row_bcast:31 row_mask:0xc bank_mask:0xf", "gfx942", v={0: WIDE})
    assert vector(w, 1) == where(WIDE >= 32, 31, OLD + 1)


def test_dpp_of_packed_and_mixed_sources_moves_their_lanes_too():
    halves = LANES.astype(np.float16).view(np.uint16).astype(np.int64)
    w = ran("v_fma_mix_f32_e64_dpp v1, v0, v2, v3 op_sel_hi:[1,0,0] row_ror:1 row_mask:0xf bank_mask:0xf", "gfx1100",
            v={0: halves, 2: np.float32(2), 3: np.float32(1)})  # fmt: skip
    assert vector(w, 1, np.float32) == (2.0 * (LANES // 16 * 16 + (LANES - 1) % 16) + 1).tolist()
    w = ran("v_dot2_f32_f16_e64_dpp v1, v0, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "gfx1100",
            v={0: halves | halves << 16, 2: 0x3C003C00, 3: np.float32(0)})  # fmt: skip
    assert vector(w, 1, np.float32) == (2.0 * (LANES ^ 1)).tolist()


def test_comparisons_by_dpp_into_exec_leave_exec_changed():
    w = ran("v_cmpx_gt_u32_e64_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "gfx1100", v={0: LANES, 1: 16})
    assert w.exec[0].tolist() == ((LANES ^ 1) > 16).tolist()
    assert not w.full


def test_dpp8_and_row_xmask_and_row_share():
    assert vector(ran("v_mov_b32_dpp v1, v0 dpp8:[7,6,5,4,3,2,1,0]", "gfx1100", v={0: LANES}), 1) == (LANES ^ 7).tolist()
    w = ran("v_mov_b32_dpp v1, v0 row_xmask:5 row_mask:0xf bank_mask:0xf", "gfx1200", v={0: LANES})
    assert vector(w, 1) == (LANES ^ 5).tolist()
    w = ran("v_mov_b32_dpp v1, v0 row_share:3 row_mask:0xf bank_mask:0xf", "gfx1030", v={0: LANES})
    assert vector(w, 1) == (LANES // 16 * 16 + 3).tolist()


def test_permlane_takes_a_lane_of_the_row_or_the_other_one():
    selects = {1: 0xFEDCBA98, 2: 0x76543210}  # halves of a row change places
    w = ran("v_permlane16_b32 v1, v0, s1, s2", "gfx1100", v={0: LANES}, s=selects)
    assert vector(w, 1) == (LANES ^ 8).tolist()
    w = ran("v_permlanex16_b32 v1, v0, s1, s2", "gfx1100", v={0: LANES}, s=selects, active=LANES < 16)
    assert vector(w, 1) == [OLD + 1] * 32  # the other row is off
    w = ran("v_permlanex16_b32 v1, v0, s1, s2 op_sel:[1,0]", "gfx1100", v={0: LANES}, s=selects, active=LANES < 16)
    assert vector(w, 1) == where(LANES < 16, LANES ^ 8 ^ 16, OLD + 1)


def test_permlane64_is_nothing_to_32_lanes():
    assert vector(ran("v_permlane64_b32 v1, v0", "gfx1100", v={0: LANES}), 1) == [OLD + 1] * 32


def test_rows_that_swap():
    w = ran("v_permlane32_swap_b32 v0, v1", "gfx950", v={0: WIDE, 1: WIDE + 100})
    assert vector(w, 0) == where(WIDE < 32, WIDE, WIDE - 32 + 100)
    assert vector(w, 1) == where(WIDE < 32, WIDE + 32, WIDE + 100)
    w = ran("v_permlane16_swap_b32 v0, v1", "gfx950", v={0: WIDE, 1: WIDE + 100})
    assert vector(w, 0) == where(WIDE // 16 % 2 == 0, WIDE, WIDE - 16 + 100)


def test_lanes_by_number():
    w = ran("v_readlane_b32 s3, v0, s2\nv_readlane_b32 s4, v0, 70\nv_readfirstlane_b32 s5, v0", "gfx942", v={0: WIDE * 3}, s={2: 9}, active=WIDE > 5)
    assert (scalar(w, 3), scalar(w, 4), scalar(w, 5)) == (27, 18, 18)
    w = ran("v_readfirstlane_b32 s5, v0\nv_writelane_b32 v1, s2, m0", "gfx1100", v={0: LANES + 7, 1: 0}, s={2: 9, M0: 33}, active=LANES < 0)
    assert scalar(w, 5) == 7
    assert vector(w, 1) == [0, 9, *[0] * 30]


def test_lanes_by_address_give_zero_where_the_source_is_off():
    w = ran("ds_bpermute_b32 v1, v2, v0 offset:4", "gfx942", v={0: WIDE + 1, 2: 4 * WIDE}, active=EVEN64 | (WIDE == 1))
    other = (WIDE + 1) % 64
    assert vector(w, 1) == where(EVEN64 | (WIDE == 1), np.where((other % 2 == 0) | (other == 1), other + 1, 0), OLD + 1)
    w = ran("ds_permute_b32 v1, v2, v0", "gfx942", v={0: WIDE + 1, 2: 4 * (63 - WIDE)})
    assert vector(w, 1) == (64 - WIDE).tolist()
    w = ran("ds_swizzle_b32 v1, v0 offset:swizzle(SWAP,16)", "gfx1100", v={0: LANES})
    assert vector(w, 1) == (LANES ^ 16).tolist()


def test_bits_below_a_lane():
    text = "v_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, -1, v1\nv_mbcnt_lo_u32_b32 v2, exec_lo, 5\nv_mbcnt_hi_u32_b32 v2, exec_hi, v2"
    w = ran(text, "gfx942", v={1: 0}, active=EVEN64)
    assert vector(w, 1)[::2] == WIDE[::2].tolist()
    assert vector(w, 2)[::2] == (5 + WIDE // 2)[::2].tolist()


# Parts of registers


def test_sdwa_reads_and_writes_parts():
    w = ran("v_add_u32_sdwa v1, v0, sext(v2) dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:BYTE_0", "gfx90a",
            v={0: 0x00AA0000, 1: 0x11112222, 2: 0xFE})  # fmt: skip
    assert vector(w, 1)[0] == 0x00A82222
    w = ran("v_mov_b32_sdwa v1, v0 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:WORD_1", "gfx90a", v={0: 0x12F00000, 1: 0x11112222})
    assert vector(w, 1)[0] == 0xFFFFF000
    w = ran("v_cvt_f32_f16_sdwa v1, -v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", "gfx90a", v={0: 0x40000000})
    assert vector(w, 1, np.float32)[0] == -2.0
    w = ran("v_add_f16_sdwa v1, v0, 1.0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:WORD_0", "gfx90a", v={0: 0x40000000})
    assert vector(w, 1)[0] == 0x4200  # a constant is of the operand's own type


def test_halves_that_op_sel_and_names_choose():
    w = ran("v_add_f16_e64 v1.h, v0.h, v2.l", "gfx1100", v={0: 0x3C000000, 1: 0x11112222, 2: 0x00004000})
    assert vector(w, 1)[0] == 0x42002222
    w = ran("v_mad_u16 v1, v0, v2, v3 op_sel:[1,0,0,1]", "gfx1030", v={0: 0x00050000, 1: 0x11112222, 2: 0x70003, 3: 0x90002})
    assert vector(w, 1)[0] == 0x00112222
    w = ran("v_pack_b32_f16 v1, v0, v2 op_sel:[1,0,0]", "gfx942", v={0: 0x12345678, 2: 0x9ABCDEF0})
    assert vector(w, 1)[0] == 0xDEF01234


def test_a_16_bit_result_clears_the_other_half_on_gfx9_and_keeps_it_later():
    text, registers = "{} v1, v0, v2", {0: 0x00000001, 1: 0x55550000, 2: 0x00000002}
    assert vector(ran(text.format("v_add_u16_e32"), "gfx90a", v=registers), 1)[0] == 0x00000003
    assert vector(ran(text.format("v_add_nc_u16"), "gfx1100", v=registers), 1)[0] == 0x55550003


def test_packed_halves_and_their_signs():
    ones = 0x3C004000  # 2 below, 1 above
    w = ran("v_pk_add_f16 v1, v0, v2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]", "gfx942", v={0: ones, 2: ones})
    assert vector(w, 1)[0] == int(np.array([1 - 2, -2 + 1], np.float16).view(np.uint32)[0])
    w = ran("v_pk_mul_lo_u16 v1, v0, 3 op_sel_hi:[1,0]", "gfx942", v={0: 0x00050007})
    assert vector(w, 1)[0] == 0x000F0015


def test_a_float_constant_beside_packed_integers_is_one_of_32_bits():
    """LLVM writes 1.0 for 0x3f800000 there: v_pk_add_u16 v0, v1, 1.0 and v0, v1, 0x3f800000 are the same bytes."""
    assert vector(ran("v_pk_add_u16 v1, v0, 1.0", "gfx1100", v={0: 0x00010001}), 1)[0] == 0x3F810001
    assert vector(ran("v_pk_add_f16 v1, v0, 1.0", "gfx1100", v={0: 0}), 1)[0] == 0x00003C00
    assert vector(ran("v_pk_add_f16 v1, v0, 1.0 op_sel_hi:[1,0]", "gfx1100", v={0: 0}), 1)[0] == 0x3C003C00


# Constants


def test_constants_are_as_wide_as_their_operands():
    w = ran("s_mov_b64 s[2:3], -1\ns_mov_b64 s[4:5], 0x80000000", "gfx942")
    assert [scalar(w, number) for number in (2, 3, 4, 5)] == [0xFFFFFFFF, 0xFFFFFFFF, 0x80000000, 0]
    w = ran("v_add_f64 v[2:3], v[0:1], 1.0\nv_add_f64 v[4:5], v[0:1], 0x40080000\nv_mul_f64 v[6:7], v[0:1], 0.15915494309189532", "gfx1100",
            v={0: 0, 1: 0x3FF00000})  # fmt: skip
    doubles = [np.array([vector(w, n)[0], vector(w, n + 1)[0]], np.uint32).view(np.float64)[0] for n in (2, 4, 6)]
    assert doubles == [2.0, 4.0, 0.15915494309189532]
    w = ran(
        "v_add_f16_e32 v1, 1.0, v0\nv_fma_f16 v2, v0, v0, 0.5\nv_add_f32_e32 v3, 0x3f800000, v4",
        "gfx1100",
        v={0: 0x3C00, 1: 0, 2: 0, 4: np.float32(2)},
    )
    assert (vector(w, 1)[0], vector(w, 2)[0], vector(w, 3, np.float32)[0]) == (0x4000, 0x3E00, 3.0)
    w = ran("v_lshlrev_b64 v[2:3], 4, -1\nv_ashrrev_i64 v[4:5], 4, -16\nv_and_b32_e32 v6, -16, v0", "gfx942", v={0: 0x1234})
    assert [vector(w, number)[0] for number in (2, 3, 4, 5, 6)] == [0xFFFFFFF0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1230]


# Masks, carries, SCC


def test_comparisons_clear_the_bits_of_lanes_that_are_off():
    w = ran("v_cmp_lt_u32_e64 s[2:3], v0, 40", "gfx942", v={0: WIDE}, active=EVEN64)
    mask = scalar(w, 2) | scalar(w, 3) << 32
    assert mask == sum(1 << lane for lane in range(0, 40, 2))


def test_comparisons_into_exec_write_the_mask_too_on_gfx9():
    w = ran("v_cmpx_gt_u32_e32 vcc, 40, v0", "gfx90a", v={0: WIDE})
    assert w.exec[0].tolist() == (WIDE < 40).tolist()
    assert scalar(w, VCC) == 0xFFFFFFFF
    assert scalar(w, VCC + 1) == 0xFF
    w = ran("v_cmpx_gt_u32_e32 20, v0", "gfx1100", v={0: LANES}, s={VCC: 5})
    assert w.exec[0].tolist() == (LANES < 20).tolist()
    assert scalar(w, VCC) == 5


def test_sums_of_64_bits_by_their_carries():
    text = """v_add_co_u32 v2, vcc_lo, v0, v1
        v_add_co_ci_u32_e32 v3, vcc_lo, v4, v5, vcc_lo
        v_sub_co_u32 v6, s2, v0, v1
        v_sub_co_ci_u32_e64 v7, s2, v4, v5, s2"""
    w = ran(text, "gfx1100", v={0: 0xFFFFFFFF, 1: LANES, 4: 7, 5: 1})
    assert vector(w, 2) == ((0xFFFFFFFF + LANES) & 0xFFFFFFFF).tolist()
    assert vector(w, 3) == (8 + (LANES > 0)).tolist()
    assert vector(w, 7) == [6] * 32
    w = ran("s_add_u32 s2, s0, s1\ns_addc_u32 s3, s4, s5\ns_sub_u32 s6, s1, s0\ns_subb_u32 s7, s4, s5", "gfx942", s={0: 0xFFFFFFFF, 1: 1, 4: 5, 5: 2})
    assert [scalar(w, number) for number in (2, 3, 6, 7)] == [0, 8, 2, 2]


def test_choices_by_scc():
    text = "s_cmp_lt_i32 s0, s1\ns_cselect_b32 s2, s0, s1\ns_cmov_b32 s3, s1\ns_cmp_gt_i32 s0, s1\ns_cmov_b32 s4, s1\ns_cselect_b64 s[6:7], s[0:1], 0"
    w = ran(text, "gfx1100", s={0: -5, 1: 3, 3: 9, 4: 9})
    assert [scalar(w, number) for number in (2, 3, 4, 6, 7)] == [0xFFFFFFFB, 3, 9, 0, 0]


def test_saved_masks():
    w = ran("s_and_saveexec_b64 s[2:3], s[0:1]", "gfx942", s={0: 0xF0, 1: 0}, active=WIDE < 6)
    assert w.exec[0].nonzero()[0].tolist() == [4, 5]
    assert (scalar(w, 2), scalar(w, 3)) == (0x3F, 0)
    assert bool(w.scc[0, 0])
    w = ran("s_and_not1_saveexec_b32 s2, s2", "gfx1100", s={2: 0xFFFFFFFF})
    assert not w.exec.any()
    assert scalar(w, 2) == 0xFFFFFFFF
    assert not bool(w.scc[0, 0])
    w = ran("s_xor_b32 exec_lo, exec_lo, s2", "gfx1100", s={2: 0xFFFF0000})
    assert w.exec[0].tolist() == (LANES < 16).tolist()
    assert not w.full


def test_without_active_lanes_vectors_stay_and_scalars_go_on():
    off = LANES < 0
    w = ran("v_mov_b32_e32 v1, v0\ns_add_i32 s2, s0, s1\nv_cmp_eq_u32_e32 vcc_lo, v0, v0\nds_store_b32 v0, v0\nds_load_b32 v3, v0", "gfx1100",
            v={0: LANES}, s={0: 2, 1: 3, VCC: 7}, active=off)  # fmt: skip
    assert vector(w, 1) == [OLD + 1] * 32
    assert scalar(w, 2) == 5
    assert scalar(w, VCC) == 0
    assert vector(w, 3) == [OLD + 3] * 32


def test_a_pair_reads_before_it_writes():
    w = ran("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0", "gfx1100", v={0: LANES, 1: LANES + 100})
    assert (vector(w, 0), vector(w, 1)) == ((LANES + 100).tolist(), LANES.tolist())
    w = ran("v_dual_add_f32 v0, v1, v1 :: v_dual_mul_f32 v3, v0, v0", "gfx1100", v={0: np.float32(3), 1: np.float32(5)})
    assert (vector(w, 0, np.float32)[0], vector(w, 3, np.float32)[0]) == (10.0, 9.0)
    w = ran("v_dual_fmac_f32 v0, v1, v1 :: v_dual_fmac_f32 v1, v0, v0", "gfx1100", v={0: np.float32(3), 1: np.float32(5)}, active=EVEN)
    assert vector(w, 0, np.float32)[:2] == [28.0, 3.0]
    assert vector(w, 1, np.float32)[:2] == [14.0, 5.0]


def test_swaps_and_accumulators():
    w = ran("v_swap_b32 v0, v1\nv_accvgpr_write_b32 a3, v0\nv_accvgpr_read_b32 v2, a3", "gfx908", v={0: WIDE, 1: 5, 2: 0}, active=EVEN64)
    assert vector(w, 0) == where(EVEN64, 5, WIDE)
    assert vector(w, 2) == where(EVEN64, 5, 0)


# float16 that ends at its largest number


def test_float16_that_overflows_is_what_the_mode_says():
    text = "{}v_mul_f16_e32 v1, v0, v0\nv_add_f16_e32 v2, v3, v0\nv_cvt_f16_f32_e32 v4, v5"
    v = {0: 0x7B00, 3: 0x7C00, 5: np.float32(-1e9)}
    mode = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
    for begin, want in (("", [0x7C00, 0x7C00, 0xFC00]), (mode, [0x7BFF, 0x7C00, 0xFBFF])):
        w = ran(text.format(begin), "gfx942", v=v)
        assert [vector(w, number)[0] & 0xFFFF for number in (1, 2, 4)] == want


def test_float8_that_overflows_is_what_the_mode_says():
    text = "{}v_cvt_pk_fp8_f32 v1, v0, v2 op_sel:[0,0,1]"
    v = {0: np.float32(1e9), 1: 0x11112222, 2: np.float32(-300)}
    mode = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
    for target, begin, want in (("gfx942", "", 0x80802222), ("gfx942", mode, 0xFF7F2222), ("gfx950", "", 0xF97F2222), ("gfx950", mode, 0xF97E2222)):
        assert hex(vector(ran(text.format(begin), target, v=v), 1)[0]) == hex(want)


# A lane's own memory


def test_scratch_by_either_way_is_each_lanes_own():
    w = waves("gfx1100", v={0: LANES, 1: 0, 2: LANES % 4 * 4}, scratch=64)
    ran("scratch_store_b32 off, v0, off offset:16\nscratch_load_b32 v1, off, off offset:16\nscratch_store_b32 v2, v0, off offset:32", "gfx1100", w)
    assert vector(w, 1) == LANES.tolist()
    descriptor = {4: 0, 5: 0x80008000, 6: 0xFFFFFFFF, 7: 0}
    w = waves("gfx1030", v={0: LANES, 1: 0, 2: 8}, s={**descriptor, 8: 32 * 12}, scratch=64)
    text = "buffer_store_dword v0, off, s[4:7], s8 offset:4\nbuffer_load_dword v1, v2, s[4:7], 0 offen offset:8"
    ran(text, "gfx1030", w)
    assert vector(w, 1) == LANES.tolist()  # a scalar offset counts in bytes of the whole wave


def test_scratch_has_an_end():
    with pytest.raises(FaultError, match="of which a lane has 64 bytes"):
        ran("scratch_store_b32 off, v0, off offset:64", "gfx1100", waves("gfx1100", v={0: 0}, scratch=64))
    with pytest.raises(FaultError, match="no whole number"):
        ran("buffer_store_dword v0, off, s[4:7], s8", "gfx1030", waves("gfx1030", s={4: 0, 5: 0x80008000, 6: 0xFFFFFFFF, 7: 0, 8: 4}, scratch=64))


# What the emulator has not


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("v_cubeid_f32 v0, v1, v2, v3", "gfx1100"),
        ("v_add_f32_e64 v0, v1, v2 unheard_of:1", "gfx1100"),
        ("v_mov_b32_sdwa v1, v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:NIBBLE_1", "gfx90a"),
        ("v_mov_b32_dpp v1, v0 row_unheard:1 row_mask:0xf bank_mask:0xf", "gfx1100"),
        ("v_add_u32_e64 v0, v1, v2 op_sel:[0,0,1]", "gfx1100"),
        ("v_add_u32_e64 v0, v1, v2 op_sel:[1,0,0]", "gfx1100"),
        ("v_mul_u32_u24_e64 v0, v1, v2 clamp", "gfx1100"),
        ("v_cvt_f32_fp8_e64 v0, v1 byte_sel:2", "gfx1200"),
        ("v_readlane_b32 exec_lo, v0, 3", "gfx1100"),
        ("v_permlane64_b32 v0, s1", "gfx1100"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0", "gfx1100"),
        ("s_getreg_b32 s0, hwreg(HW_REG_HW_ID)", "gfx1100"),
        ("s_getpc_b64 s[0:1]", "gfx1100"),
        ("s_barrier_signal 1", "gfx1200"),
        ("ds_load_b32 v0, v1 gds", "gfx1100"),
        ("ds_consume v0", "gfx1100"),
        ("ds_read_b96_tr_b6 v[0:2], v3", "gfx950"),
        ("buffer_load_dword v0, v1, s[4:7], 0 idxen", "gfx90a"),
        ("buffer_load_dword v0, s[4:7], 0 offen lds", "gfx950"),
        ("buffer_load_format_x v0, off, s[4:7], 0", "gfx90a"),
        ("global_load_lds_dword v[0:1], off", "gfx942"),
        ("flat_unheard_of v0, v[1:2]", "gfx942"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1", "gfx942"),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21", "gfx950"),
        ("image_load v0, v[1:2], s[0:7]", "gfx1030"),
        ("s_sendmsg_rtn_b64 s[0:1], sendmsg(MSG_RTN_GET_REALTIME)", "gfx1100"),
        ("v_pk_add_u16 v0, v1, v2 neg_lo:[1,0]", "gfx1100"),
    ],
)
def test_what_is_not_there_stops_with_its_text(text, target):
    with pytest.raises(EmulatorLimitError) as caught:
        ran(text, target)
    assert text.split()[0].removesuffix("_e64").removesuffix("_sdwa").removesuffix("_dpp") in str(caught.value)
