"""BF16 weights on a processor with a bf16 dot: what the compiler made of it, and its numbers within a bound of their own.

Where there is no such processor, the instruction's documented operation is emitted in its place, and everything else is as it would be.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import test_cpu_matmul as product
import test_cpu_prepare as ready
from support import cpu
from support.asm import count, loops, on_stack
from support.cpu import FUSED, HERE, map_vectors, matmul, records

from lanewise.contract import Tolerance, dtype
from lanewise.formats import FORMATS
from lanewise.kernels.cpu import dense
from lanewise.kernels.cpu.compile import Library, assembly
from lanewise.kernels.cpu.dense import dense_matmul
from lanewise.kernels.cpu.dots import dot2_brain
from lanewise.kernels.cpu.emit import VF, VI, Emitter, Value
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.matmul import block_matmul
from lanewise.kernels.cpu.records import BRAIN, FLOAT, small_tiles
from lanewise.oracle import linear, linear_bound, worst

(ROW,) = (name for name, isa in ISAS.items() if isa.bf16)
WITHOUT = tuple(name for name in FUSED if name != ROW)
INSTRUCTION = "vdpbf16ps"
SMALLEST_NORMAL = 2.0**-126


def documented(e: Emitter, acc: Value, w: Value, x: Value) -> Value:
    """VDPBF16PS as its manual's operation section has it: odd elements, then even ones; subnormal operands and results are zero."""

    def flushed(v: Value) -> Value:
        bits = e.b.bitcast(v, VI)
        small = e.b.icmp_signed("==", e.b.and_(bits, e.all_ints(0x7F800000)), e.all_ints(0))
        return e.b.bitcast(e.b.select(small, e.b.and_(bits, e.all_ints(-(2**31))), bits), VF)

    acc = flushed(acc)
    for element in (lambda v: e.b.and_(v, e.all_ints(-(1 << 16))), lambda v: e.shl(v, 16)):
        acc = flushed(e.fma(flushed(element(w)), flushed(element(x)), acc))
    return acc


_LOADED: dict[tuple[str, str], Library] = {}


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The row runs here: emitted for what this processor has, the dot as documented, and never cached under the name of the true one."""
    lower = cpu.RUNNABLE[WITHOUT[0]]
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "documented"))
    monkeypatch.setitem(cpu.RUNNABLE, ROW, replace(ISAS[ROW], triple=lower.triple, cpu=lower.cpu, features=lower.features))
    monkeypatch.setattr(cpu, "_LIBRARIES", _LOADED)
    monkeypatch.setattr(dense, "dot2_brain", documented)


# the machine code


def test_each_tile_has_one_inner_loop_with_just_the_dots_of_its_weights() -> None:
    """Two columns of 16 rows a dot, and one for each part of x. Nothing is widened, and nothing else multiplies.

    The tile of one token reads its panels one after the other, in a loop each.
    """
    row, text = ISAS[ROW], assembly(dense_matmul("BF16"), ISAS[ROW])
    inner = [body for body in loops(text) if count(body, INSTRUCTION)]
    tiles = [tokens * row.panels for tokens in (row.tokens, *small_tiles(row)) if tokens > 1] + [1] * row.panels
    assert sorted(count(body, INSTRUCTION) for body in inner) == sorted(2 * tile for tile in tiles)
    assert not [line for body in inner for line in body if "vfmadd" in line or "vpmovzx" in line]
    assert not [line for body in inner for line in on_stack(body) if "zmm" in line]


@pytest.mark.parametrize("isa", [name for name in ISAS if name != ROW])
def test_no_other_row_has_the_instruction(isa: str) -> None:
    assert INSTRUCTION not in assembly(dense_matmul("BF16"), ISAS[isa])


def test_no_other_format_has_the_instruction() -> None:
    for kernel in (dense_matmul("F32"), dense_matmul("F16"), block_matmul("Q8_0")):
        assert INSTRUCTION not in assembly(kernel, ISAS[ROW])


# its numbers


def _pairs(odd: np.ndarray, even: np.ndarray) -> np.ndarray:
    """Two bfloat16 a word, of float32 that are bfloat16."""
    return ((odd.view(np.uint32) & 0xFFFF0000) | even.view(np.uint32) >> 16).view(np.int32)


def _upper(x: np.ndarray) -> np.ndarray:
    """float32[...] cut to bfloat16."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


