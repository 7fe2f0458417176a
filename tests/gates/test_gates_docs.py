"""The gate of documents: how a page is read, which commands it shows, what is a figure and what proves one."""

import pytest
from support.repo import REPO, tree, words

from lanewise.gates import citations, figures
from lanewise.gates.commands import Command, commands, makefile, not_run, runnable
from lanewise.gates.markdown import pieces, rows_of, spans

RECORD = {"bench/records/run-1.5.json": "{}"}


def test_a_page_is_cut_into_what_stands_together():
    page = "# Head\ntext\nmore\n\n- one\n  goes on\n- two\n| a | b |\n|---|---|\n| 1 | 2 |\n```sh\nmake x\n\n- y\n```\nend"
    assert [(p.line, p.kind, p.text) for p in pieces(page)] == [
        (1, "text", "# Head\ntext\nmore"),
        (5, "text", "- one\n  goes on"),
        (7, "text", "- two"),
        (8, "table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        (12, "```sh", "make x\n\n- y"),
        (16, "text", "end"),
    ]


def test_code_spans_are_those_outside_blocks_and_comments():
    assert list(spans("`a` b\n`c\nd` <!-- `e` -->\n```\n`f`\n```\n`g`")) == [(1, "a"), (2, "c d"), (7, "g")]


def test_rows_of_a_table_that_is_commented_out_are_none():
    table = "| x | y |\n|---|---|\n| 1 | 2 |\n"
    assert rows_of(f"{table}\n<!--\n{table}-->\n\n| z |\n|---|\n| 3 |\n", "x") == [["1", "2"]]


def test_commands_are_lines_of_shells_and_spans_that_begin_with_a_program(tmp_path):
    shell = "```sh\n$ lanewise chat m  # talk\ncurl x\n```\n```\nlanewise targets\noutput\n```\n"
    page = f"{shell}```python\nlanewise = 1\n```\n`make test` `lanewise` `make`"
    repo = tree(tmp_path, {"page.md": page})
    found = [(c.line, str(c)) for c in commands(repo)]
    assert found == [(2, "lanewise chat m"), (3, "curl x"), (6, "lanewise targets"), (12, "make test")]
    assert [str(c) for c in runnable(repo)] == ["lanewise chat m", "lanewise targets", "make test"]
    assert words(not_run, repo) == ["page.md:3: nothing runs `curl x`"]


@pytest.mark.parametrize(
    ("words", "given"),
    [("x A [--repo .] [--docs a b]", "x A --repo . --docs a b"), ("x a[0] --re [a-z]", "x a[0] --re [a-z]"), ("x A [-n N]", "x A -n N")],
)
def test_what_may_be_left_out_is_given_without_its_brackets(words, given):
    assert " ".join(Command("page.md", 1, tuple(words.split())).given) == given


def test_this_repository_shows_commands_and_all_but_the_excepted_run():
    shown = {str(c) for c in commands(REPO)}
    run = {str(c) for c in runnable(REPO)}
    assert "lanewise bench model model.gguf" in run
    assert {what.split()[0] for what in shown - run} <= {
        "sudo",
        "source",
        "apt-get",
        "pip",
        "lanewise",
        "pytest",
        ".venv/bin/pytest",
        ".venv/bin/pre-commit",
    }


def test_a_makefile_has_targets_and_recipes_and_no_comments():
    text = "A := b\n.PHONY: x\nx y: z | $(V)\n\techo x\n\t@echo y\n# t:\nz:\n$(V)/s: a\n\ttouch s\n"
    assert makefile(text) == {".PHONY": [], "x": ["echo x", "@echo y"], "y": ["echo x", "@echo y"], "z": [], "$(V)/s": ["touch s"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It reads 12.5 GB/s.", ["12.5 GB/s"]),
        ("It takes 3–4 ms, or 5 seconds, at 2.4 GHz.", ["3–4 ms", "5 seconds", "2.4 GHz"]),
        ("120 tok/s, 7 tokens a second, 80 GMAC/s, 40 %", ["120 tok/s", "7 tokens a second", "80 GMAC/s", "40 %"]),
        ("It is 1.3x faster and three times as fast", ["1.3x", "three times as fast"]),
        ("half the time, a third of the memory, twice as fast", ["half the time", "a third of the memory", "twice as fast"]),
        ("| Q8_0 | 3 ms |", ["3 ms"]),
        ("16 lanes, 4096 tokens, 2^-39 s, v1.5 s, x86-64, 3 steps, `-n 5`", []),
        ("a third party, half of it, the second half", []),
    ],
)
def test_a_figure_is_a_number_with_a_unit_or_a_share_in_words(tmp_path, text, found):
    assert [complaint.what for complaint in figures.unproven(tree(tmp_path, {"page.md": text}))] == found


@pytest.mark.parametrize(
    ("text", "unproven"),
    [
        ("3 ms<!-- evidence: run-1.5.figures.decode -->", 0),
        ("3 ms<!-- evidence: run-1.5.a --> and 4 ms<!-- evidence: run-1.5.b -->", 0),
        ("3 ms and 4 ms<!-- evidence: run-1.5.b -->", 1),
        ("<!-- evidence: run-1.5.b --> 3 ms", 1),
        ("3 ms<!-- evidence: run-1.5 -->", 2),
        ("3 ms<!-- evidence: run-1.b -->", 2),
        ("3 ms `<!-- evidence: run-1.5.b -->`", 1),
        ("`3 ms<!-- evidence: ID.FIELD -->`", 0),
        ("3 ms (bench/records/run-1.5.json)", 0),
        ("3 ms ([record](../bench/records/run-1.5.json)).", 0),
        ("3 ms <!-- bench/records/run-1.5.json -->", 1),
        ("3 ms (bench/records/run-2.json)", 1),
        ("bench/records/run-1.5.json\n\n3 ms", 1),
        ("From bench/records/run-1.5.json:\n\n| a |\n|---|\n| 3 ms |", 0),
        ("- bench/records/run-1.5.json\n- 3 ms", 1),
    ],
)
def test_evidence_stands_behind_the_figure_or_names_a_record_beside_it(tmp_path, text, unproven):
    assert len(words(figures.unproven, tree(tmp_path, {"page.md": text, **RECORD}))) == unproven


@pytest.mark.parametrize(
    ("span", "broken"),
    [
        ("a.py", False), ("room/a.py", False), ("lanewise/room/a.py", False), ("room/", False), ("b.py", True), ("tests/x", True),
        ("a.py:f", False), ("a.py:K.g", False), ("a.py:K.x", False), ("a.py:K.y", False), ("a.py:K.z", True), ("a.py:h", True), ("a.py:3", True),
        ("a.f(x)", False), ("a.h", False), ("a.h()", True), ("a.H", True), ("top.x", False), ("top.y", True), ("tests/NAME", False),
        ("lanewise.room.a.f", False), ("lanewise.room.b", True), ("K.g", False), ("K.z", True), ("a.os", False), ("k.y", False),
        ("config.json", False), ("np.x", False), ("a", False), ("make it", False),
    ],
)  # fmt: skip
def test_a_citation_is_a_file_or_a_symbol_that_is_there(tmp_path, span, broken):
    code = "import os\n\n\ndef f():\n    # h = 1\n    pass\n\n\nclass K:\n    x: int\n\n    def g(self):\n        self.y = 1\n"
    repo = tree(
        tmp_path,
        {"lanewise/__init__.py": "", "lanewise/room/__init__.py": "", "lanewise/top.py": "x = 1", "lanewise/room/a.py": code, "page.md": f"`{span}`"},
    )
    assert bool(words(citations.unresolved, repo)) == broken
