"""Documents quote figures at the precision that they write, and claim what a verdict says and nothing beyond it."""

import json
import re
import zipfile
from pathlib import Path

import pytest
from support.bundles import good, good_command, one_process, refigured, written

from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError
from lanewise.evidence import CODES, check_documents, open_bundle, verify
from lanewise.evidence.marks import agrees, find_marks, find_rows

ROOT = Path(__file__).parents[2]
RECORDS = Path(__file__).parent / "records"  # two of an earlier commit, whose numbers stand in the texts below
NAME = "cpu-qwen3-0.6b-q4_k_m"
RECORD = RECORDS / f"{NAME}.json"


@pytest.fixture
def bundles(tmp_path):
    same = good({"a": 100e-6, "b": 100e-6})
    return [open_bundle(written(tmp_path / "run.1", good())), open_bundle(written(tmp_path / "even", same)), open_bundle(RECORD)]


@pytest.fixture
def found(tmp_path, bundles):
    def check(text):
        page = tmp_path / "page.md"
        page.write_text(text)
        return [(reason.code, reason.where) for reason in check_documents([page], bundles)]

    return check


@pytest.mark.parametrize(
    ("number", "unit", "figure", "same"),
    [
        ("1.41", "", 1.4056, True), ("1.406", "x", 1.4056, True), ("1.40", "", 1.4056, False), ("1.4", "×", 1.4056, True),
        ("76", "%", 0.7587, True), ("75", "%", 0.7587, False), ("75.9", "%", 0.7587, True), ("25.6", "GB/s", 25_579_473_382.0, True),
        ("100", "us", 99.6e-6, True), ("0.1", "ms", 99.6e-6, True), ("1,901", "tok/s", 1901.2, True), ("1,902", "tok/s", 1901.2, False),
        ("0.5", "", 0.45, True), ("−2", "", -2.1, True),
    ],
)  # fmt: skip
def test_a_number_is_a_figure_at_the_precision_that_it_is_written(number, unit, figure, same):
    assert agrees(number, unit, figure) is same


def test_figures_that_are_the_bundles_pass(found):
    assert found("The ratio is 1.40<!-- evidence: run.1.ratio.median --> (1.39 <!-- evidence: run.1.figures.ratio.low --> and more).") == []
    assert found("It takes **100 us** <!-- evidence: run.1.a.seconds --> in 16 pairs<!-- evidence: run.1.pairs -->.") == []
    assert found("So x86-64-v4+vnni is faster: a is faster<!-- evidence: run.1.verdict -->.") == []
    assert found(f"65.5 tok/s<!-- evidence: {NAME}.phases.tg64.rate.median -->, 76 %<!-- evidence: {NAME}.phases.tg64.of_read -->") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1.42<!-- evidence: run.1.ratio.median -->", "quote"),
        ("1.4060<!-- evidence: run.1.ratio.median -->", "quote"),
        ("100 ms<!-- evidence: run.1.a.seconds -->", "quote"),
        ("b is faster<!-- evidence: run.1.verdict -->", "quote"),
        ("fast<!-- evidence: run.1.ratio.median -->", "quote-bare"),
        ("1.40 or so<!-- evidence: run.1.ratio.median -->", "quote-bare"),
        ("1.40<!-- evidence: run.1.ratio.mean -->", "quote-unknown"),
        ("1.40<!-- evidence: run.2.ratio.median -->", "quote-unknown"),
        ("1.40<!-- evidence: ../run.1.ratio.median -->", "quote-unknown"),
        ("1.40<!-- evidence: nothing -->", "quote-unknown"),
        ("66.5 tok/s<!-- evidence: cpu-qwen3-0.6b-q4_k_m.phases.tg64.rate.median -->", "quote"),
        ("at least 1.40<!-- evidence: run.1.ratio.median --> times", "claim"),
    ],
)
def test_figures_that_are_not_the_bundles_are_refused(found, text, code):
    assert found(f"# Speed\n\n{text}\n") == [(code, "page.md:3")]


@pytest.mark.parametrize(
    "text",
    [
        "1.00<!-- evidence: even.ratio.median -->: faster",
        "VNNI is quicker, 1.00<!-- evidence: even.ratio.median -->.",
        "| VNNI beats AVX2 | 1.00<!-- evidence: even.ratio.median --> |",
        "x86-64-v3 is faster than x86-64-v4+vnni: 1.40<!-- evidence: run.1.ratio.median -->",
        "x86-64-v4+vnni is slower: 1.40<!-- evidence: run.1.ratio.median -->",
        "x86-64-v3 is as fast as x86-64-v4+vnni: 1.40<!-- evidence: run.1.ratio.median -->",
        f"Faster than before: 65.5 tok/s<!-- evidence: {NAME}.phases.tg64.rate.median -->",
    ],
)
def test_words_that_no_verdict_supports_are_refused(found, text):
    assert {code for code, _ in found(text)} == {"claim"}


