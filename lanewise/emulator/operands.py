"""Operands as an instruction prints them, read as the types that its row of the table names, and results written back.

A read is a function of `Waves` that gives an array [waves, lanes], or [waves, 1] for what is the same in every lane; it is made once.
Packed types have the two numbers in front, [2, waves, lanes], or are a list of two where they are registers; dots of small integers have them
behind, [waves, lanes, 4].
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.emulator.fault import limit
from lanewise.emulator.registers import FLAT, M0, NULL, SCALAR, TTMP, VCC, XNACK, Array, Waves, bits, lanes_of
from lanewise.isa.assembly import Instruction

__all__ = ["ACCUMULATORS", "Operand", "Read", "Via", "mixed", "operand", "packed", "read", "words"]

Read = Callable[[Waves], Any]
Via = Callable[[Read], Read] | None
ACCUMULATORS = 256  # where they lie among the vector registers
_NAMES = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "m0": (M0, 1), "null": (NULL, 1), "flat_scratch": (FLAT, 2),
          "flat_scratch_lo": (FLAT, 1), "flat_scratch_hi": (FLAT + 1, 1), "xnack_mask": (XNACK, 2)}  # fmt: skip
_EXEC = {"exec": 0, "exec_lo": 0, "exec_hi": 1}
_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(\.[lh])?$")
# The constants that a float has no other word for, as what they are in 64 bits (AMD's ISA guides, "inline constants").
_WIDE = {"0.15915494309189532": 0x3FC45F306DC9C882, "0.15915494": 0x3FC45F306DC9C882}
_NUMPY: dict[str, Any] = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "bf16": np.uint16,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64, "u8": np.uint8, "i8": np.int8,
}  # fmt: skip
HALVES = ("u16", "i16", "f16", "bf16")
WIDE = ("u64", "i64", "f64")
PACKED = {"f16x2": "f16", "i16x2": "i16", "u16x2": "u16", "bf16x2": "bf16"}
DOTS = ("i8x4", "iu8x4", "u8x4", "i4x8", "iu4x8", "u4x8")


@dataclass(frozen=True, slots=True)
class Operand:
    """kind: "v", "s", "const", "exec", "scc", "off" or "word" (anything that is no register or number).

    first, count: registers, in the numbering of `Waves`; value: a number as printed; negative, absolute, extended: around it; half: 0, 1 or None
    """

    kind: str
    text: str
    first: int = 0
    count: int = 1
    value: int | float = 0
    negative: bool = False
    absolute: bool = False
    extended: bool = False
    half: int | None = None

    def registers(self) -> range:
        """Numbers for the set of what an instruction reads or writes."""
        begin = self.first + (SCALAR if self.kind == "s" else 0)
        return range(begin, begin + self.count) if self.kind in "vs" and self.first != NULL + SCALAR else range(0)


def operand(text: str) -> Operand:
    """One operand as printed."""
    negative = absolute = extended = False
    bare = text
    if found := re.fullmatch(r"neg\((.*)\)", bare):
        bare, negative = found[1], True
    if re.match(r"-(v|s|a|\||abs|ttmp|vcc|m0|exec|src)", bare) or re.fullmatch(r"-\(.*\)", bare):
        bare, negative = bare[1:].strip("()"), True
    if found := re.fullmatch(r"\|(.*)\||abs\((.*)\)", bare):
        bare, absolute = found[1] or found[2], True
    if found := re.fullmatch(r"sext\((.*)\)", bare):
        bare, extended = found[1], True
    around = {"negative": negative, "absolute": absolute, "extended": extended}
    if found := _REGISTER.match(bare):
        kind, one, low, high, half = found.groups()
        first = int(one or low)
        count = 1 if one else int(high or low) - first + 1
        base = {"v": 0, "a": ACCUMULATORS, "s": 0, "ttmp": TTMP}[kind]
        which = {None: None, ".l": 0, ".h": 1}[half]
        return Operand("v" if kind in "va" else "s", text, base + first, count, half=which, **around)
    if bare in _NAMES:
        return Operand("s", text, *_NAMES[bare], **around)
    if bare in _EXEC:
        return Operand("exec", text, _EXEC[bare], 2 if bare == "exec" else 1, **around)
    if bare in ("scc", "src_scc"):
        return Operand("scc", text)
    if bare == "off":
        return Operand("off", text)
    number = _number(bare)
    return Operand("word", text) if number is None else Operand("const", text, value=number, **around)


def _number(text: str) -> int | float | None:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def constant(one: Instruction, source: Operand, kind: str) -> int:
    """The bits that a printed number is for a type: floats that are inline are of the operand's own type, a literal is 32 bits of it."""
    value = source.value
    if isinstance(value, float):
        if kind in ("f64", "u64", "i64", "b64"):
            return _WIDE.get(source.text, struct.unpack("<Q", struct.pack("<d", value))[0])
        if kind in ("f16", "u16", "i16", "f16x2"):  # of packed integers a number is one of 32 bits (LLVM, getInlineEncodingV2I16)
            return int(np.float16(value).view(np.uint16))
        if kind in ("bf16", "bf16x2"):
            return int(np.float32(value).view(np.uint32)) >> 16
        return int(np.float32(value).view(np.uint32))
    if not -(2**31) <= value < 2**32:
        raise limit(one, f"constant of {value}")
    if kind == "f64":  # a literal is the upper half; what is inline is an integer
        return value << 32 if value > 64 else value & (2**64 - 1)
    if kind in ("u64", "i64", "b64"):
        return (value - 2**32 if kind == "i64" and value >= 2**31 else value) & (2**64 - 1)
    return value & 0xFFFFFFFF


