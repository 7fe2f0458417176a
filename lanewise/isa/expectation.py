"""What can be declared of a kernel's machine code."""

from dataclasses import dataclass

__all__ = ["ADDRESSES", "ANY", "NONE", "PRODUCTS", "SCALED", "VECTOR_BYTES", "Expectation", "Range"]


@dataclass(frozen=True, slots=True)
class Range:
    """least to most, where most is None without an end; a `step` above 1: least + any multiple of it."""

    least: int = 0
    most: int | None = None
    step: int = 1

    def __contains__(self, count: int) -> bool:
        return count >= self.least and (self.most is None or count <= self.most) and (count - self.least) % self.step == 0

    def __str__(self) -> str:
        if self.most == self.least:
            return str(self.least)
        words = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
        return words + f" by {self.step}" * (self.step > 1)


NONE, ANY = Range(0, 0), Range()
VECTOR_BYTES = 16
# Multiplications by the integer scales and minima of a tile and a token, four words a lane: each of 8 units has a scale a word, and in groups of 16
# columns too, as a word lies in one; of minima a word has one, and of nibbles two.
SCALED = {"half": 0, "half+min": 0, "bytes": 32, "bytes+min": 36, "nibbles+min": 40}
ADDRESSES = 16  # products of 24 bits, or of 32 on NVIDIA, that addresses and tails take
PRODUCTS = 8  # products of 32 bits that AMD's kernels are allowed: of scalars they are not counted, so what is left are addresses


@dataclass(frozen=True, slots=True)
class Expectation:
    """dot:     which instruction the products are made of, None where they are not made of dots
    dots:       how many of it; every other dot is one too many, and so is one that the compiler made by itself
    matrix:     instructions of the matrix unit
    fast, slow: integer products of 24 bits and of others, which scales and addresses need; `slow` is on vectors alone
    wide, other: loads from memory of 16 bytes, and of fewer
    waves:      of a SIMD at least, of AMD
    stack:      bytes of a thread's stack at most, of NVIDIA; on AMD nothing may lie in memory
    """

    dot: str | None = None
    dots: Range = NONE
    matrix: Range = NONE
    fast: Range = ANY
    slow: Range = ANY
    wide: Range = ANY
    other: Range = ANY
    waves: int = 1
    stack: int = 0
