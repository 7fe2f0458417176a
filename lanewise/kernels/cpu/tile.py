"""A tile of a product while it is emitted: some tokens by some panels of 16 rows, and where their operands are.

The tile stands at one block of k. Vectors of w are loaded per panel, activations broadcast per token. What a format computes from
weights alone passes through `once`: a panel that many tiles will multiply is walked first by a tile of no tokens, which keeps
those vectors; the tiles behind it read them back in the same order instead of unpacking again.
"""

from collections.abc import Iterator

from lanewise.formats.iq4 import VALUES
from lanewise.kernels.cpu.dots import dot2, dot4, lookup16
from lanewise.kernels.cpu.emit import Emitter, Value
from lanewise.kernels.cpu.records import field_offset

__all__ = ["AHEAD", "KEPT_BYTES", "Ints", "Kept", "Tile"]

Ints = list[list[Value]]  # [panels][tokens]
AHEAD = {"quants": 4096, "scales": 1024}  # bytes between what is read and what is asked for, as measured
KEPT_BYTES = 24  # of a panel, at most, for each column of a quantized w


class Kept:
    """Vectors computed from the weights of a panel, one after the other from `address` on: written once, then read by every tile."""

    def __init__(self, e: Emitter, address: Value, *, write: bool) -> None:
        self._e, self.writes = e, write
        self._place = e.variable(address)

    def next(self, value: Value) -> Value:
        """`value`, written to the next place; or what was written there."""
        place = self._e.get(self._place)
        self._e.set(self._place, self._e.add(place, 64))
        if not self.writes:
            return self._e.load(value.type, place)
        self._e.store(value, place)
        return value