def words(one: Instruction, source: Operand, kind: str = "u32") -> list[Read]:
    """Every 32-bit word of a register operand or number, uint32. kind: what a number is of."""
    if source.kind == "v":
        return [_vector(source.first + number) for number in range(source.count)]
    if source.kind == "s":
        return [_scalar(source.first + number) for number in range(source.count)]
    if source.kind == "exec":
        return [_exec(source.first + number) for number in range(source.count)]
    if source.kind == "const":
        value = np.full((1, 1), constant(one, source, kind) & 0xFFFFFFFF, np.uint32)
        return [lambda w: value]
    if source.kind == "scc":
        return [lambda w: w.scc.astype(np.uint32)]
    raise limit(one, f"operand {source.text!r} here")


def _vector(register: int) -> Read:
    return lambda w: w.v[register]


def _scalar(register: int) -> Read:
    if register == NULL:
        zero = np.zeros((1, 1), np.uint32)
        return lambda w: zero
    return lambda w: w.s[register]


def _exec(word: int) -> Read:
    return lambda w: bits(w.exec)[:, word : word + 1]


def read(one: Instruction, source: Operand, kind: str, *, half: int = 0, wave: int = 32, signed: bool = True, via: Via = None) -> Read:
    """A source as one of the table's types, with what is printed around it.

    half: which one of a 16-bit type, where the name does not say; signed: integers whose type leaves it open; via: what becomes of each word first
    """
    if kind in ("mask", "scc"):
        return _mask(one, source, kind, wave)
    plain = _plain(one, source, kind, source.half if source.half is not None else half, signed, via)
    return _around(one, source, kind, plain)


def _around(one: Instruction, source: Operand, kind: str, plain: Read) -> Read:
    if not (source.negative or source.absolute):
        return plain
    if kind == "bf16":
        return lambda w: _bf16(plain(w), source)
    if kind not in ("f16", "f32", "f64"):
        raise limit(one, f"sign of a source of type {kind}")
    if source.negative and source.absolute:
        return lambda w: -np.abs(plain(w))
    return (lambda w: -plain(w)) if source.negative else (lambda w: np.abs(plain(w)))


def _bf16(value: Array, source: Operand) -> Array:
    value = value & np.uint16(0x7FFF) if source.absolute else value
    return value ^ np.uint16(0x8000) if source.negative else value


def _plain(one: Instruction, source: Operand, kind: str, half: int, signed: bool, via: Via = None) -> Read:
    if source.kind == "const" and kind not in DOTS and via is None:
        return _fixed(one, source, kind, half)
    parts = words(one, source, kind)
    if via is not None:
        parts = [via(part) for part in parts]
    if kind in WIDE:
        return _joined(one, source, parts, _NUMPY[kind])
    if kind in ("b96", "b128"):
        return lambda w: np.stack(np.broadcast_arrays(*[part(w) for part in parts]))
    word = parts[0]
    if kind in HALVES:
        half_type = _NUMPY[kind]
        return lambda w: word(w).view(half_type)[:, half::2]
    if kind in DOTS:
        return _small(word, kind, signed)
    dtype = _NUMPY.get(kind)
    if dtype is None:
        raise limit(one, f"type {kind}")
    if dtype is np.uint32:
        return word
    return lambda w: word(w).view(dtype)


def _fixed(one: Instruction, source: Operand, kind: str, half: int) -> Read:
    raw = constant(one, source, kind)
    if kind in WIDE:
        value = np.full((1, 1), raw, np.uint64).view(_NUMPY[kind])
    elif kind in HALVES:
        value = np.full((1, 1), raw >> 16 * half & 0xFFFF, np.uint16).view(_NUMPY[kind])
    else:
        value = np.full((1, 1), raw, np.uint32).view(_NUMPY[kind])
    return lambda w: value


