"""Pictures of a run: the figures are in them, and without matplotlib they are refused in words."""

import re
import sys

import pytest
from support.runs import manifest_of, round_of, rounds_of

from lanewise.bench.plots import plot
from lanewise.errors import EvidenceError

RUNS = [(1.0, 1.5), (1.0, 1.4), (1.1, 1.6), (1.0, 1.5)] * 2


def test_without_matplotlib_a_plot_is_refused_and_the_way_to_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EvidenceError, match=re.escape("pip install 'lanewise[plots]'")):
        plot(manifest_of(rounds_of(RUNS)), tmp_path / "run.svg")


@pytest.mark.parametrize(("kind", "panels"), [("kernel", 3), ("command", 2)])
def test_a_picture_has_pairs_ratio_and_for_a_kernel_the_roofline(kind, panels, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    found = manifest_of([*rounds_of(RUNS), round_of(8, [1.0] * 4, left_out="throttled: core")], kind=kind)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot(found, tmp_path / "run.svg")
    text = (tmp_path / "run.svg").read_text()
    ratio = found["figures"]["ratio"]
    for words in ("pairs", "left out", "control", f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})", found["figures"]["verdict"]):
        assert words in text
    assert len(set(re.findall(r'id="(axes_\d+)"', text))) == panels
    assert ("read, 10.0 GB/s" in text) == (kind == "kernel")


def test_a_run_without_rounds_and_a_place_without_a_folder_are_refused(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(EvidenceError, match="every round was left out"):
        plot(manifest_of([round_of(0, [1.0] * 4, left_out="x")]), tmp_path / "run.svg")
    with pytest.raises(EvidenceError, match="cannot be written"):
        plot(manifest_of(rounds_of(RUNS)), tmp_path / "gone" / "run.svg")
