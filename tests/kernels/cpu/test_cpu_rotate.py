"""Queries, keys and values on their way into attention: norm and rotation within the oracle's bounds, the cache exactly what was turned."""

from typing import Any

import numpy as np
import pytest
from support.cpu import BEST, FUSED, HERE, call

from lanewise.backends.reference.ops import rotation
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.rotate import rotate_kernel
from lanewise.oracle import ORACLES, rms_norm, rms_norm_bound, rope, rope_bound, worst
from lanewise.oracle.cases import CASES

# head size, rotated pairs, neighbours paired
HALVES = ((16, 8, False), (64, 32, False), (80, 40, False), (128, 64, False), (64, 16, False))
SHAPES = (*HALVES, (16, 8, True), (64, 32, True), (48, 8, True), (32, 0, False))
EPS = 1e-6
GUARD = np.float16(77)
HEADS, KV_HEADS, PAGES = 3, 2, 4


def _freq(pairs: int) -> np.ndarray:
    return 10000.0 ** -(np.arange(pairs) / max(1, pairs))


def _run(isa: str, shape: tuple[int, int, bool], x: np.ndarray, positions: np.ndarray, slots: np.ndarray, norms: Any = (0, 0)) -> Any:
    """(rows after, keys [pages, page, kv_heads, dim], values) for rows x[m, heads + 2 kv_heads, dim], with a margin on each row."""
    dim, pairs, interleaved = shape
    m = len(x)
    rows = np.full((m, x[0].size + 5), 7, np.float32) if m else np.zeros((0, 5), np.float32)
    rows[:, : rows.shape[1] - 5] = x.reshape(m, -1)
    cos, sin = rotation(positions, _freq(pairs))
    keys = np.full((PAGES, KV_HEADS, dim, LANES), GUARD, np.float16)
    values = np.full((PAGES, KV_HEADS, LANES, dim), GUARD, np.float16)
    call(
        rotate_kernel(dim, pairs, interleaved), isa, m, qkv=rows, row_step=rows.strides[0], heads=HEADS, kv_heads=KV_HEADS,
        q_norm=norms[0], k_norm=norms[1], eps=EPS, cos=cos, sin=sin, slots=slots.astype(np.int32), keys=keys, values=values,
        page_step=keys[0].nbytes, m=m, per_chunk=1,
    )  # fmt: skip
    assert (rows[:, rows.shape[1] - 5 :] == 7).all()
    return rows[:, : rows.shape[1] - 5].reshape(x.shape), keys.transpose(0, 3, 1, 2), values.swapaxes(1, 2)


def _rows(dim: int, m: int = 5) -> np.ndarray:
    return np.random.default_rng(dim).normal(size=(m, HEADS + 2 * KV_HEADS, dim)).astype(np.float32)


