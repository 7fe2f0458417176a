"""`lanewise isa` as a user types it."""

import json
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from click.testing import CliRunner

from lanewise.cli import app
from lanewise.isa import catalogue, gate
from lanewise.isa.gate import Verdict


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return lambda *words: CliRunner().invoke(app, ["isa", *words])


@pytest.fixture
def judged(monkeypatch):
    """The verdicts that the gate gives, whatever it is asked."""
    monkeypatch.setattr(catalogue, "CASES", catalogue.CASES[:1])
    monkeypatch.setattr(gate, "unlisted", list)
    found = [
        Verdict("skinny a", "skinny", "gfx1100", "ok", unread="there is none"),
        Verdict("skinny a", "skinny", "gfx900", "refused", reason="Triton on skinny a: cannot"),
    ]
    monkeypatch.setattr(gate, "judge_all", lambda cases, rows, jobs: iter(found))
    return found


def test_a_gate_that_holds_prints_a_table_and_exits_with_0(run, judged):
    done = run("--gate")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "target              skinny",
        "gfx1100               1 ok",
        "gfx900             refused",
        "refused by the compiler, and by dispatch: gfx900: cannot",
        "read by the compiler's own assembler alone: gfx1100: there is none",
    ]


def test_a_miss_is_said_and_exits_with_1(run, judged):
    judged.append(Verdict("skinny b", "skinny", "gfx1101", "MISS", ("_lanes: 3 dots, for 4",)))
    done = run("--gate")
    assert done.exit_code == 1
    assert "gfx1101        1 of 1 miss" in done.stdout
    assert "MISS skinny b on gfx1101: _lanes: 3 dots, for 4" in done.stdout
    found = json.loads(run("--gate", "--json").stdout)
    assert [one["state"] for one in found["verdicts"]] == ["ok", "refused", "MISS"]


def test_a_kernel_that_is_not_listed_is_a_miss(run, judged, monkeypatch):
    monkeypatch.setattr(gate, "unlisted", lambda: ["other is registered and the catalogue has no case of it"])
    done = run("--gate")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "MISS other is registered and the catalogue has no case of it")
    assert run("skinny", "--gate").exit_code == 0


def test_nothing_asked_is_nothing_held(run, judged):
    judged.clear()
    assert run("--gate").exit_code == 1


def test_the_gate_itself_is_asked_and_can_be_cut_to_a_kernel_and_a_target(run):
    done = run("skinny f16 m=1 4096x1024", "--gate", "--target", "gfx1100", "--target", "gfx906", "--jobs", "1")
    assert (done.exit_code, "1 ok" in done.stdout) == (0, True)
    assert "refused by the compiler, and by dispatch: gfx906: unsupported target: 'gfx906'" in done.stdout


def test_assembly_has_pcs_source_lines_and_a_summary(run):
    done = run("skinny f16 m=1 4096x1024", "--asm", "--target", "gfx1201")
    assert done.exit_code == 0
    assert "; lanes.py:" in done.stdout
    assert "16 v_dot2_f32_f16, 0 of the matrix unit" in done.stdout
    assert "waves of a SIMD" in done.stdout


def test_ptx_has_source_lines_and_a_summary_too(run):
    done = run("quant_gemm Q8_0", "--asm", "--target", "sm_80")
    assert done.exit_code == 0
    assert "ld.global.v4.b32" in done.stdout
    assert " registers, 0 bytes of shared memory, 0 of stack and 0 of local memory a thread" in done.stdout


def test_assembly_as_json_has_every_instruction(run):
    found = json.loads(run("quant_gemm Q8_0", "--asm", "--target", "gfx1201", "--json").stdout)
    (kernel,) = found["kernels"]
    assert (found["case"], found["target"], kernel["name"]) == ("quant_gemm Q8_0 m=512 4096x2048", "gfx1201", "_dequantize")
    assert kernel["instructions"][-1]["text"].startswith("s_code_end") or any(one["text"] == "s_endpgm" for one in kernel["instructions"])
    assert sum(kernel["mix"].values()) >= len(kernel["instructions"])
    assert (kernel["scratch"], kernel["spills"]) == (0, 0)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "say either --gate or --asm"),
        (["--gate", "--asm"], "say either --gate or --asm"),
        (["skinny", "--asm"], "--asm takes a KERNEL and one --target"),
        (["--asm", "--target", "gfx1100"], "--asm takes a KERNEL and one --target"),
        (["nothing", "--gate"], "no case is 'nothing'; kernels are skinny, quant_gemv"),
        (["--gate", "-t", "gfx1"], "gfx1"),
        (["--gate", "-t", "x86-64"], "x86-64 is no GPU"),
        (["--gate", "--jobs", "0"], "0 is not in the range"),
        (["quant_gemm Q8_0", "--asm", "-t", "gfx906"], "unsupported target: 'gfx906'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(run, words, complaint):
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
