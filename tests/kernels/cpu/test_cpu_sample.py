"""The passes over a row of logits: the greatest, the collected and their order exactly, the sum within its bound, nothing past the row."""

import math

import numpy as np
import pytest
from support.cpu import BEST, FUSED, HERE, at_the_edge, call, snippet

from lanewise.kernels.cpu.compile import compile_object
from lanewise.kernels.cpu.emit import LANES, VD, Emitter
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel, double_bits
from lanewise.kernels.cpu.sample import COLLECT, SAMPLE_KERNELS, SCAN, TOTAL, VECTORS, _exp

EVERY_ISA = pytest.mark.parametrize("isa", HERE)
PIECE = LANES * VECTORS
WIDTHS = (1, 2, 15, 16, 17, 63, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5)
INF, NAN = np.float32(np.inf), np.float32(np.nan)
U = 2.0**-53  # the unit roundoff of float64
EXP_ULPS = 2  # its docstring says about one
GUARD = -7


def scan(logits: np.ndarray, isa: str) -> tuple[np.ndarray, int, bool]:
    """(maxima, id of the greatest, whether there is a NaN)"""
    pieces = -(-len(logits) // PIECE)
    maxima, out = np.full((pieces + 1, LANES), GUARD, np.float32), np.full(3, GUARD, np.int64)
    call(SCAN, isa, logits=logits, n=len(logits), pieces=pieces, maxima=maxima, out=out)
    assert (maxima[pieces] == GUARD).all()
    assert out[2] == GUARD
    return maxima[:pieces], int(out[0]), bool(out[1])


def collect(logits: np.ndarray, least: float, isa: str) -> np.ndarray:
    """The ids of logits >= least, in the order of their keys."""
    maxima, _, _ = scan(logits, isa)
    keys, out = np.full(len(logits) + 1, GUARD, np.int64), np.zeros(1, np.int64)
    call(COLLECT, isa, logits=logits, n=len(logits), pieces=len(maxima), maxima=maxima, least=float(least), keys=keys, out=out)
    assert (keys[out[0] :] == GUARD).all()
    return np.sort(keys[: out[0]]) & 0xFFFFFFFF


def total(logits: np.ndarray, temperature: float, isa: str) -> float:
    out = np.zeros(1, np.float64)
    call(TOTAL, isa, logits=logits, n=len(logits), greatest=float(logits.max()), rate=double_bits(min(1 / temperature, 1e300)), out=out)
    return float(out[0])


def rows(n: int) -> list[np.ndarray]:
    """Logits of a model; with many ties; with most of them masked; all equal."""
    rng = np.random.default_rng(n)
    plain = rng.normal(0, 4, n)
    masked = np.where(rng.random(n) < 0.9, -np.inf, plain)
    masked[rng.integers(n)] = 1.0
    return [row.astype(np.float32) for row in (plain, np.round(plain / 4) * 0.5, masked, np.full(n, -3.25))]


@EVERY_ISA
@pytest.mark.parametrize("n", WIDTHS)
def test_the_greatest_is_that_of_the_lowest_id_and_each_lane_of_a_piece_has_its_own(isa: str, n: int) -> None:
    for logits in rows(n):
        maxima, best, broken = scan(logits, isa)
        assert best == np.argmax(logits)
        assert not broken
        whole = np.full(maxima.size * VECTORS, -INF)
        whole[:n] = logits
        np.testing.assert_array_equal(maxima, whole.reshape(-1, VECTORS, LANES).max(axis=1))


@EVERY_ISA
def test_the_greatest_is_found_wherever_it_is_and_so_is_a_nan(isa: str) -> None:
    n = PIECE + 37
    for place in (*range(40), *range(PIECE - 20, n)):
        logits = np.full(n, -5, np.float32)
        logits[place:] = 2  # it and all behind it
        assert scan(logits, isa)[1:] == (place, False)
        logits[place] = NAN
        assert scan(logits, isa)[2]


@EVERY_ISA
def test_signed_zeros_are_equal_and_masked_rows_have_no_nan(isa: str) -> None:
    assert scan(np.float32([-1, -0.0, 0.0]), isa)[1:] == (1, False)
    assert scan(np.full(40, -INF), isa)[1:] == (0, False)
    assert scan(np.full(40, NAN), isa)[1:] == (40, True)
    zeros = np.float32([0.0, -0.0, 1.0, -0.0, 0.0, -1.0])
    assert collect(zeros, -INF, isa).tolist() == [2, 0, 1, 3, 4, 5]
    assert collect(zeros, 0.0, isa).tolist() == collect(zeros, -0.0, isa).tolist() == [2, 0, 1, 3, 4]


@EVERY_ISA
@pytest.mark.parametrize("n", WIDTHS)
def test_what_is_no_smaller_than_a_limit_comes_in_order_ties_by_id(isa: str, n: int) -> None:
    for logits in rows(n):
        order = np.argsort(-logits, kind="stable")
        for least in (-np.inf, np.median(logits), logits.max(), np.nextafter(logits.max(), INF), *logits[:2]):
            np.testing.assert_array_equal(collect(logits, least, isa), order[logits[order] >= least])


@EVERY_ISA
def test_floats_of_every_size_are_sorted(isa: str) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 2000, dtype=np.uint32)
    logits = bits.view(np.float32)
    logits = np.concatenate([logits[~np.isnan(logits)], np.float32([1e-45, -1e-45, 3.4e38, -3.4e38, 2**-126, -(2**-126)])])
    np.testing.assert_array_equal(collect(logits, -INF, isa), np.argsort(-logits, kind="stable"))


