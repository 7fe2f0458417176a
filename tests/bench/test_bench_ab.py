"""`ab`: two commands in turns, each sample a fresh process; commits run as themselves; what proves nothing is refused in words."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from support.runs import QUIET

from lanewise.bench import manifest as manifests
from lanewise.bench import stats, trees
from lanewise.bench.ab import Command, CommandPlan, _argv, bench_commands
from lanewise.bench.machine import peak_memory
from lanewise.bench.process import ran
from lanewise.errors import EvidenceError

METRIC = r"value (\S+)"


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    """In a directory of its own, with a cache of its own, on a machine that is always quiet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("lanewise.bench.ab.look", lambda: dict(QUIET))


CLOSE = 1e-12  # log and exp, a few roundings each


def plan(a="echo value 1", b="echo value 2", **options):
    a, b = (Command(one) if isinstance(one, str) else one for one in (a, b))
    return CommandPlan(a, b, **{"metric": METRIC, "pairs": 15, "seed": 1, **options})


def test_two_plain_commands_are_compared_by_the_number_that_they_print():
    found = bench_commands(plan())
    assert manifests.complaints(json.loads(manifests.text_of(found))) == []
    assert found["figures"]["ratio"] == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.0}, rel=CLOSE)
    assert (found["figures"]["verdict"], found["figures"]["pairs"]) == ("a is better", 16)
    assert stats.figures(found) == found["figures"]
    assert bench_commands(plan(better="higher"))["figures"]["verdict"] == "b is better"


def test_every_sample_is_a_process_of_its_own(tmp_path):
    found = bench_commands(plan("echo $$ >> pids; echo value 1", "echo $$ >> pids; echo value 1.5"))
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == len(set(pids)) == 2 * found["plan"]["warmup"] + 6 * len(found["rounds"])


def test_variables_are_set_for_their_arm_alone():
    command = 'echo "value ${NUMBER:-5}"'
    found = bench_commands(plan(Command(command, env=(("NUMBER", "2"),)), command))
    assert (found["figures"]["a"]["value"], found["figures"]["b"]["value"]) == (2.0, 5.0)
    assert found["arms"]["a"]["spec"] == {"shell": command, "commit": None, "env": {"NUMBER": "2"}}


def test_the_number_may_be_on_either_stream():
    assert bench_commands(plan("echo value 3 >&2"))["figures"]["a"]["value"] == 3.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: plan("echo value 1", "echo value 1"), "there is nothing to compare"),
        (lambda: plan("echo value 1; exit 3"), "command a failed with exit code 3: value 1"),
        (lambda: plan(b="echo no >&2; false"), "command b failed with exit code 1: no"),
        (lambda: plan("no-such-program-at-all"), "command a failed with exit code 127"),
        (lambda: plan("echo nothing"), "matches 0 times in what command a prints"),
        (lambda: plan("echo value 1; echo value 2"), "matches 2 times"),
        (lambda: plan("echo value fast"), "is 'fast'; it is a number above 0"),
        (lambda: plan("echo value 0"), "is '0'; it is a number above 0"),
        (lambda: plan("echo value inf"), "is 'inf'; it is a number above 0"),
        (lambda: plan("echo value -1"), "is '-1'; it is a number above 0"),
        (lambda: plan("sleep 60", timeout=0.1), "command a took more than 0.1 seconds"),
        (lambda: plan(metric="value"), "has 0 groups; it has one"),
        (lambda: plan(metric="(a)(b)"), "has 2 groups; it has one"),
        (lambda: plan(metric="("), "is no regular expression"),
        (lambda: plan(pairs=3), "a run has 15 to 10000"),
        (lambda: plan(timeout=0), "it is more than 0"),
        (lambda: plan(timeout=float("inf")), "at most 86400"),
        (lambda: plan("echo value 1e-200"), "it is a number above 0"),
        (lambda: plan(seed=-1), "a number from 0 on"),
        (lambda: plan(" "), "a text that the shell can run"),
        (lambda: plan(Command("x", env=(("A-B", ""),))), "'A-B' is no name of a variable"),
        (lambda: plan(Command("x", commit="v1")), "'v1' is no commit here"),
        (lambda: plan(Command("x", commit="--help")), "'--help' is no commit here"),
    ],
)
def test_a_run_that_says_nothing_is_refused(make, words):
    with pytest.raises(EvidenceError) as refused:
        bench_commands(make())
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_that_a_command_leaves_behind_disturbs_the_next(tmp_path):
    bench_commands(plan("sleep 300 & echo $! >> left; echo value 1"))
    for pid in map(int, (tmp_path / "left").read_text().split()):
        assert _ended(pid)


