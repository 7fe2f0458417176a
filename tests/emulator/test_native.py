"""Loops by the processor's own instructions give the bits of the definitions in numpy, and stand aside where they cannot."""

import numpy as np
import pytest

from lanewise.emulator import floats, native, table_packed

RNG = np.random.default_rng(0)


def bits(*shape):
    """float32 of any bits at all: every exponent, subnormals, infinities, NaN."""
    return RNG.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)


def same(a, b):
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def test_a_fused_multiplication_and_addition_has_the_bits_of_the_definition():
    a, b, c = bits(256, 64), bits(256, 64), bits(256, 64)
    with np.errstate(all="ignore"):
        near = -(a.astype(np.float64) * b).astype(np.float32)  # sums that cancel, whose rest is what one rounding is about
        for addend in (c, near, np.zeros_like(c)):
            made = native.fused32(a, b, addend)
            assert made is not None
            assert same(made, floats.plain_fma32(a, b, addend))


def test_shapes_spread_as_numpy_has_it():
    a, b, c = bits(8, 1), bits(8, 64), bits(1, 64)
    with np.errstate(all="ignore"):
        assert same(native.fused32(a, b, c), floats.plain_fma32(a, b, c))
    assert native.fused32(bits(0, 64), bits(0, 64), bits(0, 64)).shape == (0, 64)


def test_every_half_is_widened_to_the_same_bits():
    every = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(1024, 64)
    assert same(native.widened16(every), floats.plain_wide16(every))
    pairs = every.reshape(512, 64, 2).transpose(2, 0, 1)
    assert same(np.ascontiguousarray(native.widened16(pairs)), floats.plain_wide16(pairs))
    assert same(native.widened16(every[:, ::2]), floats.plain_wide16(every[:, ::2]))


def test_a_dot_of_two_halves_rounds_after_each_product():
    pairs = RNG.integers(0, 65536, (2, 512, 64, 2), dtype=np.uint16).view(np.float16)
    a, b = (one.transpose(2, 0, 1) for one in pairs)
    c = bits(512, 64)
    with np.errstate(all="ignore"):
        assert same(native.dot2(a, b, c), table_packed.plain_dot2(a, b, c))
    assert native.dot2(np.ascontiguousarray(a), b, c) is None  # halves that do not lie side by side
    assert native.dot2(a, b, c[:, :1]) is None


@pytest.mark.parametrize("name", ["fused32", "widened16", "dot2"])
def test_a_processor_without_the_instruction_runs_the_definition(name, monkeypatch):
    monkeypatch.setattr(native.llvm, "get_host_cpu_features", dict)
    monkeypatch.setattr(native, "_compiled", native._compiled.__wrapped__)
    halves = RNG.integers(0, 65536, (16, 64, 2), dtype=np.uint16).view(np.float16).transpose(2, 0, 1)
    given = {"fused32": (bits(4, 64),) * 3, "widened16": (halves,), "dot2": (halves, halves, bits(16, 64))}
    assert getattr(native, name)(*given[name]) is None
    with np.errstate(all="ignore"):
        assert same(floats.fma32(*given["fused32"]), floats.plain_fma32(*given["fused32"]))
        assert same(floats.wide16(halves), floats.plain_wide16(halves))
        assert same(table_packed._dot2(*given["dot2"]), table_packed.plain_dot2(*given["dot2"]))
