"""Reading trusts nothing: whatever is broken or hostile ends as one line, and what can be read never breaks what looks at it."""

import contextlib
import copy
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest
from support.bundles import changed, good, good_command, steps, written

from lanewise.errors import EvidenceError
from lanewise.evidence import bundle as reading
from lanewise.evidence import compare, open_bundle, page, verify
from lanewise.evidence.recompute import leaves

RECORD = json.loads(next((Path(__file__).parents[2] / "bench" / "records").glob("*.json")).read_text())


def refusal(path):
    with pytest.raises(EvidenceError) as found:
        open_bundle(path)
    assert "\n" not in str(found.value)
    return str(found.value)


def zipped(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in entries:
            archive.writestr(name, raw)
    return path


def files(folder, under=""):
    return [(f"{under}{path.name}", path.read_bytes()) for path in folder.iterdir()]


def test_a_directory_and_a_zip_of_it_are_the_same_bundle(tmp_path):
    folder = written(tmp_path / "run.1", good())
    plain, flat = open_bundle(folder), open_bundle(zipped(tmp_path / "flat.zip", files(folder)))
    nested = open_bundle(zipped(tmp_path / "nested.zip", files(folder, "run.1/")))
    assert plain.manifest == flat.manifest == nested.manifest
    assert [one.id for one in (plain, flat, nested)] == ["run.1", "flat", "nested"]
    assert [verify(one) for one in (plain, flat, nested)] == [[], [], []]


def test_a_broken_seal_and_none_are_both_noticed(tmp_path):
    folder = written(tmp_path / "run", good())
    (folder / "manifest.sha256").write_text("0" * 64)
    assert [r.code for r in verify(open_bundle(folder))] == ["digest"]
    (folder / "manifest.sha256").unlink()
    (reason,) = verify(open_bundle(folder))
    assert "found no seal" in str(reason)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "object"),
        (b"\xff{}", "not UTF-8"),
        (b"{" * 5000, "is"),
        (b'{"a": 1, "a": 2}', "duplicate"),
        (b'{"schema": NaN}', "schema is nan"),
        (b'{"schema": 1e999}', "schema is inf"),
        (b'{"schema": 123456789012345678901234567890}', "64 bits"),
        (b'{"schema": "lanewise.evidence", "schema_version": 3}', "this version reads"),
        (b'{"schema": "lanewise.bench.model", "schema_version": 1}', "is missing"),
        (b'{"schema": "lanewise.bench.model"}', "schema_version"),
        (b"[" + b"0," * 600_000 + b"0]", "at most"),
    ],
)
def test_what_is_no_manifest_is_refused_in_a_line(tmp_path, raw, words):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(raw)
    assert words in refusal(folder)


def test_huge_files_are_refused_before_they_are_read(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (folder / "manifest.json", tmp_path / "x.zip"):
        with name.open("wb") as file:
            file.truncate(1 << 30)
    assert "bytes; at most" in refusal(folder)
    assert "bytes; at most" in refusal(tmp_path / "x.zip")


def test_a_bomb_is_unpacked_no_further_than_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_BYTES", 1 << 16)
    assert "unpacks to more" in refusal(zipped(tmp_path / "x.zip", [("manifest.json", b" " * (1 << 20))]))


@pytest.mark.parametrize("name", ["../manifest.json", "/manifest.json", "a/../manifest.json", "a\\manifest.json"])
def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, name):
    assert "points out of the bundle" in refusal(zipped(tmp_path / "x.zip", [("manifest.json", b"{}"), (name, b"{}")]))


def test_links_pipes_and_directories_in_the_manifests_place_are_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("{}")
    for name, make in (("link", lambda p: p.symlink_to(secret)), ("pipe", os.mkfifo), ("folder", Path.mkdir)):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "manifest.json")
        assert str(folder) in refusal(folder)
    os.mkfifo(tmp_path / "run.zip")
    assert "neither a file nor a directory" in refusal(tmp_path / "run.zip")
    linked = zipfile.ZipInfo("a")
    linked.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(linked, "/etc/passwd")
    assert "points out" in refusal(tmp_path / "link.zip")


def test_what_is_no_bundle_at_all_says_what_one_is(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x.zip").write_text("x")
    assert "a bundle is a directory or .zip" in refusal(tmp_path / "gone")
    assert "neither .zip nor .json" in refusal(tmp_path / "x.txt")
    assert "not a readable .zip" in refusal(tmp_path / "x.zip")
    assert "0 files named manifest.json" in refusal(zipped(tmp_path / "y.zip", [("a", b"")]))
    assert "2 files named" in refusal(zipped(tmp_path / "z.zip", [("a/manifest.json", b"{}"), ("b/manifest.json", b"{}")]))
    assert refusal(tmp_path / "a\0b")


_SHARE = 3
WRONG = ([], {}, "", "\x1b[2J", -1, 0, 5e-324, 1e308, 2**62, None, True, ["a"], {"a": 1})


def short(manifest):
    """With one round: enough to go wrong in."""
    return {**manifest, "rounds": manifest["rounds"][:1]}


@contextlib.contextmanager
def unbroken(path, value):
    try:
        yield
    except EvidenceError:
        raise
    except Exception as error:
        raise AssertionError(f"{path} = {value!r}") from error


def places(manifest):
    """A path of each kind: of lists the first element stands for all."""
    return [path for path, _ in leaves(manifest) if not any(f"[{i}]" in path for i in range(1, 200)) and "/" not in path]


@pytest.mark.parametrize("manifest", [short(good()), short(good_command()), short(RECORD)], ids=["kernel", "command", "record"])
def test_a_value_of_any_other_kind_is_refused_or_shown_and_never_a_crash(tmp_path, manifest):
    name = "record.json" if "run" in manifest else "manifest.json"
    whole = tmp_path / name if "run" in manifest else tmp_path
    for i, path in enumerate(places(manifest)):
        for value in WRONG[i % _SHARE :: _SHARE]:  # each value meets a third of the fields
            try:
                made = changed(manifest, path, value)
            except (KeyError, TypeError):  # a name with a dot in it
                continue
            (tmp_path / name).write_text(json.dumps(made))
            with contextlib.suppress(EvidenceError), unbroken(path, value):
                found = open_bundle(whole)
                assert "\x1b" not in page(found, verify(found))
                compare(found, found)


@pytest.mark.parametrize("manifest", [good(), RECORD], ids=["kernel", "record"])
def test_a_field_that_is_missing_or_unknown_is_refused(tmp_path, manifest):
    target = tmp_path / "x.json"
    for way in (["machine"], ["plan"], ["rounds"], ["figures"], ["commit"], ["run"]):
        made = copy.deepcopy(manifest)
        if made.pop(way[0], None) is None:
            continue
        target.write_text(json.dumps(made))
        assert f"{way[0]} is missing" in refusal(target)
    target.write_text(json.dumps({**manifest, "extra": 1}))
    assert "extra is unknown" in refusal(target)


def test_paths_into_a_manifest_lead_where_they_say():
    assert steps("a.b[0].c/d|e") == ["a", "b", 0, "c.d/e"]
