"""Cuts of the quantized kernels: what there is, what is refused in words, and how many are worth measuring."""

import json
from dataclasses import replace

import pytest

from lanewise import arch
from lanewise.errors import ShapeError
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.quant_config import QuantConfig, candidates, default
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_table import QUANT, QuantRow

H200 = arch.parse("sm_90")
SHAPES = [(1, 4096, 14336), (8, 4096, 14336), (1, 12288, 4096), (1, 151936, 1024), (3, 64, 256), (1, 16, 65536)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"registers": 32}, "registers=32 of tiles; of tiles it takes 0 or at least 64"),
        ({"registers": 256}, "registers=256 of a configuration; it takes a number from 0 to 255"),
        ({"registers": True}, "registers=True of a configuration"),
        ({"body": "dots", "tokens": 1, "registers": 128}, "registers=128 of dots"),
        ({"warps": 3}, "warps=3 of a configuration; it takes a power of two from 1 to 8"),
        ({"warps": 8, "splits": 2}, "together they are at most 8"),
        ({"tokens": 4}, "tokens=4 of tiles; the matrix unit takes 8 at a time"),
        ({"body": "cubes"}, "body 'cubes' of a configuration"),
    ],
    ids=str,
)
def test_what_cannot_be_cut_is_refused_in_words(given, words):
    with pytest.raises(ShapeError) as error:
        QuantConfig(**{"body": "tiles", **given})
    assert words in str(error.value)


def test_a_cut_says_what_differs_from_the_plainest():
    assert str(QuantConfig("tiles", 8, 2, 8, registers=128)) == "tiles warps=8 ahead=2 tokens=8 registers=128"
    assert str(QuantConfig("tiles", 4, 1, 16, 2)) == "tiles warps=4 ahead=1 tokens=16 splits=2"
    assert str(QuantConfig("blas")) == "blas"


def test_a_table_keeps_a_cap_on_registers(tmp_path):
    row = QuantRow("Q4_K", 1, 4096, 14336, QuantConfig("tiles", 8, 2, 8, registers=128), 1e-6, 2e-6)
    path = tmp_path / "table.json"
    path.write_text(tables.Table({**tables.here("Some Card"), "target": H200.name}, (row,), QUANT).text())
    assert tables.read(path, QUANT).rows == (row,)
    found = json.loads(path.read_text())
    found["rows"][0]["config"]["registers"] = 7
    path.write_text(json.dumps(found))
    with pytest.raises(ShapeError):
        tables.read(path, QUANT)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("row", [H200, arch.parse("gfx1100"), arch.parse("sm_75")], ids=str)
def test_there_are_few_enough_to_measure_and_blas_is_the_last_of_them(row, m, n, k):
    found = candidates(row, "Q4_K", m, n, k)
    assert found[-1] == QuantConfig("blas")
    assert 1 < len(found) == len(set(found)) <= 40
    assert {one.body for one in found[:-1]} == {"tiles" if row.mma16 else "dots"}


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_the_default_is_one_of_those_but_for_how_it_is_rounded(m, n, k):
    near = {replace(one, ahead=1) for one in candidates(H200, "Q6_K", m, n, k)}
    assert all(replace(default(H200, fmt, m, n, k), ahead=1) in near for fmt in LAYOUTS)
