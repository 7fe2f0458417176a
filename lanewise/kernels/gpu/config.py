"""How the skinny kernels are cut: what one program does, chosen by a table for each target and shape."""

from dataclasses import dataclass

from lanewise.errors import ShapeError

__all__ = ["BODIES", "Config"]

BODIES = ("lanes", "mma", "fragments", "matrix", "blas")


@dataclass(frozen=True, slots=True)
class Config:
    """One way to run `linear`. Every one is right for every shape; which is fast is what the tables say.

    body:   "lanes" (a sum in float32 in every lane, one reduction at the end),
            "mma" (the same, with the matrix unit in place of the multiplications, two groups at a time),
            "fragments" (the matrix unit for 8 tokens at a time, out of the registers that w is loaded into),
            "matrix" (the matrix unit by way of shared memory, m padded to 16), or
            "blas" (the vendor's library is faster here).
            Where rows do not begin at 16 bytes, or with a norm in front, "mma" is "lanes" and "fragments" the target's default.
    rows:   of w, a program
    tile:   columns of k that a program takes at a time
    warps:  of a program
    ahead:  tiles of w that are loaded before anything else, and held in registers
    splits: programs along k, whose sums a second kernel adds in order
    stages: depth of the software pipeline over the tiles that are left
    groups: of `rows`, a program of lanes or fragments, where no tile is left: any number, so that programs can be as many as fill a card evenly

    Raises ShapeError for what Triton cannot cut.
    """

    body: str
    rows: int = 4
    tile: int = 1024
    warps: int = 4
    ahead: int = 1
    splits: int = 1
    stages: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        if self.body not in BODIES:
            raise ShapeError(f"body {self.body!r} of a configuration; bodies are {', '.join(BODIES)}")
        for name, least, most, power in _RANGES:
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most or (power and value & (value - 1)):
                raise ShapeError(f"{name}={value!r} of a configuration; it takes {'a power of two' if power else 'a number'} from {least} to {most}")
        if self.rows * self.tile > _MOST_ELEMENTS:
            raise ShapeError(f"rows={self.rows}, tile={self.tile} of a configuration; Triton takes tiles of up to {_MOST_ELEMENTS} elements")
        if self.body == "mma" and (self.groups % 2 or self.tile < 256):
            raise ShapeError(f"groups={self.groups}, tile={self.tile} of mma; it takes two groups at a time, and 256 columns or more")
        if self.body == "fragments" and (self.rows, self.tile) != (16, 32 * self.warps):
            raise ShapeError(f"rows={self.rows}, tile={self.tile} of fragments; they have 16 rows and 32 columns a warp, here {32 * self.warps}")
        if self.body == "matrix" and (self.rows < 8 or self.tile < 16):
            raise ShapeError(f"rows={self.rows}, tile={self.tile} of a configuration; a matrix unit takes 8 rows and 16 columns or more")

    def __str__(self) -> str:
        return (
            self.body
            if self.body == "blas"
            else f"{self.body} {self.rows}x{self.tile} warps={self.warps} ahead={self.ahead}"
            + "".join(f" {name}={value}" for name, value in (("splits", self.splits), ("stages", self.stages), ("groups", self.groups)) if value > 1)
        )


_MOST_ELEMENTS = 1 << 20
_RANGES = (
    ("rows", 1, 1024, True),
    ("tile", 16, 32768, True),
    ("warps", 1, 32, True),
    ("ahead", 0, 16, False),
    ("splits", 1, 64, False),
    ("stages", 1, 8, False),
    ("groups", 1, 16, False),
)
