"""RMS norm, SiLU-mul and RoPE: against torch and complex numbers, and float32 computations of several kinds against the bound."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from lanewise.oracle import ORACLES, rms_norm, rms_norm_bound, rope, rope_bound, silu_mul, silu_mul_bound, worst
from lanewise.oracle.cases import CASES, Case, case
from lanewise.oracle.rounding import EXP_FLOOR, ULPS, U

# two float64 computations, each within the float32 bound times the ratio of the roundoffs
_F64_SHARE = 2 * 2.0 ** (24 - 53)


def _torch(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(a) for a in arrays]


@pytest.mark.parametrize("case", CASES["rms_norm"], ids=str)
def test_torch_rms_norm_agrees_in_float64_and_is_within_the_bound_in_float32(case: Case) -> None:
    x, weight, eps = case.arguments()
    a, b = _torch(x, weight)
    want, bound = rms_norm(x, weight, eps), rms_norm_bound(x, weight, eps)
    assert worst(functional.rms_norm(a.double(), b.shape, b.double(), eps).numpy(), want, bound * _F64_SHARE) <= 1
    assert worst(functional.rms_norm(a, b.shape, b, eps).numpy(), want, bound) <= 1


@settings(max_examples=40, deadline=None)
@given(m=st.integers(0, 3), k=st.integers(1, 300), scale=st.integers(-40, 40), seed=st.integers(0, 2**32 - 1))
def test_an_rms_norm_by_reciprocal_and_running_sum_is_within_the_bound(m: int, k: int, scale: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((m, k)) * 2.0**scale).astype(np.float32)
    weight = rng.standard_normal(k).astype(np.float32)
    squares = np.cumsum(x * x, axis=1, dtype=np.float32)[:, -1:]
    reciprocal = np.float32(1) / np.sqrt(squares * (np.float32(1) / np.float32(k)) + np.float32(1e-6))
    assert worst(x * (reciprocal * weight), rms_norm(x, weight, 1e-6), rms_norm_bound(x, weight, 1e-6)) <= 1


def test_a_long_sum_of_squares_in_order_is_within_the_bound_and_comes_near_it() -> None:
    # 1/3 rounds the same way again and again while the sum stays in one binade
    x, weight = np.full((1, 4096), 3**-0.5, dtype=np.float32), np.ones(4096, dtype=np.float32)
    squares = np.cumsum(x * x, axis=1, dtype=np.float32)[:, -1:]
    y = x / np.sqrt(squares / np.float32(4096) + np.float32(1e-6))
    assert 0.02 < worst(y, rms_norm(x, weight, 1e-6), rms_norm_bound(x, weight, 1e-6)) <= 1


@pytest.mark.parametrize("ulps", [-ULPS, ULPS])
def test_a_root_that_is_off_by_what_libraries_may_be_is_within_the_bound(ulps: int) -> None:
    x, weight, eps = case("rms_norm", "one value").arguments()
    x[:] = 1 - 2.0**-10  # so that the reciprocal is just above 1, where an ulp weighs most
    reciprocal = (1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))).astype(np.float32)
    got = x * (reciprocal + ulps * np.spacing(reciprocal)) * weight
    assert 0.3 < worst(got, rms_norm(x, weight, eps), rms_norm_bound(x, weight, eps)) <= 1


def test_the_bound_of_silu_is_a_few_roundoffs_of_the_result() -> None:
    gate, up = np.linspace(-10, 10, 1001, dtype=np.float32), np.ones(1001, dtype=np.float32)
    want = np.abs(silu_mul(gate, up))
    assert np.all(silu_mul_bound(gate, up) <= 40 * U * want + EXP_FLOOR * 16)  # 2 ULPS + 2 * 10 of exp, and five roundings


def test_a_row_of_zeros_stays_zero() -> None:
    x, weight, eps = case("rms_norm", "a row of zeros").arguments()
    assert not np.any(rms_norm(x, weight, eps)[1])


@pytest.mark.parametrize("case", CASES["silu_mul"], ids=str)
def test_torch_silu_agrees_in_float64_and_is_within_the_bound_in_float32(case: Case) -> None:
    gate, up = case.arguments()
    a, b = _torch(gate, up)
    want, bound = silu_mul(gate, up), silu_mul_bound(gate, up)
    assert worst((functional.silu(a.double()) * b.double()).numpy(), want, bound * _F64_SHARE) <= 1
    assert worst((functional.silu(a) * b).numpy(), want, bound) <= 1


@pytest.mark.parametrize("library", [np.exp, lambda x: torch.exp(torch.from_numpy(x)).numpy()], ids=["numpy", "torch"])
def test_the_exp_of_the_libraries_here_is_as_good_as_the_bounds_assume(library) -> None:
    x = np.linspace(-87, 88, 400_001, dtype=np.float32)
    want = np.exp(x.astype(np.float64))
    assert worst(library(x), want, 2 * ULPS * U * want) <= 1


def test_silu_through_exp2_is_within_the_bound() -> None:
    gate = np.linspace(-87, 87, 20001, dtype=np.float32)[None]
    e = np.exp2(-gate * np.float32(np.log2(np.e)))
    up = np.ones_like(gate)
    assert worst(gate * (1 / (1 + e)) * up, silu_mul(gate, up), silu_mul_bound(gate, up)) <= 1


def test_silu_through_a_float32_tanh_is_outside_the_bound_where_it_cancels() -> None:
    gate, up = np.full((1, 1), -15, dtype=np.float32), np.ones((1, 1), dtype=np.float32)
    y = gate * (np.float32(0.5) + np.float32(0.5) * np.tanh(gate * np.float32(0.5)))
    assert worst(y, silu_mul(gate, up), silu_mul_bound(gate, up)) > 1


@pytest.mark.parametrize("case", CASES["rope"], ids=str)
def test_rope_is_a_product_of_complex_numbers(case: Case) -> None:
    x, position, inv_freq, magnitude, interleaved = case.arguments()
    half = len(inv_freq)
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    z = (x[..., first] + 1j * x[..., second].astype(np.float64)) * magnitude * np.exp(1j * (position[:, None, None] * inv_freq))
    y = x.astype(np.float64)
    y[..., first], y[..., second] = z.real, z.imag
    # the angle's own error is float64's in the bound already
    assert worst(y, rope(*case.arguments()), rope_bound(*case.arguments())) <= 2.0**-20
    assert not np.any(rope_bound(*case.arguments())[..., 2 * half :])
    np.testing.assert_array_equal(rope(*case.arguments())[..., 2 * half :], x[..., 2 * half :])


def test_an_angle_in_higher_precision_is_within_the_bound_where_the_cosine_vanishes() -> None:
    position, x = np.int32([1_000_003]), np.float32([[[1, 0]]])
    inv_freq = np.array([np.pi / 2 * 400_003 / 1_000_003])
    got = np.cos(position.astype(np.longdouble) * inv_freq).astype(np.float32)
    want, bound = rope(x, position, inv_freq)[0, 0, :1], rope_bound(x, position, inv_freq)[0, 0, :1]
    assert np.abs(want) < 2.0**-24
    assert bound < 2.0**-30
    assert worst(got, want, bound) <= 1


def test_rope_keeps_the_length_of_every_pair_and_the_angle_between_positions() -> None:
    x, position, inv_freq, _, _ = case("rope", "halves").arguments()
    for interleaved in (False, True):
        y, later = (rope(x, position + shift, inv_freq, 1.0, interleaved) for shift in (0, 1000))
        want = np.sum(x.astype(np.float64) ** 2, axis=-1)
        tolerance = ORACLES["linear"].bound(np.abs(x).reshape(-1, 64), np.abs(x).reshape(-1, 64)).diagonal().reshape(want.shape)
        assert worst(np.sum(y**2, axis=-1), want, tolerance * _F64_SHARE) <= 1
        # q at p and k at p are as far apart as both moved by 1000
        assert worst(np.sum(later**2, axis=-1), want, tolerance * _F64_SHARE) <= 1


def test_a_float32_angle_is_outside_the_bound_at_far_positions() -> None:
    x, position, inv_freq, _, _ = case("rope", "far positions").arguments()
    angle = (position[:, None].astype(np.float32) * inv_freq.astype(np.float32))[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., :16], x[..., 16:]
    y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    assert worst(y, rope(x, position, inv_freq), rope_bound(x, position, inv_freq)) > 1
