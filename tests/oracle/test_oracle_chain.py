"""The fused chain of linear: its roundings against torch, its definition, and that it is as narrow as it claims."""

import numpy as np
import pytest
import torch

from lanewise.errors import ShapeError
from lanewise.oracle import linear
from lanewise.oracle.chain import Enclosure, linear_chain, products, rounded

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def drawn(rng, *shape, dtype="bf16", size=1.0):
    return rounded(rng.standard_normal(shape) * size, dtype)


def numbers_of(dtype):
    """Every finite number of a 16-bit type, in order."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    values = bits.view(DTYPES[dtype]).double().numpy()
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_torchs_for_every_number_its_middles_and_their_neighbours(dtype):
    numbers = numbers_of(dtype)
    middles = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    x = np.concatenate([numbers, middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf)), [np.inf, -np.inf]])
    x = np.concatenate([x.astype(np.float32), np.float32([65519, 65520, -65520, 3.4e38])])
    np.testing.assert_array_equal(rounded(x, dtype), torch.from_numpy(x).to(DTYPES[dtype]).double().numpy())


def test_products_in_blocks_are_the_definition():
    rng = np.random.default_rng(0)
    x, w = drawn(rng, 3, 5000), drawn(rng, 1000, 5000)
    signed, absolute = products(x, w[:40])
    spread = 5000 * 2.0**-53 * absolute
    assert np.all(np.abs(signed - linear(x, w[:40])) <= 2 * spread)
    assert np.all(np.abs(absolute - linear(np.abs(x), np.abs(w[:40]))) <= 2 * spread)
    many = products(x, w)  # more than one block
    assert np.all(np.abs(many[0][:, :40] - signed) <= 2 * spread)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plain_product_is_the_definition_rounded_once(dtype):
    rng = np.random.default_rng(1)
    x, w, bias = drawn(rng, 2, 100, dtype=dtype), drawn(rng, 30, 100, dtype=dtype), drawn(rng, 30, dtype=dtype)
    found = linear_chain(x, w, bias, dtype=dtype)
    assert found.worst(rounded(linear(x, w, bias), dtype)) <= 1
    # what is far from a middle between two numbers has no choice
    assert np.mean(found.low == found.high) > 0.5


def test_the_sum_of_random_numbers_is_held_to_the_root_of_its_length():
    rng = np.random.default_rng(2)
    x, w = drawn(rng, 4, 4096), drawn(rng, 50, 4096)
    widths = [found.high - found.low for found in (linear_chain(x, w, out="f32", sums=sums) for sums in ("any", "random"))]
    assert np.all(widths[1] < widths[0] / 10)
    order = (x[:, None].astype(np.float32) * w[None].astype(np.float32)).cumsum(axis=-1, dtype=np.float32)[..., -1]
    assert linear_chain(x, w, out="f32", sums="random").worst(order) <= 1
    with pytest.raises(ShapeError, match="known are any, random, matrix"):
        linear_chain(x, w, sums="exact")


def test_the_neighbour_of_an_element_is_outside():
    rng = np.random.default_rng(3)
    found = linear_chain(drawn(rng, 2, 64), drawn(rng, 40, 64))
    right = rounded(found.want, "bf16")
    for wrong in (found.low - found.step, found.high + found.step):
        got = right.copy()
        got[1, 7] = wrong[1, 7]
        assert found.worst(got) > 1
        assert found.outside(got).tolist() == [[1, 7]]
    assert found.worst(np.full_like(right, np.nan)) == np.inf


def test_a_normalised_x_that_may_round_either_way_costs_its_step_and_others_nothing():
    # rms is 1 where all are +-1; the norm's weight puts one product on the middle between two numbers
    x = np.ones((1, 64))
    norm = np.ones(64)
    norm[5] = 1 + 2.0**-8
    w = np.zeros((2, 64))
    w[0, 5], w[1, 6] = 1, 1
    free = linear_chain(x, w, norm=norm, eps=0.0, out="f32")
    width = free.high - free.low
    assert width[0, 0] >= 2.0**-7
    assert width[0, 1] < 2.0**-15


def test_silu_of_an_interval_around_its_minimum_holds_the_minimum():
    # gate sums that cancel: the interval of the gate in float32 output is as wide as its roundings allow
    k = 2000
    gate = np.where(np.arange(k) % 2, -1.0, 1.0) * 64
    gate[0] += -1.2784645427610738
    w = np.stack([gate, np.eye(1, k)[0]])
    found = linear_chain(np.ones((1, k)), w, gated=True, out="f32")
    least = -0.27846454276107
    assert found.low[0, 0] <= least <= found.high[0, 0]


def test_what_is_too_large_for_half_precision_is_infinite_and_nothing_else():
    found = linear_chain(np.full((1, 4), 256.0), np.full((1, 4), 128.0), dtype="f16")
    assert found.worst(np.array([[np.inf]])) <= 1
    assert found.worst(np.array([[65504.0]])) > 1


def test_exact_sums_leave_no_choice_at_all():
    rng = np.random.default_rng(4)
    x, w = rng.integers(-8, 9, (3, 700)).astype(float), rng.integers(-8, 9, (20, 700)).astype(float)
    found = linear_chain(x, w, exact=True)
    np.testing.assert_array_equal(found.low, found.high)
    np.testing.assert_array_equal(found.low, rounded(x @ w.T, "bf16"))


def test_a_matrix_unit_may_be_off_by_twice_as_much():
    rng = np.random.default_rng(5)
    x, w = drawn(rng, 1, 1600), drawn(rng, 9, 1600)
    plain, matrix = (linear_chain(x, w, out="f32", sums=sums) for sums in ("any", "matrix"))
    ratio = (matrix.high - matrix.low) / (plain.high - plain.low)
    assert np.all((ratio > 2) & (ratio < 2.25))


def test_shapes_are_compared_before_numbers():
    with pytest.raises(ShapeError, match=r"got \(1,\), want \(1, 1\)"):
        Enclosure(*(np.zeros((1, 1)),) * 4).worst(np.zeros(1))
