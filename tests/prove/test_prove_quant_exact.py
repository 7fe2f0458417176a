"""The fast float64 sums of quant_linear against the slow oracle, and the blocks and cases that proofs are made with."""

import itertools

import numpy as np
import pytest
import torch

from lanewise.contract import Tolerance
from lanewise.formats import get
from lanewise.formats.activations import quantize_q8_0, quantize_q8_k
from lanewise.oracle import quant_linear, quant_linear_bound, worst
from lanewise.oracle.blocks import decode
from lanewise.prove import quant_exact
from lanewise.prove.quant_cases import BLOCKS, CASES, INTERPRETED, NAMES, ROWS, SIZES, SMALL, TILE, TOKENS, VALUES, pairwise
from lanewise.prove.quant_exact import largest, products, quantized, terms
from lanewise.prove.quant_weights import HALVES, weights

CPU = torch.device("cpu")
K = 2 * TILE
_DOUBLE = 2.0 ** (24 - 53)  # float64's roundoff in units of float32's


def x_of(name: str, rows: int = 3) -> np.ndarray:
    return np.random.default_rng(len(name)).standard_normal((rows, K)).astype(np.float32)


@pytest.mark.parametrize(("name", "values"), [*itertools.product(NAMES, VALUES[:4])])
def test_the_fast_sums_are_those_of_the_slow_oracle(name, values, monkeypatch):
    monkeypatch.setattr(quant_exact, "_CHUNK", 4 * K)  # some rows at a time, and a last part
    raw, x = weights(name, 11, K, values, 3), x_of(name)
    y, magnitude = products(*quantized(x, get(name).activation), raw, name, CPU)
    bound = quant_linear_bound(x, raw, name, integer=True)
    # either is off by float64's share of what float32 may be off by
    assert worst(y, quant_linear(x, raw, name, integer=True), 2 * _DOUBLE * bound) <= 1
    assert worst(Tolerance.dot(terms(K)).bound(y, magnitude), bound, 2 * _DOUBLE * bound) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_stays_in_its_row_and_its_token(name):
    raw, x = weights(name, 6, K, "broken w", 5), x_of(name)
    x[1, 40] = np.nan
    y, _ = products(*quantized(x, get(name).activation), raw, name, CPU)
    broken = np.zeros(y.shape, bool)
    broken[1], broken[:, [1, 5]] = True, True
    np.testing.assert_array_equal(~np.isfinite(y), broken)


@pytest.mark.parametrize(("kind", "quantize"), [("q8_0", quantize_q8_0), ("q8_k", quantize_q8_k)])
def test_activations_are_those_of_the_definition(kind, quantize):
    q, d = quantized(x_of(kind), kind)
    np.testing.assert_array_equal(q, quantize(x_of(kind)).q)
    np.testing.assert_array_equal(d, quantize(x_of(kind)).d)


