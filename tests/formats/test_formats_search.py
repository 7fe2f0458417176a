"""The shared scale searches, seen from inside: what they are given, and what each of their parts is good for."""

import numpy as np
import pytest
from formats_cases import rmse, weights
from numpy.typing import NDArray

from lanewise.formats import get, search


def _whole(t: NDArray[np.float32]) -> NDArray[np.float32]:
    assert np.isfinite(t).all()
    return np.clip(np.rint(t), -8, 7)


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-40, 1e-30, 1.0, 1e7])
def test_a_rounding_is_never_given_nan_or_inf(size: float) -> None:
    x = weights("uniform", 32, 64) * np.float32(size)
    x[:, ::3], x[::4] = 0, 0
    assert np.isfinite(search.search_signed(x, _whole, [-8, -7.5])).all()
    assert np.isfinite(search.fit_signed(x, _whole, [-8, -7.5], per=16, scale_most=32).values).all()


def test_a_sub_block_gets_the_same_scale_alone_and_in_company() -> None:
    x = weights("normal", 32, 500)
    together = search.search_signed(x, _whole, [-8, -7.5])
    alone = np.concatenate([search.search_signed(x[:, i : i + 1], _whole, [-8, -7.5]) for i in range(500)])
    assert np.array_equal(alone, together)


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_trying_the_neighbouring_scales_lowers_the_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt, x = get(name), weights("normal")
    tried = rmse(x, fmt.dequantize(fmt.quantize(x)))
    monkeypatch.setattr(search, "_NEIGHBOURS", (np.float32(0),))
    assert tried < rmse(x, fmt.dequantize(fmt.quantize(x)))


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K"])  # in Q2_K the 4-bit scales blur what a single try brings
def test_every_try_of_an_affine_scale_lowers_the_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt, x = get(name), weights("normal", 128)
    tries = search._AFFINE_TRIES
    full = rmse(x, fmt.dequantize(fmt.quantize(x)))
    for left_out in range(1, len(tries)):
        monkeypatch.setattr(search, "_AFFINE_TRIES", tries[:left_out] + tries[left_out + 1 :])
        assert full < rmse(x, fmt.dequantize(fmt.quantize(x)))


def test_a_scale_is_the_nearest_finite_fp16_and_never_negative_zero() -> None:
    d = np.array([0.0, -0.0, 1.0, -1.0, 65504, 1e6, -1e6, 1e-9, -1e-9, 2.0**-24, 1.2 * 2.0**-24], np.float32)
    assert search.to_half(d).tolist() == [0, 0, 1, -1, 65504, 65504, -65504, 0, 0, 2.0**-24, 2.0**-24]
    up = search.to_half(d, up=True)
    assert up.tolist() == [0, 0, 1, -1, 65504, 65504, -65504, 2.0**-24, -(2.0**-24), 2.0**-24, 2.0**-23]
    assert not np.signbit(up[:2]).any()
