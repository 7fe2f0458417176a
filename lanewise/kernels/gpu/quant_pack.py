"""GGUF blocks to the tiles that `quant_layout.py` describes, and back to the file's bytes exactly. Torch ops alone, on whatever device raw lies.

Each step stands beside its inverse.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lanewise.errors import FormatError, ShapeError
from lanewise.formats import get
from lanewise.formats.format import Format
from lanewise.kernels.gpu.quant_blocks import join_block, split_block
from lanewise.kernels.gpu.quant_layout import BLOCK, ROWS, Layout, layout_of

__all__ = ["QuantWeight", "pack", "unpack"]

_PIECE = 4096  # tiles handled at a time: their codes are 16 MB, and up to five arrays of about that size are alive at once


@dataclass(frozen=True, slots=True, eq=False)
class QuantWeight:
    """w[n,k] of a quantized format (gated: n gates, n ups) in tiles: int32 [panels, blocks, record]; of experts [experts, panels, blocks, record].

    panels = ceil(n / 16) (gated: ceil(n / 8)), blocks = ceil(k / 256). Raises FormatError for a format without a layout, and ShapeError for tiles
    that are not that, or a k that is no whole number of the format's blocks.
    """

    format: str
    n: int
    k: int
    gated: bool
    tiles: torch.Tensor

    def __post_init__(self) -> None:
        layout, t = layout_of(self.format), self.tiles
        if self.format != layout.format:  # in small letters; whoever compares names finds the format's own
            object.__setattr__(self, "format", layout.format)
        if not isinstance(self.gated, bool) or not isinstance(self.n, int) or not isinstance(self.k, int):
            raise ShapeError(f"{self.format}: n={self.n!r}, k={self.k!r}, gated={self.gated!r}; they have to be two whole numbers, and True or False")
        if self.n < 0 or self.k < 0 or self.k % get(self.format).block:
            raise ShapeError(
                f"{self.format}: n={self.n}, k={self.k}; both are at least 0, and k is a whole number of blocks of {get(self.format).block}"
            )
        want = [_panels(self.n, self.gated), -(-self.k // BLOCK), layout.record]
        if not isinstance(t, torch.Tensor) or t.dtype != torch.int32 or t.dim() not in (3, 4) or list(t.shape[-3:]) != want or not t.is_contiguous():
            raise ShapeError(
                f"{self.format}: tiles are {_described(t)}; of {'gated ' * self.gated}n={self.n}, k={self.k} they are contiguous int32 {want}, "
                "or that for each expert"
            )

    @property
    def layout(self) -> Layout:
        return layout_of(self.format)

    @property
    def experts(self) -> int:
        """0 where tiles have no such dimension."""
        return self.tiles.shape[0] if self.tiles.dim() == 4 else 0

    @property
    def rows(self) -> int:
        """Of the file: of gated weights gates and ups."""
        return 2 * self.n if self.gated else self.n

    @property
    def nbytes(self) -> int:
        """Bytes of the tiles, padding included."""
        return self.tiles.numel() * self.tiles.element_size()

    @property
    def device(self) -> torch.device:
        return self.tiles.device


def pack(raw: torch.Tensor, fmt: str, gated: bool = False) -> QuantWeight:
    """The blocks of raw uint8 [rows, row_bytes] or [experts, rows, row_bytes], any strides, as tiles on the same device; any bytes come back.

    Of `gated` the first half of the rows are gates, and the others ups. Memory beside raw and the tiles stays below 128 MB. Raises FormatError for a
    format without a layout, and for rows that are no whole number of blocks; ShapeError for another dtype or shape, and an odd number of gated rows.
    """
    layout = layout_of(fmt)
    form = get(layout.format)
    if not isinstance(raw, torch.Tensor) or raw.dtype != torch.uint8 or raw.dim() not in (2, 3):
        raise ShapeError(f"{form.name}: raw is {_described(raw)}; it must be uint8 [rows, row_bytes] or [experts, rows, row_bytes]")
    rows, row_bytes = raw.shape[-2:]
    if row_bytes % form.nbytes:
        raise FormatError(f"{form.name}: a row of {row_bytes} bytes is not a whole number of blocks of {form.nbytes} bytes")
    if not isinstance(gated, bool):
        raise ShapeError(f"{form.name}: gated={gated!r}; it has to be True or False")
    if gated and rows % 2:
        raise ShapeError(f"{form.name}: {rows} rows of gated weights; they are n gates and then n ups")
    n, k = rows // 2 if gated else rows, row_bytes // form.nbytes * form.block
    tiles = torch.empty((*raw.shape[:-2], _panels(n, gated), -(-k // BLOCK), layout.record), dtype=torch.int32, device=raw.device)
    packed = QuantWeight(form.name, n, k, gated, tiles)
    for sides, panels, record in _pieces(raw, packed):
        record.copy_(_records(_blocks(sides, form, panels, record.shape[2]), layout))
    return packed


def unpack(w: QuantWeight) -> torch.Tensor:
    """The bytes that `pack` was given, uint8 [rows, row_bytes] or [experts, rows, row_bytes], contiguous."""
    raw = torch.empty((*w.tiles.shape[:-3], w.rows, get(w.format).row_bytes(w.k)), dtype=torch.uint8, device=w.device)
    for sides, _, record in _pieces(raw, w):
        _put_blocks(_unrecorded(record, w.layout), sides)
    return raw


def _pieces(raw: torch.Tensor, w: QuantWeight) -> Iterator[tuple[torch.Tensor, int, torch.Tensor]]:
    """Views of both in step, at most _PIECE tiles each, whole panels and whole experts where they fit: (rows, panels, record).

    Rows are uint8 [experts, sides, rows, bytes]: of gated weights there are two sides, and each gives a panel half of its rows. Records are uint8
    [experts, panels, tiles, bytes].
    """
    tiles = (w.tiles if w.tiles.dim() == 4 else w.tiles[None]).view(torch.uint8)
    sides = torch.unflatten(raw if raw.dim() == 3 else raw[None], 1, (2 if w.gated else 1, w.n))
    rows, step = ROWS // sides.shape[1], _tile_bytes(get(w.format))
    experts, panels, blocks = tiles.shape[:3]
    wide = max(1, min(blocks, _PIECE))
    high = max(1, min(panels, _PIECE // wide))
    many = max(1, min(experts, _PIECE // (wide * high)))
    for e, p, b in itertools.product(range(0, experts, many), range(0, panels, high), range(0, blocks, wide)):
        record = tiles[e : e + many, p : p + high, b : b + wide]
        yield sides[e : e + many, :, p * rows : (p + high) * rows, b * step : (b + wide) * step], record.shape[1], record


def _blocks(sides: torch.Tensor, form: Format, panels: int, tiles: int) -> torch.Tensor:
    """[experts, panels, 2 h, 8 g, tiles, blocks of a tile, bytes of a block], those that are not there zero."""
    experts, count, rows, width = sides.shape
    whole = (experts, count, panels * ROWS // count, tiles * _tile_bytes(form))
    if sides.shape != whole:
        short, sides = sides, sides.new_zeros(whole)
        sides[:, :, :rows, :width] = short
    cut = sides.reshape(experts, count, panels, 2 // count, 8, tiles, BLOCK // form.block, form.nbytes)
    return cut.transpose(1, 2).flatten(2, 3)


def _put_blocks(blocks: torch.Tensor, sides: torch.Tensor) -> None:
    count, rows, width = sides.shape[1:]
    whole = torch.unflatten(blocks.flatten(4), 2, (count, 2 // count)).transpose(1, 2).flatten(2, 4)
    sides.copy_(whole[:, :, :rows, :width])


def _tile_bytes(form: Format) -> int:
    """Of one row."""
    return BLOCK // form.block * form.nbytes


def _records(blocks: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The bytes of records [experts, panels, tiles, 4 * record]."""
    codes, scales, tail = split_block(blocks, layout.format)
    units = _in_lanes(codes)
    if layout.flip:
        units ^= layout.flip
    if layout.code == "iq4":
        units = _word_by_word(units)
    vectors = (_vectors(units, bits, at) for bits, at in _planes(layout))
    return torch.cat([*vectors, _by_row(scales, layout.scales), _by_row(tail, 1)], -1)