DOTS = [pytest.param(WITHOUT[0], documented, id="documented")]
DOTS += [pytest.param(ROW, dot2_brain, id="processor", marks=pytest.mark.skipif(ROW not in HERE, reason="this processor has no AVX512_BF16"))]


@pytest.mark.parametrize(("isa", "dot"), DOTS)
def test_the_dot_is_two_fused_multiply_adds_of_which_the_odd_elements_is_first(isa: str, dot: Callable[..., Value]) -> None:
    rng = np.random.default_rng(0)
    acc, w1, w0, x1, x0 = (rng.uniform(0.1, 2, 1024).astype(np.float32) * rng.choice(np.float32([-1, 1]), 1024) for _ in range(5))
    w1, w0, x1, x0 = map(_upper, (w1, w0, x1, x0))
    acc[:4], w1[:4], x1[:4], w0[:4], x0[:4] = (
        [2.0**24, 0, 1.5 * SMALLEST_NORMAL, 0], [1, 2.0**-70, -SMALLEST_NORMAL, 2.0**-130], [1, 2.0**-70, 1, 2.0**100], [-(2.0**24), 0, 0, 0], 1,
    )  # fmt: skip
    # a float32 and a product of 8 by 8 bits, all of them near 1, add up to less than the 53 bits of float64
    want = np.float32(np.float64(np.float32(acc + np.float64(w1) * x1)) + np.float64(w0) * x0)
    want[:4] = 0  # 2^24 + 1 is 2^24; then a product, a sum and an operand below the smallest normal number
    got = map_vectors({"dot": dot}, isa, acc, _pairs(w1, w0), _pairs(x1, x0))["dot"].view(np.float32)
    np.testing.assert_array_equal(got, want)


def _parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The upper and the lower parts of a row float32[k], from its record."""
    words = records(x[None], BRAIN, ROW)[0].view(np.uint16).reshape(-1, 2, 2)
    upper, lower = ((words[:, part].astype(np.uint32) << 16).view(np.float32).ravel()[: len(x)] for part in (0, 1))
    return upper, lower


@pytest.mark.usefixtures("emitted")
@pytest.mark.parametrize("name", ["normal", "spike", "small", "huge", "broken", "zeros"])
def test_two_parts_are_all_of_x_but_two_to_the_minus_sixteen(name: str) -> None:
    brain = dtype("bf16")
    for x in ready.INPUTS[name]:
        upper, lower = _parts(x)
        there = np.isfinite(x)
        np.testing.assert_array_equal(upper[there], _upper(x)[there])
        left = np.abs(x[there].astype(np.float64) - upper[there] - lower[there])
        assert (left <= brain.roundoff**2 * np.abs(x[there]) + brain.tiny).all()
        np.testing.assert_array_equal(upper[~there], x[~there])
        assert not lower[~there].any()


@pytest.mark.usefixtures("emitted")
def test_a_nan_whose_bits_are_all_in_the_lower_half_stays_one() -> None:
    upper, lower = _parts(np.full(32, 0x7F800001, np.uint32).view(np.float32))
    assert np.isnan(upper).all()
    assert not lower.any()


@pytest.mark.parametrize("isa", WITHOUT)
def test_elsewhere_the_record_is_x_itself(isa: str) -> None:
    for x in ready.INPUTS["normal"]:
        np.testing.assert_array_equal(records(x[None], BRAIN, isa), records(x[None], FLOAT, isa))


@pytest.mark.usefixtures("emitted")
def test_an_element_is_a_sum_over_each_part_in_the_order_of_the_columns() -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.uniform(0.1, 2, shape).astype(np.float32) for shape in (33, (17, 33)))
    raw = FORMATS["BF16"].quantize(w)
    w = FORMATS["BF16"].dequantize(raw).astype(np.float64)
    sums = []
    for part in _parts(x):
        total = np.zeros(len(w), np.float32)
        for column in (c for pair in range(0, 33, 2) for c in (pair + 1, pair) if c < 33):
            total = np.float32(total + w[:, column] * part[column])  # exact in float64 until it is rounded
        sums.append(total)
    np.testing.assert_array_equal(matmul(x[None], raw, "BF16", ROW)[0], sums[0] + sums[1])


def _bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of the sum of two sums of k fused multiply-adds, over parts that are together off by a bfloat16's roundoff squared.

    The upper part is at most |x|, the lower one an ulp of the upper. A subnormal number counts as zero wherever it stands: as either
    part of an x, as a w, or as one of 2k sums; each costs at most the smallest normal number times what it would have been multiplied by.
    """
    k, u = x.shape[1], dtype("bf16").roundoff
    size = linear(np.abs(x), np.abs(w))
    flushed = 2 * k + np.abs(x).sum(axis=1, dtype=np.float64)[:, None] + 2 * np.abs(w).sum(axis=1, dtype=np.float64)
    sums = Tolerance.dot(k + 1).bound(linear(x, w), size * (1 + 2 * u))
    return np.asarray(sums + u**2 * size + SMALLEST_NORMAL * flushed)


