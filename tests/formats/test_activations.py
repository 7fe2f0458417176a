"""The int8 activations, against the definition computed one scalar at a time, class of input by class of input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.contract import dtype
from lanewise.errors import FormatError
from lanewise.formats.activations import Q8_K, SLACK, ZERO_BELOW, quantize_q8_0, quantize_q8_k

NAN_BITS = 0x7FC00000
F32 = np.float32


def by_definition(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """q and d of float32[m, k], scalar by scalar, as the docstring of activations.py has it."""
    m, k = x.shape
    q, d = np.zeros((m, k), np.int8), np.zeros((m, k // group), F32)
    for row in range(m):
        for g in range(k // group):
            part = x[row, g * group : (g + 1) * group]
            if not all(np.isfinite(v) for v in part):
                d[row, g] = np.array(NAN_BITS, np.uint32).view(F32)
                continue
            amax = F32(max(abs(v) for v in part))
            if amax < F32(ZERO_BELOW):
                continue
            d[row, g] = amax / F32(127)
            inverse = F32(127) / amax
            for i, v in enumerate(part):
                # Python rounds halves to even, and exactly
                q[row, g * group + i] = min(127, max(-127, round(float(F32(v * inverse)))))
    return q, d


def both(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(q, d, group) from both quantizers, after holding them to the definition bit for bit."""
    a, b = quantize_q8_0(x), quantize_q8_k(x)
    for got_q, got_d, group in ((a.q, a.d, 32), (b.q, b.d, 256)):
        q, d = by_definition(x, group)
        assert np.array_equal(got_q, q)
        assert np.array_equal(got_d.view(np.uint32), d.view(np.uint32))
        assert got_q.dtype == np.int8
        assert got_d.dtype == F32
    assert np.array_equal(b.sums, b.q.astype(np.int64).reshape(len(x), -1, 16).sum(-1))
    assert b.sums.dtype == np.int16
    return [(a.q, a.d, 32), (b.q, b.d, 256)]


def assert_within_bound(x: np.ndarray) -> None:
    for q, d, group in both(x):
        wide = np.repeat(d.astype(np.float64), group, axis=1)
        bound = np.where(wide > 0, wide / 2 * (1 + SLACK), ZERO_BELOW)
        assert (np.abs(x.astype(np.float64) - wide * q) <= bound).all()


