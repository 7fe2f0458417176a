"""Every command that a document shows runs: Lanewise's own on a tiny model, and make's as make itself expands them.

Placeholders and names of files stand for the tiny model and its like; what a command prints has its own tests.
"""

import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest
from click.testing import CliRunner
from support.bundles import good, written
from support.runs import QUIET
from support.small import PROBE, SMALL

from lanewise.bench import shapes
from lanewise.cli import app
from lanewise.gates import Repo
from lanewise.gates.__main__ import main as gates
from lanewise.gates.commands import runnable
from lanewise.gates.repo import checkout
from lanewise.kernels.cpu.isa import runnable as isas
from lanewise.prove.__main__ import main as prove

REPO = Repo(checkout())
# What stands for something in a synopsis, and what a test gives for it. "..." stands for the value of the option in front of it.
GIVEN = {"MODEL": "model.gguf", "IN": "model.gguf", "OUT": "out.gguf", "TEXT": "Hello", "OP": "linear", "T": "Q8_0", "A": "x86-64-v3", "...": "64"}
GIVEN |= {"M": "1", "N": "64", "K": "64", "FILE": "out.json", "DIR": "out", "BUNDLE": "bundle", "KERNEL": "skinny"}
FOLLOWING = {"--arch": "x86-64-v3", "--a": "echo took 1 s", "--b": "echo took 2 s", "kernel": "quant_linear"}
# Small sizes in place of those that a command names, and what a synopsis leaves out: options, and "" for the argument in front of them.
SMALLER = {
    "bench kernel": ["--n", "64", "--k", "256", "--ab", f"{isas()[0].name},{isas()[-1].name}", "--pairs", "15", "--sample-ms", "0.2"],
    "ab": ["--pairs", "15"],
}
MISSING = {
    "bench kernel": {"": "quant_linear", "--format": "Q4_K"},
    "bench model": {"": "model.gguf"},
    "isa": {"": "skinny", "--target": "gfx1100"},
    "ab": {"--a": "echo took 1 s", "--b": "echo took 2 s", "--metric": r"took (\d)"},
}


@pytest.fixture(scope="session")
def roomy(tmp_path_factory):
    """The tiny model with a context that the examples' prompts fit into."""
    from support import tiny

    model = tiny.model_of("llama", max_position_embeddings=1024)
    return tiny.save_gguf(model, tmp_path_factory.mktemp("roomy") / "tiny.gguf")


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch, roomy):
    """An empty folder with the files that the examples name; small shapes and a small probe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("model.gguf", "models/SmolLM2-135M-Instruct.Q4_1.gguf"):
        shutil.copy(roomy, tmp_path / name)
    for name in shapes.SHAPES:
        monkeypatch.setitem(shapes.SHAPES, name, replace(SMALL, context=1024))
    for name in ("bundle", "A", "B"):
        written(tmp_path / name, good())
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/user.md"):
        (tmp_path / name).write_text("Nothing is quoted here.")
    for name, words in (("decode.sh", "tg128 $(date +%N)"), ("tool.sh", "took 1 s"), ("answer.sh", "decode 9 tokens, $(date +%N) tok/s")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {words}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "prompt.txt").write_text("What the commands read.")
    subprocess.run(["git", "init", "-q"], check=True, timeout=60)
    monkeypatch.setattr("lanewise.bench.model.probe_bytes", lambda cache: PROBE)
    monkeypatch.setattr("lanewise.bench.kernel.probe_bytes", lambda cache: PROBE)
    monkeypatch.setattr("lanewise.bench.kernel.last_level_cache", lambda: 1 << 16)
    for module in ("rounds", "ab"):
        monkeypatch.setattr(f"lanewise.bench.{module}.look", lambda: dict(QUIET))


def given(words):
    """The words with something real for each placeholder; the bare name of a command that takes more becomes its help."""
    command, depth = {"needs": 0, "commands": REPO.inventory["commands"]}, 0
    while depth < len(words) and words[depth] in command["commands"]:
        command, depth = command["commands"][words[depth]], depth + 1
    if depth == len(words) and (command["needs"] or command["commands"]):
        return [*words, "--help"]
    pairs = zip(("", *words), words, strict=False)
    placeholders, name = GIVEN if words[:2] != ["evidence", "compare"] else {}, " ".join(words[:depth])
    filled = [placeholders.get(word, word) for word in words]
    for at, (before, word) in enumerate(pairs):
        if word == "..." or (word in ("CMD", "OP") and before in FOLLOWING):
            filled[at] = FOLLOWING.get(before, GIVEN["..."])
    for option, value in MISSING.get(name, {}).items():
        if option and option not in words:
            filled += [option, value]
        elif not option and words[depth].startswith("-") and "--shape" not in words:
            filled.insert(depth, value)
    return filled + SMALLER.get(name, [])


@pytest.mark.parametrize("command", runnable(REPO), ids=str)
def test_a_command_of_a_document_runs(command):
    program, *words = command.given
    if program == "make":
        done = subprocess.run(["make", "-n", "-C", str(REPO.root), *words], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    elif program == "python" and words[1] == "lanewise.prove":
        done = CliRunner().invoke(prove, [*words[2:], "--op", "linear", "--part", "0", "1000000"])
        assert done.exit_code == 0, done.output
    elif program == "python":
        done = CliRunner().invoke(gates, words[2:] or ["--only", "settings"])
        assert done.exit_code == 0, done.output
    else:
        done = CliRunner().invoke(app, given(words), input="")
        checks = words[0] == "explain" or "--repo" in words  # 1: no kernel accepts, or the bundle, which is made up, is not of that checkout
        assert done.exit_code in ((0, 1) if checks else (0,)), f"{shlex.join(given(words))}: {done.output}"


def test_placeholders_and_bare_names_are_filled_in():
    assert given(["generate", "MODEL", "-p", "TEXT"]) == ["generate", "model.gguf", "-p", "Hello"]
    assert given(["explain", "OP", "--arch", "...", "--n", "..."]) == ["explain", "linear", "--arch", "x86-64-v3", "--n", "64"]
    assert (given(["quantize"]), given(["bench"]), given(["targets"])) == (["quantize", "--help"], ["bench", "--help"], ["targets"])
