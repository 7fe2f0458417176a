"""Every kernel that `linear` launches, compiled for every target without a GPU, and what its machine code must hold.

That a kernel compiles says nothing about its numbers; those are proven in Triton's interpreter and on cards (`lanewise.prove`).
"""

import functools
import importlib.util
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
from support.gpu_launch import Code, compiled

from lanewise import dispatch
from lanewise.arch import TARGETS
from lanewise.contract import Problem
from lanewise.kernels.gpu import lanes as lanes_module
from lanewise.kernels.gpu import skinny, table
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.defaults import default

GPUS = [row for row in TARGETS.values() if row.is_gpu]
ROWS = [row for row in GPUS if row.triton]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
LANE_BYTES, ELEMENT_BYTES = 16, 2


@dataclass(frozen=True)
class Case:
    """y[m,n] of k columns; fused: with norm, bias, gate and residual."""

    dtype: str
    m: int
    n: int
    k: int
    fused: bool = False

    def __str__(self):
        return f"{self.dtype} m={self.m} {self.n}x{self.k}{' fused' if self.fused else ''}"

    def config(self, row):
        return default(row, self.dtype, self.m, self.n, self.k)

    def per_lane(self, row, tiles):
        """Elements of w that a lane multiplies with every token in so many tiles."""
        config = self.config(row)
        return config.rows * config.tile * config.groups * tiles // (row.wave * config.warps)


WHOLE = [Case(dtype, m, 4096, 4096) for dtype in TYPES for m in (1, 4, 16)]
# All tiles of w are held, so that there is no loop, which LLVM unrolls as it likes.
HELD = [Case("f16", m, 4096, 1024) for m in (1, 4)]
ODD = [Case("bf16", 1, 50257, 1040), Case("f16", 4, 50257, 1040), Case("f16", 16, 50257, 1040), Case("bf16", 1, 1000, 1040, fused=True)]
PLAIN = WHOLE[0]


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield


def made(row, case, constant_w=True, module=skinny, config=None):
    """What `linear` would launch for a case on a target."""
    new = functools.partial(torch.empty, dtype=TYPES[case.dtype])
    x, w = new(case.m, case.k), new(case.n * (1 + case.fused), case.k)
    more = {"bias": new(len(w)), "residual": new(case.m, case.n), "norm": new(case.k), "gated": True} if case.fused else {}
    return compiled(row, lambda: module.skinny(x, w, constant_w=constant_w, config=config or case.config(row), arch=row, **more))


@functools.cache
def built(row):
    alike = next(other for other in ROWS if replace(other, name=row.name) == row)  # odd shapes once for rows that differ by name alone
    return {case: made(row, case) for case in (*WHOLE, *(HELD if row.dot2_f16 else ()), *(ODD if alike is row else ()))}


def each(row, cases=None):
    return [(case, code) for case, codes in built(row).items() if cases is None or case in cases for code in codes]


def lanes(row, cases):
    return [(case, code) for case, code in each(row, cases) if code.name == "_lanes"]


def undotted(case: Case, code: Code) -> str:
    """What is wrong with how products of a whole shape are made in lanes; empty where nothing is."""
    row, config = code.row, case.config(code.row)
    dots = code.count("v_dot2_f32_f16")
    if case.dtype == "bf16" or not row.dot2_f16:
        return f"{dots} dots" if dots or code.count("v_dot2") else ""
    held = case.per_lane(row, config.ahead) * case.m // 2
    turn = case.per_lane(row, 1) * case.m // 2 if config.ahead * config.tile < case.k else 0
    loop = dots - held
    if (loop != 0) if turn == 0 else (loop <= 0 or loop % turn):
        return f"{dots} dots, for {held} and a loop of {turn}"
    instead = code.count(r"(v_fma_mix|v_cvt_f32_f16|v_fma_f16|v_pk_fma_f16|v_pk_mul_f16)")
    return f"{instead} other instructions that multiply or widen fp16" if instead else ""


def unwaited(code: Code) -> str:
    """What is wrong with what stands behind dots; empty where nothing is."""
    groups = [group for group in code.groups() if any(one.startswith("v_dot2") for one in group)]
    if sum(one.startswith("v_dot2") for group in groups for one in group) != code.count("v_dot2"):
        return "a dot outside of a group"
    return "" if all(group[-1] == "s_nop" for group in groups) else "a group of dots that nothing waits for"


