"""Activations made ready: the integers are those of the definition bit for bit, and what stands in front keeps to the oracle."""

import numpy as np
import pytest
from support.cpu import BEST, FUSED, HERE, apart, fields_of, pad, records

from lanewise.formats.activations import ZERO_BELOW, quantize_q8_0, quantize_q8_k
from lanewise.kernels.cpu.quantize import SOURCES
from lanewise.kernels.cpu.records import FLOAT, MANY
from lanewise.oracle import ORACLES

EVERY_ISA = pytest.mark.parametrize("isa", HERE)
KINDS = ("q8_0", "q8_k", FLOAT)
K = 768
EPS = 1e-5


def _inputs() -> dict[str, np.ndarray]:
    """float32[7, K] of each class."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(7, K)).astype(np.float32)
    spike = normal * np.float32(1e-3)
    spike[:, 5::37] = 1000
    ties = (rng.integers(-126, 127, (7, K)) + 0.5).astype(np.float32)
    ties[:, ::32] = 127
    small = normal * np.float32(2.0**-120)
    small[0] = np.float32(ZERO_BELOW)
    small[1] = np.nextafter(np.float32(ZERO_BELOW), np.float32(0))
    small[2] = normal[2] * np.float32(2.0**-140)
    broken = normal.copy()
    broken[0, 3], broken[1, 40], broken[2, 300], broken[3, 700], broken[4, ::256] = np.nan, np.inf, -np.inf, -np.nan, np.inf
    return {
        "normal": normal, "zeros": np.zeros((7, K), np.float32), "spike": spike, "ties": ties, "small": small,
        "huge": normal / np.abs(normal).max() * np.float32(3.4e38), "broken": broken,
    }  # fmt: skip


INPUTS = _inputs()


def _check(out: np.ndarray, kind: str, x: np.ndarray, isa: str) -> None:
    """Every field of the records against the definition's integers for x."""
    if kind == FLOAT:
        np.testing.assert_array_equal(fields_of(out, kind, isa), pad(x))
        return
    got, (m, k) = fields_of(out, kind, isa), x.shape
    want = quantize_q8_0(x) if kind == "q8_0" else quantize_q8_k(x)
    np.testing.assert_array_equal(got["q"].reshape(m, k), want.q)
    np.testing.assert_array_equal(np.isnan(got["d"]), np.isnan(want.d))
    there = ~np.isnan(want.d)
    np.testing.assert_array_equal(got["d"][there].view(np.uint32), want.d[there].view(np.uint32))
    q = want.q.astype(np.int32)
    if kind == "q8_0":
        sums = q.reshape(m, -1, 32).sum(-1, dtype=np.int32)
        derived = {"ds": want.d * sums.astype(np.float32), "c8": -8 * sums, "c16": -16 * sums, "c128": -128 * sums}
    else:
        sixteen = q.reshape(m, -1, 16, 16).sum(-1, dtype=np.int32)
        both = q.reshape(m, -1, 8, 32).sum(-1, dtype=np.int32)
        derived = {"sum32": both, "sum16": sixteen, "c4": -4 * sixteen, "c32": -32 * sixteen, "c128": -128 * both}
    assert set(got.dtype.names or ()) == {"q", "d", *derived}
    for name, values in derived.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)


@EVERY_ISA
@pytest.mark.parametrize("kind", KINDS)
def test_plain_records_are_the_definition_bit_for_bit(isa: str, kind: str) -> None:
    for x in INPUTS.values():
        with np.errstate(all="ignore"):
            _check(records(x, kind, isa), kind, x, isa)


@EVERY_ISA
@pytest.mark.parametrize("source", ["norm", "silu"])
def test_what_stands_in_front_is_within_its_bound(isa: str, source: str) -> None:
    for name in ("normal", "zeros", "spike", "ties", "small"):
        x = INPUTS[name][:, :730]  # no multiple of a vector
        other = np.roll(INPUTS["normal"], 1, axis=1)[:, :730]
        op, given = (ORACLES["rms_norm"], (x, other[0], EPS)) if source == "norm" else (ORACLES["silu_mul"], (x, other))
        got = fields_of(records(x, FLOAT, isa, source, other[0] if source == "norm" else other, EPS), FLOAT, isa)
        assert op.worst(got[:, :730], *given) <= 1
        assert not got[:, 730:].any()


@EVERY_ISA
def test_silu_at_the_ends_of_exp_is_within_its_bound(isa: str) -> None:
    gate = np.float32([0, 1e-40, 1e-30, 0.5, 20, 87, 88.5, 89, 103, 200, 1e30])
    gate = np.concatenate([gate, -gate])[None]
    up = np.full_like(gate, 1.5)
    assert ORACLES["silu_mul"].worst(fields_of(records(gate, FLOAT, isa, "silu", up), FLOAT, isa)[:, : gate.shape[1]], gate, up) <= 1


@EVERY_ISA
@pytest.mark.parametrize("source", ["norm", "silu"])
@pytest.mark.parametrize("kind", ["q8_0", "q8_k"])
def test_a_fused_source_is_quantized_as_if_it_had_gone_to_memory(isa: str, source: str, kind: str) -> None:
    for name in ("normal", "zeros", "spike", "small"):
        x, other = INPUTS[name], np.roll(INPUTS["normal"], 1, axis=1)
        beside = other[0] if source == "norm" else other
        _check(records(x, kind, isa, source, beside, EPS), kind, fields_of(records(x, FLOAT, isa, source, beside, EPS), FLOAT, isa), isa)


@pytest.mark.parametrize("source", SOURCES)
def test_every_instruction_set_with_fma_prepares_the_same_bits(source: str) -> None:
    x, other = INPUTS["normal"], np.roll(INPUTS["normal"], 1, axis=1)
    beside = {"norm": other[0], "silu": other, "plain": None}[source]
    best = apart(records(x, FLOAT, BEST, source, beside, EPS), BEST)
    for isa in FUSED:
        np.testing.assert_array_equal(apart(records(x, FLOAT, isa, source, beside, EPS), isa), best)


@EVERY_ISA
@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_each_what_they_are_alone(isa: str, kind: str) -> None:
    x = np.tile(INPUTS["normal"], (5, 1)) * np.arange(1, 36, dtype=np.float32)[:, None]
    for m in (MANY - 1, MANY, len(x)):
        _check(records(x[:m], kind, isa, per_chunk=4), kind, x[:m], isa)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_be_chosen_and_shared_out_in_chunks(kind: str) -> None:
    x, weight = INPUTS["normal"], INPUTS["spike"][0]
    every = apart(records(x, kind, BEST, "norm", weight, EPS), BEST)
    np.testing.assert_array_equal(apart(records(x, kind, BEST, "norm", weight, EPS, per_chunk=3), BEST), every)
    chosen = np.array([6, 0, 0, 3], np.int32)
    np.testing.assert_array_equal(apart(records(x, kind, BEST, "norm", weight, EPS, rows=chosen, per_chunk=2), BEST), every[chosen])
    assert len(records(x[:0], kind, BEST, "norm", weight, EPS)) == 0
