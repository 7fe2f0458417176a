"""Kernels that are right have the same bits in every order of their waves and workgroups: a sample of the project's, and of others'."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


from support.torture import atomics, flow, ids, reductions, rotated, shapes  # noqa: E402

from lanewise.arch import TARGETS  # noqa: E402
from lanewise.emulator import running  # noqa: E402
from lanewise.kernels.gpu.skinny import skinny  # noqa: E402
from lanewise.kernels.gpu.table import choose  # noqa: E402
from lanewise.prove import act_quant, grouped_linear, linear, quant_linear  # noqa: E402
from lanewise.prove.emulated import emulating  # noqa: E402

CPU = torch.device("cpu")
SAMPLE = [
    (linear, "gfx942", "serial"),
    (quant_linear, "gfx1100", "reversed"),
    (grouped_linear, "gfx1201", "random:5"),
    (act_quant, "gfx90a", "reversed"),
]
ORDERS = ("serial", "reversed", "random:11")


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().copy()


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 1100), (5, 33, 520)])
def test_a_linear_of_few_rows(target, m, n, k):
    row, made = TARGETS[target], np.random.default_rng(3)
    x, w = (torch.from_numpy(made.standard_normal(shape, np.float32)).to(torch.float16) for shape in ((m, k), (n, k)))
    config = choose(row, "f16", m, n, k, None).config

    def result(order):
        with running(row, schedule=order, lanes=2048):
            return bits(skinny(x, w, config=config, arch=row))

    want = result("lockstep")
    for order in ORDERS:
        assert (result(order) == want).all()


@pytest.mark.parametrize(("module", "target", "order"), SAMPLE, ids=lambda part: getattr(part, "__name__", str(part)).rpartition(".")[2])
def test_cases_of_the_proof_are_right_in_every_order(module, target, order):
    with emulating(TARGETS[target], schedule=order):
        every = [run for run in module.runs(CPU, True) if not run.case.heavy]
        run = every[len(every) // 3]
        result = module.guarded(run, CPU)
        assert not result.problem, f"{run}: {result.problem}"


PAIRS = rotated(flow.CASES)[::9] + rotated(reductions.CASES)[::14] + rotated(shapes.CASES)[::9]


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=ids(PAIRS))
def test_other_kernels_are_right_in_other_orders(case, target):
    case.on(target, schedule=("reversed", "random:7", "serial")[PAIRS.index((case, target)) % 3])


@pytest.mark.parametrize(("target", "order"), [("gfx90a", "serial"), ("gfx1201", "reversed")])
def test_a_lock_that_workgroups_wait_for_is_given_to_each_of_them(target, order):
    """Whoever waits goes round until the one that has it has met its own other waves."""
    next(case for case in atomics.CASES if case.name == "locks").on(target, schedule=order)
