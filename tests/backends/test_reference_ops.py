"""The reference backend's float32 ops against the oracle: every case, every mistake, random shapes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise import arch, dispatch
from lanewise.backends import sample as sampler
from lanewise.backends.reference import ops
from lanewise.contract import OPS, Problem
from lanewise.errors import ShapeError
from lanewise.oracle import ORACLES, penalize, penalize_bound, sample_candidates, worst
from lanewise.oracle import write_kv as oracle_write_kv
from lanewise.oracle.cases import CASES, Case, case, paged
from lanewise.oracle.mistakes import MISTAKES, Mistake

_ALL = [case for op in CASES for case in CASES[op]]


def _run(op: str) -> Callable[..., Any]:
    """The reference body of an op, as dispatch finds it."""
    return next(kernel.run for kernel in dispatch.kernels(op) if kernel.name == f"reference_{op}")


def test_every_op_has_a_reference_kernel_that_takes_float32_on_this_processor() -> None:
    for op in OPS:
        problem = Problem(op, arch.host(), k=256, format="Q4_K" if op == "quant_linear" else None)
        assert dispatch.kernels(op)[-1].name == f"reference_{op}"
        assert dispatch.kernels(op)[-1].refusal(problem) is None


@pytest.mark.parametrize("case", _ALL, ids=str)
def test_a_case_is_within_its_bound_in_float32_and_leaves_its_arguments_alone(case: Case) -> None:
    arguments, untouched = case.arguments(), case.arguments()
    got = _run(case.op)(*arguments)
    assert ORACLES[case.op].worst(got, *untouched) <= 1
    if case.exact:
        np.testing.assert_array_equal(got, ORACLES[case.op].compute(*untouched))
    if case.op != "sample":
        assert got.dtype == np.float32
    for a, b in zip(arguments, untouched, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_check_notices_a_reference_with_a_mistake(mistake: Mistake) -> None:
    right, wrong = mistake.arguments()
    assert ORACLES[mistake.op].worst(_run(mistake.op)(*wrong), *right) > 1


def test_a_future_slot_full_of_nan_does_not_reach_the_output() -> None:
    # the newest row sees every written slot, older rows none of the newer ones
    q, keys, values, table, start, context, scale = case("attention", "prompts and steps together").arguments()
    before = ops.attention(q, keys, values, table, start, context, scale)
    newest = (table[1, 4 // 4], 4 % 4)
    keys[newest] = values[newest] = 1e30
    after = ops.attention(q, keys, values, table, start, context, scale)
    np.testing.assert_array_equal(after[1:5], before[1:5])
    assert not np.array_equal(after[5], before[5])


def test_sequences_do_not_depend_on_their_company() -> None:
    q, keys, values, table, start, context, scale = case("attention", "prompts and steps together").arguments()
    together = ops.attention(q, keys, values, table, start, context, scale)
    for j in range(len(context)):
        rows = slice(start[j], start[j + 1])
        alone = ops.attention(q[rows], keys, values, table[j : j + 1], np.int32([0, rows.stop - rows.start]), context[j : j + 1], scale)
        np.testing.assert_array_equal(alone, together[rows])


@settings(max_examples=40, deadline=None)
@given(
    sequences=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)).filter(any), max_size=4),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 3, 8]),
    dim=st.sampled_from([1, 4, 9]),
    page=st.integers(1, 5),
    window=st.one_of(st.none(), st.integers(1, 14)),
    seed=st.integers(0, 2**32 - 1),
)
def test_attention_of_any_shape_is_within_its_bound(sequences, kv_heads, group, dim, page, window, seed) -> None:
    made = paged(np.random.default_rng(seed), [(new, new + old) for new, old in sequences], kv_heads * group, kv_heads, dim, page)
    assert ORACLES["attention"].worst(ops.attention(*made, window), *made, window) <= 1


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 9), n=st.integers(1, 20), k=st.integers(1, 200), experts=st.integers(1, 5), bias=st.booleans(), seed=st.integers(0, 2**32 - 1)
)
def test_linear_and_grouped_linear_of_any_shape_are_within_their_bounds(m, n, k, experts, bias, seed) -> None:
    rng = np.random.default_rng(seed)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (experts, n, k), n))
    plain, grouped = (x, w[0], b if bias else None), (x, w, rng.integers(0, experts, m))
    assert ORACLES["linear"].worst(ops.linear(*plain), *plain) <= 1
    assert ORACLES["grouped_linear"].worst(ops.grouped_linear(*grouped), *grouped) <= 1


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 5),
    heads=st.integers(1, 4),
    half=st.integers(1, 9),
    rest=st.integers(0, 5),
    interleaved=st.booleans(),
    far=st.sampled_from([1, 1000, 1_000_000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_rope_norm_and_silu_of_any_shape_are_within_their_bounds(m, heads, half, rest, interleaved, far, seed) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((m, heads, 2 * half + rest)).astype(np.float32) * np.float32(10.0 ** rng.integers(-9, 9)) for _ in range(2))
    rope = x, rng.integers(0, far, m), 10000.0 ** -rng.random(half), float(1 + rng.random()), interleaved
    norm = x, rng.standard_normal(x.shape[-1]).astype(np.float32), 1e-6
    assert ORACLES["rope"].worst(ops.rope(*rope), *rope) <= 1
    assert ORACLES["rms_norm"].worst(ops.rms_norm(*norm), *norm) <= 1
    assert ORACLES["silu_mul"].worst(ops.silu_mul(x, y), x, y) <= 1


def test_write_kv_changes_exactly_what_the_oracle_changes() -> None:
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 7, 2, 5)).astype(np.float32)
    slots = rng.choice(12, 7, replace=False).astype(np.int32)
    got, want = ([np.full((3, 4, 2, 5), np.nan, np.float32) for _ in range(2)] for _ in range(2))
    ops.write_kv(k, v, *got, slots)
    oracle_write_kv(k, v, *want, slots)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("u", [0.0, 0.3, 0.6, 0.9, 1 - 2.0**-53])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 30.0])
def test_a_sampled_token_is_a_candidate_and_never_a_masked_one(u: float, temperature: float) -> None:
    for seed in range(20):
        logits = np.random.default_rng(seed).standard_normal(64).astype(np.float32) * 3
        logits[seed:] = -np.inf if seed else logits
        arguments = (logits, u, temperature)
        assert sampler.sample(*arguments) in sample_candidates(*arguments)


def test_penalties_are_within_their_bound_and_leave_the_logits_alone() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(300).astype(np.float32)
    seen, generated = rng.integers(0, 300, 90), rng.choice(300, 40, replace=False)  # seen repeats ids
    for penalties in ((1.0, 0.0, 0.0), (1.3, 0.0, 0.0), (1.0, 0.5, 0.0), (1.0, 0.0, -0.25), (0.9, 0.5, 1.5)):
        arguments = (logits, seen, generated, rng.integers(1, 9, 40), *penalties)
        before = logits.copy()
        got = sampler.penalize(*arguments)
        np.testing.assert_array_equal(logits, before)
        assert got.dtype == np.float32
        assert worst(got, penalize(*arguments), penalize_bound(*arguments)) <= 1


def test_the_penalty_check_notices_a_wrong_penalty() -> None:
    logits, ids, counts = np.float32([1, -1, 2]), np.int64([0, 1]), np.int64([1, 2])
    right = (logits, ids, ids, counts, 1.1, 0.5, 0.25)
    for wrong in (
        (logits, ids, ids, counts, 1.0, 0.5, 0.25),
        (logits, ids, ids, counts, 1.1, 0.0, 0.25),
        (logits, ids, ids, counts * 0, 1.1, 0.5, 0.25),
    ):
        assert worst(sampler.penalize(*wrong), penalize(*right), penalize_bound(*right)) > 1


@pytest.mark.parametrize("token", [-1, 5])
def test_an_id_that_does_not_exist_is_refused(token: int) -> None:
    w = np.zeros((5, 2, 3), np.float32)
    with pytest.raises(ShapeError, match=str(token)):
        ops.embedding(w[:, 0], np.int32([0, token]))
    with pytest.raises(ShapeError, match=str(token)):
        ops.grouped_linear(np.zeros((2, 3), np.float32), w, np.int32([0, token]))
