"""Packing loses nothing: the bytes of the file come back from the planes, by an inverse written here, and the planes are hardly larger."""

import numpy as np
import pytest
from support.cpu import ALL, BEST, HERE, QUANTIZED, finite_blocks, packed

from lanewise.formats import FORMATS
from lanewise.kernels.cpu.blocks import BLOCKS
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.pack import LAYOUTS

RAGGED = (1, 15, 16, 17, 33)
MOST_OVER = 0.03
# Q4_K and Q5_K keep 16 bytes for the 12 that hold scales of 6 bits, IQ4_XS 8 for 6; every other format has just its bytes.
LARGER = {"Q4_K": 4, "Q5_K": 4, "IQ4_XS": 2}
PAIRS = [(isa, fmt) for isa in HERE for fmt in (ALL if isa == BEST else ("Q8_0", "Q5_0", "Q4_K", "IQ4_XS", "F16"))]


def unpack(quants: np.ndarray, scales: np.ndarray, fmt: str, isa: str) -> np.ndarray:
    """uint8[rows, row_bytes] from the planes, for all rows of all panels."""
    panels = len(quants)
    if fmt in DENSE:
        return quants.reshape(panels, -1, LANES, DENSE[fmt]).swapaxes(1, 2).reshape(panels * LANES, -1)
    layout, plane, size = LAYOUTS[fmt], BLOCKS[fmt], FORMATS[fmt].nbytes
    q = quants.reshape(panels, -1, plane.quants // 64, LANES, 4)
    s = scales.reshape(panels, -1, plane.scales)
    raw = np.zeros((panels, q.shape[1], LANES, size), np.uint8)
    known = np.zeros(size, bool)

    def put(at: int, values: np.ndarray) -> None:
        assert not known[at : at + values.shape[-1]].any()
        known[at : at + values.shape[-1]] = True
        raw[..., at : at + values.shape[-1]] = values

    words = [q[:, :, v] ^ 0x80 if layout.wide and ISAS[isa].unsigned else q[:, :, v] for v in range(len(layout.words))]
    assert (fmt in _CHANGED) == (layout.change is not None)
    for at, word in zip(layout.words, _CHANGED.get(fmt, lambda words: words)(words), strict=True):
        put(at, word)
    for h, at in enumerate(layout.halves):
        put(at, s[:, :, 32 * h : 32 * h + 32].reshape(panels, -1, LANES, 2))
    small = s[:, :, 32 * len(layout.halves) :].reshape(panels, q.shape[1], -1, LANES).swapaxes(2, 3)
    for at, values in _SMALL.get(fmt, lambda small: [])(small):
        put(at, values)
    assert known.all()
    return raw.swapaxes(1, 2).reshape(panels * LANES, -1)


def gathered(word: np.ndarray) -> np.ndarray:
    """4 bytes whose bit 4g + j was bit g of byte j."""
    bits = np.unpackbits(np.ascontiguousarray(word), axis=-1, bitorder="little").reshape(*word.shape[:-1], 4, 8)
    return np.packbits(bits.swapaxes(-1, -2).reshape(*word.shape[:-1], 32), axis=-1, bitorder="little")


def _fifth_apart(words: list[np.ndarray]) -> list[np.ndarray]:
    return [*words[:-1], gathered(words[-1])]


def _low_and_high(words: list[np.ndarray]) -> list[np.ndarray]:
    """(low, low, high) of Q6_K from three weights whole and the fourth in their upper bits."""
    found = []
    for one, two, three in zip(words[::3], words[1::3], words[2::3], strict=True):
        four = one >> 6 | (two >> 6) << 2 | (three >> 6) << 4
        v = [one & 63, two & 63, three & 63, four]
        high = (v[0] >> 4) | (v[1] >> 4) << 2 | (v[2] >> 4) << 4 | (v[3] >> 4) << 6
        found += [v[0] & 15 | (v[2] & 15) << 4, v[1] & 15 | (v[3] & 15) << 4, high]
    return found


_CHANGED = {"Q5_0": _fifth_apart, "Q5_1": _fifth_apart, "Q6_K": _low_and_high}


def _six_bits(small: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The 12 bytes at offset 4 from 8 scales and 8 minima."""
    scale, least = small[..., :8], small[..., 8:]
    assert max(scale.max(), least.max()) < 64
    return [
        (4, scale[..., :4] | (scale[..., 4:] >> 4) << 6),
        (8, least[..., :4] | (least[..., 4:] >> 4) << 6),
        (12, scale[..., 4:] & 15 | (least[..., 4:] & 15) << 4),
    ]


def _six_bits_iq4(small: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """2 bytes of high bits at 2 and 4 of low nibbles at 4, from 8 scales less 32."""
    value = (small.view(np.int8).astype(np.int16) + 32).astype(np.uint16)
    high = ((value >> 4) << (2 * np.arange(8, dtype=np.uint16))).sum(axis=-1, dtype=np.uint16)
    low = (value & 15).astype(np.uint8)
    return [(2, np.ascontiguousarray(high[..., None]).view(np.uint8)), (4, low[..., ::2] | low[..., 1::2] << 4)]


_SMALL = {
    "Q2_K": lambda small: [(0, small)],
    "Q3_K": lambda small: [(96, small)],
    "Q4_K": _six_bits,
    "Q5_K": _six_bits,
    "Q6_K": lambda small: [(192, small)],
    "IQ4_XS": _six_bits_iq4,
}


def _raw(fmt: str, n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, 3 * FORMATS[fmt].nbytes * (32 if fmt in DENSE else 1)), dtype=np.uint8)


@pytest.mark.parametrize(("isa", "fmt"), PAIRS)
def test_every_byte_comes_back_and_rows_past_the_last_are_zero(isa: str, fmt: str) -> None:
    for n in RAGGED:
        raw = _raw(fmt, n)
        quants, scales = packed(raw, fmt, isa, fill=0xFF)
        np.testing.assert_array_equal(unpack(quants, scales, fmt, isa)[:n], raw)
        # as in memory that was zero: nothing but a row's own lanes is written for it, and lanes past n are cleared
        there = np.arange(len(quants) * LANES) < n
        for plane, widths in ((quants, [DENSE.get(fmt, 4)]), (scales, _scale_widths(fmt))):
            assert not plane[~_touched(plane.shape[1], widths, there)].any()


def _scale_widths(fmt: str) -> list[int]:
    """Bytes of a lane in each run of 16 lanes of the scale plane of a block."""
    if fmt in DENSE:
        return []
    halves = len(LAYOUTS[fmt].halves)
    return [2] * halves + [1] * ((BLOCKS[fmt].scales - 32 * halves) // LANES)


def _touched(width: int, widths: list[int], there: np.ndarray) -> np.ndarray:
    """bool[panels, width]: which bytes of a plane belong to rows that exist."""
    rows = there.reshape(-1, LANES)
    run = [np.repeat(rows, each, axis=1) for each in widths]
    one = np.concatenate(run, axis=1) if run else np.zeros((len(rows), 1), bool)
    return np.tile(one, (1, -(-width // one.shape[1])))[:, :width]


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_planes_are_at_most_three_percent_over_the_file(fmt: str) -> None:
    quants, scales = packed(finite_blocks(fmt, 32, 2), fmt, BEST)
    size = 32 * 2 * FORMATS[fmt].nbytes
    assert quants.nbytes + scales.nbytes == size + 32 * 2 * LARGER.get(fmt, 0)
    assert quants.nbytes + scales.nbytes <= (1 + MOST_OVER) * size


@pytest.mark.parametrize("fmt", ["Q4_K", "Q8_0", "Q5_1"])
def test_rows_may_start_at_odd_addresses(fmt: str) -> None:
    raw = _raw(fmt, 16)
    shifted = np.empty(raw.nbytes + 1, np.uint8)[1:].reshape(raw.shape)
    shifted[:] = raw
    for one, other in zip(packed(raw, fmt, BEST), packed(shifted, fmt, BEST), strict=True):
        np.testing.assert_array_equal(one, other)
