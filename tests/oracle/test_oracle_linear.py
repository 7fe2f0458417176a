"""embedding, linear and grouped linear: against integers, against torch, and float32 sums in several orders against the bound."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional

from lanewise.errors import ShapeError
from lanewise.oracle import embedding, grouped_linear, linear, linear_bound, worst
from lanewise.oracle.cases import CASES, Case, case

_F32 = NDArray[np.float32]
# two float64 computations, each within the float32 bound times the ratio of the roundoffs
_F64_SHARE = 2 * 2.0 ** (24 - 53)


def _one_by_one(x: _F32, w: _F32, order: NDArray[np.intp]) -> _F32:
    """x @ w.T, one product after another in the given order of k, every step rounded to float32."""
    y = np.zeros((len(x), len(w)), dtype=np.float32)
    for k in order:
        y = y + x[:, k, None] * w[None, :, k]
    return y


def _by_halves(products: _F32) -> _F32:
    """The sum over the last axis as a balanced tree."""
    while products.shape[-1] > 1:
        odd = products[..., -1:] if products.shape[-1] % 2 else products[..., :0]
        products = np.concatenate([products[..., 0:-1:2] + products[..., 1::2], odd], axis=-1)
    return products[..., 0]


def test_whole_numbers_are_the_integer_product() -> None:
    x, w, bias = case("linear", "whole numbers").arguments()
    np.testing.assert_array_equal(linear(x, w, bias), x.astype(np.int64) @ w.astype(np.int64).T + bias.astype(np.int64))


@pytest.mark.parametrize("case", CASES["linear"], ids=str)
def test_torch_agrees_in_float64_and_is_within_the_bound_in_float32(case: Case) -> None:
    arguments = case.arguments()
    wide = [torch.from_numpy(np.ascontiguousarray(a)).double() for a in arguments]
    bound = linear_bound(*arguments)
    assert worst(functional.linear(*wide).numpy(), linear(*arguments), bound * _F64_SHARE) <= 1
    assert worst(functional.linear(*(a.float() for a in wide)).numpy(), linear(*arguments), bound) <= 1


@settings(max_examples=40, deadline=None)
@given(m=st.integers(0, 4), n=st.integers(1, 5), k=st.integers(1, 90), seed=st.integers(0, 2**32 - 1))
def test_a_sum_in_any_order_is_within_the_bound(m: int, n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal((rows, k)).astype(np.float32) * np.exp2(rng.integers(-20, 20, k)).astype(np.float32) for rows in (m, n))
    want, bound = linear(x, w), linear_bound(x, w)
    for order in (np.arange(k), np.arange(k)[::-1], rng.permutation(k)):
        assert worst(_one_by_one(x, w, order), want, bound) <= 1
    assert worst(_by_halves(x[:, None] * w[None]), want, bound) <= 1


def test_a_long_sum_in_order_comes_near_the_bound() -> None:
    # 1/3 rounds the same way again and again while the sum stays in one binade
    x, w = np.full((1, 4096), 1 / 3, dtype=np.float32), np.ones((1, 4096), dtype=np.float32)
    assert worst(_one_by_one(x, w, np.arange(4096)), linear(x, w), linear_bound(x, w)) > 0.02


def test_a_sum_in_half_precision_is_outside_the_bound() -> None:
    x, w, _ = case("linear", "several rows with a bias").arguments()
    y = _one_by_one(x.astype(np.float16), w.astype(np.float16), np.arange(x.shape[1]))
    assert worst(y, linear(x, w), linear_bound(x, w)) > 1


def test_grouped_rows_are_the_linear_of_their_expert() -> None:
    x, w, expert = case("grouped_linear", "experts without rows").arguments()
    for row, chosen in enumerate(expert):
        np.testing.assert_array_equal(grouped_linear(x, w, expert)[row], linear(x, w[chosen])[row])


def test_embedding_copies_rows() -> None:
    w, tokens = case("embedding", "first, last and repeated tokens").arguments()
    np.testing.assert_array_equal(embedding(w, tokens), w[tokens])


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_token_or_expert_that_does_not_exist_is_refused(wrong: int) -> None:
    ids = np.asarray([0, wrong])
    with pytest.raises(ShapeError, match=rf"token {wrong} is outside 0\.\.2"):
        embedding(np.zeros((3, 2), np.float32), ids)
    with pytest.raises(ShapeError, match=rf"expert {wrong} is outside 0\.\.2"):
        grouped_linear(np.zeros((2, 4), np.float32), np.zeros((3, 2, 4), np.float32), ids)