@pytest.mark.parametrize(
    "text",
    [
        "1.00<!-- evidence: even.ratio.median -->: no difference",
        "x86-64-v4+vnni is faster than x86-64-v3: 1.40<!-- evidence: run.1.ratio.median -->",
        "x86-64-v3 is slower, 1.40<!-- evidence: run.1.ratio.median --> times the time",
        "Kernels are faster.\n\nThe ratio is 1.00<!-- evidence: even.ratio.median -->.",
        "It is faster. The ratio is 1.00<!-- evidence: even.ratio.median -->.",
        "at least 1.39<!-- evidence: run.1.ratio.low --> times faster",
    ],
)
def test_words_that_a_verdict_supports_or_that_are_about_something_else_pass(found, text):
    assert found(text) == []


@pytest.mark.parametrize("words", ["on gfx1100", "with Q4_K", "in prefill", "at m = 8", "on aarch64"])
def test_claims_beyond_what_was_measured_are_refused(found, words):
    assert found(f"A ratio of 1.40<!-- evidence: run.1.ratio.median --> {words}.") == [("range", "page.md:1")]


@pytest.mark.parametrize("words", ["on x86-64", "with Q8_0", "in decode", "at m = 1"])
def test_what_was_measured_may_be_named(found, words):
    assert found(f"A ratio of 1.40<!-- evidence: run.1.ratio.median --> {words}.") == []


def test_a_prompts_speed_is_no_decode_speed(found):
    mark = f"579.5 tok/s<!-- evidence: {NAME}.phases.pp512.rate.median -->"
    assert found(f"A prompt is read at {mark}.") == []
    assert found(f"Decode runs at {mark}.") == [("range", "page.md:1")]


@pytest.fixture
def asked_otherwise(tmp_path):
    """A bundle of two commands, b of which was asked something else; and what is found in a document about it."""

    def check(text, prompt=b"another prompt"):
        manifest = good_command()
        one_process(manifest, "b", prompt=digest(prompt))
        bundle = open_bundle(written(tmp_path / "ab", refigured(manifest)))
        (tmp_path / "page.md").write_text(text)
        return [(reason.code, reason.where) for reason in verify(bundle, documents=[tmp_path / "page.md"])]

    return check


ABOUT_TWO_COMMANDS = {
    "better": "Arm a is better: it takes 1.001<!-- evidence: ab.a.value --> s.",
    "slower": "Arm b is slower than 1.001<!-- evidence: ab.a.value --> s.",
    "a ratio": "The ratio is 1.40<!-- evidence: ab.ratio.median -->.",
    "an end of a ratio": "The ratio is 1.39<!-- evidence: ab.ratio.low --> at the least.",
    "the verdict": "So a is better<!-- evidence: ab.verdict -->.",
    "a row": "| a | b |\n|---|---|\n| faster | bench/records/ab |",
    "a sentence": "It was quiet. By bench/records/ab a is better.",
}


@pytest.mark.parametrize("text", ABOUT_TWO_COMMANDS.values(), ids=ABOUT_TWO_COMMANDS)
def test_nothing_is_compared_of_arms_that_were_asked_different_things(asked_otherwise, text):
    assert asked_otherwise(text, b"prompt") == []
    assert {code for code, _ in asked_otherwise(text)} == {"claim"}


def test_a_ratio_in_a_row_is_no_figure_of_arms_that_were_asked_different_things_and_a_value_is(asked_otherwise):
    row = "| arm | what | from |\n|---|---|---|\n| a | {} | bench/records/ab |"
    assert asked_otherwise(row.format("1.399"), b"prompt") == []
    assert asked_otherwise(row.format("1.399")) == [("quote", "page.md:3")]
    assert asked_otherwise(row.format("1.001")) == []


def test_a_phase_that_no_process_of_a_command_had_is_beyond_what_was_measured(tmp_path):
    manifest = good_command()
    for name in "ab":
        one_process(manifest, name, phases=["decode"])
    bundle = open_bundle(written(tmp_path / "ab", refigured(manifest)))
    for phase, code in (("decode", set()), ("prefill", {"range"})):
        (tmp_path / "page.md").write_text(f"In {phase} it takes 1.001<!-- evidence: ab.a.value --> s.\n")
        assert {reason.code for reason in verify(bundle, documents=[tmp_path / "page.md"])} == code


@pytest.mark.parametrize(
    ("words", "codes"), [("a is faster", []), ("x86-64-v3 is faster", [("claim", "page.md:1")]), ("both are equally fast", [("claim", "page.md:1")])]
)
def test_a_sentence_that_names_a_record_claims_only_what_its_verdict_says(found, words, codes):
    assert found(f"As bench/records/run.1 has it, {words}. That is no slower than anything.") == codes


TABLE = """
| model | pp512 | tg64 | of read | record |
|---|---|---|---|---|
| Qwen3-0.6B Q4_K_M | {pp} | {tg} tok/s | {share} % | [record](bench/records/{name}.json) |
"""


