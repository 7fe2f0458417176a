"""The harness of linear: the unfused chain passes every case, and each wrong body is caught by one."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from support.linear_mutants import MUTANTS, chain

from lanewise.errors import ShapeError
from lanewise.prove.__main__ import main
from lanewise.prove.linear import Run, guarded, prove
from lanewise.prove.linear_cases import CASES, LAYOUTS, LinearCase, covering
from lanewise.prove.memory import FAR
from lanewise.prove.operands import operands

CPU = torch.device("cpu")
_QUICK = 1 << 18  # products of a case that a test in this process runs
QUICK = [case for case in CASES if case.m * case.k * case.n <= _QUICK and not case.device_only]
CASE = str(LinearCase(17, 264, 24, gated=True, dtype="f16"))
WITH_NOTHING = ("m=3 k=0", "m=3 k=40 n=0", "m=0")


def problems(body, cases):
    return [result for case in cases if (result := guarded(Run(case, "body", body), CPU)).problem]


def test_the_unfused_chain_is_right_on_every_case_and_its_results_are_not_mostly_nought():
    results = [prove(Run(case, "chain", chain), CPU) for case in QUICK]
    assert [result for result in results if not result.ok] == []
    assert [r.case for r in results if r.nonzero <= 0.5 and not r.case.startswith(WITH_NOTHING)] == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_body_is_caught(name):
    caught = next((case for case in QUICK if problems(MUTANTS[name], [case])), None)
    assert caught is not None


def test_a_refusal_has_to_be_of_a_case_that_may_be_refused():
    def refuses(**arguments):
        raise ShapeError("no")

    results = {case.layout: guarded(Run(case, "body", refuses), CPU) for case in QUICK if case.layout != "rows"}
    assert {layout: result.ok for layout, result in results.items()} == {layout: LAYOUTS[layout] for layout in results}
    assert {result.refused for result in results.values()} == {"no"}


def test_a_body_that_raises_is_a_problem_in_words():
    (result,) = problems(lambda **a: 1 / 0, QUICK[:1])
    assert result.problem == "ZeroDivisionError: division by zero"


def test_operands_are_the_same_every_time_and_no_two_numbers_of_a_row_need_be_equal():
    case = LinearCase(2, 264, 5, norm=True, bias=2, residual=True)
    first, second = operands(case, CPU).arguments, operands(case, CPU).arguments
    for name in ("x", "w", "bias", "residual", "norm"):
        assert torch.equal(first[name], second[name])
        assert first[name].unique().numel() > 1
    assert abs(float(first["w"].float().mean())) < float(first["w"].float().std())


def test_layouts_are_what_their_names_say():
    def strides(layout, name):
        case = next(case for case in CASES if case.layout == layout)
        return operands(case, CPU).arguments[name].stride()

    assert {name: strides(f"{name} far rows", name)[0] for name in ("x", "w", "bias", "residual")} == dict.fromkeys(
        ("x", "w", "bias", "residual"), FAR
    )
    assert strides("x transposed", "x") == (1, 4)
    assert strides("residual transposed", "residual") == (1, 5)
    assert strides("x row repeated", "x")[0] == strides("w row repeated", "w")[0] == 0
    assert strides("x element repeated", "x") == strides("w element repeated", "w") == (1, 0)
    assert strides("one row, far stride", "x") == (1264, 1)
    assert strides("bias with a stride", "bias") == (2,)
    given = operands(next(case for case in CASES if case.layout == "off by one" and case.norm), CPU).arguments
    assert [given[name].data_ptr() % 4 for name in ("x", "w", "bias", "residual", "norm")] == [2] * 5


def test_the_list_has_every_shape_and_axis_that_it_promises():
    sizes = {(c.m, c.k, c.n) for c in CASES}
    assert sizes >= {(1, 32, 16), (4, 4096, 4097), (4, 4112, 4097), (4, 32784, 8192), (4, 32768, 8193), (2, 10240, 1024)}
    assert {c.n for c in CASES} >= {*range(18), 50257, 151936}
    assert {c.k for c in CASES} >= {0, 1, 7, 8, 9, *range(200, 1601, 8), 513, 1040, 4112}
    assert {c.m for c in CASES} >= set(range(18))
    assert {c.layout for c in CASES} == set(LAYOUTS)
    assert any(c.weights * c.k > 1 << 31 for c in CASES)
    axes = {(c.dtype, c.bias, c.pad_x > 0, c.pad_w > 0, c.norm) for c in CASES if (c.m, c.k, c.n) == (3, 520, 9)}
    assert len(axes) == 2 * 3 * 2 * 2 * 2
    assert len({str(c) for c in CASES}) == len(CASES)


def test_a_covering_has_every_pair_of_values_and_few_rows():
    axes = ((0, 1, 2), "ab", "cd", "ef", "gh", "ij")
    rows = covering(axes)
    for i in range(len(axes)):
        for j in range(i + 1, len(axes)):
            assert {(row[i], row[j]) for row in rows} == {(a, b) for a in axes[i] for b in axes[j]}
    assert len(rows) <= 12


def test_a_case_is_run_again_by_its_name(tmp_path):
    ran = CliRunner().invoke(main, ["--case", CASE, "--json", str(tmp_path / "out.json")])
    assert (ran.exit_code, "1 runs, 0 wrong" in ran.output) == (0, True)
    (result,) = json.loads((tmp_path / "out.json").read_text())
    assert result["case"] == CASE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--case", CASE, "--case", "m=1"], "nothing that is run here is called 'm=1'"),
        (["--device", "tpu"], "it takes cpu, cuda, or cuda:1"),
        (["--device", "meta"], "it takes cpu, cuda, or cuda:1"),
        (["--device", "cuda:7"], "there is no device cuda:7: PyTorch sees 0 GPUs here"),
        (["--device", "cuda", "--interpret"], "--interpret runs on the CPU"),
        (["--op", "act_quant"], "nothing of act_quant runs on cpu; its kernel needs a card, --interpret or --target"),
        (["--target", "gfx1100", "--device", "cuda"], "--target runs in the emulator"),
        (["--target", "gfx1100", "--interpret"], "--target runs in the emulator"),
        (["--target", "gfx1100", "--turn", "1"], "--turn is 1; 1 targets have turns from 0 to 0"),
        (["--part", "0", "0"], "--part is 0 0; it takes I N with I from 0 to N - 1"),
        (["--part", "-1", "2"], "--part is -1 2"),
        (["--part", "7", "3"], "--part is 7 3"),
        (["--jobs", "2", "--part", "1", "2"], "give one of them"),
        (["--json", "/nowhere/at/all.json"], "is no folder that can be written to"),
    ],
)
def test_a_call_that_would_prove_less_than_it_seems_is_refused(monkeypatch, words, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool({"--interpret", "--target"} & set(words)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    ran = CliRunner().invoke(main, words if "--case" in words else [*words, "--case", CASE])
    assert (ran.exit_code, said in " ".join(ran.output.split())) == (2, True)


def test_results_that_were_not_written_to_the_end_are_a_problem(monkeypatch, tmp_path):
    class Killed:
        returncode = -9

        def __init__(self, command, **rest):
            Path(command[command.index("--json") + 1]).write_text('[{"case": ')

        def communicate(self, timeout=None):
            return "", None

    monkeypatch.setattr("lanewise.prove.__main__.subprocess.Popen", Killed)
    ran = CliRunner().invoke(main, ["--jobs", "2"])
    assert (ran.exit_code, "the process ended with -9 and said: nothing" in ran.output) == (1, True)


def test_a_process_that_ends_without_results_is_a_problem(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    ran = CliRunner().invoke(main, ["--jobs", "2", "--interpret"])
    assert ran.exit_code == 1
    assert [f"part {job} of 2" in ran.output for job in (0, 1)] == [True, True]
    assert "the process ended with 2 and said: Error: --interpret needs TRITON_INTERPRET=1" in ran.output
