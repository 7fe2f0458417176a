"""What every instruction computes, one line each: `lookup` finds it by name for a target.

Memory, branches, waits, lanes and the matrix units are elsewhere; what is nowhere is refused by name.
"""

from dataclasses import replace

from lanewise.arch import Arch
from lanewise.emulator.op import Op
from lanewise.emulator.table_compare import COMPARISONS
from lanewise.emulator.table_convert import CONVERSIONS, eighth_conversions
from lanewise.emulator.table_float import FLOATS
from lanewise.emulator.table_int import INTEGERS
from lanewise.emulator.table_packed import PACKED_OPS, dot2_bf16_last
from lanewise.emulator.table_scalar import SCALARS
from lanewise.errors import EmulatorLimitError

__all__ = ["OPS", "Op", "lookup"]

OPS: dict[str, Op] = {**INTEGERS, **FLOATS, **COMPARISONS, **CONVERSIONS, **PACKED_OPS, **SCALARS}
_OLDER = eighth_conversions(older=True)


def lookup(name: str, row: Arch) -> Op:
    """The instruction of that name, without its encoding, as the target runs it. Raises EmulatorLimitError for what the table does not have.

    >>> from lanewise.arch import parse
    >>> lookup("v_add_f32", parse("gfx1100")).src
    ('f32', 'f32')
    """
    found = OPS.get(name)
    if found is None:
        raise EmulatorLimitError(f"instruction {name} of {row.name}: it is not in the emulator's table")
    if row.matrix == "mfma" and name in ("v_dot2_f32_bf16", "v_dot2c_f32_bf16"):
        return replace(found, run=dot2_bf16_last)
    if row.negative_zero_is_nan and name in _OLDER:
        return _OLDER[name]
    return found
