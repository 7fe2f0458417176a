"""What AMD's pseudocode has wrong or leaves open, against exact arithmetic: division, one rounding, denormals, halves that stay."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from lanewise.arch import TARGETS
from lanewise.emulator.table import OPS, lookup
from lanewise.errors import EmulatorLimitError

ROW = TARGETS["gfx1100"]


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def run(name, *given, row=ROW):
    return lookup(name, row).run(*given)


def anything(dtype, number, seed):
    """Floats of all sizes: every bit at random."""
    size = np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, 256, (1, number * size), dtype=np.uint8).view(dtype)


def edges(dtype):
    info = np.finfo(dtype)
    some = [0, -0.0, 1, -1, 3, info.max, -info.max, info.tiny, info.smallest_subnormal, 3 * info.smallest_subnormal, np.inf, -np.inf, np.nan, 1 / 3]
    each = np.array(some, dtype)
    left, right = np.meshgrid(each, each)
    return left.reshape(1, -1), right.reshape(1, -1)


def divided(n, d):
    """n / d as LLVM writes it."""
    kind = "f32" if n.dtype == np.float32 else "f64"
    fma = OPS[f"v_fma_{kind}"].run
    one = np.ones((1, 1), n.dtype)
    below, _ = run(f"v_div_scale_{kind}", d, d, n)
    above, back = run(f"v_div_scale_{kind}", n, d, n)
    inverse = run(f"v_rcp_{kind}", below)
    for _ in range(1 if kind == "f32" else 2):
        inverse = fma(fma(-below, inverse, one), inverse, inverse)
    quotient = above * inverse
    if kind == "f32":
        quotient = fma(fma(-below, quotient, above), inverse, quotient)
    last = run(f"v_div_fmas_{kind}", fma(-below, quotient, above), inverse, quotient, back)
    return run(f"v_div_fixup_{kind}", last, d, n)


def unequal(ours, exact):
    bits = {4: np.uint32, 8: np.uint64}[ours.dtype.itemsize]
    return int(((ours.view(bits) != exact.view(bits)) & ~(np.isnan(ours) & np.isnan(exact))).sum())


@pytest.mark.parametrize(("dtype", "number"), [(np.float32, 200_000), (np.float64, 3_000)])
def test_a_division_out_of_its_parts_is_correctly_rounded_for_any_numbers(dtype, number):
    for n, d in ((anything(dtype, number, 1), anything(dtype, number, 2)), edges(dtype)):
        assert unequal(divided(n, d), n / d) == 0


def test_a_division_that_is_scaled_the_way_of_the_text_is_wrong(monkeypatch):
    def scaled_up(a, b, c, back):
        return OPS["v_fma_f32"].run(a, b, c) * np.where(back, np.float32(2.0**32), np.float32(1))

    monkeypatch.setitem(OPS, "v_div_fmas_f32", replace(OPS["v_div_fmas_f32"], run=scaled_up))
    n, d = anything(np.float32, 20_000, 1), anything(np.float32, 20_000, 2)
    assert unequal(divided(n, d), n / d) > 0


def close_to_ties(dtype, seed, number=400):
    """a, b, c whose a * b + c lies beside the middle between two floats: c is a power of two and the product its half unit and a little."""
    digits = {np.float16: 11, np.float32: 24, np.float64: 53}[dtype]
    rng = np.random.default_rng(seed)
    half = digits // 2
    a = 2.0**-half * (1 + rng.integers(0, 4, number) * 2.0**-half)
    b = 2.0 ** -(digits - half) * (1 + rng.integers(-4, 4, number) * 2.0 ** -(half - 1))
    c = 1 + rng.integers(0, 8, number) * 2.0 ** -(digits - 1)
    return tuple((sign * x).astype(dtype)[None] for x, sign in ((a, rng.choice([-1, 1], number)), (b, 1), (c, rng.choice([-1, 1], number))))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_fused_multiply_add_rounds_once_beside_ties(dtype):
    a, b, c = close_to_ties(dtype, 3)
    found = run({np.float16: "v_fma_f16", np.float32: "v_fma_f32", np.float64: "v_fma_f64"}[dtype], a, b, c)
    for x, y, z, got in zip(a[0], b[0], c[0], found[0], strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [got, np.nextafter(got, dtype(np.inf)), np.nextafter(got, dtype(-np.inf))]
        errors = [abs(Fraction(float(one)) - exact) for one in near]
        assert errors[0] == min(errors), (x, y, z, got)
        if errors.count(errors[0]) == 2:  # a tie goes to the even one
            assert int(got.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize])) % 2 == 0


def test_denormals_go_through_sums_and_products_and_not_through_what_hardware_approximates():
    small = np.array([[2.0**-140, -(2.0**-149)]], np.float32)
    assert (run("v_add_f32", small, small) == 2 * small).all()
    assert (run("v_mul_f32", small, np.full((1, 1), 2, np.float32)) == 2 * small).all()
    assert run("v_rcp_f32", small).tolist() == [[np.inf, -np.inf]]
    assert run("v_rcp_f32", np.array([[2.0**127]], np.float32)).tolist() == [[0.0]]
    assert run("v_sqrt_f32", small[:, :1]).tolist() == [[0.0]]
    assert run("v_log_f32", small[:, :1]).tolist() == [[-np.inf]]
    assert run("v_exp_f32", np.array([[-130.0]], np.float32)).tolist() == [[0.0]]


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("f32", np.float32), ("f64", np.float64)])
def test_roundings_keep_the_sign_of_zero_and_a_fraction_is_below_one(kind, dtype):
    x = np.array([[-0.0, 0.5, 1.5, 2.5, -0.5, -2.5, 2.0**9 + 1]], dtype)
    found = run(f"v_rndne_{kind}", x)
    assert found.tolist() == [[0, 0, 2, 2, 0, -2, 513]]
    assert np.signbit(found).tolist() == [[True, False, False, False, True, True, False]]
    tiny = np.array([[-np.finfo(dtype).smallest_subnormal, -0.25, 1.75]], dtype)
    assert run(f"v_fract_{kind}", tiny).tolist() == [[float(np.nextafter(dtype(1), dtype(0))), 0.75, 0.75]]


@pytest.mark.parametrize(("kind", "number", "dtype"), [("i16_f16", -23, np.float16), ("i32_f32", -148, np.float32), ("i32_f64", -1073, np.float64)])
def test_the_exponent_of_zero_is_zero_and_that_of_a_denormal_its_own(kind, number, dtype):
    x = np.array([[0, np.finfo(dtype).smallest_subnormal, 1, np.inf]], dtype)
    assert run(f"v_frexp_exp_{kind}", x).tolist() == [[0, number, 1, 0]]


def test_angles_are_in_turns_and_nibbles_have_an_offset():
    turns = np.array([[0, 0.25, 0.5, 0.75, 3.25]], np.float32)
    assert np.round(run("v_sin_f32", turns)).tolist() == [[0, 1, 0, -1, 1]]
    assert np.round(run("v_cos_f32", turns)).tolist() == [[1, 0, -1, 0, 0]]
    nibbles = np.arange(16, dtype=np.uint32)[None]
    assert (run("v_cvt_off_f32_i4", nibbles) * 16).tolist() == [[*range(8), *range(-8, 0)]]


def test_two_products_of_bfloat16_are_added_in_the_order_of_the_target():
    # c + p0 loses p0 where p0 + p1 is nothing
    big, c = np.uint16(0x4F80), np.full((1, 1), 1, np.float32)
    a, b = np.array([big, big ^ 0x8000], np.uint16).reshape(2, 1, 1), np.full((2, 1, 1), 0x3F80, np.uint16)
    found = {name: run("v_dot2_f32_bf16", a, b, c, row=TARGETS[name]).item() for name in ("gfx950", "gfx1100")}
    assert found == {"gfx950": 1.0, "gfx1100": 0.0}


def test_only_what_gfx9_added_keeps_the_other_half():
    keeps = {
        name: OPS[name].keeps
        for name in ("v_fma_f16", "v_div_fixup_f16", "v_mad_u16", "v_mad_legacy_u16", "v_add_f16", "v_cvt_f16_f32", "v_cndmask_b16")
    }
    assert [name for name, kept in keeps.items() if kept] == ["v_fma_f16", "v_div_fixup_f16", "v_mad_u16"]


def test_what_the_table_does_not_have_is_refused_with_its_name():
    with pytest.raises(EmulatorLimitError, match=r"v_cube_of_f32 of gfx1100"):
        lookup("v_cube_of_f32", ROW)


def test_digits_of_two_over_pi_for_angles_of_every_size():
    digits = Fraction("0.636619772367581343075535053490057448137838582961825794990669376235587190536906140360455211065012343824291370907031832")
    runs = [Fraction(float(run("v_trig_preop_f64", np.array([[1.0]]), np.array([[number]], np.uint32))[0, 0])) for number in range(3)]
    rest = digits - sum(runs)
    assert 0 <= rest < Fraction(1, 2**159)
    assert runs[0] == Fraction(int(digits * 2**53), 2**53)
    later = run("v_trig_preop_f64", np.array([[2.0**64]]), np.zeros((1, 1), np.uint32))[0, 0]  # ten whole turns' digits are left out
    assert Fraction(float(later)) == Fraction(int(digits * 2**63) % 2**53, 2**63)