def _joined(one: Instruction, source: Operand, parts: list[Read], dtype: Any) -> Read:
    if len(parts) != 2:
        raise limit(one, f"64-bit source in {source.text}")
    low, high = parts

    def pair(w: Waves) -> Array:
        first = low(w)
        both = np.empty((*first.shape, 2), np.uint32)
        both[..., 0] = first
        both[..., 1] = high(w)
        return both.view(dtype)[..., 0]

    return pair


def _small(word: Read, kind: str, signed: bool) -> Read:
    """Integers of 8 or 4 bits; `signed` decides where the type leaves it open."""
    dtype = np.uint8 if kind.startswith("u") or (kind.startswith("iu") and not signed) else np.int8
    if kind.endswith("x4"):
        return lambda w: np.ascontiguousarray(word(w)).view(dtype).reshape(*word(w).shape, 4)

    def nibbles(w: Waves) -> Array:
        value = np.ascontiguousarray(word(w))
        raw = value.view(np.uint8).reshape(*value.shape, 4)
        each = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*value.shape, 8)
        return ((each ^ 8).astype(np.int8) - np.int8(8)) if dtype is np.int8 else each

    return nibbles


def packed(one: Instruction, source: Operand, kind: str, low: int, high: int, negative: tuple[bool, bool], via: Via = None) -> Read:
    """Two numbers in one: which half of the source each result takes, and whether with its sign changed. via: as of `read`"""
    if kind == "f32x2":
        if via is not None:
            raise limit(one, "lanes of other lanes here")
        return _two_floats(one, source, low, high, negative)
    element = PACKED[kind]
    if source.kind in "vs" and (low, high) == (0, 1) and via is None and not (source.negative or any(negative)):  # as they lie
        (word,) = words(one, source)
        return lambda w: _pairs(word(w), _NUMPY[element])
    halves = [_plain(one, source, element, which, True, via) for which in (low, high)]
    raw = constant(one, source, kind) if source.kind == "const" else 0
    if source.kind == "const":  # the number is one of 32 bits, whose upper half is mostly 0
        values = [np.full((1, 1), raw >> 16 * which & 0xFFFF, np.uint16).view(_NUMPY[element]) for which in (low, high)]
        halves = [lambda w, value=value: value for value in values]  # type: ignore[misc]
    signs = [Operand("const", "", negative=bool(source.negative) != sign) for sign in negative]
    reads = [_around(one, sign, element, half) for sign, half in zip(signs, halves, strict=True)]
    return lambda w: np.stack((reads[0](w), reads[1](w)))


def _pairs(word: Array, dtype: Any) -> Array:
    return word.view(dtype).reshape(*word.shape, 2).transpose(2, 0, 1)


def _two_floats(one: Instruction, source: Operand, low: int, high: int, negative: tuple[bool, bool]) -> Read:
    parts = words(one, source)
    if source.kind == "const":
        parts = parts * 2
    reads = [parts[which] for which in (low, high)]

    signs = [Operand("const", "", negative=sign) for sign in negative]
    floats = [_around(one, sign, "f32", _float(read)) for sign, read in zip(signs, reads, strict=True)]
    return lambda w: [each(w) for each in floats]


def _float(word: Read) -> Read:
    return lambda w: word(w).view(np.float32)


def mixed(one: Instruction, source: Operand, half: int | None, negative: bool, absolute: bool, via: Via = None) -> Read:
    """A source of v_fma_mix: float32, or a half of float16 (half 0 or 1) widened. via: as of `read`"""
    value = _plain(one, source, "f32" if half is None else "f16", half or 0, True, via)
    sign = Operand("const", "", negative=negative, absolute=absolute)
    return _around(one, sign, "f32", lambda w: value(w).astype(np.float32, copy=False))


def _mask(one: Instruction, source: Operand, kind: str, wave: int) -> Read:
    if kind == "scc":
        return lambda w: w.scc
    if source.kind == "s":
        first = source.first
        return lambda w: w.mask(first)
    if source.kind == "exec":
        return lambda w: w.exec
    if source.kind == "const":
        raw = constant(one, source, "i64" if wave == 64 else "u32")
        value = lanes_of([np.full((1, 1), raw >> 32 * word & 0xFFFFFFFF, np.uint32) for word in range(wave // 32)], wave)
        return lambda w: value
    raise limit(one, f"mask in {source.text}")
