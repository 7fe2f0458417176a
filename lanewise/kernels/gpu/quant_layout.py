"""How quantized weights lie in a GPU's memory: the file's blocks cut anew, so that a lane loads 16 bytes and finds what it multiplies.

A tile is 16 rows of w by 256 columns, and its record is a run of int32 words. Panels (16 rows each) follow one another; within a panel its tiles
do, in the order of k. Row 8h + g of a tile belongs to lanes 4g..4g+3; column 32u + 16p + 4c + j to lane 4g + c: unit u, byte j of the lane's word
e = 2h + p. So A_u, the codes of unit u as bytes, is [8 g, 4 c, 2 h, 2 p] words, which is how the matrix units that multiply bytes want them.

A record is, in this order:

quants   vectors of [8 g, 4 c, 2 h, 2 p] words, 512 bytes each. A vector holds b bits of the codes of 8/b units: byte j of a word has unit 8/b * i + t
         at its bits b * t, for vector i. So b bits take b vectors. Of "iq4" a word's nibbles go otherwise: the lower half has four neighbours of one
         unit, the upper half four of the next, for a lookup takes four nibbles at a time.
high     the bits above those, as vectors of the same kind: the fifth bit (1 vector), bits 4 and 5 (2), of "s3" bit 2 (1).
scales   vectors of [8 g, 2 h, 8 bytes], 128 bytes each. A row's scales are a string of bytes, of which vector i has bytes 8i..8i+7:
           half          fp16 d of the 8 units           half+min      the same, and then fp16 m of the 8 units
           bytes         a signed byte a group           bytes+min     an unsigned byte a group, and then the minima alike
           nibbles+min   a byte a group, the scale in its lower and the minimum in its upper nibble
         A group is `group` columns.
tail     [8 g, 2 h] of the fp16 d of the row and the block or, with minima, of d and dmin. None where scales are "half".

Codes of "u" are unsigned; those of "s" have their topmost bit flipped, which makes two's complement of them once they stand at the top of a byte:
there they are 2^shift times too large, and the kernels make d smaller by that. "s8" is signed bytes already, "iq4" an index into a table.

Rows past n and columns past k are fields of zero bytes, as if the file had them, so their weights are zero. Of gated weights (n gates, then
n ups) panel i has gates 8i..8i+7 as h = 0 and ups 8i..8i+7 as h = 1, side by side in a lane.
"""

from dataclasses import dataclass

from lanewise.errors import FormatError
from lanewise.formats import FORMATS

__all__ = ["BLOCK", "LAYOUTS", "ROWS", "Layout", "layout_of"]

ROWS, BLOCK = 16, 256  # of a tile


@dataclass(frozen=True, slots=True)
class Layout:
    """The record of a format's tile.

    code:       what the codes are: "u" or "s" and their bits, or "iq4"
    quants, high, scales: how many vectors
    tail:       how many words
    scale:      what a row's scales are
    group:      columns that have a scale of their own
    shift:      the kernels' codes are 2^shift times too large
    activation: how x is quantized in front of the multiply
    """

    format: str
    code: str
    quants: int
    high: int
    scales: int
    tail: int
    scale: str
    group: int
    shift: int
    activation: str

    @property
    def record(self) -> int:
        """Words of a tile."""
        return 128 * (self.quants + self.high) + 32 * self.scales + self.tail

    @property
    def flip(self) -> int:
        """The bits in which a stored code differs from the file's: the topmost, where codes are stored + 2^(bits - 1)."""
        return 1 << 7 - self.shift if self.shift else 0


LAYOUTS: dict[str, Layout] = {
    layout.format: layout
    for layout in (
        #       format  code  quants high scales tail  scale      group shift activation
        Layout("Q8_0", "s8", 8, 0, 2, 0, "half", 32, 0, "q8_0"),
        Layout("Q4_0", "s4", 4, 0, 2, 0, "half", 32, 4, "q8_0"),
        Layout("Q4_1", "u4", 4, 0, 4, 0, "half+min", 32, 0, "q8_0"),
        Layout("Q5_0", "s5", 4, 1, 2, 0, "half", 32, 3, "q8_0"),
        Layout("Q5_1", "u5", 4, 1, 4, 0, "half+min", 32, 0, "q8_0"),
        Layout("IQ4_NL", "iq4", 4, 0, 2, 0, "half", 32, 0, "q8_0"),
        Layout("Q2_K", "u2", 2, 0, 2, 16, "nibbles+min", 16, 0, "q8_k"),
        Layout("Q3_K", "s3", 2, 1, 2, 8, "bytes", 16, 5, "q8_k"),
        Layout("Q4_K", "u4", 4, 0, 2, 16, "bytes+min", 32, 0, "q8_k"),
        Layout("Q5_K", "u5", 4, 1, 2, 16, "bytes+min", 32, 0, "q8_k"),
        Layout("Q6_K", "s6", 4, 2, 2, 8, "bytes", 16, 2, "q8_k"),
        Layout("IQ4_XS", "iq4", 4, 0, 1, 8, "bytes", 32, 0, "q8_k"),
    )
}


def layout_of(fmt: str) -> Layout:
    """The layout of a format's name, in capitals or not. Raises FormatError, naming those that have one, for any other."""
    name = fmt.upper() if isinstance(fmt, str) else None
    if name in LAYOUTS:
        return LAYOUTS[name]
    what = f"{name} is not quantized, and is multiplied as it is" if name in FORMATS else f"{fmt!r} has no layout for GPUs"
    raise FormatError(f"{what}; quantized weights can be packed of {', '.join(LAYOUTS)}")
