"""Tables of configurations: whatever lies where the user's is looked for, a choice comes back, and says what was wrong."""

import json
import os
import re

import pytest

from lanewise import arch
from lanewise.errors import SettingError
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.config import Config

ROW, CARD = arch.parse("gfx1100"), "Some Card"
WON = Config("lanes", 2, 512, 2)
DEFAULT = "default for wave32"


def text(key=None, **row):
    table = tables.Table({**tables.here(CARD), "target": ROW.name, **(key or {})}, (tables.Row("bf16", 1, 64, 64, WON, 2e-6, 3e-6),))
    found = json.loads(table.text())
    found["rows"][0] |= row
    return json.dumps(found)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    tables.forget()
    yield tables.user_path(CARD)
    tables.forget()


def source(m=1, n=64, k=64):
    return tables.choose(ROW, "bf16", m, n, k, CARD).source


def test_the_users_table_comes_first(path):
    path.write_text(text())
    assert tables.choose(ROW, "bf16", 1, 64, 64, CARD) == tables.Choice(WON, "user table, measured at m=1 n=64 k=64")


@pytest.mark.parametrize(
    "lies",
    [
        "", "null", "[]", "nan", '"x"', "{", "[" * 100_000, "\x00", text()[:-2], text(m=0), text(m=1.5), text(n=0), text(n=-4), text(k=10**400),
        text(n=1e999), text(m=True), text(seconds=float("nan")), text(seconds=0), text(blas_seconds=float("inf")), text(dtype="q4"),
        text(dtype="fp16"),
        text(dtype=[1]), text(config={"body": "other"}), text(config={"body": "lanes", "rows": 3}), text(config={"body": "lanes", "speed": 9}),
        text(config="blas"), text(config=None), text().replace('"version": 1', '"version": 9'), text().replace('"driver"', '"pilot"'),
    ],
    ids=lambda lies: re.sub(r"\W+", "-", lies)[-40:] or "empty",
)  # fmt: skip
def test_what_is_no_table_is_ignored_in_words(path, lies):
    path.write_text(lies)
    assert source().startswith(f"{DEFAULT}; the user table is ignored: {path.name} is no table of configurations: ")
    assert len(source()) < 500


def test_a_table_of_another_driver_is_stale(path):
    path.write_text(text(key={"driver": "1.2.3"}))
    assert re.fullmatch(rf"{DEFAULT}; the user table {path.name} is stale and ignored: driver 1.2.3 there and .* here; .*", source())


def test_what_is_too_large_a_folder_a_pipe_or_a_link_to_nowhere_is_not_read(path):
    path.write_text(" " * (tables._MOST_BYTES + 1) + text())
    assert "bytes; at most" in source()
    path.unlink()
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("nowhere")):
        make()
        tables.forget()
        assert "it is no file" in source()
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_folder_that_cannot_be_looked_into_does_not_end_a_call(path, monkeypatch):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "x" * 5000)
    assert source().startswith(f"{DEFAULT}; the user table is ignored: ")
    monkeypatch.setenv("LANEWISE_CACHE_DIR", __file__)
    assert source() == DEFAULT


def test_without_a_home_there_is_no_table_and_none_is_written(path, monkeypatch):
    def nobody(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LANEWISE_CACHE_DIR")
    monkeypatch.setattr(tables.Path, "expanduser", nobody)
    assert source() == DEFAULT
    with pytest.raises(SettingError, match="LANEWISE_CACHE_DIR names no folder, and without it: Could not determine home directory"):
        tables.user_path(CARD)


def test_each_cache_directory_has_its_own_table(path, tmp_path, monkeypatch):
    assert source() == DEFAULT
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "other"))
    tables.user_path(CARD).parent.mkdir()
    tables.user_path(CARD).write_text(text())
    assert source().startswith("user table")


def test_a_card_may_have_any_name(path):
    assert len(tables.user_path("é/../\n" * 500).name) < 255
    assert tables.choose(ROW, "bf16", 1, 64, 64, "é/../\n" * 500).source == DEFAULT
