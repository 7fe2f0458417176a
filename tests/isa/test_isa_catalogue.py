"""The catalogue, what is declared of its kernels, and what the gate says where something is not as it should be."""

import contextlib
import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from lanewise import dispatch
from lanewise.arch import TARGETS
from lanewise.errors import AssemblyError, CompilerError, LanewiseError
from lanewise.isa import catalogue, gate
from lanewise.isa.compile import compile_for
from lanewise.isa.expect import expected
from lanewise.isa.expectation import Range
from lanewise.isa.launches import taken
from lanewise.isa.summary import annotated, summary
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.grouped_table import choose_grouped
from lanewise.kernels.gpu.quant_table import choose_quant
from lanewise.kernels.gpu.table import choose

GEMV = catalogue.few()[1]


def test_every_registered_kernel_has_cases_and_one_that_is_quick():
    assert gate.unlisted() == []
    known = {name for names in catalogue.registered().values() for name in names}
    assert {case.kernel for case in catalogue.few()} == known
    assert set(catalogue.few()) <= set(catalogue.CASES)


def test_every_format_of_packed_weights_is_in_the_catalogue():
    for kernel in ("quant_gemv", "quant_gemm", "grouped_quant"):
        assert {case.format for case in catalogue.CASES if case.kernel == kernel} == set(catalogue.LAYOUTS)


# Of models from 0.1 to 70 billion parameters, and of experts.
SIZES = [(n, k) for n in (576, 1024, 1536, 4096, 12288, 151936) for k in (512, 576, 768, 1024, 1536, 2048, 2560, 4096, 12288, 28672)]


def cuts(config):
    """A configuration but for what is an argument of the kernel and not in its code: in how many parts k is split."""
    return str(replace(config, splits=min(config.splits, 2))) if isinstance(config, Config) else str(config)


@pytest.mark.parametrize("row", [row for row in catalogue.ROWS if row.triton and row.vendor == "amd"], ids=str)
def test_every_way_to_cut_that_is_reasoned_for_a_target_is_in_the_catalogue(row):
    asked = {
        "skinny": {cuts(choose(row, dtype, m, n, k, None).config) for dtype in ("bf16", "f16") for m in range(1, 17) for n, k in SIZES},
        "quant_gemv": {cuts(choose_quant(row, "Q4_K", m, n, k, None).config) for m in range(1, 33) for n, k in SIZES if k % 256 == 0},
        "grouped_quant": {cuts(choose_grouped(row, "Q4_K", m, n, k, 128, None).config) for m in (8, 16, 512, 4096) for n, k in SIZES if k < 4096},
    }
    for kernel, configs in asked.items():
        assert configs <= {cuts(case.config(row)) for case in catalogue.CASES if case.kernel == kernel}, kernel


@triton.jit
def _copy(x, y):
    tl.store(y, tl.load(x))


def test_what_compiles_and_what_dispatch_accepts_are_the_same_targets():
    """By the smallest kernel there is; whether it is so of every kernel and case, each verdict of the gate says."""
    accepted = {str(case): {row for row in catalogue.ROWS if not case.refusal(row)} for case in catalogue.CASES}
    compiles = set()
    for row in catalogue.ROWS:
        with contextlib.suppress(RuntimeError), taken(row):
            _copy[(1,)](torch.zeros(1), torch.zeros(1))
            compiles.add(row)
    assert {row.name for row in set(catalogue.ROWS) - compiles} == {"gfx900", "gfx906"}
    assert {case: targets for case, targets in accepted.items() if targets != compiles} == {}


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


def test_processes_beside_each_other_judge_as_one_does(monkeypatch):
    cases, rows = catalogue.few()[2:3], [TARGETS["gfx906"], TARGETS["gfx1100"]]
    monkeypatch.setattr(gate, "_FEW", 0)
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


@pytest.mark.parametrize(("target", "words"), [("gfx1100", "registers spilled"), ("sm_90", "bytes of stack, for 0")])
def test_a_program_too_large_for_its_registers_is_found(target, words, monkeypatch):
    monkeypatch.setattr(catalogue, "choose", lambda *asked: SimpleNamespace(config=Config("lanes", 4, 1024, 1, 1)))
    verdict = gate.judge(catalogue.Case("skinny", 3, 4096, 4096), TARGETS[target])
    assert any(words in miss for miss in verdict.misses), verdict.misses


def test_a_disassembler_that_reads_something_else_is_a_miss_and_none_is_said(monkeypatch):
    def differs(code):
        raise AssemblyError("the text has one thing and llvm-objdump reads another")

    monkeypatch.setattr(gate, "compared", differs)
    assert gate.judge(GEMV, TARGETS["gfx1100"]).misses == ("the text has one thing and llvm-objdump reads another",)
    monkeypatch.setattr(gate, "compared", lambda code: "there is none")
    verdict = gate.judge(GEMV, TARGETS["gfx1100"])
    assert (verdict.state, verdict.unread) == ("ok", "there is none")


def test_dots_that_the_compiler_makes_by_itself_count_as_none_of_ours():
    code = compile_for(GEMV, TARGETS["gfx1100"])[-1].code
    own = tuple(replace(one, inline=False) for one in code.instructions)
    assert summary(code).own_dots == 0
    assert summary(replace(code, instructions=own)).own_dots == 32
