"""The gates' own gate, and what it cannot hold itself: that it is in the list, and that CI's script stops where a gate fails."""

import os
import shutil
import subprocess

import pytest
from support.repo import REPO, ROOT, changed, tree, words

from lanewise.gates import GATES, ci, listing, meta


def test_the_list_has_every_gate():
    assert list(GATES) == list(meta.GATES_OF_THE_ISSUE) == ["settings", "kernels", "docs", "layout", "meta"]
    assert all(GATES[name].__module__ == f"lanewise.gates.{name}" for name in GATES)


def test_the_source_is_read_as_it_runs():
    assert list(listing.listed(REPO)) == list(GATES)
    for name in GATES:
        assert listing.rules_of(REPO, name) == [rule.name for rule in __import__(f"lanewise.gates.{name}", fromlist=["RULES"]).RULES]


@pytest.mark.parametrize(("path", "name", "over"), meta.NEEDED)
def test_a_needed_test_that_is_taken_away_is_missed(path, name, over):
    text = (ROOT / path).read_text()
    shown = text.replace(f"def {name}(", f"def not_{name}(") if name else ""
    assert shown != text
    with changed({path: shown}) as repo:
        assert any(path in line for line in words(meta.untested, repo))


def test_every_gate_and_the_planted_violations_are_among_the_needed_tests():
    needed = {path for path, _, _ in meta.NEEDED}
    assert {f"tests/gates/test_gates_{name}.py" for name in (*GATES, "planted", "run")} <= needed


@pytest.mark.parametrize(("fails", "called"), [(None, ["lint", "test"]), ("lint", ["lint"]), ("test", ["lint", "test"])])
def test_ci_stops_where_a_gate_fails(tmp_path, fails, called):
    """The real script, with a `make` that writes down what it is asked for; nothing is missing, so that nothing is installed."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    stubs = {
        "make": f'echo "$@" >> {log}; [ "$1" != "{fails}" ]',
        **dict.fromkeys(("qemu-aarch64", "aarch64-linux-gnu-ld", "llvm-objdump-22", "python3"), "true"),
    }
    for name, line in {**stubs, **dict.fromkeys(("apt-get", "sudo", "env"), "exit 99")}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    bash = shutil.which("bash")
    os.symlink(shutil.which("dirname"), programs / "dirname")
    done = subprocess.run([bash, str(ROOT / ".ci" / "run")], env={"PATH": str(programs)}, capture_output=True, text=True, check=False, timeout=60)
    assert log.read_text().split() == called, done.stderr
    assert (done.returncode == 0) == (fails is None)


@pytest.mark.parametrize(
    ("known", "installed", "said"),
    [("19 22", "make llvm-22", False), ("19", "make llvm-19", False), ("", "make", True)],
    ids=["newest", "oldest", "none"],
)
def test_ci_installs_the_newest_disassembler_or_says_that_there_is_none(tmp_path, known, installed, said):
    """The real script again, on a system without make and any disassembler; what it would install is written down, and ends it."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    stubs = {
        "apt-cache": f'case " {known} " in *" ${{2#llvm-}} "*) exit 0;; esac; exit 1',
        "env": f'echo "$@" > {log}; exit 7',
        "sudo": '"$@"',
        **dict.fromkeys(("apt-get", "qemu-aarch64", "aarch64-linux-gnu-ld", "python3"), "true"),
    }
    for name, line in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    os.symlink(shutil.which("dirname"), programs / "dirname")
    done = subprocess.run(
        [shutil.which("bash"), str(ROOT / ".ci" / "run")], env={"PATH": str(programs)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert log.read_text().split("--no-install-recommends ")[1].strip() == installed, done.stderr
    assert (done.returncode, "no package llvm-22, 21, 20 or 19 here" in done.stderr) == (7, said)


def test_make_lint_runs_the_gates_as_make_itself_expands_it():
    done = subprocess.run(["make", "-n", "-C", str(ROOT), "lint"], capture_output=True, text=True, check=True, timeout=60)
    assert ".venv/bin/python -m lanewise.gates" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("script", "complaints"),
    [
        ("set -e\nmake lint\nmake test\n", 0),
        ("set -e\nmake test\nmake lint\n", 0),
        ("make lint\nmake test\n", 1),
        ("set -e\nmake() {\n  true\n}\nmake lint\nmake test\n", 1),
        ("set -e\nlater() {\n  make lint\n}\nmake test\n", 1),
        ("set -e\ncat <<E\nmake lint\nE\nmake lint\nmake test\n", 1),
        ("set -e\nset +e\nmake lint\nmake test\n", 1),
        ("set -e\n[ -z x ] || exit 0\nmake lint\nmake test\n", 1),
        ("set -e\nmake lint test\n", 2),
        ("set -e\ntrue ||\nmake lint\nmake test\n", 1),
        ("set -e\ntrue || \\\nmake lint\nmake test\n", 1),
        ("set -e\nfor x in; do\nmake lint\ndone\nmake test\n", 1),
        ("set -e\nif true; then true; fi\nx=()\nmake lint\nmake test\n", 0),
    ],
)
def test_a_script_is_read_as_a_shell_reads_it(tmp_path, script, complaints):
    makefile = "lint:\n\t$(BIN)/python -m lanewise.gates\n\ntest:\n\t$(BIN)/python -m pytest\n"
    assert len(words(ci.not_called, tree(tmp_path, {".ci/run": script, "Makefile": makefile}))) == complaints


@pytest.mark.parametrize(
    ("line", "complaints"),
    [
        ("lint:\n\t@$(BIN)/python -m lanewise.gates", 0),
        ("lint: x\n\ttrue\n\t$(BIN)/python -m lanewise.gates  # all", 0),
        ("lint:\n\ttrue # $(BIN)/python -m lanewise.gates", 1),
        ("lint:\n\techo $(BIN)/python -m lanewise.gates", 1),
        ("lint:\n\t-$(BIN)/python -m lanewise.gates", 2),
        (".IGNORE:\nlint:\n\t$(BIN)/python -m lanewise.gates", 1),
        ("MAKEFLAGS += -i\nlint:\n\t$(BIN)/python -m lanewise.gates", 1),
        (".ONESHELL:\nlint:\n\t$(BIN)/python -m lanewise.gates", 1),
        ("lint:\n\ttrue || \\\n\t$(BIN)/python -m lanewise.gates", 1),
        ("lint:\nifeq (1,0)\n\t$(BIN)/python -m lanewise.gates\nendif", 1),
        ("other:\n\t$(BIN)/python -m lanewise.gates", 2),
    ],
)
def test_a_makefile_is_read_as_make_reads_it(tmp_path, line, complaints):
    files = {".ci/run": "set -e\nmake lint\nmake test\n", "Makefile": f"{line}\n\ntest:\n\t$(BIN)/python -m pytest\n"}
    assert len(words(ci.not_called, tree(tmp_path, files))) == complaints