@pytest.mark.parametrize(("name", "values"), [*itertools.product(NAMES, ("bytes", "even", "extreme", "exact"))])
def test_scales_are_finite_whatever_the_bytes(name, values):
    w = decode(weights(name, 40, K, values, 1), name)
    assert np.isfinite(w.scale).all()
    assert np.isfinite(w.least).all()
    assert np.count_nonzero(w.scale) > w.scale.size / 2


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_means_any_code_and_scales_of_every_size(name):
    raw = weights(name, 64, 8 * TILE, "bytes", 1)
    w, form = decode(raw, name), get(name)
    assert len(np.unique(w.q)) == {"Q8_0": 256, "Q2_K": 4, "Q3_K": 8, "Q6_K": 64, "Q5_0": 32, "Q5_1": 32, "Q5_K": 32}.get(name, 16)
    halves = [np.asarray(form.blocks(raw)[field], np.float64) for field in HALVES if field in form.layout.names]
    for half in halves:
        sizes = np.abs(half[half != 0])
        assert (sizes.min(), sizes.max()) < (2.0**-14, sizes.max())  # a subnormal one
        assert sizes.max() > 2.0**14
        assert (half < 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_extreme_weights_have_whole_blocks_of_their_codes_at_either_end(name):
    w = decode(weights(name, 64, K, "extreme", 1), name)
    blocks = w.q.reshape(64, K // get(name).block, -1)
    found = decode(weights(name, 64, 8 * TILE, "bytes", 1), name).q
    low, high = (np.all(blocks == end, axis=2).any() for end in (found.min(), found.max()))
    assert low or name == "Q8_0"  # whose byte of 0x80 is one block in four
    assert high


@pytest.mark.parametrize("name", NAMES)
def test_even_weights_let_every_block_count(name):
    w = decode(weights(name, 64, 8 * TILE, "even", 1), name)
    values = (w.scale[..., None] * w.q - w.least[..., None]).reshape(64, -1, get(name).block)
    size = np.sqrt(np.mean(values**2, axis=2))
    assert np.median(size) < 8 * np.min(size[size > 0])
    assert 1 / 8 < np.sqrt(np.mean(np.sum(values**2, axis=(1, 2)))) < 8


@pytest.mark.parametrize("name", NAMES)
def test_exact_weights_are_whole_multiples_of_a_power_of_two(name):
    raw = weights(name, 20, K, "exact", 1)
    most, step = largest(raw, name)
    w = decode(raw, name)
    assert float(np.log2(step)).is_integer()
    for part in (w.scale / step, w.least / step):
        np.testing.assert_array_equal(part, np.rint(part))
    parts = (np.abs(w.scale[..., None] * w.q) + np.abs(w.least[..., None])).reshape(20, -1)
    np.testing.assert_array_equal(most, parts.max(axis=0))


def test_the_list_is_the_whole_product_of_the_issue():
    wanted = {(name, m, n, count) for name, m, n, count in itertools.product(NAMES, TOKENS, ROWS, BLOCKS)}
    found = {(c.format, m, c.n, c.k // get(c.format).block) for c in CASES for m in c.m}
    assert wanted <= found
    assert len(wanted) == 12 * 11 * 9 * 8
    short = [name for name in NAMES if get(name).block < TILE]
    assert {(c.format, c.n, c.k) for c in CASES} >= {(name, n, TILE * count) for name, n, count in itertools.product(short, ROWS, BLOCKS)}
    for name in NAMES:
        mine = [c for c in CASES if c.format == name]
        assert {c.out for c in mine} == {c.dtype for c in mine} == {"bf16", "f16", "f32"}
        assert {c.size for c in mine} == set(SIZES)
        assert {c.values for c in mine} == set(VALUES)
    assert any(c.n > 65_536 for c in CASES)
    assert any(c.tokens > 65_536 for c in CASES)


@pytest.mark.parametrize("cases", [CASES, INTERPRETED, SMALL], ids=["card", "interpreter", "every cut"])
def test_names_say_which_case_it_is(cases):
    assert len({str(case) for case in cases}) == len(cases)


def test_what_the_interpreter_runs_has_every_pair_of_the_axes_that_it_can():
    def pairs(*names):
        return {tuple(getattr(case, name) for name in names) for case in INTERPRETED}

    assert pairs("format", "n") >= set(itertools.product(NAMES, (1, 7, 16, 17)))
    assert pairs("format", "out") >= set(itertools.product(NAMES, ("bf16", "f16", "f32")))
    for part in ("residual", "gated", "norm", "constant_w"):
        assert pairs("format", part) == set(itertools.product(NAMES, (False, True)))
    assert pairs("format", "bias") == set(itertools.product(NAMES, (0, 1, 2)))
    assert ("exact", False) in pairs("values", "gated")


def test_rows_in_pairs_have_every_pair_and_are_few():
    axes = ((0, 1, 2, 3), "abc", "de", (False, True), (None, 1.5))
    rows = pairwise(axes)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(axes[i], axes[j]))
    assert len(rows) <= 16