def _ended(pid):
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


LINE = {
    "schema": "lanewise.engine.witness", "schema_version": 1, "lanewise": "0", "package": "0" * 64, "device": "cpu", "isa": "x86-64-v3", "threads": 1,
    "code": "1" * 64, "kernels": {"matmul": 7}, "steps": {"decode": 3, "prefill": 0}, "prompt": "2" * 64, "prompt_tokens": 1,
    "tokens": "3" * 64, "output_tokens": 4,
}  # fmt: skip


def wrote(value, **fields):
    """A command that prints its number, and writes what a Lanewise that ran a model writes."""
    return f"echo '{json.dumps({**LINE, **fields})}' >> $LANEWISE_WITNESS; echo value {value}"


def test_a_command_that_writes_no_witness_is_said_to_have_written_none():
    found = bench_commands(plan())
    assert [found["arms"][arm]["witness"] for arm in "ab"] == ["none: the command wrote none"] * 2
    assert found["figures"]["output"] == {"a": None, "b": None, "verdict": "no output asked for"}


def test_what_a_witness_says_is_in_the_arm_and_its_tokens_are_the_output():
    found = bench_commands(plan(wrote(1), wrote(2, isa="x86-64-v2")))
    (process,) = found["arms"]["a"]["witness"]
    assert (process["isa"], process["kernels"], process["phases"]) == ("x86-64-v3", ["matmul"], ["decode"])
    assert found["figures"]["output"] == {"a": 1, "b": 1, "verdict": "token-exact"}
    assert manifests.complaints(json.loads(manifests.text_of(found))) == []
    found = bench_commands(plan(wrote(1), wrote(2, tokens="4" * 64)))
    assert found["figures"]["output"]["verdict"] == "another output"
    assert found["arms"]["b"]["output"] == "4" * 64


def test_the_answer_that_is_asked_for_is_hashed_in_every_sample():
    found = bench_commands(plan("echo 'value 1'; echo 'ids 3 4'", "echo 'value 2'; echo 'ids 3 4'", output=r"ids (.*)"))
    assert found["figures"]["output"] == {"a": 1, "b": 1, "verdict": "same output"}
    assert found["arms"]["a"]["output"] == manifests.digest(b"3 4\0")
    found = bench_commands(plan("echo value 1 $$", output=r"value 1 ?(.*)", b="echo value 1"))
    assert found["figures"]["output"]["verdict"] == "unsteady output"
    assert found["figures"]["output"]["a"] == sum(s["arm"] == "a" for r in found["rounds"] for s in (*r["samples"], *r["control"]))
    assert found["arms"]["a"]["output"] is None


def test_the_memory_of_a_command_is_its_own_where_it_has_more_than_who_measures(tmp_path):
    own = peak_memory() + (64 << 20)  # what this process had, Linux counts as the command's
    done = ran(["python3", "-c", f"bytearray({own})"], tmp_path, 60)
    assert own <= done.memory < 2 * own
    assert ran(["true"], tmp_path, 60).memory is None


def test_files_that_the_commands_read_are_in_the_bundle(tmp_path):
    (tmp_path / "prompt").write_text("hello")
    (tmp_path / "named").write_text("x")
    found = bench_commands(plan("cat named; echo value 1", files=("prompt",)))
    assert found["inputs"]["declared"] == ["prompt"]
    assert {name: one["sha256"] for name, one in found["inputs"]["files"].items()} == {"prompt": manifests.digest(b"hello")} | {
        "named": manifests.digest(b"x")
    }


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        ("echo x >> prompt; echo value 1", "echo value 2", {"files": ("prompt",)}, "prompt changed while the run went on"),
        ("echo value 1", "echo value 2", {"files": ("gone",)}, "'gone' is neither a file nor a folder"),
        ("echo value 1", "echo value 2", {"output": "ids (.*)"}, "matches nothing in what command a prints to stdout"),
        ("echo value 1", "echo value 2", {"output": "ids"}, "has 0 groups; it has one, around the answer"),
        ("echo no >> $LANEWISE_WITNESS; echo value 1", "echo value 2", {}, "the witness of command a cannot be read: JSONDecodeError"),
        (wrote(1, schema="other"), "echo value 2", {}, "the witness of command a cannot be read: ValueError at schema"),
        (
            "n=$(cat count || true)x; echo $n > count; " + wrote(1, device="'$n'"),
            "echo value 2",
            {},
            "command a ran something else than in its first",
        ),
        (Command(wrote(1), env=(("LANEWISE_CPU_ISA", "x"),)), Command(wrote(1)), {}, "LANEWISE_CPU_ISA had no effect"),
    ],
)
def test_a_run_that_shows_less_than_it_seems_is_refused(tmp_path, a, b, options, words):
    (tmp_path / "prompt").write_text("hello")
    with pytest.raises(EvidenceError, match=re.escape(words)):
        bench_commands(plan(a, b, **options))


