"""The emitter on its own: every operation of 16 lanes against numpy, on every instruction set that this processor runs."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.cpu import FUSED, HERE, map_vectors, snippet

from lanewise.contract import dtype
from lanewise.kernels.cpu.emit import F32, I64, LANES, Emitter, Value
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel, float_bits
from lanewise.kernels.cpu.rotate import to_half
from lanewise.oracle.rounding import ULPS

EVERY_ISA = pytest.mark.parametrize("isa", HERE)
TINY = dtype("f32").tiny
MOST_ULPS = 2  # its docstring says about one; the oracle's bounds allow ULPS
INF, NAN = float("inf"), float("nan")
SPECIAL = np.float32([0.0, -0.0, 1.0, -1.0, TINY, -TINY, 2.0**-126, 3e38, -3e38, INF, -INF, NAN, 0.5, 1.5, 2.5, -2.5])


def _floats(seed: int, count: int = 1024) -> np.ndarray:
    """Sizes from 2^-40 to 2^40."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=count) * 2.0 ** rng.integers(-40, 41, count)).astype(np.float32)


def _same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, but any NaN for a NaN."""
    want = np.ascontiguousarray(want, np.float32)
    got = got.view(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    there = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint32)[there], want.view(np.uint32)[there])


@EVERY_ISA
def test_float_operations_are_those_of_numpy_bit_for_bit(isa: str) -> None:
    x, y = np.concatenate([_floats(0), SPECIAL, SPECIAL]), np.concatenate([_floats(1), SPECIAL[::-1], SPECIAL])
    unary: dict[str, tuple[Callable[..., Value], Callable[..., Any]]] = {
        "sqrt": (lambda e, x, y: e.sqrt(x), lambda x, y: np.sqrt(x)),
        "fabs": (lambda e, x, y: e.fabs(x), lambda x, y: np.abs(x)),
        "rint": (lambda e, x, y: e.rint(x), lambda x, y: np.rint(x)),
        "fmax": (lambda e, x, y: e.fmax(x, y), lambda x, y: np.where(x > y, x, y)),
        "fmin": (lambda e, x, y: e.fmin(x, y), lambda x, y: np.where(x < y, x, y)),
        "splat": (lambda e, x, y: e.splat(e.reduce(x, lambda a, b: a)), lambda x, y: np.repeat(x[::LANES], LANES)),
    }
    got = map_vectors({name: emit for name, (emit, _) in unary.items()}, isa, x, y)
    with np.errstate(invalid="ignore"):
        for name, (_, numpy) in unary.items():
            _same(got[name], numpy(x, y))


@EVERY_ISA
def test_rint_takes_ties_to_the_even_neighbour(isa: str) -> None:
    x = np.float32([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997, 8388607.5, 8388609.0, -8388607.5, 126.5, 125.5, -126.5, 2.0**31])
    _same(map_vectors({"rint": lambda e, x: e.rint(x)}, isa, x)["rint"], np.rint(x))


@pytest.mark.parametrize("isa", FUSED)
def test_fma_rounds_once(isa: str) -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.uniform(1, 2, 1024).astype(np.float32) for _ in range(2))
    z = rng.uniform(-4, 4, 1024).astype(np.float32)
    z[::2] = -(x * y)[::2]  # leaves exactly what the product's own rounding would have lost
    exact = x.astype(np.float64) * y + z  # 48 bits of product, at most 3 more to the left: exact in float64
    assert np.count_nonzero(exact[::2]) > len(x) // 4
    _same(map_vectors({"fma": lambda e, x, y, z: e.fma(x, y, z)}, isa, x, y, z)["fma"], exact.astype(np.float32))


@EVERY_ISA
def test_integer_operations_are_those_of_numpy(isa: str) -> None:
    x = np.random.default_rng(3).integers(-(2**31), 2**31, 1024).astype(np.int32)
    x[:4] = 0, -1, 2**31 - 1, -(2**31)
    y = np.roll(x, 5)
    emit: dict[str, Callable[..., Value]] = {
        "and15": lambda e, x, y: e.and_bytes(x, 15),
        "and240": lambda e, x, y: e.and_bytes(x, 240),
        "xor": lambda e, x, y: e.xor_bytes(x, 128),
        "or": lambda e, x, y: e.or_(x, y),
        "left": lambda e, x, y: e.shl(x, 5),
        "still": lambda e, x, y: e.shl(x, 0),
        "right": lambda e, x, y: e.shr(x, 5),
        "back": lambda e, x, y: e.shl(x, -5),
        "float": lambda e, x, y: e.to_float(x),
        "constant": lambda e, x, y: e.all_ints(-7),
        "number": lambda e, x, y: e.all_floats(0.1),
        "lanes": lambda e, x, y: e.lane_numbers(),
        "sum": lambda e, x, y: e.splat(e.reduce(x, e.b.add)),
    }
    got = map_vectors(emit, isa, x, y)
    u, v = x.view(np.uint32), y.view(np.uint32)
    want = {
        "and15": u & np.uint32(0x0F0F0F0F), "and240": u & np.uint32(0xF0F0F0F0), "xor": u ^ np.uint32(0x80808080), "or": u | v,
        "left": u << np.uint32(5), "still": u, "right": u >> np.uint32(5), "back": u >> np.uint32(5), "float": x.astype(np.float32),
        "constant": np.full(len(x), -7, np.int32), "number": np.full(len(x), 0.1, np.float32),
        "lanes": np.tile(np.arange(LANES, dtype=np.int32), len(x) // LANES),
        "sum": np.repeat(u.reshape(-1, LANES).sum(axis=1, dtype=np.uint32), LANES),
    }  # fmt: skip
    assert set(want) == set(emit)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values.view(np.uint32), err_msg=name)


@EVERY_ISA
def test_to_int_cuts_toward_zero(isa: str) -> None:
    x = np.float32([0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 127.0, -127.0, 2147483520.0, -2147483648.0, 3.999, -3.999, 1e-30, 16777217.0, 5, -5])
    got = map_vectors({"int": lambda e, x: e.to_int(x)}, isa, x)["int"]
    np.testing.assert_array_equal(got.view(np.int32), x.astype(np.int32))


@EVERY_ISA
def test_reduce_adds_lanes_eight_four_two_and_one_apart(isa: str) -> None:
    x = _floats(4)
    got = map_vectors({"sum": lambda e, x: e.splat(e.reduce(x, e.b.fadd))}, isa, x)["sum"]
    tree = x.reshape(-1, LANES)
    for half in (8, 4, 2, 1):
        tree = tree[:, :half] + tree[:, half:]
    _same(got, np.repeat(tree[:, 0], LANES))


@EVERY_ISA
def test_exp_is_within_two_ulps_and_never_nan(isa: str) -> None:
    inside = np.concatenate([np.linspace(-104, 88, 20_000), np.linspace(-1, 1, 4_000), [0, -0.0, 88, -87.3, -103.9, -103.97] + [1e-30] * 10])
    x = inside.astype(np.float32)[: len(inside) // LANES * LANES]
    want = np.exp(x.astype(np.float64))
    got = map_vectors({"exp": lambda e, x: e.exp(x)}, isa, x)["exp"].view(np.float32)
    assert (np.abs(got - want) <= MOST_ULPS * np.spacing(want.astype(np.float32))).all()
    assert MOST_ULPS <= ULPS
    outside = np.float32([NAN, -INF, -105, -1e30, -104.5, 88.5, 100, 1e30, INF, 0, -0.0, 1e-40, -1e-40, -NAN, -3e38, 3e38])
    got = map_vectors({"exp": lambda e, x: e.exp(x)}, isa, outside)["exp"].view(np.float32)
    top = map_vectors({"exp": lambda e, x: e.exp(x)}, isa, np.full(LANES, 88, np.float32))["exp"].view(np.float32)[0]
    np.testing.assert_array_equal(got, np.float32([0, 0, 0, 0, 0, top, top, top, top, 1, 1, 1, 1, 0, 0, top]))


@EVERY_ISA
def test_exp2_of_what_is_not_positive_is_within_two_ulps_and_never_nan(isa: str) -> None:
    x = np.concatenate([np.linspace(-126.5, 0, 20000), np.linspace(-1, 0, 4000), -np.arange(127), -np.arange(126) - 0.5, [-0.0, -1e-30]])
    x = np.resize(x, -(-len(x) // LANES) * LANES).astype(np.float32)
    want = np.exp2(x.astype(np.float64))
    got = map_vectors({"exp2": lambda e, x: e.exp2(x)}, isa, x)["exp2"].view(np.float32)
    assert (np.abs(got - want) <= MOST_ULPS * np.spacing(want.astype(np.float32))).all()
    outside = np.float32([NAN, -INF, -126.75, -127, -128, -1e30, -3e38, -NAN] * 2)
    np.testing.assert_array_equal(map_vectors({"exp2": lambda e, x: e.exp2(x)}, isa, outside)["exp2"], 0)


@EVERY_ISA
def test_every_float16_widens_to_its_float32(isa: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    out = np.zeros(1 << 16, np.float32)

    def body(e: Emitter, a: Arguments) -> None:
        with e.loop((1 << 16) // LANES) as i:
            e.store(e.halves(e.add(a.x, e.mul(i, 32))), e.add(a.y, e.mul(i, 64)))

    snippet("halves", ("x", "y"), body, isa, x=halves, y=out)
    with np.errstate(invalid="ignore"):  # a signalling NaN, where numpy has an instruction that says so
        _same(out, halves.view(np.float16).astype(np.float32))


@EVERY_ISA
def test_float32_narrows_to_the_nearest_float16_ties_to_even(isa: str) -> None:
    """All float16 values, the places half way between them, and their float32 neighbours; overflow, subnormals and what is not finite."""
    whole = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    whole[-1] = 2.0**16  # where infinity would be, if the row of exponents went on
    middle = ((whole[1:].astype(np.float64) + whole[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(v, np.float32(s)) for v in (whole, middle) for s in (-INF, INF)]
    random = np.random.default_rng(5).integers(0, 1 << 32, 1 << 14, dtype=np.uint32).view(np.float32)
    x = np.concatenate([whole, middle, *near, np.float32([3e38, INF, NAN, TINY]), random])
    x = np.concatenate([x, -x, np.zeros(-2 * len(x) % LANES, np.float32)])
    out = np.zeros(len(x), np.uint16)

    def body(e: Emitter, a: Arguments) -> None:
        with e.loop(a.count) as i:
            e.store(to_half(e, e.floats(e.add(a.x, e.mul(i, 64)))), e.add(a.y, e.mul(i, 32)))

    snippet("to_half", ("count", "x", "y"), body, isa, count=len(x) // LANES, x=x, y=out)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(np.isnan(out.view(np.float16)), np.isnan(want))
    there = ~np.isnan(want)
    np.testing.assert_array_equal(out[there], want.view(np.uint16)[there])


@EVERY_ISA
def test_narrow_loads_widen_and_may_start_anywhere(isa: str) -> None:
    raw = np.random.default_rng(6).integers(0, 256, 300, dtype=np.uint8)
    names = ("unsigned", "signed", "brain", "ints", "splat_int", "splat_float")
    out = {name: np.zeros(LANES, np.uint32) for name in names}

    def body(e: Emitter, a: Arguments) -> None:
        e.prefetch(a.raw, 64)
        e.store(e.bytes_unsigned(a.raw, 3), a.unsigned)
        e.store(e.bytes_signed(a.raw, 3), a.signed)
        e.store(e.brain(a.raw, 7), a.brain)
        e.store(e.ints(e.add(a.raw, 5)), a.ints)
        e.store(e.splat_int(a.raw, 9), a.splat_int)
        e.store(e.splat_float(a.raw, 13), a.splat_float)

    snippet("loads", ("raw", *names), body, isa, raw=raw, **out)
    np.testing.assert_array_equal(out["unsigned"], raw[3:19])
    np.testing.assert_array_equal(out["signed"].view(np.int32), raw[3:19].view(np.int8))
    np.testing.assert_array_equal(out["brain"], raw[7:39].view("<u2").astype(np.uint32) << np.uint32(16))
    np.testing.assert_array_equal(out["ints"], raw[5:69].view("<u4"))
    np.testing.assert_array_equal(out["splat_int"], raw[9:13].view("<u4").repeat(LANES))
    np.testing.assert_array_equal(out["splat_float"], raw[13:17].view("<u4").repeat(LANES))


@EVERY_ISA
def test_scalars_are_signed_where_they_are_compared_and_unsigned_where_they_are_divided(isa: str) -> None:
    pairs = [(7, 3), (-7, 3), (3, 7), (0, 1), (2**40, 2**20), (-(2**40), 5), (5, 5)]

    def body(e: Emitter, a: Arguments) -> None:
        one = [e.add(a.x, a.y), e.sub(a.x, a.y), e.mul(a.x, a.y), e.div(a.x, a.y), e.rem(a.x, a.y), e.least(a.x, a.y)]
        one += [e.b.zext(flag, I64) for flag in (e.less(a.x, a.y), e.equal(a.x, a.y))]
        one += [e.add(a.x, 0), e.add(a.x, 9), e.sub(9, a.x), e.mul(a.x, -2), e.least(a.x, 4)]
        for i, value in enumerate(one):
            e.store(value, a.out, 8 * i)
        e.store(e.b.fadd(e.bits_to_float(a.bits), e.real(0.5)), a.out, 8 * len(one))
        e.store(a.real("bits"), a.out, 8 * len(one) + 4)

    for x, y in pairs:
        out = np.zeros(14, np.int64)
        snippet("scalars", ("x", "y", "out", "bits"), body, isa, x=x, y=y, out=out, bits=1.25)
        u = x % 2**64
        want = [x + y, x - y, x * y, u // y, u % y, min(x, y), x < y, x == y, x, x + 9, 9 - x, -2 * x, min(x, 4)]
        np.testing.assert_array_equal(out[:13].view(np.uint64), np.array([int(v) % 2**64 for v in want], np.uint64))
        np.testing.assert_array_equal(out[13:].view(np.float32), np.float32([1.75, 1.25]))


@EVERY_ISA
@pytest.mark.parametrize("count", [-3, 0, 1, 2, 1_000_003])
def test_a_loop_runs_its_count_and_not_at_all_for_none(isa: str, count: int) -> None:
    out = np.zeros(4, np.int64)

    def body(e: Emitter, a: Arguments) -> None:
        total, last, odd, inner = (e.variable(e.index(0)) for _ in range(4))
        with e.loop(a.count) as i:
            e.set(total, e.add(e.get(total), 1))
            e.set(last, i)
            with e.when(e.equal(e.rem(i, 2), 1)):
                e.set(odd, e.add(e.get(odd), 1))
        with e.loop(e.least(a.count, 40)) as i, e.loop(i):
            e.set(inner, e.add(e.get(inner), 1))
        for place, value in enumerate((total, last, odd, inner)):
            e.store(e.get(value), a.out, 8 * place)

    snippet("loops", ("count", "out"), body, isa, count=count, out=out)
    times, short = max(count, 0), max(min(count, 40), 0)
    assert out.tolist() == [times, max(times - 1, 0), times // 2, short * (short - 1) // 2]


def test_a_table_of_arguments_names_what_is_missing_or_too_many() -> None:
    kernel = CpuKernel("k", ("x", "y"), operator.is_)  # type: ignore[arg-type]
    np.testing.assert_array_equal(kernel.pack(y=2, x=1), [1, 2])
    for given in ({"x": 1}, {"x": 1, "y": 2, "z": 3}):
        with pytest.raises(TypeError, match="k takes x, y; given x"):
            kernel.pack(**given)
    assert float_bits(1.0) == 0x3F800000


def test_a_function_is_declared_once_in_a_module() -> None:
    def body(e: Emitter, a: Arguments) -> None:
        assert e.function("llvm.fabs.f32", F32, [F32]) is e.function("llvm.fabs.f32", F32, [F32])

    snippet("declared", ("x",), body, HERE[0], x=0)
