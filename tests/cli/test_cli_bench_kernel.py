"""`lanewise bench kernel` and `lanewise ab`: the table, the JSON, the bundle, and one line for what is refused."""

import json
import sys

import pytest
from cli_fakes import lanewise, read
from support import gpu
from support.gpu_bundles import NAME
from support.runs import QUIET
from support.small import PROBE

from lanewise.bench import manifest as manifests
from lanewise.kernels.cpu.isa import runnable

BEST, LEAST = runnable()[0].name, [isa.name for isa in runnable() if isa.fma][-1]
KERNEL = ("bench", "kernel", "quant_linear", "--n", "64", "--k", "256", "--format", "q4_k", "--ab", f"{BEST},{LEAST}", "--pairs", "15",
          "--threads", "1", "--sample-ms", "0.2", "--seed", "1")  # fmt: skip
AB = ("ab", "--a", "echo value 1", "--b", "echo value 2", "--metric", r"value (\d)", "--pairs", "15", "--seed", "1")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """A small cache, a small probe, and a machine that is always quiet."""
    monkeypatch.setattr("lanewise.bench.kernel.last_level_cache", lambda: 1 << 16)
    monkeypatch.setattr("lanewise.bench.kernel.probe_bytes", lambda cache: PROBE)
    monkeypatch.setattr("lanewise.bench.rounds.look", lambda: dict(QUIET))
    monkeypatch.setattr("lanewise.bench.ab.look", lambda: dict(QUIET))


def test_the_table_of_a_kernel_says_what_was_asked_measured_and_shown():
    done = lanewise(*KERNEL)
    assert done.exit_code == 0, done.stderr
    asked = ("question: Is ", "Q4_K on cpu, cold, 1 thread?", "beside a last-level cache of", "cold; phase decode", "the same bits", BEST, LEAST)
    for words in (*asked, "ratio:    b / a ", "from 16 pairs of 16", "control:  ", "verdict:  "):
        assert words in done.stdout, words
    assert done.stderr == ""


def test_the_json_of_a_kernel_is_its_bundle_and_its_command_runs_it_again(tmp_path):
    done = lanewise(*KERNEL, "--json", "--record", str(tmp_path / "run"))
    found = read(done)
    assert manifests.read(tmp_path / "run") == found
    assert done.stderr == f"lanewise: note: bundle written: {tmp_path / 'run'}\n"
    again = read(lanewise(*found["command"][1:], "--json"))
    assert again["command"] == found["command"]
    assert again["inputs"] == found["inputs"]


def test_the_table_of_commands_says_which_way_is_better():
    done = lanewise(*AB, "--higher-is-better")
    assert done.exit_code == 0, done.stderr
    for words in (
        "metric:   'value (\\d)', higher is better",
        "device:   cpu\n",
        "echo value 1",
        "b / a 2.0000 (2.0000 to 2.0000)",
        "verdict:  b is better, 2.000 times",
    ):
        assert words in done.stdout


def test_the_bundle_of_commands_holds_what_was_asked(tmp_path):
    done = lanewise(*AB, "--a-env", "X=1=2", "--record", str(tmp_path / "run"), "--json")
    found = read(done)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text()) == found
    assert found["arms"]["a"]["spec"]["env"] == {"X": "1=2"}
    assert found["command"][-6:] == ["--a-env", "X=1=2", "--device", "cpu", "--timeout", "600"]


def test_commands_beside_a_gpu_are_said_to_be_so(monkeypatch):
    gpu.install(monkeypatch, [])
    done = lanewise(*AB, "--device", "cuda")
    assert done.exit_code == 0, done.stderr
    assert f"device:   cuda, {NAME}\n" in done.stdout
    assert read(lanewise(*AB, "--device", "cuda", "--json"))["command"][-4:] == ["--device", "cuda", "--timeout", "600"]


def test_a_device_that_nobody_watches_is_one_line():
    done = lanewise(*AB, "--device", "npu")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no device 'npu' to watch; it is cpu, or cuda, or cuda:1" in done.stderr


def test_a_run_whose_every_round_was_left_out_says_so(monkeypatch):
    moments = iter(range(10**6))
    monkeypatch.setattr("lanewise.bench.ab.look", lambda: {**QUIET, "time": float(next(moments)), "throttle": {"core": next(moments)}})
    done = lanewise(*AB)
    assert "b / a nothing from 0 pairs of 48" in done.stdout
    assert "left out: 24 rounds: throttled: core" in done.stdout
    assert done.stdout.endswith("verdict:  no difference shown\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*KERNEL, "--ab", BEST), "--ab names 1 arm; it takes two"),
        ((*KERNEL, "--ab", f"{BEST},{BEST}"), "are the same arm"),
        ((*KERNEL, "--device", "cuda"), "there is no device cuda: PyTorch sees"),
        ((*KERNEL, "--pairs", "3"), "a run has 15 to 10000"),
        ((*KERNEL, "--cold", "--copies", "1"), "cannot be called cold"),
        ((*KERNEL, "--record", "/no/such/folder/run"), "there is no directory"),
        ((*KERNEL, "--plot", "/no/such/folder/run.svg"), "there is no directory"),
        ((*KERNEL, "--plot", "run.txt"), "the name of a picture ends in .svg, .png, .pdf"),
        ((*AB, "--b", "echo value 1"), "there is nothing to compare"),
        ((*AB, "--a", "false"), "command a failed with exit code 1"),
        ((*AB, "--metric", "x"), "has 0 groups"),
        ((*AB, "--lower-is-better", "--higher-is-better"), "exclude each other"),
        ((*AB, "--a-env", "X"), "--a-env is 'X'; it takes NAME=VALUE"),
    ],
)
def test_what_would_prove_nothing_is_refused_in_one_line(words, said):
    done = lanewise(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("lanewise: error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bundle_that_is_there_already_is_not_replaced(tmp_path):
    done = lanewise(*AB, "--record", str(tmp_path))
    assert done.exit_code == 2
    assert "is there already" in done.stderr


def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("lanewise.bench.ab.measure", None)
    done = lanewise(*AB, "--plot", str(tmp_path / "run.svg"))
    assert done.exit_code == 2
    assert "lanewise[plots]" in done.stderr


def test_the_help_says_what_arms_there_are():
    text = " ".join(lanewise("bench", "kernel", "--help").stdout.split())
    assert "An arm of device cpu is an instruction set that the processor runs" in text
    assert "kernel" in lanewise("bench", "--help").stdout
