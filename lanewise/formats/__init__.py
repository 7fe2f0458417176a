"""GGUF block formats: sizes, dequantize, quantize. `pack` and `activations` beside this file serve the devices.

>>> get("Q4_K").row_bytes(512), by_ggml_type(12).name
(288, 'Q4_K')
"""

from lanewise.errors import FormatError
from lanewise.formats.floats import BF16, F16, F32
from lanewise.formats.format import Format
from lanewise.formats.iq4 import IQ4_NL, IQ4_XS
from lanewise.formats.kquants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from lanewise.formats.legacy import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0

__all__ = ["FORMATS", "Format", "by_ggml_type", "get"]

FORMATS: dict[str, Format] = {f.name: f for f in (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS)}
_BY_TYPE = {f.ggml_type: f for f in FORMATS.values()}

# The rest of ggml's types (enum ggml_type in ggml.h), so that a refusal can say the name.
_OTHER_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip


def get(name: str) -> Format:
    """The format of that name, in capitals or not. Raises FormatError, listing what exists, for any other."""
    found = FORMATS.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise FormatError(f"unknown format {name!r}; formats: {', '.join(FORMATS)}")
    return found


def by_ggml_type(number: int) -> Format:
    """The format with that number in GGUF files. Raises FormatError, naming the type where ggml has one, for any other."""
    found = _BY_TYPE.get(number)
    if found is None:
        kind = f"{_OTHER_TYPES[number]} (ggml type {number})" if number in _OTHER_TYPES else f"ggml type {number}"
        known = ", ".join(f"{f.name} ({f.ggml_type})" for f in FORMATS.values())
        raise FormatError(f"{kind} is not supported; supported: {known}")
    return found
