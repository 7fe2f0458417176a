"""`lanewise evidence`: exit codes, a line for each reason, the same as JSON, a page, a comparison."""

import json
from pathlib import Path

import pytest
from cli_fakes import lanewise, read
from support.bundles import good, written

RECORD = Path(__file__).parents[2] / "bench" / "records" / "cpu-qwen3-0.6b-q4_k_m.json"


@pytest.fixture
def run(tmp_path):
    return written(tmp_path / "run", good())


@pytest.fixture
def forged(tmp_path):
    manifest = good()
    manifest["commit"]["dirty"] = True
    manifest["figures"]["ratio"]["median"] = 2.0
    return written(tmp_path / "forged", manifest)


def test_a_bundle_that_holds_is_ok(run):
    done = lanewise("evidence", "verify", str(run))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "ok: run: every figure\n", "")
    assert lanewise("evidence", "verify", str(RECORD)).exit_code == 0


def test_every_reason_to_refuse_is_a_line(forged):
    done = lanewise("evidence", "verify", str(forged))
    assert done.exit_code == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["dirty", "figure"]
    assert done.stderr == f"lanewise: error: {forged} is refused: 2 reasons\n"


def test_reasons_come_as_json_too(forged):
    done = lanewise("evidence", "verify", str(forged), "--json")
    found = read(done)
    assert (done.exit_code, found["ok"], found["bundle"]) == (1, False, "forged")
    assert found["reasons"][1] | {"words": ""} == {
        "code": "figure", "where": "figures.ratio.median", "expected": f"{good()['figures']['ratio']['median']:.12g}", "found": "2", "words": "",
    }  # fmt: skip


def test_documents_are_checked_one_or_many(run, tmp_path):
    for name, number in (("good.md", "1.40"), ("bad.md", 1.5)):
        (tmp_path / name).write_text(f"{number}<!-- evidence: run.ratio.median -->")
    assert lanewise("evidence", "verify", str(run), "--docs", str(tmp_path / "good.md")).exit_code == 0
    many = lanewise("evidence", "verify", str(run), "--docs", str(tmp_path / "good.md"), str(tmp_path / "bad.md"))
    assert (many.exit_code, many.stdout.split(":")[0]) == (1, "quote")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "gone"], "no such file"),
        (["show", "gone"], "no such file"),
        (["compare", "gone", "gone"], "no such file"),
        (["verify", "RUN", "page.md"], "documents follow --docs"),
        (["verify", "RUN", "--docs", "gone.md"], "no such document"),
        (["verify", "RUN", "--repo", "/"], "not a git checkout"),
        (["verify", "RUN", "--run-commits"], "--run-commits needs --repo"),
        (["show", "RUN", "--html", "/no/such/folder/x.html"], "cannot be written"),
        (["compare", "RUN", str(RECORD)], "two of a kind"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(run, words, said):
    done = lanewise("evidence", *(str(run) if word == "RUN" else word for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_show_prints_the_verdict_the_arms_and_how_it_was_measured(run, forged):
    done = lanewise("evidence", "show", str(run))
    assert (done.exit_code, done.stderr) == (0, "")
    for word in ("x86-64-v4+vnni is faster", "ratio b / a", "control", " µs", "clean tree", "16 kept of 16", "every figure follows"):
        assert word in done.stdout
    assert "refused: 2 reasons" in lanewise("evidence", "show", str(forged)).stdout
    record = lanewise("evidence", "show", str(RECORD))
    assert "tg64" in record.stdout
    assert "of read" in record.stdout


def test_show_writes_a_page_or_json(run, tmp_path):
    done = lanewise("evidence", "show", str(run), "--html", str(tmp_path / "x.html"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert read(lanewise("evidence", "show", str(run), "--json"))["manifest"] == json.loads((run / "manifest.json").read_text())


def test_compare_says_what_differs_and_the_ratio_of_ratios(run, forged):
    done = lanewise("evidence", "compare", str(run), str(forged))
    assert done.exit_code == 0
    assert "commit.dirty: False, then True" in done.stdout
    assert "ratio of ratios: 1.4" in done.stdout
    same = lanewise("evidence", "compare", str(run), str(run))
    assert "the same question, problem, machine" in same.stdout
    assert read(lanewise("evidence", "compare", str(run), str(run), "--json"))["differences"] == []


def test_help_lists_what_can_be_done():
    text = lanewise("evidence", "--help").stdout
    assert all(word in text for word in ("verify", "show", "compare"))
