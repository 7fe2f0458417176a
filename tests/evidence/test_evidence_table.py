"""`lanewise evidence table`: bundles side by side, whose Markdown the verifier accepts, and none that does not hold."""

import json
import re

import pytest
from click.testing import CliRunner
from support.bundles import good, good_command, written
from support.gpu_bundles import good_gpu

from lanewise.cli import app
from lanewise.errors import EvidenceError
from lanewise.evidence import open_bundle, tabled, verify


def run(*words):
    return CliRunner().invoke(app, ["evidence", "table", *map(str, words)])


def test_bundles_are_rows_and_each_m_has_its_mean(tmp_path):
    one, other = written(tmp_path / "one", good_gpu()), written(tmp_path / "other", good())
    done = run(one, other)
    assert done.exit_code == 0
    assert re.search(r"bf16 +1 +64x128 +4\.0", done.output)
    assert "bf16 m=1: geometric mean 1.49" in done.output
    found = json.loads(run(one, other, "--json").stdout)
    assert [row["bundle"] for row in found["rows"]] == ["other", "one"]
    assert [mean["count"] for mean in found["means"]] == [1, 1]


def test_the_floor_is_what_reading_alone_takes(tmp_path):
    bundle = open_bundle(written(tmp_path / "one", good_gpu()))
    row = tabled.row(bundle)
    figures = bundle.figures["a"]
    assert row["floor"] == figures["seconds"] * figures["of_read"] < row["seconds"]["a"]


def test_every_figure_of_the_markdown_is_that_of_its_bundle(tmp_path):
    bundle = open_bundle(written(tmp_path / "skinny-bf16-m1-64x128", good_gpu()))
    page = tmp_path / "page.md"
    page.write_text(run(bundle.path, "--markdown").output)
    assert page.read_text().count("<!-- evidence: skinny-bf16-m1-64x128.") == 6
    assert verify(bundle, documents=[page]) == []
    page.write_text(page.read_text().replace("1.49", "1.59").replace("1.50", "1.60"))
    assert {reason.code for reason in verify(bundle, documents=[page])} == {"quote"}


def test_a_bundle_that_does_not_hold_is_in_no_table(tmp_path):
    manifest = good_gpu()
    manifest["figures"]["ratio"]["median"] *= 1.1
    done = run(written(tmp_path / "one", manifest))
    assert (done.exit_code, "does not hold: figure" in done.output) == (2, True)


def test_what_has_no_such_row_is_refused_in_words(tmp_path):
    with pytest.raises(EvidenceError, match="is no bundle of a kernel's A/B run"):
        tabled.row(open_bundle(written(tmp_path / "command", good_command())))
    done = run(tmp_path / "none")
    assert done.exit_code == 2


def test_the_picture_holds_every_shape(tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "all.svg"
    done = run(written(tmp_path / "one", good_gpu()), "--plot", picture)
    assert done.exit_code == 0
    assert "64x128" in picture.read_text()
