"""The harness of grouped_linear: a body by the definition passes every case, and each wrong body is caught by one."""

import json
import os
import subprocess
import sys

import pytest
import torch
from support.grouped_mutants import MUTANTS, one_expert, right, steps

from lanewise import dispatch, ops
from lanewise.errors import ShapeError
from lanewise.prove import grouped_linear, grouped_op
from lanewise.prove.grouped_cases import CASES, INTERPRETED, ROUTES, SMALL, GroupedCase
from lanewise.prove.grouped_linear import GroupedRun
from lanewise.prove.grouped_op import GroupedOpRun
from lanewise.prove.grouped_operands import routed
from lanewise.prove.quant_cases import NAMES, TILE

CPU = torch.device("cpu")
QUICK = [case for case in (*SMALL, *INTERPRETED) if case.pairs * case.alone.weights * case.k <= 1 << 15]


def run(case, body, alone=None):
    return GroupedRun(case, "body", (body,), alone)


def test_the_definition_is_right_on_every_case_and_its_results_are_not_mostly_nought():
    results = [grouped_linear.prove(run(case, right, one_expert), CPU) for case in QUICK]
    assert [result for result in results if not result.ok] == []
    assert [r.case for r in results if r.nonzero <= 0.4] == []
    assert {case.route for case in QUICK} == set(ROUTES)
    assert {case.format for case in QUICK} == set(NAMES)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_body_is_caught(name):
    problem = next((words for case in QUICK if (words := grouped_linear.guarded(run(case, MUTANTS[name], one_expert), CPU).problem)), "")
    assert problem
    assert "Error: " not in problem  # it ran, and what it gave was seen to be wrong


def test_other_bits_within_the_bound_are_caught_beside_the_expert_alone():
    case, body = GroupedCase("Q4_K", 2, 2, 3, 5, TILE, out="f32"), MUTANTS["the bits are not those of the expert alone"]
    assert grouped_linear.guarded(run(case, body), CPU).ok
    assert "other bits than its expert alone gives" in grouped_linear.guarded(run(case, body, one_expert), CPU).problem


def test_exact_cases_leave_no_choice():
    case = next(case for case in QUICK if case.values == "exact" and not case.gated and case.out == "f32" and case.route != "bad")
    for towards in (float("inf"), -float("inf")):
        result = grouped_linear.prove(run(case, lambda towards=towards, **a: torch.nextafter(right(**a), torch.tensor(towards))), CPU)
        assert "elements are outside" in result.problem


def test_cuts_are_held_to_the_same_bits_as_the_first_and_a_refusal_is_a_problem():
    other = steps(alone=lambda x, w, out: torch.nextafter(one_expert(x, w, out), torch.tensor(float("inf"))))
    case = GroupedCase("Q4_K", 2, 2, 3, 5, TILE, out="f32")
    assert grouped_linear.prove(GroupedRun(case, "cuts", (right, right)), CPU).ok
    assert "cut 1: 20 elements have other bits" in grouped_linear.prove(GroupedRun(case, "cuts", (right, other)), CPU).problem

    def refuses(**a):
        raise ShapeError("no")

    assert "refused, and may not: no" in grouped_linear.guarded(run(case, refuses), CPU).problem
    assert grouped_linear.guarded(run(case, lambda **a: 1 / 0), CPU).problem == "ZeroDivisionError: division by zero"


def test_the_list_has_what_it_is_for():
    assert {(case.top, case.experts) for case in CASES} >= {(8, 128), (6, 144)}
    for case in (c for c in CASES if c.experts == 128 and c.tokens == 1 and c.route == "apart"):
        assert len(set(routed(case, CPU).ids.flatten().tolist())) == 8
    assert any(case.pairs > 65536 for case in CASES if case.device_only)
    assert {case.format for case in CASES if case.values == "exact"} == set(NAMES)
    for route in ROUTES:
        assert {case.format for case in CASES if case.route == route and case.tokens == 512} == set(NAMES)
    bad = routed(next(case for case in INTERPRETED if case.route == "bad" and case.pairs and case.experts), CPU)
    assert bad.arguments["ids"].tolist() == bad.ids.tolist()


@pytest.mark.filterwarnings("ignore:grouped_linear expands")
def test_the_op_is_held_to_the_definition_of_what_ran():
    runs = [run for run in grouped_op.runs(CPU) if run.case.pairs <= 20]
    results = [grouped_linear.guarded(run, CPU) for run in runs]
    assert [result for result in results if not result.ok] == []
    assert {result.through for result in results if " tokens=0 " not in result.case} == {"ops.grouped_linear -> grouped_blas"}
    few = [run.case for run in runs if run.case.values == "even" and run.case.pairs * run.case.n and run.case.route != "bad"][:3]

    def kernel(x, w, expert_ids, weights, out, constant_w, ids_ready, check=True):
        dispatch._WITNESSES[-1]["grouped_quant"] += 1
        return right(x=x, w=w, ids=expert_ids, weights=weights, out=out, constant_w=constant_w, ids_ready=ids_ready)

    def as_kernel(**a):
        dispatch._WITNESSES[-1]["grouped_quant"] += 1
        return ops.grouped_linear(**a)

    with dispatch.witness():
        assert all(grouped_linear.guarded(GroupedOpRun(case, "body", kernel), CPU).ok for case in few)
        assert all("outside" in grouped_linear.guarded(GroupedOpRun(case, "body", as_kernel), CPU).problem for case in few)
        bad = next(run.case for run in runs if run.case.route == "bad" and run.case.pairs and run.case.experts)
        assert "was not refused" in grouped_linear.guarded(GroupedOpRun(bad, "body", kernel), CPU).problem


def test_some_cases_of_the_kernel_are_right_in_the_interpreter(tmp_path):
    small = [case for case in INTERPRETED if 0 < case.pairs * case.n * case.k <= 1 << 14]
    chosen = [next(case for case in small if case.values == "exact"), next(case for case in small if case.route == "bad")]
    path = tmp_path / "results.json"
    names = [word for case in chosen for word in ("--case", str(case))]
    command = [sys.executable, "-m", "lanewise.prove", "--op", "grouped_linear", "--interpret", "--json", str(path), *names]
    ran = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(json.loads(path.read_text())) == len(chosen)
