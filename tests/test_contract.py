"""The words kernels are described in, and the error bounds that every comparison uses."""

import numpy as np
import pytest

from lanewise import arch
from lanewise.contract import DTYPES, OPS, Guard, Kernel, Problem, Tolerance, dtype
from lanewise.errors import LanewiseError, ShapeError

HOST = arch.parse("x86-64-v3")
NUMPY = {"f32": np.float32, "f16": np.float16}


@pytest.mark.parametrize("name", NUMPY)
def test_a_dtype_has_the_roundoff_and_the_smallest_number_that_numpy_has(name):
    info = np.finfo(NUMPY[name])
    assert DTYPES[name].roundoff == float(info.eps) / 2
    assert DTYPES[name].tiny == float(info.smallest_subnormal)
    assert DTYPES[name].size == info.bits // 8


def test_bf16_is_the_upper_half_of_f32():
    above_one = np.array([0x3F80 + 1], np.uint32) << 16
    assert DTYPES["bf16"].roundoff == float(above_one.view(np.float32)[0] - 1) / 2
    smallest = np.array([1], np.uint32) << 16
    assert DTYPES["bf16"].tiny == float(smallest.view(np.float32)[0])


@pytest.mark.parametrize(
    ("alias", "name"),
    [("fp32", "f32"), ("float32", "f32"), ("fp16", "f16"), ("float16", "f16"), ("half", "f16"), ("bfloat16", "bf16"), ("bf16", "bf16")],
)
def test_a_dtype_answers_to_its_aliases(alias, name):
    assert dtype(alias).name == name
    assert Problem("linear", HOST, dtype=alias).dtype == name


@pytest.mark.parametrize("name", ["fp8", "", "F32", "int8"])
def test_an_unknown_dtype_is_refused_with_those_that_exist(name):
    with pytest.raises(ShapeError) as caught:
        dtype(name)
    assert repr(name) in str(caught.value)
    assert "f32, f16, bf16" in str(caught.value)


def test_an_unknown_op_is_refused_with_those_that_exist():
    with pytest.raises(LanewiseError, match="unknown op 'conv'; known ops: linear, quant_linear"):
        Problem("conv", HOST)


@pytest.mark.parametrize("sizes", [{"m": -1}, {"n": -1}, {"k": -(2**63)}])
def test_a_negative_size_is_refused_and_zero_is_not(sizes):
    with pytest.raises(ShapeError, match="not negative"):
        Problem("linear", HOST, **sizes)
    assert Problem("linear", HOST, m=0, n=0, k=0).k == 0


def test_a_problem_names_everything_that_a_guard_may_ask():
    problem = Problem("quant_linear", arch.parse("gfx942:xnack-"), m=1, n=2, k=256, dtype="bf16", format="Q4_K")
    assert str(problem) == "quant_linear m=1 n=2 k=256 bf16 format=Q4_K on gfx942:xnack-"


def test_every_op_says_what_it_computes():
    assert all("=" in formula for formula in OPS.values())


def test_the_first_guard_that_does_not_hold_is_the_refusal():
    guards = (
        Guard("holds", lambda p: True, "never said"),
        Guard("k_whole", lambda p: p.k % 32 == 0, lambda p: f"k={p.k} is not a whole number of blocks"),
        Guard("later", lambda p: False, "not reached"),
    )
    refusal = Kernel("skinny", "linear", run=print, guards=guards).refusal(Problem("linear", HOST, k=33))
    assert str(refusal) == "skinny refuses (k_whole): k=33 is not a whole number of blocks"


def test_a_kernel_that_is_switched_off_says_which_variable_did_it(monkeypatch):
    kernel = Kernel("blas", "linear", run=print, switch="REFERENCE")
    assert kernel.refusal(Problem("linear", HOST)) is None
    monkeypatch.setenv("LANEWISE_REFERENCE", "0")
    refusal = kernel.refusal(Problem("linear", HOST))
    assert (refusal.guard, refusal.why) == ("switch", "LANEWISE_REFERENCE has switched it off")


@pytest.mark.parametrize("k", [1, 7, 256, 4096])
@pytest.mark.parametrize("order", ["sequential", "pairwise"])
def test_the_dot_bound_holds_for_any_order_of_adding(k, order):
    rng = np.random.default_rng(k)
    x, w = rng.standard_normal((2, 64, k)).astype(np.float32)
    products = x * w
    got = np.cumsum(products, axis=1, dtype=np.float32)[:, -1] if order == "sequential" else products.sum(axis=1, dtype=np.float32)
    want = (x.astype(np.float64) * w).sum(axis=1)
    magnitude = np.abs(x.astype(np.float64) * w).sum(axis=1)
    assert (np.abs(got - want) <= Tolerance.dot(k).bound(want, magnitude)).all()


def test_the_dot_bound_refuses_one_product_that_is_missing():
    k = 256
    x, w = np.random.default_rng(0).uniform(0.5, 1, (2, 64, k))
    want = (x * w).sum(axis=1)
    got = (x * w)[:, 1:].sum(axis=1)
    assert (np.abs(got - want) > Tolerance.dot(k).bound(want, want)).all()


@pytest.mark.parametrize("out", NUMPY)
def test_a_rounding_to_the_output_type_is_within_the_bound_and_two_are_not(out):
    want = np.random.default_rng(0).uniform(1, 2, 4096)
    bound = Tolerance.dot(1, out, "f32").bound(want, 0.0)
    rounded = want.astype(NUMPY[out])
    assert (np.abs(rounded.astype(np.float64) - want) <= bound).all()
    assert (np.abs(np.nextafter(rounded, NUMPY[out](np.inf), dtype=NUMPY[out]).astype(np.float64) - want) > bound).any()


def test_the_chain_bound_holds_for_its_number_of_roundings():
    want = np.random.default_rng(0).uniform(0.5, 2, 4096)
    got = want.astype(np.float32)
    factors = (np.float32(3.0), np.float32(1 / 3), np.float32(7.0))
    for factor in factors:
        got = got * factor
        want = want * float(factor)
    error, chain = np.abs(got - want), Tolerance.chain
    assert (error <= chain(len(factors)).bound(want)).all()
    assert (error > chain(0).bound(want)).any()


def test_a_sum_too_long_for_its_accumulator_has_no_bound():
    with pytest.raises(ShapeError, match="k=2048 is too long for f16"):
        Tolerance.dot(2048, accumulate="f16")


def test_a_problem_knows_what_the_call_wants_besides_the_product():
    gpu, cpu = Problem("linear", arch.parse("gfx1100"), dtype="bfloat16"), Problem("linear", arch.parse("x86-64"))
    assert (gpu.out, gpu.x_inner, gpu.w_inner, gpu.fused, gpu.grad, gpu.torch) == ("bf16", 1, 1, (), False, True)
    assert (cpu.torch, Problem("linear", cpu.arch, torch=True).torch) == (False, True)
    full = Problem("linear", gpu.arch, 1, 2, 3, "fp16", out="float32", x_inner=2, w_inner=5, fused=("norm", "bias"), grad=True, card="a card")
    assert str(full) == "linear m=1 n=2 k=3 f16 out=f32 x_inner=2 w_inner=5 fused=norm,bias with gradient on gfx1100 (a card)"


def test_a_problem_refuses_parts_and_types_that_do_not_exist():
    with pytest.raises(ShapeError, match="unknown fused part 'wings'; known parts: norm, bias, gated, residual"):
        Problem("linear", arch.parse("gfx1100"), fused=("norm", "wings"))
    with pytest.raises(ShapeError, match="unknown dtype 'int4'"):
        Problem("linear", arch.parse("gfx1100"), out="int4")
