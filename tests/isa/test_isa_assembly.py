"""Assembly as AMD's compiler prints it, read into instructions."""

import pytest

from lanewise.errors import AssemblyError
from lanewise.isa.assembly import parse


def read(*lines, before=""):
    return parse(f"\t.type f,@function\n{before}f: ; @f\n" + "".join(f"{line}\n" for line in lines) + ".Lfunc_end0:\n\t.amdhsa_kernel f\n")


def one(line):
    (found,) = read(line).instructions
    return found.mnemonic, found.operands, found.modifiers


@pytest.mark.parametrize(
    ("line", "mnemonic", "operands", "modifiers"),
    [
        ("\ts_endpgm", "s_endpgm", (), ()),
        ("\tv_add_f32_e32 v46, 0x3f80, v0   ; why", "v_add_f32_e32", ("v46", "0x3f80", "v0"), ()),
        ("\tv_fma_f32 v1, -v2, |v3|, -|v4| clamp mul:2", "v_fma_f32", ("v1", "-v2", "|v3|", "-|v4|"), ("clamp", "mul:2")),
        ("\ts_load_b256 s[4:11], s[0:1], 0x0", "s_load_b256", ("s[4:11]", "s[0:1]", "0x0"), ()),
        (
            "\tbuffer_load_b128 v[0:3], v8, s[4:7], null offen offset:16",
            "buffer_load_b128",
            ("v[0:3]", "v8", "s[4:7]", "null"),
            ("offen", "offset:16"),
        ),
        ("\tbuffer_load_dword v1, off, s[4:7], 0", "buffer_load_dword", ("v1", "off", "s[4:7]", "0"), ()),
        ("\ts_waitcnt vmcnt(0) lgkmcnt(1)", "s_waitcnt", (), ("vmcnt(0)", "lgkmcnt(1)")),
        ("\ts_waitcnt vmcnt(0) & lgkmcnt(1)", "s_waitcnt", (), ("vmcnt(0)", "lgkmcnt(1)")),
        ("\ts_delay_alu instid0(VALU_DEP_4) | instskip(NEXT)", "s_delay_alu", (), ("instid0(VALU_DEP_4)", "instskip(NEXT)")),
        ("\ts_getreg_b32 s1, hwreg(HW_REG_IB_STS2, 6, 4)", "s_getreg_b32", ("s1", "hwreg(HW_REG_IB_STS2, 6, 4)"), ()),
        ("\ts_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "s_sendmsg", ("sendmsg(MSG_DEALLOC_VGPRS)",), ()),
        ("\tds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)", "ds_swizzle_b32", ("v1", "v2"), ("offset:swizzle(SWAP,16)",)),
        ("\tv_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] bank_mask:0xf", "v_mov_b32_dpp", ("v1", "v2"), ("quad_perm:[1,0,3,2]", "bank_mask:0xf")),
        ("\tv_add_f32_dpp v1, v2, v3 row_half_mirror", "v_add_f32_dpp", ("v1", "v2", "v3"), ("row_half_mirror",)),
        ("\tv_mul_i32_i24_sdwa v1, sext(v2), v3 src0_sel:WORD_1", "v_mul_i32_i24_sdwa", ("v1", "sext(v2)", "v3"), ("src0_sel:WORD_1",)),
        ("v_dot4_i32_iu8 v1, v2, v3, 0 neg_lo:[1,1,0]", "v_dot4_i32_iu8", ("v1", "v2", "v3", "0"), ("neg_lo:[1,1,0]",)),
        ("\tv_mov_b16_e32 v3.l, v2.h", "v_mov_b16_e32", ("v3.l", "v2.h"), ()),
        ("\tbuffer_wbl2 sc1", "buffer_wbl2", (), ("sc1",)),
        ("\tglobal_inv scope:SCOPE_SE", "global_inv", (), ("scope:SCOPE_SE",)),
        ("\ts_cbranch_scc1 .LBB0_2", "s_cbranch_scc1", (".LBB0_2",), ()),
    ],
)
def test_mnemonic_operands_and_modifiers_are_told_apart(line, mnemonic, operands, modifiers):
    assert one(line) == (mnemonic, operands, modifiers)


def test_both_halves_of_a_pair_are_read():
    (found,) = read("\tv_dual_mov_b32 v1, v2 :: v_dual_bitop2_b32 v6, 31, v0 bitop3:0x40").instructions
    assert found.pair is not None
    assert (found.mnemonic, found.operands, found.modifiers) == ("v_dual_mov_b32", ("v1", "v2"), ())
    assert (found.pair.mnemonic, found.pair.operands, found.pair.modifiers) == ("v_dual_bitop2_b32", ("v6", "31", "v0"), ("bitop3:0x40",))
    assert found.text == found.pair.text == "v_dual_mov_b32 v1, v2 :: v_dual_bitop2_b32 v6, 31, v0 bitop3:0x40"


def test_a_register_is_the_one_that_is_meant_and_not_the_one_that_is_encoded():
    (found,) = read("\tv_add_f32_e32 v1 /*v257*/, v2, v[3:4] /*v[259:260]*/  ;  msbs: dst=1").instructions
    assert found.operands == ("v257", "v2", "v[259:260]")
    assert found.text == "v_add_f32_e32 v1 , v2, v[3:4]"


def test_an_instruction_has_the_line_of_the_innermost_function():
    code = read(
        '\t.file 1 "/a/b" "outer.py"',
        '\t.file 2 "c\\\\inner.py"',
        "\t.loc 1 89 0 prologue_end",
        "\ts_nop 0",
        "\t.loc 2 17 18 ; inner.py:17:18 @[ outer.py:92:3 ]",
        "\ts_nop 1",
        "\t.loc 1 0 0 is_stmt 0",
        "\ts_nop 2",
    )
    assert [one.source for one in code.instructions] == [("outer.py", 89), ("inner.py", 17), None]


def test_labels_are_the_index_of_what_stands_behind_them():
    code = read(".Lfunc_begin0:", "\ts_nop 0", ".LBB0_1: ; =>This Inner Loop", ".Ltmp3:", "\ts_branch .LBB0_1", ".LBB0_2:", "\ts_endpgm")
    assert code.labels == {".LBB0_1": 1, ".LBB0_2": 2}
    assert [one.index for one in code.instructions] == [0, 1, 2]


def test_what_stands_in_inline_assembly_says_so():
    code = read("\ts_nop 0", "\t;;#ASMSTART", "\tv_dot4_i32_i8 v1, v2, v3, 0", "s_nop 2", "\t;;#ASMEND", "\ts_endpgm")
    assert [(one.mnemonic, one.inline) for one in code.instructions] == [
        ("s_nop", False), ("v_dot4_i32_i8", True), ("s_nop", True), ("s_endpgm", False),
    ]  # fmt: skip


def test_only_code_is_read_and_not_what_follows_it():
    text = "f:\n\ts_endpgm\n\t.section .rodata\n\t.amdhsa_kernel f\n\t.end_amdhsa_kernel\n\t.text\n\t.p2alignl 6, 1\n\t.long 3\n"
    assert [one.mnemonic for one in parse(text).instructions] == ["s_endpgm"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f:\n\ts_endpgm\n", "0 kernels"),
        ("f:\n\ts_endpgm\n.amdhsa_kernel f\n.amdhsa_kernel g\n", "2 kernels"),
        ("\t.type g,@function\nf:\n\ts_endpgm\n.amdhsa_kernel f\n", r"functions beside it \(g\)"),
        ("g:\n\ts_endpgm\n.amdhsa_kernel f\n", "no instruction behind its label"),
        ("f:\n\t.long 3\n.amdhsa_kernel f\n", "'.long 3' between instructions"),
        ("f:\n\tV_ADD v1\n.amdhsa_kernel f\n", "'V_ADD v1' is no instruction"),
        ("f:\n\tv_add v1,, v2\n.amdhsa_kernel f\n", "an operand is missing"),
        ("f:\n\tv_add v1 clamp, v2\n.amdhsa_kernel f\n", "stands behind modifiers"),
        ("f:\n\tv_a v1 :: v_b v2 :: v_c v3\n.amdhsa_kernel f\n", "is no instruction"),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_skipped(text, words):
    with pytest.raises(AssemblyError, match=words):
        parse(text)