def test_a_table_that_names_a_record_holds_its_figures(found):
    assert found(TABLE.format(pp=580, tg=65.5, share=76, name=NAME)) == []


@pytest.mark.parametrize("wrong", [{"pp": 600}, {"tg": 66.5}, {"share": 78}, {"pp": 65.5}, {"tg": 579.5}])
def test_a_table_with_another_number_than_its_record_is_refused(found, wrong):
    assert found(TABLE.format(**{"pp": 580, "tg": 65.5, "share": 76, "name": NAME, **wrong})) == [("quote", "page.md:4")]


def test_a_table_of_a_record_that_is_not_there_is_refused(found):
    assert found(TABLE.format(pp=580, tg=65.5, share=76, name="gone")) == [("quote-unknown", "page.md:4")]


def test_a_record_named_in_front_of_a_table_goes_for_its_rows(found):
    rows = "| phase | tok/s |\n|---|---|\n| tg64 | 65.5 |\n| pp512 | 65.5 |\n"
    assert found(f"From `bench/records/{NAME}.json`:\n\n{rows}") == [("quote", "page.md:6")]


@pytest.mark.parametrize(("number", "code"), [("65.5", []), ("65.6", [("quote", "page.md:2")])])
def test_a_paragraph_that_names_a_record_has_its_figures_where_they_have_units(found, number, code):
    text = f"2024 was a good year.\n\nDecode runs at {number} tok/s on 2 cores,\n76 % of what is read (bench/records/{NAME}.json).\n"
    assert found(text) == [(one, where.replace("2", "3")) for one, where in code]


def test_a_row_of_two_records_holds_the_figures_of_either(found):
    row = "| [one](bench/records/{}.json) | [other](bench/records/cpu-qwen3-0.6b-q8_0.json) | 65.5 tok/s | {} tok/s |"
    head = "| a | b | c | d |\n|---|---|---|---|\n"
    assert found(head + row.format(NAME, 47.4)) == []
    assert found(head + row.format(NAME, 48.4)) == [("quote", "page.md:3")]


def test_code_quotes_nothing():
    fenced = "```\n1<!-- evidence: a.b -->\n```\n`2<!-- evidence: a.b -->`\n3<!-- evidence: a.b -->"
    assert [(m.line, m.number) for m in find_marks(fenced)] == [(5, "3")]


def test_a_mark_goes_with_the_number_directly_in_front_of_it_in_its_own_sentence():
    first, second = find_marks("In 2024 it took 5 ms<!-- evidence: a.x -->. Now **3.5×** <!-- evidence: a.y --> as fast\nas that.\n\nEnd.")
    assert (first.number, first.unit, first.sentence) == ("5", "ms", "In 2024 it took 5 ms.")
    assert (second.number, second.unit, second.sentence) == ("3.5", "×", "Now **3.5×** as fast as that.")


def test_names_versions_and_dates_in_a_row_are_no_figures():
    row = "| Qwen3-0.6B on AVX2, v1.2.3, 2026-11-30 | 65.5 | bench/records/x.json |"
    (found,) = find_rows(f"| a | b | c |\n|---|---|---|\n{row}")
    assert (found.ids, found.numbers) == (("x",), (("b", "65.5", ""),))


def test_siblings_of_a_bundle_can_be_quoted_and_broken_ones_are_told(tmp_path):
    bundle = open_bundle(written(tmp_path / "run", good()))
    written(tmp_path / "other", good())
    (tmp_path / "broken.json").write_text("{")
    page = tmp_path / "page.md"
    page.write_text("1.40<!-- evidence: other.ratio.median --> 1<!-- evidence: broken.x -->")
    (reason,) = verify(bundle, documents=[page])
    assert (reason.code, "broken.json" in reason.found) == ("quote-unknown", True)


def test_documents_that_cannot_be_read_are_refused_in_a_line(tmp_path, bundles):
    (tmp_path / "latin.md").write_bytes(b"\xff")
    for name in ("gone.md", "latin.md"):
        with pytest.raises(EvidenceError, match=name):
            check_documents([tmp_path / name], bundles)


def test_the_document_of_evidence_lists_every_reason_and_no_other():
    text = (ROOT / "docs" / "evidence.md").read_text()
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", text.split("## Reasons")[1], re.MULTILINE)) == CODES


@pytest.mark.parametrize("path", [*sorted((ROOT / "bench" / "records").iterdir())], ids=lambda path: path.name)
def test_every_record_of_the_project_verifies_with_its_documents(path):
    found = open_bundle(path)
    if path.suffix == ".zip":
        text = zipfile.Path(path, "manifest.json").read_bytes()
    else:
        text = (path if path.is_file() else path / "manifest.json").read_bytes()
    assert json.loads(text)["figures"] == found.figures
    assert verify(found, documents=[*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]) == []
