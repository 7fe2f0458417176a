"""Products with weights of every format: against the exact oracle, at any m and n, and the same bits whatever stands beside a row."""

import functools

import numpy as np
import pytest
from support.cpu import ALL, BEST, FUSED, HERE, QUANTIZED, finite_blocks, halves_of, matmul

from lanewise.contract import dtype
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.records import MANY
from lanewise.oracle import ORACLES, worst

# Two instruction sets for every format, the others for what they differ in: 8-bit weights, tables, nibbles in place, float16.
FEW = ("Q8_0", "IQ4_NL", "Q4_K", "F16")
PAIRS = [(isa, fmt) for isa in HERE for fmt in (ALL if isa in (BEST, "x86-64-v3") else FEW)]
QUANT_PAIRS = [(isa, fmt) for isa, fmt in PAIRS if fmt in QUANTIZED]
RAGGED = (1, 7, 16, 17, 31, 33, 37)
MOST_ROWS = 17
LEVELS_EXACT = 2**24  # integers up to here are float32 numbers


def _blocks(fmt: str) -> int:
    return 2 if FORMATS[fmt].block > LANES * 2 else 4


def _weights(fmt: str, n: int, blocks: int, seed: int = 0) -> np.ndarray:
    """Raw rows: random bytes with finite scales, or random floats."""
    if fmt in DENSE:
        return FORMATS[fmt].quantize(np.random.default_rng(seed).normal(size=(n, 96 * blocks)).astype(np.float32))
    return finite_blocks(fmt, n, blocks, seed)


