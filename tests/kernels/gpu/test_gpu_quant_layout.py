"""The layout of quantized weights for GPUs, read a second time: by its formulas in plain loops, against blocks read from the bytes alone.

Nothing of the packing is used here but its result. Where a row's code, scale and minimum lie in a record is written out from the words of
`quant_layout`, and what a file's block says of them is the oracle's reading.
"""

import numpy as np
import pytest
import torch

from lanewise.errors import FormatError
from lanewise.formats import FORMATS, get
from lanewise.kernels.gpu.quant_layout import BLOCK, LAYOUTS, ROWS, layout_of
from lanewise.kernels.gpu.quant_pack import pack
from lanewise.oracle.blocks import decode

# The IQ4 table once more (ggml-common.h, kvalues_iq4nl).
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
ZERO = {"s4": 8, "s5": 16, "s6": 32, "s3": 4}  # what a stored code of the file stands above its weight


def random_rows(name, rows, k, seed=0):
    """uint8[rows, row_bytes] with every field random, and fp16 scales that are finite: decoding compares numbers."""
    form = get(name)
    raw = np.random.default_rng(seed).integers(0, 256, (rows, k // form.block * form.nbytes), dtype=np.uint8)
    blocks = raw.view(form.layout)
    for field in ("d", "m", "dmin"):
        if field in form.layout.names:
            bits = blocks[field].view("<u2")
            bits &= 0xBBFF  # the exponent below its largest
    return raw


class Record:
    """One tile's int32 words, asked for row r and column k of the tile in the words of `quant_layout`."""

    def __init__(self, words, layout):
        self.bytes, self.layout = words.astype("<i4").tobytes(), layout
        self.high_at = 512 * layout.quants
        self.scales_at = self.high_at + 512 * layout.high
        self.tail_at = self.scales_at + 128 * layout.scales
        assert len(self.bytes) == self.tail_at + 4 * layout.tail

    def word(self, at):
        return int.from_bytes(self.bytes[at : at + 4], "little")

    def half(self, at):
        return float(np.frombuffer(self.bytes, "<f2", 1, at)[0])

    @staticmethod
    def place(r, k):
        """(unit, p, j, byte at which the word of lane and element begins in a vector) of a row and a column."""
        h, g = divmod(r, 8)
        u, p, c, j = k // 32, k // 16 % 2, k // 4 % 4, k % 4
        lane, e = 4 * g + c, 2 * h + p
        return u, p, j, 4 * (4 * lane + e)

    def code(self, r, k):
        """The integer that is multiplied, as the file means it: weight = scale * code - least."""
        kind, (u, _, j, at) = self.layout.code, self.place(r, k)

        def vector(i, start=0):
            return self.word(start + 512 * i + at)

        def byte(word, i):
            return word >> 8 * i & 255

        if kind == "s8":
            value = byte(vector(u), j)
            return value - 256 if value > 127 else value
        if kind == "iq4":
            return IQ4[vector(u // 2) >> (16 * (u % 2) + 4 * j) & 15]
        if kind in ("u2", "s3"):
            low = byte(vector(u // 4), j) >> 2 * (u % 4) & 3
            if kind == "u2":
                return low
            top = byte(vector(0, self.high_at), j) >> u & 1
            return (low | (top ^ 1) << 2) - ZERO[kind]
        low = byte(vector(u // 2), j) >> 4 * (u % 2) & 15
        if kind == "u4":
            return low
        if kind == "s4":
            return (low ^ 8) - ZERO[kind]
        if kind == "s6":
            return (low | (byte(vector(u // 4, self.high_at), j) >> 2 * (u % 4) & 3 ^ 2) << 4) - ZERO[kind]
        top = byte(vector(0, self.high_at), j) >> u & 1
        return low | top << 4 if kind == "u5" else (low | (top ^ 1) << 4) - ZERO[kind]

    def scale(self, r, k):
        """(scale, least) of a row's group."""
        (h, g), (u, p, _, _) = divmod(r, 8), self.place(r, k)
        kind, wide = self.layout.scale, self.layout.group == 32

        def scale_word(vector, e):
            return self.scales_at + 128 * vector + 4 * (4 * g + 2 * h + e)

        if kind in ("half", "half+min"):
            i = u // 2
            at = scale_word(i // 2, i % 2) + 2 * (u % 2)
            return self.half(at), -self.half(at + 256) if kind == "half+min" else 0.0
        if wide:
            value, least = (self.bytes[scale_word(v, u // 4) + u % 4] if v < self.layout.scales else 0 for v in (0, 1))
        else:
            group = 2 * u + p
            w = group // 4
            value = self.bytes[scale_word(w // 2, w % 2) + group % 4]
            value, least = (value & 15, value >> 4) if kind == "nibbles+min" else (value, 0)
        if kind == "bytes":
            return self.half(self.tail_at + 4 * g + 2 * h) * (value - 256 if value > 127 else value), 0.0
        pair = self.tail_at + 4 * (2 * g + h)
        return self.half(pair) * value, self.half(pair + 2) * least


def check(raw, tiles, layout, rows_of):
    """Some elements of every row: code, scale and minimum are those of the file. rows_of gives (panel, row of the tile) of a file's row."""
    said = decode(raw, layout.format)
    n, groups, group = said.q.shape
    assert group == layout.group
    rng = np.random.default_rng(1)
    for row in range(n):
        panel, r = rows_of(row)
        for k in {0, groups * group - 1, *rng.integers(0, groups * group, 24).tolist()}:
            record = Record(tiles[panel, k // BLOCK], layout)
            where = f"{layout.format} row {row} column {k}"
            assert record.code(r, k % BLOCK) == said.q[row, k // group, k % group], where
            assert record.scale(r, k % BLOCK) == (said.scale[row, k // group], said.least[row, k // group]), where


@pytest.mark.parametrize("name", LAYOUTS)
def test_code_scale_and_minimum_lie_where_the_layout_says(name):
    raw = random_rows(name, 33, 2 * BLOCK)
    check(raw, pack(torch.from_numpy(raw), name).tiles.numpy(), LAYOUTS[name], lambda row: divmod(row, ROWS))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_panel_of_gated_weights_has_eight_gates_and_their_ups(name):
    n = 11
    raw = random_rows(name, 2 * n, BLOCK, seed=2)
    tiles = pack(torch.from_numpy(raw), name, gated=True).tiles.numpy()
    check(raw, tiles, LAYOUTS[name], lambda row: (row % n // 8, row % n % 8 + 8 * (row // n)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_of_a_tile_is_the_files(name):
    raw = random_rows(name, ROWS, BLOCK, seed=3)
    layout, said = LAYOUTS[name], decode(raw, name)
    record = Record(pack(torch.from_numpy(raw), name).tiles.numpy()[0, 0], layout)
    codes = [[record.code(r, k) for k in range(BLOCK)] for r in range(ROWS)]
    scales = [[record.scale(r, k) for k in range(0, BLOCK, layout.group)] for r in range(ROWS)]
    assert np.array_equal(np.array(codes), said.q.reshape(ROWS, BLOCK))
    assert np.array_equal(np.array(scales), np.stack([said.scale, said.least], -1))


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_past_n_and_past_k_weighs_nothing(name):
    raw = random_rows(name, 17, get(name).block, seed=4)
    tiles, layout = pack(torch.from_numpy(raw), name).tiles.numpy(), LAYOUTS[name]
    there = [
        (panel, r, k)
        for panel in range(2)
        for r in range(ROWS)
        for k in range(0, BLOCK, layout.group)
        if Record(tiles[panel, 0], layout).scale(r, k) != (0, 0)
    ]
    assert all(ROWS * panel + r < 17 and k < get(name).block for panel, r, k in there)
    assert {ROWS * panel + r for panel, r, _ in there} == set(range(17))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_says_how_codes_become_signed_bytes(name):
    layout = LAYOUTS[name]
    bits = layout.quants + layout.high
    assert layout.format == name
    assert layout.activation == get(name).activation
    assert layout.shift == (8 - bits if layout.code in ZERO else 0)
    assert layout.flip == ZERO.get(layout.code, 0)
    assert layout.code in ("iq4", f"u{bits}", f"s{bits}")
    assert BLOCK * bits // 8 * ROWS == 512 * bits


def test_records_are_as_long_as_the_kernels_were_written_for():
    assert {name: layout.record for name, layout in LAYOUTS.items()} == {
        "Q8_0": 1088, "Q4_0": 576, "Q4_1": 640, "Q5_0": 704, "Q5_1": 768, "IQ4_NL": 576,
        "Q2_K": 336, "Q3_K": 456, "Q4_K": 592, "Q5_K": 720, "Q6_K": 840, "IQ4_XS": 552,
    }  # fmt: skip


def test_a_record_is_hardly_longer_than_the_files_blocks():
    for name, layout in LAYOUTS.items():
        file = ROWS * get(name).row_bytes(BLOCK)
        assert file <= 4 * layout.record
        assert 100 * (4 * layout.record - file) <= 4 * file, name


def test_records_begin_where_16_bytes_can_be_loaded():
    for layout in LAYOUTS.values():
        assert layout.record % 4 == 0, layout.format


def test_every_quantized_format_has_a_layout():
    assert set(LAYOUTS) == {name for name, form in FORMATS.items() if form.activation != "float"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("IQ1_S", "'IQ1_S' has no layout for GPUs; quantized weights can be packed of Q8_0, Q4_0, Q4_1, Q5_0, "),
        ("BF16", "BF16 is not quantized, and is multiplied as it is; quantized weights can be packed of Q8_0, Q4_0, "),
        ("f32", "F32 is not quantized, and is multiplied as it is; quantized weights"),
        ("", "'' has no layout for GPUs; "),
        (None, "None has no layout for GPUs; "),
    ],
)
def test_other_formats_are_refused_and_those_with_a_layout_named(name, words):
    with pytest.raises(FormatError) as refused:
        layout_of(name)
    assert str(refused.value).startswith(words)
    assert all(other in str(refused.value) for other in LAYOUTS)


def test_a_name_may_be_in_small_letters():
    assert layout_of("q4_k") is LAYOUTS["Q4_K"]
