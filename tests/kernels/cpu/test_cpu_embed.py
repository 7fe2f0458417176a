"""Embedding rows: every format's definition bit for bit, whatever the bytes, at both ends of a table and never past it."""

import numpy as np
import pytest
from support.cpu import ALL, BEST, HERE, QUANTIZED, at_the_edge, call, finite_blocks

from lanewise.backends.cpu.buffers import padded
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.compile import compile_object
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.embed import embed_kernel
from lanewise.kernels.cpu.isa import ISAS

GUARD = np.float32(77)
VOCAB, BLOCKS = 300, 2
ENDS = np.int32([0, VOCAB - 1, 7, 7, VOCAB - 2, 1, 0])
PAIRS = [(isa, fmt) for isa in HERE for fmt in ALL]


def embed(table: np.ndarray, tokens: np.ndarray, fmt: str, isa: str, per_chunk: int = 2) -> np.ndarray:
    """The rows of `table` at `tokens`; what lies behind each row, and the row behind the last, must stay as it was."""
    m, k = len(tokens), table.shape[1] // FORMATS[fmt].nbytes * FORMATS[fmt].block
    x = np.full((m + 1, padded(k)), GUARD)
    call(
        embed_kernel(fmt), isa, -(-m // per_chunk), raw=table, row_bytes=table.strides[0], blocks=k // FORMATS[fmt].block, tokens=tokens,
        x=x, x_step=x.strides[0], m=m, per_chunk=per_chunk,
    )  # fmt: skip
    assert (x[m:] == GUARD).all()
    assert (x[:, k:] == GUARD).all()
    return x[:m, :k]


def _same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, but any NaN for a NaN."""
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got.view(np.uint32)[number], want.view(np.uint32)[number])


def _table(fmt: str, k: int = 35) -> np.ndarray:
    """Random bytes: scales of every kind. k counts for the formats of one weight a block."""
    return np.random.default_rng(1).integers(0, 256, (VOCAB, (k if fmt in DENSE else BLOCKS) * FORMATS[fmt].nbytes), dtype=np.uint8)


@pytest.mark.parametrize(("isa", "fmt"), PAIRS)
def test_rows_are_the_definition_bit_for_bit(isa: str, fmt: str) -> None:
    table = _table(fmt)
    _same(embed(table, ENDS, fmt, isa), FORMATS[fmt].dequantize(table[ENDS]))


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("fmt", QUANTIZED)
def test_every_value_of_every_byte_of_a_block_is_read_right(isa: str, fmt: str) -> None:
    """Byte i of block b is b + i, so that 256 blocks show each byte each value; then the same under scales that are numbers."""
    size = FORMATS[fmt].nbytes
    table = (np.arange(256)[:, None] + np.arange(size)).astype(np.uint8)
    tokens = np.arange(256, dtype=np.int32)
    _same(embed(table, tokens, fmt, isa), FORMATS[fmt].dequantize(table))
    fields, finite = table.view(FORMATS[fmt].layout), finite_blocks(fmt, 256, 1).view(FORMATS[fmt].layout)
    for name in ("d", "m", "dmin"):
        if name in FORMATS[fmt].layout.names:
            fields[name] = finite[name]
    want = FORMATS[fmt].dequantize(table)
    assert np.isfinite(want).all()
    _same(embed(table, tokens, fmt, isa), want)


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("fmt", DENSE)
def test_a_dense_row_of_any_width_is_copied(isa: str, fmt: str) -> None:
    for k in (1, 15, 16, 17, 32, 33):
        table = _table(fmt, k)
        _same(embed(table, ENDS, fmt, isa, per_chunk=3), FORMATS[fmt].dequantize(table[ENDS]))


def test_every_float16_is_widened() -> None:
    table = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(64, -1)
    for isa in HERE:
        _same(embed(table, np.arange(64, dtype=np.int32), "F16", isa), FORMATS["F16"].dequantize(table))


@pytest.mark.parametrize("fmt", ALL)
def test_nothing_is_read_past_the_end_of_the_file(fmt: str) -> None:
    table, last = at_the_edge(_table(fmt)), np.int32([VOCAB - 1])
    _same(embed(table, last, fmt, BEST), FORMATS[fmt].dequantize(table[last]))


def test_no_rows_are_no_work() -> None:
    assert embed(_table("Q4_K"), np.int32([]), "Q4_K", BEST).shape == (0, 512)


@pytest.mark.parametrize("fmt", ALL)
def test_every_format_compiles_for_aarch64(fmt: str) -> None:
    for isa in ("aarch64", "aarch64+dotprod+i8mm"):
        assert compile_object(embed_kernel(fmt), ISAS[isa])[:4] == b"\x7fELF"
