"""PTX read as instructions, and what a cubin says of itself."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from lanewise.arch import TARGETS
from lanewise.errors import AssemblyError
from lanewise.isa import catalogue
from lanewise.isa.compile import compile_for
from lanewise.isa.cubin import cubin, read_ptx
from lanewise.isa.summary import annotated, summary

HEAD = ".version 8.7\n.target sm_80\n.visible .entry f(\n\t.param .u64 f_0\n)\n.reqntid 128\n{\n\t.reg .b32 %r<3>;\n"


def read(*lines):
    return [(one.mnemonic, one.source, one.inline) for one in read_ptx(HEAD + '.file\t1 "/a/b.py"\n' + "\n".join(lines) + "\n}\n")[1]]


@pytest.mark.parametrize(
    ("line", "mnemonics"),
    [
        ("\tadd.s32 \t%r1, %r2, %r3;", ["add.s32"]),
        ("\t@%p1 bra \t$L__BB0_2;", ["bra"]),
        ("\t@!%p2 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [ %rd1 + 0 ];", ["ld.global.v4.b32"]),
        ("\t{ .reg .pred p; setp.ne.s32 p, %r1, 0; @p ld.global.b32 %r2, [%rd1]; }", ["setp.ne.s32", "ld.global.b32"]),
        ("\tdp2a.lo.s32.u32 %r1, %r2, %r3, 0; // dp4a.s32.s32 in a comment", ["dp2a.lo.s32.u32"]),
        ("\t// dp4a.s32.s32 %r1, %r2, %r3, 0;", []),
        ("$L__BB0_2:                              // %loop", []),
        ("\t.pragma \"nounroll\";", []),
        ("\tmma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2}, {%r3}, {0,0,0,0};", ["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"]),
    ],
)  # fmt: skip
def test_a_line_has_the_instructions_that_would_run(line, mnemonics):
    assert [mnemonic for mnemonic, _, _ in read(line, "\tret;")] == [*mnemonics, "ret"]


def test_lines_of_the_source_and_inline_assembly_are_told():
    found = read(
        "\t.loc\t1 12 5", "\tadd.s32 %r1, %r2, %r3;", "\t// begin inline asm", "\tdp4a.s32.s32 %r1, %r2, %r3, 0;", "\t// end inline asm", "\tret;"
    )
    assert found == [("add.s32", ("b.py", 12), False), ("dp4a.s32.s32", ("b.py", 12), True), ("ret", ("b.py", 12), False)]


def test_a_text_that_is_no_kernel_is_refused():
    for text, words in [("", "PTX has 0 kernels"), (HEAD + HEAD, r"PTX has 2 kernels \(f, f\)"), (HEAD + "}\n", "no instruction in its body")]:
        with pytest.raises(AssemblyError, match=words):
            read_ptx(text)


def test_a_cubin_says_its_registers_and_a_damaged_one_is_refused():
    body = compile_for(catalogue.few()[1], TARGETS["sm_80"])[-1]
    assert 32 < body.code.registers <= 255
    assert (body.code.stack, body.code.local, body.code.warps) == (0, 0, body.warps)
    with pytest.raises(AssemblyError, match="one: cuobjdump"):
        cubin(body.text, b"no cubin", TARGETS["sm_80"])


def test_a_summary_of_ptx_counts_what_stands_there():
    counted = summary(code := compile_for(catalogue.few()[1], TARGETS["sm_80"])[-1].code)
    assert (counted.matrix, counted.dots, counted.unsigned, counted.wide, counted.waves) == (8, {}, 0, 4, 0)
    assert sum(counted.mix.values()) == len(code.instructions)
    text = annotated(code)
    assert sum("mma.sync" in line for line in text) == 8
    assert any("; quant_one.py:" in line for line in text)
