"""`lanewise evidence table`: bundles side by side, whose Markdown the verifier accepts, and none that does not hold."""

import json
import re

import pytest
from click.testing import CliRunner
from support.bundles import good, good_command, written
from support.gpu_bundles import COMPILED, Made, good_gpu

from lanewise.bench.plots import plot_many
from lanewise.bench.problem import Call
from lanewise.cli import app
from lanewise.errors import EvidenceError
from lanewise.evidence import open_bundle, tabled, verify

QUANT = (Made("quant", "quant_gemv", "gpu", "1", COMPILED), Made("blas", "blas", "blas", "0"))


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


def test_prompts_have_a_table_of_their_own_with_what_both_arms_compute(tmp_path):
    decode = open_bundle(written(tmp_path / "quant-q4_k-bf16-m1-64x256", good_gpu(call=Call("quant_linear", 1, 64, 256, "Q4_K", "bf16"), made=QUANT)))
    prompt = open_bundle(
        written(tmp_path / "quant-q4_k-bf16-m32-64x256", good_gpu(call=Call("quant_linear", 32, 64, 256, "Q4_K", "bf16"), made=QUANT))
    )
    made = tabled.markdown([tabled.row(prompt), tabled.row(decode)])
    first, second = made.split("\n\n")
    assert first.startswith("| type | m | n x k | quant | blas | ratio | interval | of read |")
    assert second.startswith("| type | m | n x k | quant | blas | ratio | interval | quant computes | blas computes |")
    for name in "ab":
        assert f"TOP/s<!-- evidence: quant-q4_k-bf16-m32-64x256.{name}.operations_per_second -->" in second
    page = tmp_path / "page.md"
    page.write_text(made)
    assert [reason for bundle in (decode, prompt) for reason in verify(bundle, documents=[page]) if reason.where.startswith("page.md")] == []


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


def test_in_the_picture_of_packed_weights_each_format_has_a_line_and_each_m_a_colour(tmp_path):
    pytest.importorskip("matplotlib")
    picture, rows = tmp_path / "all.svg", []
    for fmt in ("Q4_K", "Q6_K"):
        for m in (1, 4):
            bundle = written(tmp_path / f"{fmt}-{m}", good_gpu(call=Call("quant_linear", m, 64, 256, fmt, "bf16"), made=QUANT))
            rows.append(tabled.row(open_bundle(bundle)))
    plot_many(rows, picture)
    words = re.findall("<!-- (.*?) -->", picture.read_text())
    assert {word for word in words if "64x256" in word or word.startswith("m=")} == {"Q4_K 64x256", "Q6_K 64x256", "m=1", "m=4"}