@functools.cache
def _case(fmt: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, raw, bias, and the oracle's result and bound without the bias: as large as any test needs, to be cut."""
    raw = _weights(fmt, max(RAGGED), _blocks(fmt))
    rng = np.random.default_rng(1)
    x = rng.normal(size=(MOST_ROWS, raw.shape[1] // FORMATS[fmt].nbytes * FORMATS[fmt].block)).astype(np.float32)
    bias = rng.normal(size=len(raw)).astype(np.float32)
    op, integer = ORACLES["quant_linear"], {"integer": True} if fmt in QUANTIZED else {}
    return x, raw, bias, np.asarray(op.compute(x, raw, fmt, **integer)), op.bound(x, raw, fmt, **integer)


@pytest.mark.parametrize(("isa", "fmt"), PAIRS)
def test_a_product_of_random_blocks_is_within_its_bound_for_any_n(isa: str, fmt: str) -> None:
    x, raw, _, want, bound = _case(fmt)
    for n in RAGGED if (isa, fmt) in ((BEST, "Q8_0"), (BEST, "F16"), ("x86-64-v3", "Q4_K")) else (7, 31):
        assert worst(matmul(x, raw[:n], fmt, isa), want[:, :n], bound[:, :n]) <= 1


@pytest.mark.parametrize(("isa", "fmt"), PAIRS)
def test_a_row_has_the_same_bits_among_any_number_of_rows_and_in_any_chunk(isa: str, fmt: str) -> None:
    x, raw, _, _, _ = _case(fmt)
    alone = np.concatenate([matmul(x[i : i + 1], raw, fmt, isa) for i in range(MOST_ROWS)])
    for m in range(MOST_ROWS + 1):
        np.testing.assert_array_equal(matmul(x[:m], raw, fmt, isa), alone[:m])
    np.testing.assert_array_equal(matmul(x, raw, fmt, isa, per_chunk=3), alone)
    np.testing.assert_array_equal(matmul(x[:, :], raw[16:], fmt, isa), alone[:, 16:])
    many = np.arange(MANY + 12) % MOST_ROWS  # weights are unpacked once for all of them
    for m in (MANY - 1, MANY, MANY + 5, len(many)):
        np.testing.assert_array_equal(matmul(x[many[:m]], raw, fmt, isa), alone[many[:m]])


@pytest.mark.parametrize(("isa", "fmt"), QUANT_PAIRS)
def test_integers_and_whole_scales_give_exactly_the_oracle(isa: str, fmt: str) -> None:
    """Scales are 1 or 2, and every group of x is scaled by 1: no operation has anything to round."""
    raw = _weights(fmt, 37, _blocks(fmt), seed=2)
    fields, rng = raw.view(FORMATS[fmt].layout), np.random.default_rng(3)
    for field in halves_of(fmt):
        fields[field] = rng.integers(1, 3, fields[field].shape).astype(np.float16)
    k = raw.shape[1] // FORMATS[fmt].nbytes * FORMATS[fmt].block
    x = rng.integers(-2, 3, (7, k)).astype(np.float32)
    x[:, rng.integers(0, 32) :: 256 if FORMATS[fmt].block == 256 else 32] = 127
    want = ORACLES["quant_linear"].compute(x, raw, fmt, integer=True)
    sizes = ORACLES["quant_linear"].compute(np.abs(x), raw | 0, fmt, integer=True)
    assert np.abs(want).max() < LEVELS_EXACT
    assert np.abs(sizes).max() < LEVELS_EXACT
    np.testing.assert_array_equal(matmul(x, raw, fmt, isa), want)


@pytest.mark.parametrize(("isa", "fmt"), QUANT_PAIRS)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_codes_and_scales_are_within_the_bound(isa: str, fmt: str, byte: int) -> None:
    """Every code and small scale at an end of its range, activations all at +-127, and float16 scales from the smallest to the largest."""
    raw = np.full_like(_weights(fmt, 8, 2), byte)
    half = dtype("f16")
    ends = np.array([half.tiny, -half.tiny, 65504, -65504, 2.0**-14, 1, 0, -0.0], np.float16)
    fields = raw.view(FORMATS[fmt].layout)
    for field in halves_of(fmt):
        fields[field] = ends[:, None]
    k = raw.shape[1] // FORMATS[fmt].nbytes * FORMATS[fmt].block
    x = np.stack([np.full(k, 3.7), np.full(k, -3.7), np.where(np.arange(k) % 2, 1, -1), np.full(k, 1e-30)]).astype(np.float32)
    want, bound = (f(x, raw, fmt, integer=True) for f in (ORACLES["quant_linear"].compute, ORACLES["quant_linear"].bound))
    got = matmul(x, raw, fmt, isa)
    assert worst(got, want, bound) <= 1
    np.testing.assert_array_equal(matmul(np.tile(x, (MANY, 1)), raw, fmt, isa), np.tile(got, (MANY, 1)))


@pytest.mark.parametrize(("isa", "fmt"), PAIRS)
def test_a_bias_and_what_y_held_are_added_after_the_product_in_that_order(isa: str, fmt: str) -> None:
    x, raw, bias, _, _ = _case(fmt)
    plain = matmul(x, raw, fmt, isa)
    held = np.random.default_rng(4).normal(size=plain.shape).astype(np.float32)
    np.testing.assert_array_equal(matmul(x, raw, fmt, isa, bias), plain + bias)
    np.testing.assert_array_equal(matmul(x, raw, fmt, isa, y=held), plain + held)
    np.testing.assert_array_equal(matmul(x, raw, fmt, isa, bias, y=held), plain + bias + held)


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_K", "BF16"])
def test_a_prompt_of_512_rows_is_within_its_bound(fmt: str) -> None:
    raw = _weights(fmt, 5, 1)
    x = np.random.default_rng(5).normal(size=(512, raw.shape[1] // FORMATS[fmt].nbytes * FORMATS[fmt].block)).astype(np.float32)
    integer = {"integer": True} if fmt in QUANTIZED else {}
    want, bound = (f(x, raw, fmt, **integer) for f in (ORACLES["quant_linear"].compute, ORACLES["quant_linear"].bound))
    assert worst(matmul(x, raw, fmt, BEST), want, bound) <= 1


@pytest.mark.parametrize("fmt", ALL)
def test_every_instruction_set_with_fma_gives_the_same_bits(fmt: str) -> None:
    """No operation on floats depends on the width of a vector: sums run along k, in order, one lane for each row of w. A bf16 dot apart."""
    x, raw, bias, _, _ = _case(fmt)
    alike = [isa for isa, other in PAIRS if other == fmt and isa in FUSED and not (fmt == "BF16" and ISAS[isa].bf16)]
    best = matmul(x[:7], raw, fmt, alike[0], bias)
    for isa in alike[1:]:
        np.testing.assert_array_equal(matmul(x[:7], raw, fmt, isa, bias), best)


@pytest.mark.parametrize("fmt", ["Q4_0", "Q5_K"])
def test_a_broken_row_of_x_is_nan_and_spoils_no_other(fmt: str) -> None:
    x, raw, _, _, _ = _case(fmt)
    x = x[:5].copy()
    right = matmul(x, raw, fmt, BEST)
    x[2, 3] = np.inf
    got = matmul(x, raw, fmt, BEST)
    assert np.isnan(got[2]).all()
    np.testing.assert_array_equal(np.delete(got, 2, 0), np.delete(right, 2, 0))
