"""One line of the instruction table, and small ways to write many."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Op", "alias", "ops"]


@dataclass(frozen=True, slots=True)
class Op:
    """name: without the encoding; dst, src: types of results and sources; run: arrays [waves, lanes] or [waves, 1] in, an array or a tuple out.

    Types are u32 i32 f32 u64 i64 f64 and u16 i16 f16 bf16 (bits, uint16). `f16x2` and its like have the two in front, [2, waves, lanes]; `f32x2`
    is a list of two; `i8x4`, `iu8x4` (signed or not, as neg_lo says), `i4x8` have them behind. `mix` is a float32 that was a half or not. `mask`: a
    bool of every lane; `scc`: a bool of every wave, never printed; `f16hi`: written into the upper half. What is not printed comes last: VCC, SCC, or
    what the destination holds.

    takes: modifiers that run wants by name; clamp: run where the instruction says clamp and the result is an integer
    keeps: a 16-bit result leaves the other half as it was also where the target mostly clears it
    """

    name: str
    dst: tuple[str, ...]
    src: tuple[str, ...]
    run: Callable[..., Any]
    takes: tuple[str, ...] = ()
    clamp: Callable[..., Any] | None = None
    keeps: bool = False


def ops(dst: str, src: str, table: dict[str, Callable[..., Any]], takes: str = "") -> dict[str, Op]:
    """Instructions whose operands have the same types."""
    kinds, sources, names = tuple(dst.split()), tuple(src.split()), tuple(takes.split())
    # what gfx9 added with a choice of halves (three sources of 16 bits) keeps the other half there too; what is older clears it (LLVM, AMDGPU)
    keeps = kinds[0][-2:] == "16" and len(sources) == 3 and "mask" not in sources
    return {name: Op(name, kinds, sources, run, names, None, keeps and "legacy" not in name) for name, run in table.items()}


def alias(table: dict[str, Op], names: dict[str, str]) -> dict[str, Op]:
    """The same instructions by the names that other generations have for them."""
    return {new: replace(table[old], name=new, keeps=table[old].keeps and "legacy" not in new) for new, old in names.items()}