class Tile:
    """acc[panel][token] are float32[16] sums so far; a block's `multiply` replaces them."""

    def __init__(self, e: Emitter, activation: str, quants: list[Value], scales: list[Value], x: Value, acc: Ints, kept: Kept | None = None) -> None:
        """quants, scales: addresses of this block in the planes of each panel; x: of this block's records of the tile's tokens."""
        self.e, self.acc = e, acc
        self.panels, self.tokens = len(acc), len(acc[0])
        self._asked: set[tuple[str, int, int]] = set()
        self._activation, self._quants, self._scales, self._x, self._kept = activation, quants, scales, x, kept

    def once(self, value: Value) -> Value:
        """64 bytes that depend on weights alone. Where they were kept, what computes `value` is dead code that LLVM removes."""
        return self._kept.next(value) if self._kept else value

    def steps(self, outer: int, inner: int) -> Iterator[tuple[Value, int, Value]]:
        """The groups of a block in order, as (i, j, i * inner + j): a loop over i with j unrolled. The first two are for the weights.

        Where weights were kept, one loop over the last, which is for x, two at a time: the second's dots run while the first's sums are
        scaled, and with more the compiler would run out of registers. What the first two would compute is dead code there.
        """
        if self._kept and not self._kept.writes:
            assert outer * inner % 2 == 0, "the groups of a block are read back in pairs"
            with self.e.loop(outer * inner // 2) as pair:
                for j in (0, 1):
                    yield self.e.index(0), 0, self.e.add(self.e.mul(pair, 2), j)
        else:
            with self.e.loop(outer) as i:
                for j in range(inner):
                    yield i, j, self.e.add(self.e.mul(i, inner), j)

    # weights

    def quants(self, panel: int, offset: int, moved: Value | int = 0) -> Value:
        """64 bytes of the quant plane."""
        address = self.e.add(self._quants[panel], moved)
        self._ahead("quants", panel, address, offset)
        return self.e.ints(address, offset)

    def scale_half(self, panel: int, offset: int) -> Value:
        """16 float16 scales."""
        self._ahead("scales", panel, self._scales[panel], offset)
        return self.e.halves(self._scales[panel], offset)

    def scale_byte(self, panel: int, offset: int, moved: Value | int = 0) -> Value:
        """16 uint8 of the scale plane, as int32."""
        address = self.e.add(self._scales[panel], moved)
        self._ahead("scales", panel, address, offset)
        return self.e.bytes_unsigned(address, offset)

    def _ahead(self, plane: str, panel: int, address: Value, offset: int) -> None:
        """Ask for the line that will be read some blocks later; once for each line of a plane, and only where memory is the limit."""
        line = (plane, panel, offset // 64)
        if self.tokens == 1 and line not in self._asked:
            self._asked.add(line)
            self.e.prefetch(address, offset + AHEAD[plane])

    def scale_byte_float(self, panel: int, offset: int, moved: Value | int = 0, factor: float = 1.0) -> Value:
        """16 uint8 as float32, times a power of two."""
        value = self.e.to_float(self.scale_byte(panel, offset, moved))
        return value if factor == 1.0 else self.e.b.fmul(value, self.e.all_floats(factor))

    def scale_signed_float(self, panel: int, offset: int, moved: Value | int = 0) -> Value:
        """16 int8 as float32."""
        return self.e.to_float(self.e.bytes_signed(self.e.add(self._scales[panel], moved), offset))

    def iq4_values(self, indices: Value) -> Value:
        """The 16 levels of IQ4, 128 added where 8-bit weights are unsigned."""
        added = 128 if self.e.isa.unsigned else 0
        return lookup16(self.e, [(int(v) + added) & 255 for v in VALUES], indices)

    # activations

    def x_float(self, token: int, name: str) -> Value:
        """A float32 field of the token's record, in all lanes."""
        return self.e.splat_float(self._x, self._word(token, field_offset(self._activation, name)))

    def x_int(self, token: int, name: str, offset: int = 0, moved: Value | int = 0) -> Value:
        """An int32 of a field, in all lanes; offsets in bytes."""
        return self.e.splat_int(self._moved(moved), self._word(token, field_offset(self._activation, name) + offset))

    def _word(self, token: int, offset: int) -> int:
        """Where the word at `offset` of a token's record is (`records.py`)."""
        return self.tokens * offset + 4 * token

    def _moved(self, offset: Value | int) -> Value:
        return self._x if isinstance(offset, int) and offset == 0 else self.e.add(self._x, self.e.mul(self.e.index(offset), self.tokens))

    # integer sums

    def zeros(self) -> Ints:
        return [[self.e.all_ints(0)] * self.tokens for _ in range(self.panels)]

    def start(self, name: str, offset: int = 0, moved: Value | int = 0) -> Ints:
        """Sums that start at what the weights' added offset will have to be corrected by."""
        begin = [self.x_int(i, name, offset, moved) for i in range(self.tokens)]
        return [list(begin) for _ in range(self.panels)]

    def dot(self, dots: Ints, w: list[Value], k: int, *, base: Value | int = 0, wide: bool = False) -> None:
        """dots += w . x[base + k .. + 3] for every token and panel."""
        w = [self.once(v) for v in w]
        for i in range(self.tokens):
            x = self.e.splat_int(self._moved(base), self._word(i, k))
            for r in range(self.panels):
                dots[r][i] = dot4(self.e, dots[r][i], w[r], x, wide=wide)

    def dot_minima(self, totals: Ints, panel: int, even: Value, odd: Value, name: str, offset: int, moved: Value | int = 0) -> None:
        """totals += minima of two neighbouring groups . their sums, int16 at `offset` bytes of field `name`."""
        pairs = self.once(self.e.or_(even, self.e.shl(odd, 16)))
        for i in range(self.tokens):
            totals[panel][i] = dot2(self.e, totals[panel][i], pairs, self.x_int(i, name, offset, moved))

    # sums that live across a loop

    def float_variables(self) -> Ints:
        return [[self.e.variable(self.e.all_floats(0.0)) for _ in range(self.tokens)] for _ in range(self.panels)]

    def values(self, variables: Ints) -> Ints:
        return [[self.e.get(v) for v in row] for row in variables]
