"""What a mutant is: a piece of a source that is replaced by another, and the cases that reach it."""

from dataclasses import dataclass

__all__ = ["KINDS", "Mutant", "of"]

# What such mistakes are in real kernels.
KINDS = (
    "mask of a load", "mask of a store", "value outside", "bound by one", "tail of k", "address", "stride", "neighbour's scale", "sign of a minimum",
    "rounding", "operand dropped", "order of sums", "lanes of a wave", "signs of a dot", "arithmetic", "guard", "expert",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """name: in words; kernel: whose; kind: one of KINDS
    module: whose text is changed, below `lanewise`; old, new: the text, which stands there `count` times, and what stands in its place
    op: a module of `prove` with cases; words: what a case's name must have to be asked, most: how many are asked, the smallest first
    equivalent: why it cannot be told from the kernel, in words, where that is so
    """

    name: str
    kernel: str
    kind: str
    module: str
    old: str
    new: str
    op: str
    words: tuple[str, ...] = ()
    most: int = 3
    count: int = 1
    equivalent: str = ""

    def changed(self, text: str) -> str:
        """The module's text with the mistake. Raises ValueError where the catalogue is behind the source."""
        if text.count(self.old) != self.count or self.old == self.new:
            raise ValueError(f"{self.name}: {self.module} has the text {text.count(self.old)} times and not {self.count}: {self.old[:60]!r}")
        return text.replace(self.old, self.new)


def of(kernel: str, module: str, op: str, *rows: tuple[str, ...], words: tuple[str, ...] = (), most: int = 3) -> tuple[Mutant, ...]:
    """Mutants of one kernel in one module: (kind, name, old, new), and more words of cases."""
    return tuple(Mutant(row[1], kernel, row[0], module, row[2], row[3], op, (*row[4:], *words), most) for row in rows)
