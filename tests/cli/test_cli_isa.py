"""`lanewise isa` as a user types it."""

import json
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from click.testing import CliRunner

from lanewise.cli import app
from lanewise.isa import gate
from lanewise.isa.gate import Verdict


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return lambda *words: CliRunner().invoke(app, ["isa", *words])


@pytest.fixture
def judged(monkeypatch):
    """The verdicts that the gate gives, whatever it is asked."""
    found = [Verdict("skinny a", "skinny", "gfx1100", "ok"), Verdict("skinny a", "skinny", "gfx900", "refused", reason="Triton on skinny a: cannot")]
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
    ]


def test_a_miss_is_said_and_exits_with_1(run, judged):
    judged.append(Verdict("skinny b", "skinny", "gfx1100", "MISS", ("_lanes: 3 dots, for 4",)))
    done = run("--gate")
    assert done.exit_code == 1
    assert "gfx1100        1 of 2 miss" in done.stdout
    assert "MISS skinny b on gfx1100: _lanes: 3 dots, for 4" in done.stdout
    found = json.loads(run("--gate", "--json").stdout)
    assert [one["state"] for one in found["verdicts"]] == ["ok", "refused", "MISS"]


def test_a_kernel_that_is_not_listed_is_a_miss(run, judged, monkeypatch):
    monkeypatch.setattr(gate, "unlisted", lambda: ["other is registered and the catalogue has no case of it"])
    assert run("--gate").exit_code == 1
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


@pytest.mark.parametrize(
    "words", [[], ["--gate", "--asm"], ["skinny", "--asm"], ["--asm", "--target", "gfx1100"], ["nothing", "--gate"], ["--gate", "-t", "gfx1"]]
)
def test_what_cannot_be_asked_is_refused(run, words):
    assert run(*words).exit_code == 2
