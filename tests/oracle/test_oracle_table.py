"""The table of oracles: complete, independent of every backend, and with bounds that notice mistakes."""

import ast
from pathlib import Path

import numpy as np
import pytest

import lanewise.oracle
from lanewise.contract import DTYPES, OPS
from lanewise.errors import ShapeError
from lanewise.oracle import ORACLES, worst
from lanewise.oracle.cases import CASES, Case
from lanewise.oracle.mistakes import MISTAKES, Mistake

_ALL = [case for op in CASES for case in CASES[op]]
_MAY_IMPORT = {"errors", "contract", "formats", "oracle"}


def test_every_op_of_the_contract_has_an_oracle_cases_and_mistakes() -> None:
    assert set(ORACLES) == set(OPS)
    assert set(CASES) == set(OPS)
    assert {mistake.op for mistake in MISTAKES} == set(OPS)
    assert all(op == oracle.op for op, oracle in ORACLES.items())
    assert all(case.op == op for op in CASES for case in CASES[op])


def test_names_of_cases_and_mistakes_are_unique() -> None:
    for rows in (_ALL, MISTAKES):
        names = [str(row) for row in rows]
        assert sorted(set(names)) == sorted(names)


def test_the_oracle_imports_no_backend() -> None:
    found = set()
    for file in Path(lanewise.oracle.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file.name}: a relative import hides where it goes"
                found |= {f"{node.module}.{name.name}" for name in node.names}
            elif isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
    rooms = {name.split(".")[1] for name in found if name.startswith("lanewise.")}
    assert "contract" in rooms
    assert rooms <= _MAY_IMPORT


@pytest.mark.parametrize("case", _ALL, ids=str)
def test_results_are_float64_and_bounds_are_finite_and_grow_with_narrower_outputs(case: Case) -> None:
    oracle, arguments = ORACLES[case.op], case.arguments()
    want, bound = np.asarray(oracle.compute(*arguments)), oracle.bound(*arguments)
    assert want.dtype == (np.int64 if case.op == "sample" else np.float64)
    assert bound.dtype == np.float64
    assert want.shape == bound.shape
    assert np.all(np.isfinite(want))
    assert np.all(np.isfinite(bound) & (bound >= 0))
    if case.op != "sample":
        for narrow in set(DTYPES) - {"f32"}:
            assert np.all(oracle.bound(*arguments, out=narrow) >= bound)


@pytest.mark.parametrize("case", _ALL, ids=str)
def test_a_case_makes_the_same_arguments_each_time_and_its_oracle_leaves_them_alone(case: Case) -> None:
    first, second = case.arguments(), case.arguments()
    ORACLES[case.op].compute(*first)
    ORACLES[case.op].bound(*first)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_outside_the_bound(mistake: Mistake) -> None:
    right, wrong = mistake.arguments()
    oracle = ORACLES[mistake.op]
    assert oracle.worst(oracle.compute(*wrong), *right) > 1


@pytest.mark.parametrize("case", [c for c in _ALL if c.op != "sample"], ids=str)
def test_rounding_the_exact_result_once_is_inside_the_bound(case: Case) -> None:
    oracle, arguments = ORACLES[case.op], case.arguments()
    want = oracle.compute(*arguments)
    assert oracle.worst(want.astype(np.float32), *arguments) <= 1
    fits = np.abs(want) < np.finfo(np.float16).max
    half = np.where(fits, want, 0).astype(np.float32).astype(np.float16)
    assert worst(half, np.where(fits, want, 0), oracle.bound(*arguments, out="f16")) <= 1


def test_the_comparison_counts_in_bounds_and_treats_nan_as_infinitely_wrong() -> None:
    one = np.ones(1)
    assert worst(one, one, 0 * one) == 0
    assert worst(one + 1, one, 0 * one) == np.inf
    assert worst(one * np.nan, one, one) == np.inf
    assert worst(one * np.inf, one, one) == np.inf
    assert worst(one, one * np.nan, one) == np.inf
    assert worst(one, one + 2, one * 4) == 1 / 2
    assert worst(one[:0], one[:0], one[:0]) == 0


def test_a_result_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(1,\).*\(3,\)"):
        worst(np.ones(1), np.ones(3), np.ones(3))
