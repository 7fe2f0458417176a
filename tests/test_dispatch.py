"""The registry: who is asked first, who runs, what is said of the others, and that no target is remembered."""

import pytest

from lanewise import arch, dispatch
from lanewise.contract import OPS, Guard, Kernel, Problem
from lanewise.errors import NoKernelError


@pytest.fixture(autouse=True)
def _empty(monkeypatch):
    """A registry of our own: kernels that other tests' imports registered do not answer here."""
    monkeypatch.setattr(dispatch, "_REGISTRY", {op: [] for op in OPS})


def kernel(name, *guards, **more):
    return dispatch.register(Kernel(name, "linear", run=lambda *a: (name, *a), guards=guards), **more)


def problem(target="gfx1100", **sizes):
    return Problem("linear", arch.parse(target), **sizes)


WAVE32 = Guard("wave32", lambda p: p.arch.wave == 32, lambda p: f"{p.arch} runs wave{p.arch.wave}; the reduction covers 32 lanes")
EVEN = Guard("n_even", lambda p: p.n % 2 == 0, "each wave stores two columns")


def test_the_first_kernel_that_accepts_runs_with_the_refusals_on_the_way():
    kernel("skinny", WAVE32, EVEN)
    blas = kernel("blas")
    kernel("last")
    chosen = dispatch.select(problem(n=3))
    assert chosen.kernel is blas
    assert [str(r) for r in chosen.refusals] == ["skinny refuses (n_even): each wave stores two columns"]


def test_no_kernel_raises_with_every_refusal():
    kernel("skinny", EVEN)
    kernel("wide", WAVE32)
    with pytest.raises(NoKernelError) as caught:
        dispatch.select(problem("gfx942", n=3))
    assert [r.kernel for r in caught.value.refusals] == ["skinny", "wide"]
    assert "each wave stores two columns" in str(caught.value)
    assert "gfx942 runs wave64" in str(caught.value)


def test_an_op_without_kernels_says_so():
    with pytest.raises(NoKernelError, match="no kernel is registered for this op"):
        dispatch.select(problem())


def test_the_target_is_asked_at_every_call_and_never_remembered():
    kernel("waves", WAVE32)
    kernel("wide", Guard("wave64", lambda p: p.arch.wave == 64, "the reduction covers 64 lanes"))
    for target in ("gfx1100", "gfx942", "gfx1201", "gfx942:xnack+", "gfx1100", "gfx942"):
        wanted = "waves" if arch.parse(target).wave == 32 else "wide"
        assert dispatch.select(problem(target)).kernel.name == wanted
        assert dispatch.run(problem(target), 1) == (wanted, 1)
        assert [v.kernel.name for v in dispatch.explain(problem(target)) if v.chosen] == [wanted]


def test_explain_asks_every_kernel_and_chooses_the_one_that_select_takes():
    for name, guards in (("skinny", (EVEN,)), ("first", ()), ("second", ())):
        kernel(name, *guards)
    verdicts = dispatch.explain(problem(n=3))
    assert [(v.kernel.name, v.refusal is None, v.chosen) for v in verdicts] == [
        ("skinny", False, False),
        ("first", True, True),
        ("second", True, False),
    ]
    assert dispatch.select(problem(n=3)).kernel.name == "first"


def test_a_kernel_can_be_put_in_front_of_another():
    kernel("blas")
    kernel("skinny", before="blas")
    assert [k.name for k in dispatch.kernels("linear")] == ["skinny", "blas"]
    assert dispatch.kernels() == dispatch.kernels("linear")


def test_a_name_is_taken_once():
    kernel("blas")
    with pytest.raises(ValueError, match="already has a kernel named 'blas'"):
        kernel("blas")
    assert len(dispatch.kernels("linear")) == 1


def test_a_kernel_cannot_stand_in_front_of_one_that_is_not_there():
    with pytest.raises(ValueError, match="skinny"):
        kernel("blas", before="skinny")


def test_witnesses_count_what_really_ran_and_nest():
    kernel("skinny", EVEN)
    kernel("blas")
    with dispatch.witness() as outer:
        dispatch.run(problem(n=2))
        with dispatch.witness() as inner:
            dispatch.run(problem(n=3))
    dispatch.run(problem(n=3))
    dispatch.select(problem(n=2))
    assert dict(outer) == {"skinny": 1, "blas": 1}
    assert dict(inner) == {"blas": 1}


def test_a_bound_kernel_is_selected_once_and_counted_at_every_call():
    kernel("skinny", EVEN)
    kernel("blas")
    skinny, blas = dispatch.bind(problem(n=2)), dispatch.bind(problem(n=3))
    kernel("late", before="skinny")
    with dispatch.witness() as counter:
        assert [skinny(1), skinny(2), blas(3)] == [("skinny", 1), ("skinny", 2), ("blas", 3)]
    assert dict(counter) == {"skinny": 2, "blas": 1}
    with pytest.raises(NoKernelError):
        dispatch.bind(Problem("rope", arch.parse("gfx1100")))


def test_a_witness_stops_counting_when_its_block_raises():
    kernel("blas")
    with pytest.raises(RuntimeError), dispatch.witness() as counter:
        raise RuntimeError
    dispatch.run(problem())
    assert not counter