@pytest.mark.usefixtures("emitted")
@pytest.mark.parametrize("k", [1, 2, 33, 96, 1024])
@pytest.mark.parametrize(("of_x", "of_w"), [(1, 1), (1e-30, 1e-6), (1e-25, 1e-20), (1e30, 1e3), (1e-40, 1), (1, 1e-40)])
def test_products_are_within_the_bound_of_two_parts(k: int, of_x: float, of_w: float) -> None:
    rng = np.random.default_rng(k)
    x, w = (rng.normal(size=(rows, k)).astype(np.float32) * np.float32(size) for rows, size in ((5, of_x), (37, of_w)))
    raw = FORMATS["BF16"].quantize(w)
    w = FORMATS["BF16"].dequantize(raw)
    assert worst(matmul(x, raw, "BF16", ROW), linear(x, w), _bound(x, w)) <= 1


@pytest.mark.usefixtures("emitted")
def test_whole_numbers_and_sums_that_cancel_are_within_it_too() -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-128, 129, (rows, 512)).astype(np.float32) for rows in (3, 17))
    raw = FORMATS["BF16"].quantize(w)
    np.testing.assert_array_equal(matmul(x, raw, "BF16", ROW), linear(x, w))  # nothing is rounded
    both = np.concatenate([x + np.float32(2**-12), -x], axis=1)
    twice = FORMATS["BF16"].quantize(np.concatenate([w, w], axis=1))
    twice_w = FORMATS["BF16"].dequantize(twice)
    assert worst(matmul(both, twice, "BF16", ROW), linear(both, twice_w), _bound(both, twice_w)) <= 1


@pytest.mark.usefixtures("emitted")
def test_what_holds_for_dense_weights_holds_with_the_dot() -> None:
    """The definition's own bound at the lengths of the other tests, the same bits in any company, a bias, and 512 rows."""
    for check in (
        product.test_a_product_of_random_blocks_is_within_its_bound_for_any_n,
        product.test_a_row_has_the_same_bits_among_any_number_of_rows_and_in_any_chunk,
        product.test_a_bias_and_what_y_held_are_added_after_the_product_in_that_order,
    ):
        check(ROW, "BF16")
    x = np.random.default_rng(2).normal(size=(512, 96)).astype(np.float32)
    raw = product._weights("BF16", 5, 1)
    w = FORMATS["BF16"].dequantize(raw)
    got = matmul(x, raw, "BF16", ROW)
    assert worst(got, linear(x, w), _bound(x, w)) <= 1
    np.testing.assert_array_equal(matmul(x[77:78], raw, "BF16", ROW)[0], got[77])


def test_one_part_alone_would_be_outside_of_the_definitions_bound() -> None:
    x, raw, _, want, bound = product._case("BF16")
    rounded = FORMATS["BF16"].dequantize(FORMATS["BF16"].quantize(x))
    w = FORMATS["BF16"].dequantize(raw)
    np.testing.assert_array_equal(bound, linear_bound(x, w))
    assert worst(linear(rounded, w), want, bound) > 1