def _unrecorded(record: torch.Tensor, layout: Layout) -> torch.Tensor:
    planes = _planes(layout)
    *vectors, scales, tail = torch.split(record, [*(512 * bits for bits, _ in planes), 128 * layout.scales, 4 * layout.tail], -1)
    units = _units(vectors[0], *planes[0])
    for more, plane in zip(vectors[1:], planes[1:], strict=True):
        units |= _units(more, *plane)
    if layout.code == "iq4":
        units = _byte_by_byte(units)
    if layout.flip:
        units ^= layout.flip
    return join_block(_in_rows(units), _strings(scales, layout.scales), _strings(tail, 1), layout.format)


def _planes(layout: Layout) -> tuple[tuple[int, int], ...]:
    """(bits of the codes, from which bit on) of the quants and, where there are any, of the high vectors."""
    return ((layout.quants, 0), (layout.high, layout.quants)) if layout.high else ((layout.quants, 0),)


def _in_lanes(codes: torch.Tensor) -> torch.Tensor:
    """[experts, panels, tiles, 8 units, 512] of codes[experts, panels, h, g, tiles, 256]: of a unit (g, c), which is the lane, and then (h, p, j)."""
    return torch.unflatten(codes, -1, (8, 2, 4, 4)).permute(0, 1, 4, 5, 3, 7, 2, 6, 8).flatten(4)


