"""The catalogue, what is declared of its kernels, and what the gate says where something is not as it should be."""

import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from types import SimpleNamespace

from lanewise import dispatch
from lanewise.arch import TARGETS
from lanewise.errors import CompilerError, LanewiseError
from lanewise.isa import catalogue, gate
from lanewise.isa.compile import compile_for
from lanewise.isa.expect import Range, expected
from lanewise.isa.summary import annotated, summary
from lanewise.kernels.gpu.config import Config

GEMV = catalogue.few()[1]


def test_every_registered_kernel_has_cases_and_one_that_is_quick():
    assert gate.unlisted() == []
    known = {name for names in catalogue.registered().values() for name in names}
    assert {case.kernel for case in catalogue.few()} == known
    assert set(catalogue.few()) <= set(catalogue.CASES) | {catalogue.few()[2]}


def test_every_format_of_packed_weights_is_in_the_catalogue():
    for kernel in ("quant_gemv", "quant_gemm"):
        assert {case.format for case in catalogue.CASES if case.kernel == kernel} == set(catalogue.LAYOUTS)


def test_a_kernel_that_is_not_registered_and_one_without_a_case_are_named(monkeypatch):
    rest = [kernel for kernel in dispatch.kernels("quant_linear") if kernel.name != "quant_gemv"]
    monkeypatch.setitem(dispatch._REGISTRY, "quant_linear", rest)
    assert gate.unlisted() == ["quant_gemv is in the catalogue and not registered"]
    assert gate.judge(GEMV, TARGETS["gfx1100"]).misses == ("quant_gemv is in the catalogue and not registered",)
    monkeypatch.undo()
    monkeypatch.setattr(catalogue, "CASES", tuple(case for case in catalogue.CASES if case.kernel != "skinny"))
    assert gate.unlisted() == ["skinny is registered and the catalogue has no case of it"]


def test_dispatch_that_accepts_what_does_not_compile_or_refuses_what_does_misses():
    def refuse(case, row):
        raise CompilerError("Triton on something: unsupported")

    (miss,) = gate.judge(GEMV, TARGETS["gfx1100"], refuse).misses
    assert miss == "dispatch gives it to a target that does not compile it: Triton on something: unsupported"
    (miss,) = gate.judge(GEMV, TARGETS["gfx906"], lambda case, row: ()).misses
    assert miss.startswith("it compiles, and dispatch refuses it: Triton does not compile for gfx906")


def test_a_body_of_which_nothing_is_declared_misses():
    with pytest.raises(LanewiseError, match="launches _other on gfx1100, of which nothing is declared"):
        expected(GEMV, TARGETS["gfx1100"], "_other")


def test_more_lds_than_a_target_has_misses():
    bodies = compile_for(GEMV, TARGETS["gfx1100"])
    small = replace(TARGETS["gfx1100"], lds=1024)
    assert any("4096 bytes of LDS, of 1024" in miss for miss in gate.judge(GEMV, small, lambda case, row: bodies).misses)


def test_processes_beside_each_other_judge_as_one_does():
    cases, rows = catalogue.few()[2:3], [TARGETS["gfx906"], TARGETS["gfx1100"]]
    assert list(gate.judge_all(cases, rows, jobs=2)) == list(gate.judge_all(cases, rows))


def test_a_summary_counts_what_stands_there():
    code = compile_for(GEMV, TARGETS["gfx1201"])[-1].code
    counted = summary(code)
    assert counted.dots == {"v_dot4_i32_iu8": 32}
    assert (counted.own_dots, counted.unsigned, counted.matrix, counted.wide) == (0, 0, 0, 10)
    assert sum(counted.mix.values()) == len(code.instructions) + sum(one.pair is not None for one in code.instructions)
    assert 16 <= counted.flight <= 16 * 10 + 4 * 8
    text = annotated(code)
    assert sum("v_dot4_i32_iu8" in line for line in text) == 32
    assert any("; quant_dots.py:" in line for line in text)


@pytest.mark.parametrize(
    ("range_", "held", "missed"),
    [(Range(3, 3), [3], [2, 4]), (Range(2), [2, 99], [1]), (Range(4, None, 4), [4, 8, 400], [0, 6]), (Range(1, 2), [1, 2], [0, 3])],
    ids=["exact", "least", "steps", "both"],
)
def test_a_range_holds_what_it_says(range_, held, missed):
    assert [count in range_ for count in held + missed] == [True] * len(held) + [False] * len(missed)


def test_words_that_name_no_case_are_refused_with_what_there_is():
    with pytest.raises(LanewiseError, match=r"no case is 'skinny Q9'; kernels are skinny, quant_gemv"):
        catalogue.find("skinny Q9")


def test_a_spill_is_found(monkeypatch):
    monkeypatch.setattr(catalogue, "choose", lambda *asked: SimpleNamespace(config=Config("lanes", 4, 1024, 1, 1)))
    verdict = gate.judge(catalogue.Case("skinny", 3, 4096, 4096), TARGETS["gfx1100"])
    assert any("registers spilled" in miss for miss in verdict.misses), verdict.misses


def test_dots_that_the_compiler_makes_by_itself_count_as_none_of_ours():
    code = compile_for(GEMV, TARGETS["gfx1100"])[-1].code
    own = tuple(replace(one, inline=False) for one in code.instructions)
    assert summary(code).own_dots == 0
    assert summary(replace(code, instructions=own)).own_dots == 32
