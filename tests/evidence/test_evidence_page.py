"""The page is one file that shows everything in light and dark; a comparison says in words what differs."""

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.bundles import COMMIT, good, good_command, refigured, written

from lanewise.errors import EvidenceError
from lanewise.evidence import compare, open_bundle, page, verify

RECORDS = sorted((Path(__file__).parents[2] / "bench" / "records").glob("*.json"))


class Tags(HTMLParser):
    """Collects tags, and checks that each is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


CLOSE = 1e-12  # log and exp, a few roundings each


def parsed(text):
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def opened(tmp_path, manifest, name="run"):
    return open_bundle(written(tmp_path / name, manifest))


def test_a_page_loads_nothing_and_knows_light_and_dark(tmp_path):
    bundles = [opened(tmp_path, good(), "a"), opened(tmp_path, good_command(), "b"), open_bundle(RECORDS[0])]
    for bundle in bundles:
        text = page(bundle, [])
        tags = parsed(text)
        assert "prefers-color-scheme: dark" in text
        assert not {"script", "link", "img", "iframe", "a"} & {tag for tag, _ in tags.seen}
        assert not any(name in attributes for _, attributes in tags.seen for name in ("src", "href", "style", "onload"))
        assert not re.search(r"url\(|@import|https?:", text)


def test_a_page_shows_the_verdict_the_ratio_and_a_dot_for_each_pair(tmp_path):
    manifest = good()
    text = page(opened(tmp_path, manifest), [])
    tags = parsed(text)
    assert "x86-64-v4+vnni is faster" in "".join(tags.text)
    charts = text.split("<svg")[1:]
    assert [chart.count("<circle") for chart in charts] == [2, 16 + 8]
    assert COMMIT[:12] in text
    assert "nothing speaks against" in text


def test_rounds_that_were_left_out_are_marked_and_a_page_without_any_kept_has_no_ratio(tmp_path):
    manifest = good()
    manifest["rounds"][2]["left_out"] = "throttled: core"
    assert page(opened(tmp_path, refigured(manifest))).count("dropped") == 1 + 2 + 1  # in the style, two pairs, a control
    for one in manifest["rounds"]:
        one["left_out"] = "throttled: core"
    text = page(opened(tmp_path, refigured(manifest)))
    parsed(text)
    assert text.count("<svg") == 1


def test_reasons_are_listed_and_what_a_bundle_says_stays_text(tmp_path):
    manifest = good()
    manifest["question"] = "<script>alert(1)</script>\x1b[2J"
    manifest["arms"]["a"]["label"] = "</svg><img src=x>"
    bundle = opened(tmp_path, manifest)
    text = page(bundle, verify(bundle))
    tags = parsed(text)
    assert "Refused" in text
    assert not {"script", "img"} & {tag for tag, _ in tags.seen}
    assert "\x1b" not in text


@pytest.mark.parametrize("ratio", [1.0001, 1.05, 1.8, 30.0, 1 / 30])
def test_charts_stay_inside_their_frame(tmp_path, ratio):
    text = page(opened(tmp_path, good({"a": 100e-6, "b": 100e-6 * ratio})))
    for place in re.findall(r'(?:cx|x1|x2)="([\d.-]+)"', text):
        assert 0 <= float(place) <= 720
    assert text.count('class="one"') == 2


def test_a_figure_that_was_made_up_is_drawn_where_it_claims_to_be(tmp_path):
    manifest = good()
    manifest["figures"]["ratio"]["median"] *= 3
    text = page(opened(tmp_path, manifest))
    (place,) = re.findall(r'class="effect" cx="([\d.]+)" cy="[\d.]+" r="6"', text)
    assert 92 < float(place) < 720 - 24


def test_arms_stand_beside_each_other_and_words_are_not_cut_at_their_hyphens(tmp_path):
    text = page(opened(tmp_path, good_command()))
    assert "<tr><th>arm</th><th>a</th><th>b</th></tr>" in text
    assert "<td>echo 1.0 s</td><td>echo 1.4 s</td>" in text
    assert '<span class="whole">--lower-is-better</span>' in text
    assert "matmul_Q8_0 on cpu" in text


def test_two_runs_that_agree_say_so_and_what_differed(tmp_path):
    later = copy.deepcopy(good())
    later["commit"]["id"] = "f" * 40
    later["machine"]["cpu"] = "Another"
    found = compare(opened(tmp_path, good(), "a"), opened(tmp_path, later, "b"))
    assert set(found.differences) == {f"commit.id: '{COMMIT}', then '{'f' * 40}'", "machine.cpu: 'A processor', then 'Another'"}
    assert found.ratio["median"] == pytest.approx(1.0, rel=CLOSE)
    assert found.ratio["low"] <= 1 <= found.ratio["high"]
    assert "agree" in found.verdict


def test_two_runs_that_do_not_agree_give_the_ratio_of_their_ratios(tmp_path):
    first, second = good(), good({"a": 100e-6, "b": 200e-6})
    found = compare(opened(tmp_path, first, "a"), opened(tmp_path, second, "b"))
    assert found.differences == ()
    assert found.ratio["median"] == pytest.approx(second["figures"]["ratio"]["median"] / first["figures"]["ratio"]["median"], rel=CLOSE)
    one, other = first["figures"]["ratio"], second["figures"]["ratio"]
    assert other["low"] / one["high"] < found.ratio["low"] < found.ratio["median"]
    assert "rose" in found.verdict
    assert {name for name, *_ in found.figures} >= {"ratio.median", "control.spread", "a.seconds", "pairs"}


def test_records_are_compared_with_records_alone(tmp_path):
    one, other = map(open_bundle, RECORDS[:2])
    found = compare(one, other)
    assert found.ratio is None
    assert any(line.startswith("model.") for line in found.differences)
    with pytest.raises(EvidenceError, match="two of a kind"):
        compare(one, opened(tmp_path, good()))


def test_the_manifest_in_a_page_is_the_one_that_was_read(tmp_path):
    bundle = opened(tmp_path, good())
    before = json.dumps(bundle.manifest)
    page(bundle, verify(bundle))
    assert json.dumps(bundle.manifest) == before
