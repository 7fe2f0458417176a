"""Manifests are read as they were written, and whatever is not built like one is refused in words."""

import json
import zipfile
from pathlib import Path

import pytest
from support.runs import manifest_of, rounds_of

import lanewise
from lanewise.bench import manifest as manifests
from lanewise.errors import EvidenceError


@pytest.fixture(params=["kernel", "command"])
def made(request):
    return manifest_of(rounds_of([(1.0, 2.0)] * 2), kind=request.param)


def test_a_manifest_is_read_as_it_was_written_from_a_directory_a_zip_and_a_file(made, tmp_path):
    path = manifests.write(tmp_path / "run", made)
    flat, deep = tmp_path / "flat.zip", tmp_path / "deep.zip"
    for archive, name in ((flat, "manifest.json"), (deep, "run/manifest.json")):
        with zipfile.ZipFile(archive, "w") as file:
            file.write(path, name)
    for bundle in (tmp_path / "run", path, flat, deep):
        assert manifests.read(bundle) == json.loads(json.dumps(made))
    assert path.read_text() == manifests.text_of(made)


def test_every_field_is_missed_and_every_unknown_one_is_noticed(made):
    """At every place of a manifest: without one of its keys, and with one more."""
    free = ("machine", "settings", "versions", "sources", "sha256", "spec", "ticks", "throttle")

    def objects(value, at=()):
        if isinstance(value, dict):
            yield at
            for key, one in value.items():
                yield from () if key in free else objects(one, (*at, key))
        elif isinstance(value, list) and value:
            yield from objects(value[0], (*at, 0))

    seen = 0
    for at in objects(made):
        names = [*_at(made, at), None]
        for name in names:
            broken = json.loads(json.dumps(made))
            place = _at(broken, at)
            if name is None:
                place["surprise"] = 1
            else:
                del place[name]
            optional = name in ("format", "dtype", "heads", "kv_heads")
            assert bool(manifests.complaints(broken)) != optional, (at, name)
            seen += 1
    assert seen > 60


def _at(value, path):
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (("schema_version",), 3, "this version reads lanewise.evidence 1 and 2"),
        (("schema",), "other", "this version reads"),
        (("kind",), "guess", "it is kernel or command"),
        (("plan", "pairs"), 14, "plan.pairs is '14'; it is between 15 and 10000"),
        (("plan", "bootstrap", "resamples"), 10**9, "between 100 and 20000"),
        (("plan", "bootstrap", "level"), 1.0, "between 0.5 and 0.999"),
        (("rounds",), [], "rounds is no list of 1 or more"),
        (("rounds", 0, "samples", 1, "started"), -1, "rounds[0].samples[1].started is '-1'"),
        (("rounds", 0, "samples", 1, "arm"), "c", "it is a or b"),
        (("rounds", 1, "samples"), [], "rounds[1].samples is no list of 4"),
        (("rounds", 0, "order"), ["a", "a", "b", "b"], "a round is abba or baab"),
        (("figures", "pairs"), True, "figures.pairs is 'True'"),
        (("figures", "ratio", "low"), "1", "figures.ratio.low is '1'; it is a number above 0"),
        (("commit",), {"id": 5, "dirty": False}, "commit.id is '5'; it is a text"),
        (("sources",), {"lanewise/x.py": "abc"}, "it is 64 hexadecimal digits"),
    ],
)  # fmt: skip
def test_what_a_field_cannot_be_is_said_with_its_place(made, at, value, words):
    broken = json.loads(json.dumps(made))
    _at(broken, at[:-1])[at[-1]] = value
    found = manifests.complaints(broken)
    assert any(words in one for one in found), found


def test_samples_that_take_no_time_and_control_of_two_arms_are_refused(made):
    broken = json.loads(json.dumps(made))
    key = "seconds" if made["kind"] == "kernel" else "value"
    broken["rounds"][0]["samples"][0][key] = 0
    broken["rounds"][1]["control"][0]["arm"], broken["rounds"][1]["control"][1]["arm"] = "a", "b"
    assert len(manifests.complaints(broken)) == 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1, "a": 2}', "a key is there twice"),
        (b"[]", "holds no object"),
        (b"\xff{}", "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (b'{"schema": "x"}', "this version reads"),
        (b"", "cannot be read"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_in_one_line(raw, words, tmp_path):
    (tmp_path / "manifest.json").write_bytes(raw)
    with pytest.raises(EvidenceError) as refused:
        manifests.read(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_archives_without_one_manifest_and_missing_bundles_are_refused(tmp_path):
    two, none, broken = tmp_path / "two.zip", tmp_path / "none.zip", tmp_path / "broken.zip"
    with zipfile.ZipFile(two, "w") as file:
        file.writestr("a/manifest.json", "{}")
        file.writestr("b/manifest.json", "{}")
    with zipfile.ZipFile(none, "w") as file:
        file.writestr("a/b/manifest.json", "{}")
    broken.write_bytes(b"PK nothing")
    for bundle, words in ((two, "holds 2 files"), (none, "holds 0 files"), (broken, "no readable .zip"), (tmp_path / "gone", "cannot be read")):
        with pytest.raises(EvidenceError, match=words):
            manifests.read(bundle)


def test_an_archive_that_swells_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "_MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "swells.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", b" " * 100_000)
    (tmp_path / "manifest.json").write_bytes(b" " * 1001)
    asked, read = [], zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: asked.append(n) or read(self, n))
    for bundle in (tmp_path / "swells.zip", tmp_path):
        with pytest.raises(EvidenceError, match="1000"):
            manifests.read(bundle)
    assert asked == [1001]


def test_a_bundle_never_replaces_another(made, tmp_path):
    manifests.write(tmp_path / "run", made)
    with pytest.raises(EvidenceError, match="is not empty"):
        manifests.write(tmp_path / "run", made)


def test_a_number_that_is_not_finite_is_never_written(made):
    with pytest.raises(ValueError, match="not JSON compliant"):
        manifests.text_of({**made, "figures": float("nan")})


def test_the_sources_are_every_file_of_the_package():
    found = manifests.sources()
    here = Path(lanewise.__file__)
    assert found["lanewise/__init__.py"] == manifests.digest(here.read_bytes())
    assert len(found) == len(list(here.parent.rglob("*.py")))