def normal(rows: int = 2, k: int = 512, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(F32)


def test_normal_values_are_within_half_a_step() -> None:
    assert_within_bound(normal())


def test_zeros_have_a_zero_scale() -> None:
    x = np.zeros((2, 512), F32)
    x[1] = -0.0
    for q, d, _ in both(x):
        assert not q.any()
        assert not d.view(np.uint32).any()


@pytest.mark.parametrize("spike", [5.0, -5.0])
def test_a_single_spike_is_127_and_its_group_keeps_its_own_scale(spike: float) -> None:
    x = np.zeros((1, 512), F32)
    x[0, 300] = spike
    for q, d, group in both(x):
        assert q[0, 300] == np.sign(spike) * 127
        assert np.count_nonzero(q) == 1
        assert np.count_nonzero(d) == 1
        assert d[0, 300 // group] == F32(5) / F32(127)


def test_halves_round_to_even() -> None:
    x = np.zeros((1, 256), F32)
    x[0, ::32] = 127  # d = inverse = 1 in every group
    x[0, 1:9] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 125.5, -126.5]
    for q, _, _ in both(x):
        assert q[0, 1:9].tolist() == [0, 2, 2, 0, -2, -2, 126, -126]


def test_values_next_to_a_half_round_as_defined() -> None:
    """Where another order of operations (1/d, or x/d) would give another q."""
    rng = np.random.default_rng(0)
    amax = rng.uniform(1, 2, (40, 1)).astype(F32)
    x = (rng.integers(-127, 127, (40, 256)) + 0.5) * amax.astype(np.float64) / 127
    x = np.nextafter(x.astype(F32), rng.choice([-np.inf, np.inf], x.shape).astype(F32))
    x[:, ::32] = amax
    by_other_inverse = np.rint(x * (1 / (amax / F32(127))))
    assert any((q != by_other_inverse).any() for q, _, _ in both(x))


@pytest.mark.parametrize("size", [2.0**-149, 2.0**-127, 2.0**-126, float(np.nextafter(F32(ZERO_BELOW), F32(0)))])
def test_groups_below_the_threshold_are_zero(size: float) -> None:
    for q, d, _ in both(np.full((1, 256), size, F32)):
        assert not q.any()
        assert not d.any()


def test_at_the_threshold_nothing_is_subnormal_and_flushing_subnormal_inputs_changes_nothing() -> None:
    smallest_normal = np.finfo(F32).tiny
    x = np.full((1, 256), np.nextafter(smallest_normal, F32(0)), F32)  # the largest subnormal
    x[0, ::32] = ZERO_BELOW
    flushed = np.where(np.abs(x) < smallest_normal, F32(0), x)
    for (q, d, _), (q_flushed, d_flushed, _) in zip(both(x), both(flushed), strict=True):
        assert (d >= smallest_normal).all()
        assert np.array_equal(q, q_flushed)
        assert np.array_equal(d, d_flushed)
        assert q[0, 0] == 127


@pytest.mark.parametrize("size", [60000.0, 1e38, float(np.finfo(F32).max)])
def test_huge_values_keep_a_finite_scale(size: float) -> None:
    x = np.clip(normal(), -1, 1) * F32(size)
    assert_within_bound(x)
    for _, d, _ in both(x):
        assert np.isfinite(d).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_nan_and_inf_make_their_group_nan_and_no_other(bad: float) -> None:
    x = normal()
    x[1, 40] = bad
    clean = both(normal())
    for (q, d, group), (clean_q, clean_d, _) in zip(both(x), clean, strict=True):
        here = slice(40 // group * group, (40 // group + 1) * group)
        assert d[1, 40 // group].view(np.uint32) == NAN_BITS
        assert not q[1, here].any()
        d[1, 40 // group], q[1, here] = clean_d[1, 40 // group], clean_q[1, here]
        assert np.array_equal(d, clean_d)
        assert np.array_equal(q, clean_q)
    packed = quantize_q8_k(x)
    assert not packed.sums[1, :16].any()
    assert np.isnan(packed.dequantize()[1, :256]).all()
    assert np.isfinite(packed.dequantize()[1, 256:]).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-130, 120), spread=st.integers(0, 20))
def test_every_magnitude_is_within_the_derived_bound(seed: int, exponent: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (1, 256)) * 2.0 ** (exponent + rng.uniform(-spread, 0, (1, 256)))
    assert_within_bound(x.astype(F32))


def test_the_slack_is_what_the_docstring_derives_and_is_needed() -> None:
    u = dtype("f32").roundoff
    assert 3 * 254 * u < SLACK < 3 * 255 * u
    x = normal(256, 1024)
    got = quantize_q8_0(x)
    wide = np.repeat(got.d.astype(np.float64), 32, axis=1)
    assert (np.abs(x - wide * got.q) > wide / 2).any()  # half a step alone is exceeded


def test_dequantize_is_d_times_q() -> None:
    got = quantize_q8_0(normal())
    assert np.array_equal(got.dequantize(), np.repeat(got.d, 32, axis=1) * got.q.astype(F32))


def test_no_tokens_and_no_columns_are_fine() -> None:
    empty = quantize_q8_k(np.zeros((0, 512), F32))
    assert (empty.q.shape, empty.d.shape, empty.sums.shape) == ((0, 512), (0, 2), (0, 32))
    assert empty.dequantize().shape == (0, 512)
    none = quantize_q8_k(np.zeros((3, 0), F32))
    assert isinstance(none, Q8_K)
    assert (none.q.shape, none.d.shape, none.sums.shape) == ((3, 0), (3, 0), (3, 0))
    assert none.dequantize().shape == (3, 0)


def test_strided_activations_give_what_their_copies_give() -> None:
    x = normal(6, 1024)
    for view in (x[::2], x[:, 256:768], np.asfortranarray(x), x[:, ::-1]):
        assert np.array_equal(quantize_q8_k(view).q, quantize_q8_k(np.ascontiguousarray(view)).q)


@pytest.mark.parametrize(("quantize", "group"), [(quantize_q8_0, 32), (quantize_q8_k, 256)])
def test_a_k_that_is_no_whole_number_of_groups_is_refused_with_both_numbers(quantize, group: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FormatError, match=rf"k={group + 16} is not a whole number of groups of {group}"):
        quantize(np.zeros((1, group + 16), F32))


@pytest.mark.parametrize("x", [np.zeros((1, 256)), np.zeros((1, 256), np.float16), np.zeros(256, F32), np.zeros((1, 1, 256), F32), [[0.0] * 256]])
def test_what_is_not_a_float32_matrix_is_refused(x: object) -> None:
    for quantize in (quantize_q8_0, quantize_q8_k):
        with pytest.raises(FormatError, match=r"x is .*; it must be float32\[m, k\]"):
            quantize(x)  # type: ignore[arg-type]
