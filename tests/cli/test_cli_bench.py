"""`lanewise bench model`: the table and the JSON, records that are written once, and one line for what cannot be measured."""

import json

import pytest
from cli_fakes import lanewise, read
from support.small import PROBE, SMALL

from lanewise.bench import figures, shapes

QUICK = ("--shape", "small", "--pp", "3,20", "--tg", "2", "--rounds", "2", "--threads", "1")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """`--shape small` is a shape, and the read probe is small."""
    monkeypatch.setitem(shapes.SHAPES, "small", SMALL)
    monkeypatch.setattr("lanewise.bench.model.probe_bytes", lambda cache: PROBE)


def test_the_table_has_a_line_for_each_phase_and_says_what_it_was_measured_on():
    done = lanewise("bench", "model", *QUICK)
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [words[0] for words in lines[-3:]] == ["pp3", "pp20", "tg2"]
    assert "% of int8" in done.stdout
    assert "% of read, " in done.stdout
    for word in ("small.Q4_K_M.random (random weights)", "1 thread;", "peak memory", "llvmlite", "commit", "GB/s", "GMAC/s", "cache"):
        assert word in done.stdout
    assert done.stderr == ""


def test_a_profile_lists_the_kernels_of_a_step():
    done = lanewise("bench", "model", *QUICK, "--profile")
    assert "tg2, one step of 1 token, context 2:" in done.stdout
    assert "pp20, one step of 20 tokens, context 20:" in done.stdout
    assert " us (medians); with a barrier behind each " in done.stdout
    assert "matmul_Q4_K" in done.stdout
    assert "attend_64" in done.stdout


def test_json_is_the_record_and_a_file_holds_the_same(tmp_path):
    target = tmp_path / "record.json"
    done = lanewise("bench", "model", *QUICK, "--type", "q8_0", "--json", "--record", str(target))
    found = read(done)
    assert done.stderr == f"lanewise: note: record written: {target}\n"
    assert json.loads(target.read_text()) == found
    assert figures(found) == found["figures"]
    command = "bench model --shape small --type q8_0 --device cpu --pp 3,20 --tg 2 --rounds 2 --threads 1"
    assert found["command"] == ["lanewise", *command.split()]


def test_a_model_file_is_measured_and_named_by_its_hash(tiny_gguf):
    found = read(lanewise("bench", "model", str(tiny_gguf), "--pp", "0", "--tg", "1", "--rounds", "1", "--json"))
    assert list(found["figures"]["phases"]) == ["tg1"]
    assert list(found["model"]["sha256"]) == [tiny_gguf.name]
    assert not found["model"]["random"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "a model file or a --shape is measured; give one of the two"),
        (["m.gguf", "--shape", "small"], "give one of the two"),
        (["m.gguf", "--type", "Q4_0"], "--type says how"),
        (["m.gguf"], "m.gguf"),
        (["--shape", "huge"], "unknown shape 'huge'; there are smollm2-135m"),
        (["--shape", "small", "--type", "Q9"], "unknown type 'Q9'"),
        (["--shape", "small", "--pp", "8;9"], "--pp is '8;9'; it takes numbers"),
        (["--shape", "small", "--pp", "-8"], "prompt lengths are -8"),
        (["--shape", "small", "--pp", "0", "--tg", "0"], "at least one"),
        (["--shape", "small", "--pp", "999"], "takes 256"),
        (["--shape", "small", "--rounds", "0"], "at least 1 is needed"),
        (["--shape", "small", "--pp", "8", "--tg", "1", "--threads", "0"], "threads is 0; it takes a positive number"),
        (["--shape", "small", "--device", "cuda"], "device 'cuda' is not available"),
        (["--shape", "small", "--device", "reference", "--profile"], "a profile needs the cpu device"),
        (["--shape", "small", "--record", "/no/such/folder/r.json"], "there is no directory"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(options, words):
    done = lanewise("bench", "model", *options)
    assert done.exit_code == 2
    assert done.stderr.startswith("lanewise: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_record_that_is_there_already_is_not_replaced(tmp_path):
    target = tmp_path / "record.json"
    target.write_text("evidence")
    done = lanewise("bench", "model", *QUICK, "--record", str(target))
    assert (done.exit_code, target.read_text()) == (2, "evidence")
    assert "is there already" in done.stderr


def test_help_lists_the_command():
    assert "model" in lanewise("bench", "--help").stdout
    assert "--shape" in lanewise("bench", "model", "--help").stdout