POSITIONS, SLOTS = np.array([0, 1, 17, 4000, 100_000]), np.array([3, 63, 16, 0, 31])


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_heads_are_turned_within_the_bound_and_the_cache_gets_just_that(isa: str, shape: tuple[int, int, bool]) -> None:
    dim, pairs, interleaved = shape
    x = _rows(dim)
    after, keys, values = _run(isa, shape, x, POSITIONS, SLOTS)
    turned, freq = slice(0, HEADS + KV_HEADS), _freq(pairs)
    assert ORACLES["rope"].worst(after[:, turned], x[:, turned], POSITIONS, freq, 1.0, interleaved) <= 1
    np.testing.assert_array_equal(after[:, HEADS + KV_HEADS :], x[:, HEADS + KV_HEADS :])
    page, offset = np.divmod(SLOTS, LANES)
    np.testing.assert_array_equal(keys[page, offset], after[:, HEADS : HEADS + KV_HEADS].astype(np.float16))
    np.testing.assert_array_equal(values[page, offset], x[:, HEADS + KV_HEADS :].astype(np.float16))
    other = np.ones((PAGES, LANES), bool)
    other[page, offset] = False
    assert (keys[other] == GUARD).all()
    assert (values[other] == GUARD).all()


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("shape", [(64, 32, False), (16, 8, True)], ids=str)
def test_per_head_norms_come_before_the_rotation_each_with_its_own_weight(isa: str, shape: tuple[int, int, bool]) -> None:
    dim, pairs, interleaved = shape
    x, rng = _rows(dim), np.random.default_rng(1)
    weights = [rng.normal(1, 0.3, dim).astype(np.float32) for _ in range(2)]
    after, keys, _ = _run(isa, shape, x, POSITIONS, SLOTS, weights)
    for heads, weight in ((slice(0, HEADS), weights[0]), (slice(HEADS, HEADS + KV_HEADS), weights[1])):
        normed, off = rms_norm(x[:, heads], weight, EPS), rms_norm_bound(x[:, heads], weight, EPS)
        want = rope(normed, POSITIONS, _freq(pairs), 1.0, interleaved)
        # a turn mixes the errors of the two members of a pair, each at most once, and rounds what they have become
        bound = off + _partner(off, pairs, interleaved) + rope_bound(np.abs(normed) + off, POSITIONS, _freq(pairs), 1.0, interleaved)
        assert worst(after[:, heads], want, bound) <= 1
    page, offset = np.divmod(SLOTS, LANES)
    np.testing.assert_array_equal(keys[page, offset], after[:, HEADS : HEADS + KV_HEADS].astype(np.float16))


def _partner(x: np.ndarray, pairs: int, interleaved: bool) -> np.ndarray:
    """Each rotated dim replaced by the other of its pair."""
    swapped = x.copy()
    one, two = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    swapped[..., one], swapped[..., two] = x[..., two], x[..., one]
    return swapped


@pytest.mark.parametrize("shape", [(64, 32, False), (64, 32, True)], ids=str)
def test_every_instruction_set_with_fma_turns_the_same_bits(shape: tuple[int, int, bool]) -> None:
    x, weights = _rows(shape[0]), [np.full(shape[0], 0.7, np.float32), np.full(shape[0], 1.3, np.float32)]
    best = _run(BEST, shape, x, POSITIONS, SLOTS, weights)
    for isa in FUSED:
        for got, want in zip(_run(isa, shape, x, POSITIONS, SLOTS, weights), best, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", [c for c in CASES["rope"] if c.arguments()[0].shape[-1] % LANES == 0], ids=str)
def test_the_cases_of_the_oracle_hold(case: Any) -> None:
    x, positions, freq, magnitude, interleaved = case.arguments()
    m, heads, dim = x.shape
    rows, slots = np.concatenate([x, np.zeros((m, 2, dim), np.float32)], axis=1), np.arange(m, dtype=np.int32)
    cos, sin = rotation(positions, freq, magnitude)
    cache = [np.zeros((1, 1, dim, LANES), np.float16) for _ in range(2)]
    call(
        rotate_kernel(dim, len(freq), interleaved), BEST, m, qkv=rows, row_step=rows.strides[0], heads=heads, kv_heads=1, q_norm=0, k_norm=0,
        eps=EPS, cos=cos, sin=sin, slots=slots,
        keys=cache[0], values=cache[1], page_step=cache[0][0].nbytes, m=m, per_chunk=1,
    )  # fmt: skip
    assert ORACLES["rope"].worst(rows[:, :heads], *case.arguments()) <= 1


@pytest.mark.parametrize("isa", HERE)
def test_a_value_that_float16_cannot_hold_becomes_infinite(isa: str) -> None:
    x = _rows(16, 1)
    x[0, -1, :4] = 65519.9, 65520, -1e30, np.nan
    _, _, values = _run(isa, (16, 8, False), x, POSITIONS[:1], SLOTS[:1])
    got = values[SLOTS[0] // LANES, SLOTS[0] % LANES, -1, :4]
    np.testing.assert_array_equal(got, np.float16([65504, np.inf, -np.inf, np.nan]))