def test_the_file_of_the_witness_is_nobodys_but_the_runs():
    with pytest.raises(EvidenceError, match="LANEWISE_WITNESS is set for every sample"):
        Command("true", env=(("LANEWISE_WITNESS", "mine"),))


def test_a_variable_that_chooses_no_kernel_may_leave_them_the_same():
    assert bench_commands(plan(Command(wrote(1), env=(("LANEWISE_PIN", "1"),)), wrote(1)))["figures"]["output"]["verdict"] == "token-exact"


def git(folder, *words):
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """Two commits of a program that prints 1 and then 2, a third with the files of the second, and a change that was not committed."""
    git(tmp_path, "init", "--quiet", "repo")
    folder = tmp_path / "repo"
    for number in (1, 2):
        (folder / "run.sh").write_text(f"echo value {number}\n")
        git(folder, "add", "run.sh")
        git(folder, "commit", "--quiet", "-m", f"prints {number}")
        git(folder, "tag", f"v{number}")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "the same")
    (folder / "run.sh").write_text("echo value 9\n")
    os.chdir(folder)
    return folder


def test_commits_run_as_they_were_committed(repository):
    found = bench_commands(plan(Command("sh run.sh", "v1"), Command("sh run.sh", "v2")))
    assert (found["figures"]["a"]["value"], found["figures"]["b"]["value"]) == (1.0, 2.0)
    assert found["arms"]["a"]["spec"]["commit"] == git(repository, "rev-parse", "v1")
    assert found["arms"]["a"]["artifact"] != found["arms"]["b"]["artifact"]
    assert git(repository, "status", "--porcelain") == "M run.sh"
    found = bench_commands(plan(Command("sh run.sh", "v1"), "sh run.sh"))
    assert found["figures"]["b"]["value"] == 9.0


def test_commits_that_hold_the_same_files_are_refused(repository):
    for b, words in (("HEAD", "hold the same files"), ("HEAD~1", "there is nothing to compare")):
        with pytest.raises(EvidenceError, match=words):
            bench_commands(plan(Command("sh run.sh", "v2"), Command("sh run.sh", b)))


def test_a_kept_worktree_that_somebody_changed_is_made_again(repository):
    commit = trees.commit_id("v1", repository)
    made = trees.tree_of(commit, repository)
    marker = made.folder / "untracked"
    marker.touch()
    assert trees.tree_of(commit, repository) == made
    assert marker.exists()
    (made.folder / "run.sh").write_text("echo value 7\n")
    assert (trees.tree_of(commit, repository).folder / "run.sh").read_text() == "echo value 1\n"
    assert not marker.exists()


BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tinyab-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("tinyab.py", open("tinyab.py").read())
        info = "tinyab-1.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tinyab\\nVersion: 1\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", f"tinyab.py,,\\n{info}METADATA,,\\n{info}WHEEL,,\\n{info}RECORD,,\\n")
    return name
"""


def test_a_commit_of_a_python_project_has_it_installed_in_an_environment_of_its_own(repository, tmp_path, monkeypatch):
    """The project brings its own build backend, so that nothing is downloaded."""
    (repository / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    (repository / "backend.py").write_text(BACKEND)
    (repository / "tinyab.py").write_text("print('value 4')\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "a project")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "tinyab.py").write_text("print('value 8')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    made = trees.tree_of(trees.commit_id("HEAD", repository), repository)
    for shell, said in (("cd / && python -m tinyab", "value 4"), ("python -c 'import sys; print(sys.prefix)'", str(made.environment))):
        done = ran(_argv(Command(shell, "HEAD"), made), made.folder, 60)
        assert (done.code, done.out.strip()) == (0, said), done.err


def test_a_commit_that_cannot_be_installed_is_refused(repository):
    (repository / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "gone"\nbackend-path = ["."]\n')
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "broken")
    commit = trees.commit_id("HEAD", repository)
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trees, "_install", lambda folder, environment: made.append(folder) or trees._run(["false"], folder, 9, "it cannot be installed")
        )
        for _ in range(2):  # what was cut short is not taken for whole
            with pytest.raises(EvidenceError, match="it cannot be installed"):
                trees.tree_of(commit, repository)
    assert len(made) == 2
