"""The harness of quant_linear and act_quant: bodies by the definition pass every case, and each wrong body is caught by one."""

import json
import os
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner
from support.quant_mutants import ACT_MUTANTS, MUTANTS, chain, right_activations

from lanewise.errors import ShapeError
from lanewise.prove import act_quant, dequantized, quant_linear
from lanewise.prove.__main__ import main
from lanewise.prove.act_cases import CASES as ACT_CASES
from lanewise.prove.act_quant import ActRun
from lanewise.prove.dequantized import WeightRun
from lanewise.prove.quant_cases import CASES, INTERPRETED, NAMES, SMALL, TILE, QuantCase
from lanewise.prove.quant_linear import QuantRun
from lanewise.prove.quant_operands import given

CPU = torch.device("cpu")
_LONG = 1 << 16  # weights of a case that a test in this process runs
# a norm is the kernel's own in this harness; act_quant's cases have it
QUICK = [case for case in (*SMALL, *INTERPRETED) if 0 < case.weights * case.k <= _LONG and not case.norm]
QUICK += [case for case in CASES if case.values == "bytes" and case.size == 1 and case.k == 2 * TILE and case.n == 19]
ACT_QUICK = [case for case in ACT_CASES if not case.heavy and not case.device_only and case.m * case.k <= 4096]


def run(case: QuantCase, body: object) -> QuantRun:
    return QuantRun(case, "body", (body,))


def test_the_definition_is_right_on_every_case_and_its_results_are_not_mostly_nought():
    results = [quant_linear.prove(run(case, chain), CPU) for case in QUICK]
    assert [result for result in results if not result.ok] == []
    mostly_nought = [r.case for r in results if r.nonzero <= 0.4]
    assert mostly_nought == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_body_is_caught(name):
    problem = next((words for case in QUICK if (words := quant_linear.guarded(run(case, MUTANTS[name]), CPU).problem)), "")
    assert problem
    assert "Error: " not in problem  # it ran, and what it gave was seen to be wrong


def test_exact_cases_leave_no_choice():
    case = next(case for case in QUICK if case.values == "exact" and not case.gated and case.out == "f32")
    for towards in (float("inf"), -float("inf")):
        result = quant_linear.prove(run(case, lambda towards=towards, **a: torch.nextafter(chain(**a), torch.tensor(towards))), CPU)
        assert "elements are outside" in result.problem


def test_cuts_are_held_to_the_same_bits_as_the_first():
    def other(**a):
        y = chain(**a)
        return torch.nextafter(y, torch.full_like(y, float("inf")))

    case = QuantCase("Q4_K", (3, 1), 5, TILE, "bf16", "f32")
    assert quant_linear.prove(QuantRun(case, "cuts", (chain, chain)), CPU).ok
    assert "cut 1: 15 elements have other bits" in quant_linear.prove(QuantRun(case, "cuts", (chain, other)), CPU).problem


def test_a_refusal_is_a_problem_and_so_is_what_a_body_raises():
    def refuses(**a):
        raise ShapeError("no")

    assert "refused, and may not: no" in quant_linear.guarded(run(QUICK[0], refuses), CPU).problem
    assert quant_linear.guarded(run(QUICK[0], lambda **a: 1 / 0), CPU).problem == "ZeroDivisionError: division by zero"


def test_operands_are_the_same_every_time_and_weights_those_of_their_format_and_size_alone():
    case = QuantCase("Q5_K", (5, 2), 9, 2 * TILE, bias=2, residual=True)
    first, second = (given(case, CPU) for _ in range(2))
    for name in ("x", "bias", "residual"):
        assert torch.equal(first.arguments[name], second.arguments[name])
        assert first.arguments[name].unique().numel() > 1
    assert torch.equal(first.arguments["w"].tiles, second.arguments["w"].tiles)
    assert first.first(2)["x"].shape == (2, case.k)
    assert first.first(2)["residual"].data_ptr() == first.arguments["residual"].data_ptr()


def test_activations_by_definition_are_right_on_every_case():
    results = [act_quant.prove(ActRun(case, "definition", right_activations), CPU) for case in ACT_QUICK]
    assert [result for result in results if not result.ok] == []
    assert {case.values for case in ACT_QUICK} == {case.values for case in ACT_CASES}


@pytest.mark.parametrize("name", ACT_MUTANTS)
def test_wrong_activations_are_caught(name):
    problem = next((words for case in ACT_QUICK if (words := act_quant.guarded(ActRun(case, "body", ACT_MUTANTS[name]), CPU).problem)), "")
    assert problem
    assert "Error: " not in problem


@pytest.mark.parametrize("mistake", ["", "a weight", "rounded twice", "the caller's memory"])
def test_dequantized_weights_are_those_of_the_format(mistake):
    def body(w, dtype, out, *, arch):
        from lanewise.formats import get
        from lanewise.kernels.gpu.quant_pack import unpack

        made = torch.from_numpy(get(w.format).dequantize(unpack(w).numpy()))
        made = made.to(torch.bfloat16 if mistake == "rounded twice" else dtype).to(dtype)
        if mistake == "a weight":
            made[-1, -1] += 1
        return made if out is None or mistake == "the caller's memory" else out.copy_(made)

    case = QuantCase("Q4_K", (1,), 5, 2 * TILE, "f16", "f16", gated=True)
    assert bool(quant_linear.guarded(WeightRun(case, "body", body), CPU).problem) == bool(mistake)


def test_every_format_is_exact_in_the_interpreter_and_a_cut_and_weights_are_right(tmp_path):
    exact = [case for case in INTERPRETED if case.values == "exact" and case.m == (4,)]
    assert len({case.format for case in exact}) == len(exact) == len(NAMES)
    on = torch.device("cpu")
    gated = next(run for run in dequantized.runs(on) if run.case.gated)
    cut = next(run for run in quant_linear.runs(on, True) if run.case.format == "Q2_K" and "cuts" in run.through)
    names = [word for run in (*exact, gated, cut) for word in ("--case", str(run))]
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "lanewise.prove", "--op", "quant_linear", "--interpret", "--json", str(path), *names]
    ran = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(json.loads(path.read_text())) == len(names) // 2


def test_one_op_is_proven_alone_and_an_unknown_one_is_refused():
    ran = CliRunner().invoke(main, ["--op", "quant_linear", "--case", "m=3 k=0 n=10 bf16"])
    assert (ran.exit_code, "nothing that is run here is called" in ran.output) == (2, True)
    ran = CliRunner().invoke(main, ["--op", "attention"])
    assert (ran.exit_code, "'attention' is not one of" in ran.output) == (2, True)
