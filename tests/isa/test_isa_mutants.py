"""The gate is proven able to fail: kernels with a mistake that their source or their numbers may hide, each compiled and found in the object."""

import sys

import pytest

from lanewise.arch import TARGETS
from lanewise.isa import catalogue, gate

GEMV = catalogue.few()[1]
_IU8 = 'dots = tl.inline_asm_elementwise("v_dot4_i32_iu8 $0, $1, $2, 0 neg_lo:[1,1,0]", "=v,v,v", [a, x], tl.int32, True, 1)'
_SCALAR = """dots = byte_of(a, 0, True) * byte_of(x, 0, True)
        for j in tl.static_range(1, 4):
            dots += byte_of(a, j, True) * byte_of(x, j, True)"""
# what is wrong: (target, text, in its place, words of the miss)
EVERY = {
    "the name of a dot in a comment beside the scalar expansion": (
        "gfx1100",
        _IU8,
        f'a = tl.inline_asm_elementwise("; v_dot4_i32_iu8 $0, $0, $0, 0 neg_lo:[1,1,0]", "=v,0", [a], tl.int32, True, 1)\n        {_SCALAR}',
        "32 dots that the compiler made of other arithmetic",
    ),
    "the scalar expansion on wave64": ("gfx942", 'elif DOT == "i8 and wait":', 'elif DOT == "never":', "v_dot4_i32_i8, for 32"),
    "some of the dots scalar": (
        "gfx1030",
        "first, second = _dot4(low, of_columns(even, W), DOT), _dot4(high, of_columns(odd, W), DOT)",
        'first, second = _dot4(low, of_columns(even, W), DOT), _dot4(high, of_columns(odd, W), "scalar")',
        "v_dot4_i32_i8, for 32",
    ),
    "the scalar expansion on a target without waits": ("gfx1100", 'elif DOT == "iu8":', 'elif DOT == "never":', "v_dot4_i32_iu8, for 32"),
    "unsigned bytes": ("gfx1201", "0 neg_lo:[1,1,0]", "0", "32 products of bytes that are unsigned"),
    "one side unsigned": ("gfx1100", "neg_lo:[1,1,0]", "neg_lo:[1,0,0]", "32 products of bytes that are unsigned"),
    "no wait behind dots": ("gfx942", r"$11, 0\ns_nop 2", "$11, 0", "has no wait of 3 states behind it there"),
    "a wait that is too short": ("gfx90a", r"$11, 0\ns_nop 2", r"$11, 0\ns_nop 0", "has no wait of 3 states behind it there"),
    "every dot twice": ("gfx1100", _IU8, f"{_IU8}\n        {_IU8.replace('[a, x]', '[a, dots]')}", "64 v_dot4_i32_iu8, for 32"),
    "words that do not lie side by side": (
        "gfx1030",
        "x_at = xq + (at * 512 + mine * 16 + c * 4 + element)",
        "x_at = xq + (at * 512 + mine * 16 + c * 4 + (element ^ (block & 1)))",
        "loads of 16 bytes",
    ),
}


MUTANTS = EVERY if sys.platform == "linux" else {}  # where Triton is built for


def put(monkeypatch, folder, old, new):
    """A piece of the text of quant_gemv's dots replaced."""
    from support.quant_launch import changed  # which needs Triton

    from lanewise.kernels.gpu import quant_gemv

    monkeypatch.setattr(quant_gemv, "quant_gemv", changed(folder, "quant_dots", old, new).quant_gemv)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name, monkeypatch, tmp_path):
    target, old, new, words = MUTANTS[name]
    put(monkeypatch, tmp_path, old, new)
    verdict = gate.judge(GEMV, TARGETS[target])
    assert verdict.state == "MISS"
    assert any(words in miss for miss in verdict.misses), verdict.misses


def test_what_is_changed_is_what_is_compiled(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, _IU8, _IU8)
    assert gate.judge(GEMV, TARGETS["gfx1100"]).misses == ()