def _sum_and_bound(logits: np.ndarray, temperature: float) -> tuple[float, float]:
    """The sum of exp((logits - max) / temperature), and how far a float64 one may be off.

    An argument is rounded three times (difference, 1 / temperature, product), which is that part of |x| in the result; then exp
    itself; then the sums of n / 16 numbers a lane and a tree of four. Far below 1, e^-700 may stand for less.
    """
    x = (logits.astype(np.longdouble) - logits.max()) / np.longdouble(temperature)
    weights = np.exp(np.maximum(x, -800)).astype(np.float64)
    size = np.minimum(np.abs(x), 800).astype(np.float64)
    each = weights * (np.expm1(3 * U * size) + 2 * EXP_ULPS * U) + math.exp(-700)
    exact = math.fsum(weights)
    return exact, math.fsum(each) + (math.ceil(len(logits) / LANES) + 4) * U * exact


@EVERY_ISA
@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 0.01, 0.7, 1.0, 30.0, 2.0**63])
def test_the_sum_of_exponentials_is_within_its_bound(isa: str, temperature: float) -> None:
    for n in WIDTHS:
        for logits in rows(n):
            exact, bound = _sum_and_bound(logits, temperature)
            assert abs(total(logits, temperature, isa) - exact) <= bound
            assert bound <= exact * 2.0**-30  # or it would allow anything


@EVERY_ISA
def test_equal_logits_sum_to_their_number_exactly(isa: str) -> None:
    for n in WIDTHS:
        assert total(np.full(n, 3.3, np.float32), 0.7, isa) == n


@EVERY_ISA
def test_the_exponential_is_within_two_ulps_wherever_it_counts(isa: str) -> None:
    x = np.concatenate([-np.geomspace(1e-300, 700, 4096), np.linspace(-700, 0, 4096), -np.arange(16) * math.log(2) / 2, -np.zeros(16)])
    y = np.zeros_like(x)

    def body(e: Emitter, a: Arguments) -> None:
        with e.loop(a.count) as i:
            e.store(_exp(e, e.load(VD, a.x, e.mul(i, 8 * LANES))), a.y, e.mul(i, 8 * LANES))

    snippet("exp64", ("count", "x", "y"), body, isa, count=len(x) // LANES, x=x, y=y)
    want = np.exp(x.astype(np.longdouble))
    assert float(np.max(np.abs(y - want) / np.spacing(want.astype(np.float64)))) <= EXP_ULPS
    assert (y[x == 0] == 1).all()


def test_every_instruction_set_with_fma_sums_to_the_same_bits() -> None:
    logits = rows(3 * PIECE + 5)[0]
    assert {total(logits, 0.7, isa) for isa in FUSED} == {total(logits, 0.7, BEST)}


@EVERY_ISA
@pytest.mark.parametrize("n", WIDTHS)
def test_nothing_is_read_past_the_end_of_the_row(isa: str, n: int) -> None:
    logits = at_the_edge(rows(n)[0])
    assert scan(logits, isa)[1] == np.argmax(logits)
    assert len(collect(logits, -INF, isa)) == n
    assert total(logits, 1.0, isa) >= 1


@pytest.mark.parametrize("kernel", SAMPLE_KERNELS, ids=lambda kernel: kernel.name)
def test_every_pass_compiles_for_aarch64(kernel: CpuKernel) -> None:
    assert compile_object(kernel, ISAS["aarch64"])[:4] == b"\x7fELF"