def before_the_wait(code: Code) -> set[int | None]:
    """Loads from memory in front of the wait for the kernel before, by PTX and by machine code; None where there is not one wait and one release."""
    found = set()
    for text, wait, release, load in (
        (code.text, "griddepcontrol.wait", "griddepcontrol.launch_dependents", "ld.global."),
        (code.machine(), "ACQBULK", "PREEXIT", " LDG."),
    ):
        if text:
            once = text.count(wait) == text.count(release) == 1
            found.add(text.partition(wait)[0].count(load) if once else None)
    return found


@pytest.mark.parametrize("row", GPUS, ids=str)
def test_dispatch_accepts_exactly_the_targets_that_the_kernel_compiles_for(row):
    verdicts = {v.kernel.name: v for v in dispatch.explain(Problem("linear", row, 1, 4096, 4096, "bf16", torch=True))}
    assert verdicts["skinny"].chosen == row.triton
    if not row.triton:
        with pytest.raises(RuntimeError, match=r"PassManager|target|arch"):
            made(row, PLAIN)


@pytest.mark.parametrize("row", ROWS, ids=str, scope="module")
def test_every_case_is_compiled_to_the_kernels_that_its_configuration_names(row):
    for case, codes in built(row).items():
        config = case.config(row)
        body = {"lanes": "_lanes", "matrix": "_matrix"}.get(config.body, codes[0].name)
        assert [code.name for code in codes] == [body, *["_combine"] * (config.splits > 1)], str(case)


@pytest.mark.parametrize("row", ROWS, ids=str, scope="module")
def test_nothing_spills_and_shared_memory_suffices(row):
    assert {f"{case} {code.name}": code.spilled() for case, code in each(row) if code.spilled()} == {}
    assert {f"{case} {code.name}": code.shared for case, code in each(row) if code.shared > row.lds} == {}


@pytest.mark.parametrize("row", ROWS, ids=str, scope="module")
def test_a_whole_shape_is_read_16_bytes_a_lane(row):
    for case, code in lanes(row, WHOLE + HELD):
        w = case.per_lane(row, case.config(row).ahead) * ELEMENT_BYTES // LANE_BYTES
        assert all(code.loads()), str(case)
        assert len(code.loads()) >= 2 * w, str(case)  # as many of x, at least


@pytest.mark.parametrize("row", ROWS, ids=str, scope="module")
def test_fp16_is_multiplied_in_pairs_where_the_target_can_and_bf16_nowhere(row):
    assert {str(case): undotted(case, code) for case, code in lanes(row, WHOLE + HELD) if undotted(case, code)} == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.dot2_f16 and row.wave == skinny._WAITING_WAVE], ids=str, scope="module")
def test_where_a_dot_must_be_waited_for_every_group_of_dots_ends_in_a_wait(row):
    dotted = [(case, code) for case, code in each(row) if code.count("v_dot2")]
    assert {case.dtype for case, _ in dotted} == {"f16"}
    assert {str(case): unwaited(code) for case, code in dotted if unwaited(code)} == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.vendor == "nvidia"], ids=str, scope="module")
def test_every_kernel_waits_for_the_one_before_exactly_where_kernels_may_start_early(row):
    for case, code in each(row):
        found = tuple(code.count(rf"griddepcontrol\.{what}") for what in ("launch_dependents", "wait"))
        assert (code.late, found) == (row.pdl, (1, 1) if row.pdl else (0, 0)), f"{case} {code.name}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.pdl], ids=str, scope="module")
def test_only_a_constant_w_is_read_before_the_wait(row):
    w = PLAIN.per_lane(row, PLAIN.config(row).ahead) * ELEMENT_BYTES // LANE_BYTES
    (early,), (late,) = built(row)[PLAIN], made(row, PLAIN, constant_w=False)
    assert (before_the_wait(early), before_the_wait(late)) == ({w}, {0})


