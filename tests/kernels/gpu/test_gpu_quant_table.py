"""Tables of quantized weights: files of their own beside those of linear, read with the same care, and never another body than the target's."""

import json
import re

import pytest

from lanewise import arch
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.quant_config import QuantConfig, default
from lanewise.kernels.gpu.quant_table import QUANT, QuantRow, choose_quant

ROW, CARD = arch.parse("sm_90"), "Some Card"
WON, DOTS = QuantConfig("tiles", 4, 3, 8), QuantConfig("dots", 4, 1, 2)
SHAPE = (4096, 14336)
DEFAULT = "default for wave32"


def text(key=None, row=ROW, rows=None, **change):
    rows = rows or (QuantRow("Q4_K", 8, *SHAPE, WON, 2e-6, 3e-6),)
    found = json.loads(tables.Table({**tables.here(CARD), "target": row.name, **(key or {})}, rows, QUANT).text())
    found["rows"][0] |= change
    return json.dumps(found)


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "shipped")
    tables.forget()
    tables._shipped.cache_clear()
    yield tables.user_path(CARD, QUANT)
    tables.forget()
    tables._shipped.cache_clear()


def chosen(fmt="Q4_K", m=1, n=SHAPE[0], k=SHAPE[1], row=ROW, card=CARD):
    return choose_quant(row, fmt, m, n, k, card)


def test_a_row_speaks_for_its_format_up_to_its_m_and_for_shapes_nearby(path):
    path.write_text(text())
    said = "user table, measured at m=8 n=4096 k=14336"
    for m in (1, 4, 8):
        assert (chosen(m=m).config, chosen(m=m).source) == (WON, said)
    assert chosen(n=6000).config == WON
    for other in (chosen("Q5_K"), chosen(m=9), chosen(n=151936)):
        assert other.source == DEFAULT
    assert chosen("Q5_K").config == default(ROW, "Q5_K", 1, *SHAPE)


def test_the_next_larger_m_that_was_measured_decides(path):
    rows = tuple(
        QuantRow("Q4_K", m, *SHAPE, config, 1e-6, 1e-6) for m, config in ((8, WON), (32, QuantConfig("tiles", 8, 1, 32)), (512, QuantConfig("blas")))
    )
    path.write_text(text(rows=rows))
    assert [str(chosen(m=m).config.body) for m in (8, 9, 32, 33, 512)] == ["tiles", "tiles", "tiles", "blas", "blas"]
    assert [chosen(m=m).config.tokens for m in (8, 9, 32)] == [8, 32, 32]


def test_a_row_with_another_body_than_the_targets_is_passed_over(path):
    path.write_text(text(config={"body": "dots", "warps": 4, "ahead": 1, "tokens": 2}))
    assert chosen() == type(chosen())(default(ROW, "Q4_K", 1, *SHAPE), DEFAULT)
    old = arch.parse("gfx1100")
    path.write_text(text(row=old, config={"body": "dots", "warps": 4, "ahead": 1, "tokens": 2}))
    tables.forget()
    assert chosen(row=old).config == DOTS
    path.write_text(text(row=old))
    tables.forget()
    assert chosen(row=old).config.body == "dots"


def test_the_tables_of_linear_and_of_packed_weights_do_not_meet(path):
    path.write_text(text())
    tables.user_path(CARD).write_text("no table")
    assert chosen().config == WON
    assert "is no table of configurations" in tables.choose(ROW, "bf16", 1, 64, 64, CARD).source
    path.write_text(tables.Table(json.loads(text())["key"], (tables.Row("bf16", 1, 64, 64, tables.Config("lanes"), 1.0, 1.0),)).text())
    tables.forget()
    assert chosen().source.startswith(f"{DEFAULT}; the user table is ignored: {path.name} is no table of configurations: ")
    assert "it is lanewise.table 1, not lanewise.quant-table 1" in chosen().source


def test_a_shipped_table_holds_for_its_device_and_for_its_target(path):
    tables.SHIPPED.mkdir()
    (tables.SHIPPED / "quant-some-card.json").write_text(text())
    (tables.SHIPPED / "gpu-some-card.json").write_text(tables.Table(json.loads(text())["key"], ()).text())
    assert chosen().source == "shipped table of Some Card, measured at m=8 n=4096 k=14336"
    assert chosen(card="Another").source.startswith("shipped table of Some Card, another device of the same target, measured")
    assert chosen(row=arch.parse("sm_100"), card="Another").source == DEFAULT


@pytest.mark.parametrize(
    "lies",
    [
        "", "null", "[]", "{", text()[:-2], text(m=0), text(n=1.5), text(k=-1), text(seconds=0), text(blas_seconds=float("inf")), text(format="F16"),
        text(format="q4_k"), text(format=None), text(format=[1]), text(config={"body": "lanes"}), text(config={"body": "tiles", "warps": 3}),
        text(config={"body": "tiles", "rows": 16}), text(config={"body": "tiles", "warps": 8, "splits": 2}), text(config="blas"),
        text().replace('"version": 1', '"version": 9'),
    ],
    ids=lambda lies: re.sub(r"\W+", "-", lies)[-40:] or "empty",
)  # fmt: skip
def test_what_is_no_table_is_ignored_in_words(path, lies):
    path.write_text(lies)
    assert chosen().source.startswith(f"{DEFAULT}; the user table is ignored: {path.name} is no table of configurations: ")


def test_a_table_of_another_driver_is_stale(path):
    path.write_text(text(key={"driver": "1.2.3"}))
    assert re.fullmatch(rf"{DEFAULT}; the user table {path.name} is stale and ignored: driver 1.2.3 there and .* here; .*", chosen().source)


def test_what_was_written_is_what_is_read(path):
    path.write_text(text())
    table = tables.read(path, QUANT)
    assert table.rows == (QuantRow("Q4_K", 8, *SHAPE, WON, 2e-6, 3e-6),)
    assert json.loads(table.text()) == json.loads(text())
