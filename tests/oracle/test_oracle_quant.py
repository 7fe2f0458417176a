"""quant_linear: the oracle's own reading of every block format, and integer products against float ones."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lanewise.contract import Tolerance
from lanewise.errors import FormatError
from lanewise.formats import FORMATS, Format
from lanewise.formats.activations import quantize_q8_0, quantize_q8_k
from lanewise.oracle import linear, quant_linear, quant_linear_bound, worst
from lanewise.oracle.blocks import Decoded, decode
from lanewise.oracle.cases import case

_BLOCKED = [f for f in FORMATS.values() if f.activation != "float"]
_FLOATS = [f for f in FORMATS.values() if f.activation == "float"]
_ROWS = 6


def _random_bytes(fmt: Format) -> NDArray[np.uint8]:
    return np.random.default_rng(fmt.ggml_type).integers(0, 256, (_ROWS, 3 * fmt.nbytes), dtype=np.uint8)


def _parts(w: Decoded) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """scale * q and least, both [n,k]."""
    with np.errstate(invalid="ignore"):  # an infinite scale times 0
        scaled = w.scale[..., None] * w.q
    return scaled.reshape(len(scaled), -1), np.broadcast_to(w.least[..., None], scaled.shape).reshape(len(scaled), -1)


def _activations(x: NDArray[np.float32], fmt: Format) -> NDArray[np.float64]:
    a = quantize_q8_0(x) if fmt.activation == "q8_0" else quantize_q8_k(x)
    return a.q * np.repeat(a.d.astype(np.float64), x.shape[1] // a.d.shape[1], axis=1)


def _arguments(fmt: Format) -> tuple[NDArray[np.float32], NDArray[np.uint8], str, NDArray[np.float32]]:
    return case("quant_linear", f"{fmt.name}, several rows with a bias").arguments()


def test_the_oracle_reads_every_blocked_format() -> None:
    assert len(_BLOCKED) == 12


@pytest.mark.parametrize("fmt", _BLOCKED, ids=lambda f: f.name)
def test_any_bytes_are_the_weights_that_the_format_gives(fmt: Format) -> None:
    raw = _random_bytes(fmt)
    scaled, least = _parts(decode(raw, fmt.name))
    got = fmt.dequantize(raw).astype(np.float64)
    finite = np.isfinite(scaled) & np.isfinite(least)
    assert finite.mean() > 1 / 2
    np.testing.assert_array_equal(np.isfinite(got), finite)
    scaled, least, got = (np.where(finite, part, 0) for part in (scaled, least, got))
    # float32 holds scale * q and least exactly (at most 24 bits), and rounds their difference once
    assert worst(got, scaled - least, Tolerance.chain(1).bound(scaled - least)) <= 1
    if not least.any():
        np.testing.assert_array_equal(got, scaled)


def test_a_format_without_integers_is_refused_and_its_float_product_is_linear() -> None:
    for fmt in _FLOATS:
        x, raw, name, bias = _arguments(fmt)
        np.testing.assert_array_equal(quant_linear(x, raw, name, bias), linear(x, fmt.dequantize(raw), bias))
        for f in (quant_linear, quant_linear_bound):
            with pytest.raises(FormatError, match=rf"{name} has no integer form; those that have: Q4_0"):
                f(x, raw, name, bias, integer=True)


@pytest.mark.parametrize("fmt", _BLOCKED, ids=lambda f: f.name)
def test_the_integer_product_is_the_product_of_the_numbers_that_the_integers_stand_for(fmt: Format) -> None:
    x, raw, name, bias = _arguments(fmt)
    scaled, least = _parts(decode(raw, name))
    want = _activations(x, fmt) @ (scaled - least).T + bias
    # both are float64: what is left is its share of the float32 bound, once for each
    bound = quant_linear_bound(x, raw, name, bias, integer=True) * 2 * 2.0 ** (24 - 53)
    assert worst(want, quant_linear(x, raw, name, bias, integer=True), bound) <= 1


@pytest.mark.parametrize("fmt", _BLOCKED, ids=lambda f: f.name)
def test_integer_and_float_activations_differ_by_their_quantization_and_no_more(fmt: Format) -> None:
    x, raw, name, bias = _arguments(fmt)
    scaled, least = _parts(decode(raw, name))
    lost = np.abs(_activations(x, fmt) - x) @ np.abs(scaled - least).T
    bound = lost + quant_linear_bound(x, raw, name, bias)
    assert worst(quant_linear(x, raw, name, bias, integer=True), quant_linear(x, raw, name, bias), bound) <= 1


def _int_kernel(x: NDArray[np.float32], raw: NDArray[np.uint8], fmt: Format, bias: NDArray[np.float32], mistake: str = "") -> NDArray[np.float32]:
    """As a decode kernel does it: dots of 4 in int32, everything from there on in float32, summed in lanes."""
    w = decode(raw, fmt.name)
    groups, group = w.q.shape[1:]
    a = quantize_q8_0(x) if fmt.activation == "q8_0" else quantize_q8_k(x)
    q = a.q.astype(np.int32).reshape(len(x), 1, groups, group // 4, 4)
    d = np.repeat(a.d, groups // a.d.shape[1], axis=1)[:, None, :, None]
    scale, least = (part.astype(np.float32)[None, :, :, None] for part in (w.scale, w.least))
    if mistake == "the scale of the next group":
        scale = np.roll(scale, 1, axis=2)
    dots = np.sum(q * w.q.astype(np.int32).reshape(1, len(raw), groups, group // 4, 4), axis=-1)
    sums = np.sum(q, axis=-1)
    if mistake == "activations without sign":
        dots = np.sum(np.abs(q) * w.q.astype(np.int32).reshape(1, len(raw), groups, group // 4, 4), axis=-1)
    if mistake == "the first element's sum left out":
        sums = np.sum(q[..., 1:], axis=-1)
    terms = (d * scale) * dots.astype(np.float32) - (d * least) * sums.astype(np.float32)
    lanes = np.cumsum(terms.reshape(len(x), len(raw), -1, 8), axis=2, dtype=np.float32)[:, :, -1]
    return lanes.sum(axis=-1, dtype=np.float32) + bias


@pytest.mark.parametrize("fmt", _BLOCKED, ids=lambda f: f.name)
def test_a_decode_kernel_in_float32_is_within_the_integer_bound_and_its_mistakes_are_not(fmt: Format) -> None:
    x, raw, name, bias = _arguments(fmt)
    want, bound = (f(x, raw, name, bias, integer=True) for f in (quant_linear, quant_linear_bound))
    assert worst(_int_kernel(x, raw, fmt, bias), want, bound) <= 1
    assert worst(_int_kernel(x, raw, fmt, bias * 0), quant_linear(x, raw, name, integer=True), quant_linear_bound(x, raw, name, integer=True)) <= 1
    mistakes = ["activations without sign"]
    mistakes += ["the scale of the next group"] if decode(raw, name).q.shape[1] > 1 else []
    mistakes += ["the first element's sum left out"] if decode(raw, name).least.any() else []
    for mistake in mistakes:
        assert worst(_int_kernel(x, raw, fmt, bias, mistake), want, bound) > 1, mistake


@pytest.mark.parametrize("fmt", [f for f in _BLOCKED if f.name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")], ids=lambda f: f.name)
def test_weights_far_from_zero_are_within_the_bound_though_their_scales_are_small(fmt: Format) -> None:
    x, raw, name, bias = _arguments(fmt)
    raw = fmt.quantize(fmt.dequantize(raw) * np.float32(2.0**-12) - 3)
    x[:, ::2], bias[:] = -x[:, 1::2], 0
    want, bound = (f(x, raw, name, bias, integer=True) for f in (quant_linear, quant_linear_bound))
    assert worst(_int_kernel(x, raw, fmt, bias), want, bound) <= 1
    w = decode(raw, name)
    scale, least = (np.repeat(part.astype(np.float32), w.q.shape[2], axis=1) for part in (w.scale, w.least))
    apart = x @ (scale * w.q.reshape(scale.shape)).astype(np.float32).T - x @ least.T
    assert worst(apart, quant_linear(x, raw, name), quant_linear_bound(x, raw, name)) <= 1


def test_float_activations_given_to_the_integer_check_are_noticed() -> None:
    x, raw, name, bias = _arguments(FORMATS["Q4_K"])
    y = quant_linear(x, raw, name, bias)
    assert worst(y, quant_linear(x, raw, name, bias, integer=True), quant_linear_bound(x, raw, name, bias, integer=True)) > 1