# Of every table, body, type and number of tokens the first row.
MEASURED = {
    f"{t.key['target']} {one.dtype} m={one.m} {one.config.body}": (TARGETS[t.key["target"]], one)
    for t in table._shipped(table.LINEAR)
    for one in reversed(t.rows)
    if one.config.body != "blas" and one.m in (1, 4, 16)
}


@pytest.mark.parametrize("name", MEASURED)
def test_what_a_shipped_table_names_is_compiled_without_spills(name):
    row, one = MEASURED[name]
    codes = made(row, Case(one.dtype, one.m, one.n, one.k), config=one.config)
    assert codes[0].name == {"mma": "_lanes"}.get(one.config.body, f"_{one.config.body}")
    assert [code.spilled() for code in codes] == [{}] * len(codes)
    assert all(code.shared <= row.lds for code in codes)


def changed(folder, module, old, new):
    """A module of kernels with one piece of text replaced."""
    text = Path(module.__file__).read_text()
    assert text.count(old) == 1
    path = folder / "changed_kernels.py"
    path.write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location("changed_kernels", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def with_other_lanes(monkeypatch, folder, row, case, old, new):
    other = changed(folder, lanes_module, old, new)._lanes
    monkeypatch.setitem(skinny._BODIES, "lanes", other)
    monkeypatch.setattr(skinny, "_lanes", other)
    (code,) = made(TARGETS[row], case)
    return code


def test_a_dot_that_nothing_waits_for_is_noticed(monkeypatch, tmp_path):
    code = with_other_lanes(monkeypatch, tmp_path, "gfx90a", HELD[0], r"$15\ns_nop 2", "$15")
    assert unwaited(code) == "a group of dots that nothing waits for"


def test_fp16_that_is_widened_instead_of_multiplied_in_pairs_is_noticed(monkeypatch, tmp_path):
    code = with_other_lanes(monkeypatch, tmp_path, "gfx1100", HELD[0], 'elif PAIRS == "dot2":', 'elif PAIRS == "never":')
    assert undotted(HELD[0], code) == ""  # the other spelling of the same products
    code = with_other_lanes(monkeypatch, tmp_path, "gfx1100", HELD[0], 'if PAIRS == "plain":', "if True:")
    assert undotted(HELD[0], code)


@pytest.mark.parametrize("row", ["gfx1100", "sm_90"])
def test_a_narrow_load_is_noticed(monkeypatch, tmp_path, row):
    narrow = "tile = tl.load(w_at + columns, mask=columns < end - 1)"
    assert not all(with_other_lanes(monkeypatch, tmp_path, row, PLAIN, "tile = tl.load(w_at + columns)", narrow).loads())


def test_w_that_is_read_before_the_wait_without_a_promise_is_noticed(tmp_path):
    other = changed(tmp_path, skinny, '"EARLY": pdl and constant_w', '"EARLY": pdl')
    (code,) = made(TARGETS["sm_90"], PLAIN, constant_w=False, module=other)
    assert code.machine()
    assert before_the_wait(code) not in ({0}, {None})


def test_a_program_too_large_for_its_registers_is_noticed():
    big = skinny.Config("lanes", 4, 1024, 1, 1)
    new = functools.partial(torch.empty, dtype=torch.bfloat16)
    for row in (TARGETS["gfx1100"], TARGETS["sm_90"]):
        (code,) = compiled(row, lambda row=row: skinny.skinny(new(3, 4096), new(4096, 4096), config=big, arch=row))
        assert code.spilled()


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_gates_product_is_rounded_before_the_residual_is_added(name):
    """In float32 nothing else rounds it, and a fused multiply-add would give other bits than the chain."""
    x, w, residual = torch.empty(1, 256, dtype=torch.bfloat16), torch.empty(16, 256, dtype=torch.bfloat16), torch.empty(1, 8)
    config = Config("lanes", 2, 256, 1, 1)
    arguments = {"out": torch.float32, "constant_w": False, "config": config, "arch": TARGETS[name]}
    (code,) = compiled(TARGETS[name], lambda: skinny.skinny(x, w, residual=residual, gated=True, **arguments))
    behind = code.text[code.text.rindex("ex2.approx") :]
    assert re.findall(r"\b(?:fma|add)\.(?:rn\.)?f32", behind) == ["add.f32"] * 2
