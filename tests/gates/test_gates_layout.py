"""The gate of the layout: literals that have a home. Rooms, sizes and the environment are in tests/test_layout.py."""

import ast

import pytest

from lanewise.gates import literals


@pytest.mark.parametrize(
    "code",
    [
        "a.name == 'gfx942'",
        "a.name.startswith('gfx9')",
        "'gfx' in name",
        "f'gfx{n}'",
        "{'sm_90': 1}",
        "name in ('x86-64-v3', 1)",
        "'x86-64-v4+vnni'",
        "'x86_64'",
        "'aarch64+dotprod'",
        "'gfx942:sramecc+:xnack-'",
        "'llvm.amdgcn.sdot4'",
        "match a:\n    case 'gfx90a':\n        pass",
    ],
)
def test_the_name_of_a_target_is_found_whole_or_cut_short(code):
    assert len(list(literals.targets(ast.parse(code if "match" in code else f"x = {code}")))) == 1


@pytest.mark.parametrize(
    "code", ["'The target, such as gfx1100 or sm_90.'", "def f():\n    'gfx942'", "# gfx942\n1", "sm_90 = 1", "'smollm'", "'gf'"]
)
def test_help_documents_comments_and_other_words_are_no_names_of_targets(code):
    assert list(literals.targets(ast.parse(code))) == []


@pytest.mark.parametrize(
    "code",
    [
        "np.allclose(a, b)",
        "np.allclose(a, b, rtol=1e-3)",
        "np.testing.assert_allclose(a, b, 1e-3)",
        "torch.testing.assert_close(a, b, rtol=0, atol=2**-8)",
        "x == pytest.approx(3)",
        "x == approx(3, 1e-6)",
        "math.isclose(a, b, rel_tol=-(-1e-9))",
        "Tolerance(1e-3)",
        "Tolerance(summing=u, rounding=1e-3)",
        "close(a, b, atol=1e-3)",
        "def f(a, tolerance=1e-3):\n    pass",
        "def f(a, *, rtol=1e-3):\n    pass",
        "TOLERANCE = 1e-3",
        "atol: float = 1e-3",
        "assert abs(a - b) < 1e-3",
        "assert np.abs(a - b).max() <= 2.0**-8",
        "assert 1e-3 > error",
        "assert 0 < max_diff < 0.5",
        "np.testing.assert_almost_equal(a, b, 5)",
    ],
)
def test_a_bare_tolerance_is_found(code):
    assert len(list(literals.tolerances(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "np.allclose(a, b, rtol=0, atol=bound)",
        "np.allclose(a, b, rtol=4 * EPS, atol=0)",
        "x == pytest.approx(3, rel=len(x) * np.finfo(float).eps)",
        "Tolerance.dot(k)",
        "Tolerance(0.0, u)",
        "assert worst(got, want) <= 1",
        "assert abs(a - b) <= bound",
        "assert abs(a - b) < 3",
        "assert 0.02 < share",
        "assert x < 0.5",
        "# atol=1e-3\n1",
        "def f():\n    'atol=1e-3'",
        "def f(a, atol=None):\n    pass",
    ],
)
def test_a_derived_tolerance_is_not_complained_of(code):
    assert list(literals.tolerances(ast.parse(code))) == []
