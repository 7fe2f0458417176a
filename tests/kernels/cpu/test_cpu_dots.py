"""The 4-way dot product and the table lookup: exact at the extremes of their bytes, in every body that this processor runs."""

import numpy as np
import pytest
from support.cpu import HERE, map_vectors

from lanewise.formats.iq4 import VALUES
from lanewise.kernels.cpu.dots import EXPECTED, dot4, lookup16
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import ISAS

EVERY_ISA = pytest.mark.parametrize("isa", HERE)
ROUNDS = 64  # of 16 lanes


def _bytes(seed: int, least: int, most: int) -> np.ndarray:
    """int64[lanes, 4] from least..most: the two ends in every meeting, then random ones."""
    values = np.random.default_rng(seed).integers(least, most + 1, (ROUNDS * LANES, 4))
    values[: 16 * LANES] = np.where(np.random.default_rng(seed + 1).integers(0, 2, (16 * LANES, 4)) == 1, least, most)
    values[:2] = least
    values[2:4] = most
    return values


def _words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.astype(np.uint8)).view(np.int32).ravel()


def _dot(isa: str, acc: np.ndarray, w: np.ndarray, x: np.ndarray, wide: bool) -> np.ndarray:
    found = map_vectors({"dot": lambda e, acc, w, x: dot4(e, acc, w, x, wide=wide)}, isa, acc, _words(w), _words(x))
    return found["dot"].view(np.int32)


def _sums(seed: int) -> np.ndarray:
    acc = np.random.default_rng(seed).integers(-(2**30), 2**30, ROUNDS * LANES).astype(np.int32)
    acc[::7] = 0
    return acc


@EVERY_ISA
def test_dot4_is_exact_for_weights_below_128(isa: str) -> None:
    # two products of 127 * 127 just fit the int16 in which some bodies add them
    w, x, acc = _bytes(0, 0, 127), _bytes(2, -127, 127), _sums(4)
    x[:4] = [[-127] * 4, [127] * 4, [-127] * 4, [127] * 4]
    np.testing.assert_array_equal(_dot(isa, acc, w, x, wide=False), acc + np.sum(w * x, axis=1))


@EVERY_ISA
def test_a_wide_dot4_is_exact_for_weights_of_all_256_codes(isa: str) -> None:
    w, x, acc = _bytes(0, 0, 255) if ISAS[isa].unsigned else _bytes(0, -128, 127), _bytes(2, -127, 127), _sums(4)
    x[:4] = [[-127] * 4, [127] * 4, [-127] * 4, [127] * 4]
    np.testing.assert_array_equal(_dot(isa, acc, w, x, wide=True), acc + np.sum(w * x, axis=1))


@EVERY_ISA
@pytest.mark.parametrize("added", [0, 128])
def test_lookup16_finds_the_byte_of_every_index(isa: str, added: int) -> None:
    table = [(int(v) + added) & 255 for v in VALUES]
    indices = np.random.default_rng(0).integers(0, 16, (ROUNDS * LANES, 4))
    indices[:4] = np.arange(16).reshape(4, 4)
    found = map_vectors({"value": lambda e, i: lookup16(e, table, i)}, isa, _words(indices))["value"]
    np.testing.assert_array_equal(found.view(np.uint8).reshape(-1, 4), np.array(table, np.uint8)[indices])


def test_every_instruction_set_has_a_dot_whose_instruction_is_known() -> None:
    assert {isa.dot for isa in ISAS.values()} == set(EXPECTED)
    # an unsigned dot takes 8-bit weights with 128 added; a saturating one takes none, so it must be told their sign
    assert all(ISAS[name].unsigned == (ISAS[name].dot in ("vnni512", "vnni256", "usdot")) for name in ISAS)
