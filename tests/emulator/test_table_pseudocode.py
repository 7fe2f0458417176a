"""Every instruction of the emulator's table against AMD's own pseudocode, on special and random numbers; what the texts have wrong is named here."""

import functools
import math

import numpy as np
import pytest

pytest.importorskip("tinygrad.runtime.autogen.amd.rdna3.str_pcode")

from support.pseudocode import GENERATIONS, Bits, NotUnderstoodError, texts
from support.table_vectors import differences

from lanewise.arch import TARGETS
from lanewise.emulator import table
from lanewise.emulator.table import OPS

ROWS = {"rdna3": TARGETS["gfx1100"], "rdna4": TARGETS["gfx1200"], "cdna": TARGETS["gfx950"]}


def _normal(bits):
    """Of numbers of 32 bits those whose inverse, root and logarithm are normal as well: denormals are taken and given as zero."""
    number = Bits("f", 32, bits[0]).number
    return not math.isfinite(number) or 2.0**-126 <= abs(number) < 2.0**126 or number == 0


def _some(width, most):
    """Numbers that are a fraction or more, and to which half can be added exactly; not the zeros, whose sign the text loses."""

    def judged(bits):
        number = Bits("f", width, bits[0]).number
        return math.isnan(number) or 0.5 < abs(number) < most

    return judged


def _finite(width):
    return lambda bits: math.isfinite(Bits("f", width, bits[0]).number)


def _positive(width):
    def judged(bits):
        number = Bits("f", width, bits[0]).number
        return math.isnan(number) or 0 <= number < math.inf

    return judged


def _ordinary(width):
    smallest = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[width]
    return lambda bits: not abs(Bits("f", width, bits[0]).number) < smallest


# Lanes that are judged where the text is wrong for the others, or simpler than the hardware; each has a test of its own below.
JUDGED = {
    **dict.fromkeys(("v_rcp_f32", "v_rcp_iflag_f32", "v_rsq_f32", "v_sqrt_f32", "v_log_f32"), _normal),
    **dict.fromkeys(("v_s_rcp_f32", "v_s_rsq_f32", "v_s_sqrt_f32", "v_s_log_f32"), _normal),
    **dict.fromkeys(("v_exp_f32", "v_s_exp_f32"), lambda bits: not -150 < Bits("f", 32, bits[0]).number < -126),
    **{name: _some(32, 2.0**22) for name in ("v_rndne_f32", "s_rndne_f32")},
    **{name: _some(16, 2.0**9) for name in ("v_rndne_f16", "s_rndne_f16")},
    "v_rndne_f64": _some(64, 2.0**51),
    **{f"v_fract_f{width}": _positive(width) for width in (16, 32, 64)},
    **{f"v_frexp_exp_{kind}": _ordinary(width) for kind, width in (("i16_f16", 16), ("i32_f32", 32), ("i32_f64", 64))},
    **{f"v_div_fixup_f{width}": _finite(width) for width in (16, 32, 64)},  # the exponent that it asks for overflow is the wrong one
    **{f"v_div_fmas_f{width}": lambda bits: not bits[3] for width in (32, 64)},  # what is scaled back is scaled the wrong way
}
WRONG = {
    **dict.fromkeys(("v_sin_f32", "v_cos_f32", "v_sin_f16", "v_cos_f16"), "the text multiplies by 2 pi and rounds before the function"),
    "v_cvt_off_f32_i4": "the text's table of results is not in it",
    "v_trig_preop_f64": "the text keeps what is in front of the point, where it means what is behind it",
    **dict.fromkeys(
        (
            "v_cvt_pk_f32_fp8",
            "v_cvt_pk_f32_bf8",
            "v_cvt_f32_fp8",
            "v_cvt_f32_bf8",
            "v_cvt_pk_fp8_f32",
            "v_cvt_pk_bf8_f32",
            "v_cvt_scalef32_pk_f32_fp8",
            "v_cvt_scalef32_pk_f32_bf8",
            "v_cvt_scalef32_pk_fp8_f32",
            "v_cvt_scalef32_pk_bf8_f32",
        ),
        "the formats' functions are named in the text and not in it",
    ),
}
# Of each generation, how many instructions of the table its text has, less WRONG.
COUNTS = {"rdna3": 584, "rdna4": 588, "cdna": 532}
ANYWHERE_ELSE = {"s_add_u64", "s_sub_u64", "v_mul_lo_i32"}


@functools.cache
def named(generation):
    return [name for name in OPS if name in texts(generation) and name not in WRONG]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_instruction_of_the_table_does_what_amds_pseudocode_says(generation):
    wrong, unread = {}, {}
    for name in named(generation):
        try:
            found = differences(generation, name, ROWS[generation], judged=JUDGED.get(name, lambda bits: True))
        except NotUnderstoodError as error:
            unread[name] = str(error)
            continue
        if found:
            wrong[name] = found[0]
    assert (wrong, unread) == ({}, {})
    assert len(named(generation)) == COUNTS[generation]


@pytest.mark.parametrize("name", ["v_dot4_i32_iu8", "v_dot8_i32_iu4"])
def test_bytes_and_nibbles_are_unsigned_without_neg_lo(name):
    assert differences("rdna3", name, ROWS["rdna3"], signed=False) == []


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("v_add_f32", lambda a, b: (a.astype(np.float64) + b + 1e-9).astype(np.float32)),
        ("v_fma_f32", lambda a, b, c: a * b + c),
        ("v_max_f32", np.fmax),
        ("v_bfe_i32", lambda a, b, c: a >> (b & 31).astype(np.int32)),
        ("v_lshlrev_b32", lambda a, b: np.where(a > 31, np.uint32(0), b << (a & 31))),
        ("v_cmp_nlt_f32", np.greater_equal),
        ("v_mul_i32_i24", lambda a, b: a * b),
        ("v_cvt_i32_f32", lambda a: np.rint(a.astype(np.float64)).clip(-(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.int32)),
        ("s_addc_u32", lambda a, b, carry: (a + b + carry, a + b < a)),
        ("v_div_scale_f32", lambda a, b, c: (a, np.zeros(a.shape, bool))),
    ],
)
def test_a_wrong_line_of_the_table_is_noticed(name, run, monkeypatch):
    op = OPS[name]
    monkeypatch.setitem(table.OPS, name, type(op)(op.name, op.dst, op.src, run))
    assert differences("rdna3", name, ROWS["rdna3"])


def test_of_what_the_table_has_only_what_no_text_names_is_unchecked():
    spoken = set().union(*(texts(generation) for generation in GENERATIONS))
    # float64 with three sources to choose from, and names that are older than the texts
    silent = {name for name in OPS if name not in spoken}
    assert {name for name in silent if not name.endswith("_f64") and not name.startswith(("v_ma", "s_cmp_"))} == ANYWHERE_ELSE