def _in_rows(units: torch.Tensor) -> torch.Tensor:
    return torch.unflatten(units, -1, (8, 4, 2, 2, 4)).permute(0, 1, 6, 4, 2, 3, 7, 5, 8).flatten(5)


def _vectors(units: torch.Tensor, bits: int, at: int) -> torch.Tensor:
    """`bits` bits from bit `at` on of codes[..., 8 units, 512], 8 / bits units a byte: [..., bits * 512]."""
    several = torch.unflatten(units, -2, (bits, 8 // bits))
    found = torch.zeros_like(several[..., 0, :])
    for t in range(8 // bits):
        found |= (several[..., t, :] >> at & (1 << bits) - 1) << bits * t
    return found.flatten(-2)


def _units(vectors: torch.Tensor, bits: int, at: int) -> torch.Tensor:
    vectors = torch.unflatten(vectors, -1, (bits, 512))
    return torch.stack([(vectors >> bits * t & (1 << bits) - 1) << at for t in range(8 // bits)], -2).flatten(-3, -2)


def _word_by_word(units: torch.Tensor) -> torch.Tensor:
    """Codes moved between the two units of a pair, so that of a word of two codes a byte the lower half has the even unit's."""
    pairs = torch.unflatten(torch.unflatten(units, -1, (128, 4)), -3, (4, 2)).movedim(-3, -2)
    return pairs.reshape(*pairs.shape[:-2], 4, 2).movedim(-1, -3).reshape(units.shape)


def _byte_by_byte(units: torch.Tensor) -> torch.Tensor:
    pairs = torch.unflatten(torch.unflatten(units, -1, (128, 4)), -3, (4, 2)).movedim(-3, -1)
    return pairs.reshape(*pairs.shape[:-2], 2, 4).movedim(-2, -3).reshape(units.shape)


def _by_row(strings: torch.Tensor, count: int) -> torch.Tensor:
    """A row's bytes [experts, panels, h, g, tiles, bytes] in `count` vectors of [g, h, bytes / count]."""
    return torch.unflatten(strings, -1, (count, strings.shape[-1] // count)).permute(0, 1, 4, 5, 3, 2, 6).flatten(3)


def _strings(vectors: torch.Tensor, count: int) -> torch.Tensor:
    return torch.unflatten(vectors, -1, (count, 8, 2, vectors.shape[-1] // (16 * count))).permute(0, 1, 5, 4, 2, 3, 6).flatten(5)


def _panels(n: int, gated: bool) -> int:
    return -(-n // (ROWS // 2 if gated else ROWS))


def _described(value: object) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
