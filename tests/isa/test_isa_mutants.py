"""The gate is proven able to fail: kernels with a mistake that their source or their numbers may hide, each compiled and found in the object.

That a kernel is not registered is found in test_isa_catalogue.py, that the gate itself is not asked in tests/gates/planted.py.
"""

import sys
from dataclasses import dataclass

import pytest

from lanewise.arch import TARGETS
from lanewise.isa import catalogue, gate

GEMV = catalogue.few()[1]
_IU8 = 'dots = tl.inline_asm_elementwise("v_dot4_i32_iu8 $0, $1, $2, 0 neg_lo:[1,1,0]", "=v,v,v", [a, x], tl.int32, True, 1)'
_SCALAR = """dots = byte_of(a, 0, True) * byte_of(x, 0, True)
        for j in tl.static_range(1, 4):
            dots += byte_of(a, j, True) * byte_of(x, j, True)"""
_BOTH = "first, second = _dot4(low, of_columns(even, W), DOT), _dot4(high, of_columns(odd, W), DOT)"
_HALF = 'first, second = _dot4(low, of_columns(even, W), DOT), _dot4(high, of_columns(odd, W), "scalar")'
# What goes through assembly nobody knows to be small, so that LLVM finds the pattern of a dot, which it does not find in masked codes.
_OPAQUE = 'high = tl.inline_asm_elementwise("; a word", "=v,0", [high], tl.int32, True, 1)'
_ONE_UNIT = "            first = _added(first, low, tl.where(g == 2 * i,"
_WIDE = "held = held + four(at[0] + (BLOCK * RECORD + v * 128), inside, WHOLE, False, DOT)"


@dataclass(frozen=True)
class Mutant:
    """On a target a piece of the text of one of quant_gemv's modules, what stands in its place, and words of the miss."""

    target: str
    old: str
    new: str
    words: str
    module: str = "quant_dots"
    case: catalogue.Case = GEMV


EVERY = {
    "the name of a dot in a comment beside the scalar expansion": Mutant(
        "gfx942",
        'dots = tl.inline_asm_elementwise(\n            "v_dot4_i32_i8 $0, $4',
        'a = tl.inline_asm_elementwise("; v_dot4_i32_i8 $0, $0, $0, 0 s_nop 2", "=v,0", [a], tl.int32, True, 1)\n'
        f'        {_SCALAR}\n        _ = tl.inline_asm_elementwise(\n            "v_dot4_i32_i8 $0, $4',
        "of 24 bits, for 20 to 52",
    ),
    "a comment, and dots that the compiler makes instead": Mutant(
        "gfx1100",
        _IU8,
        f'a = tl.inline_asm_elementwise("; v_dot4_i32_iu8 $0, $0, $0, 0 neg_lo:[1,1,0]", "=v,0", [a], tl.int32, True, 1)\n        {_SCALAR}',
        "32 dots that the compiler made of other arithmetic",
    ),
    "some of the dots back by the compiler, so that there are as many": Mutant(
        "gfx1100", _BOTH, f"{_OPAQUE}\n        {_HALF}", "16 dots that the compiler made of other arithmetic"
    ),
    "some of the dots back by the compiler in another form": Mutant(
        "gfx942", _BOTH, f"{_OPAQUE}\n        {_HALF}", "dots that nobody asked for: 16 v_dot4c_i32_i8"
    ),
    "some of the dots scalar": Mutant("gfx1030", _BOTH, _HALF, "16 v_dot4_i32_i8, for 32"),
    "the scalar expansion on wave64": Mutant("gfx942", 'elif DOT == "i8 and wait":', 'elif DOT == "never":', "0 v_dot4_i32_i8, for 32"),
    "the scalar expansion on wave32": Mutant("gfx1100", 'elif DOT == "iu8":', 'elif DOT == "never":', "0 v_dot4_i32_iu8, for 32"),
    "the scalar expansion on NVIDIA": Mutant("sm_75", 'if DOT == "dp4a":\n        dots', 'if DOT == "never":\n        dots', "0 dp4a, for 32"),
    "every dot twice": Mutant("gfx1100", _IU8, f"{_IU8}\n        {_IU8.replace('[a, x]', '[a, dots]')}", "64 v_dot4_i32_iu8, for 32"),
    "a unit that nobody multiplies": Mutant(
        "sm_80", _ONE_UNIT, f"            if i > 0:\n    {_ONE_UNIT}", "7 instructions of the matrix unit, for 8", "quant_one"
    ),
    "no neg_lo": Mutant("gfx1201", "0 neg_lo:[1,1,0]", "0", "32 products of bytes that are unsigned"),
    "neg_lo on one side": Mutant("gfx1100", "neg_lo:[1,1,0]", "neg_lo:[1,0,0]", "32 products of bytes that are unsigned"),
    "unsigned bytes on NVIDIA": Mutant("sm_75", "dp4a.s32.s32 $0", "dp4a.s32.u32 $0", "32 products of bytes that are unsigned"),
    "no wait behind dots": Mutant("gfx942", r"$11, 0\ns_nop 2", "$11, 0", "has no wait of 3 states behind it there"),
    "a wait that is too short": Mutant("gfx90a", r"$11, 0\ns_nop 2", r"$11, 0\ns_nop 0", "has no wait of 3 states behind it there"),
    "words that do not lie side by side": Mutant(
        "gfx1030",
        "x_at = xq + (at * 512 + mine * 16 + c * 4 + element)",
        "x_at = xq + (at * 512 + mine * 16 + c * 4 + (element ^ (block & 1)))",
        "loads of 16 bytes, for 10",
    ),
    "words that are loaded one by one": Mutant("sm_90", _WIDE, _WIDE.replace("four(", "(word(").replace(", False, DOT)", "),) * 4"),
                                               "0 loads of 16 bytes, for 4", "quant_one"),
    "loads that all come first": Mutant(
        "gfx1100", "if PARTS > 1:", "if PARTS > 9:", "registers spilled", "quant_gemv", catalogue.Case("quant_gemv", 4, 1000, 2304, "Q2_K")
    ),
}  # fmt: skip
MUTANTS = EVERY if sys.platform == "linux" else {}  # where Triton is built for


def put(monkeypatch, folder, module, old, new):
    """A piece of the text of one of quant_gemv's modules replaced."""
    from support.quant_launch import changed  # which needs Triton

    from lanewise.kernels.gpu import quant_gemv

    monkeypatch.setattr(quant_gemv, "quant_gemv", changed(folder, module, old, new).quant_gemv)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name, monkeypatch, tmp_path):
    mutant = MUTANTS[name]
    put(monkeypatch, tmp_path, mutant.module, mutant.old, mutant.new)
    verdict = gate.judge(mutant.case, TARGETS[mutant.target])
    assert verdict.state == "MISS"
    assert any(mutant.words in miss for miss in verdict.misses), verdict.misses


def test_what_is_changed_is_what_is_compiled(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "quant_dots", _IU8, _IU8)
    assert gate.judge(GEMV, TARGETS["gfx1100"]).misses == ()


def test_what_the_issue_names_is_among_the_mutants():
    named = ("comment", "scalar", "back by the compiler", "neg_lo", "wait", "all come first")
    assert [word for word in named if not any(word in name for name in EVERY)] == []
    assert sys.platform != "linux" or MUTANTS == EVERY
