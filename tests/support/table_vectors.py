"""One instruction on random and special numbers, by the emulator's table and by AMD's pseudocode, and where they differ."""

import math
import re
import zlib

import numpy as np

from lanewise.emulator.table import lookup

from .pseudocode import Bits, integer, texts
from .pseudocode_run import Lane

_DTYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "bf16": np.uint16,
           "u64": np.uint64, "i64": np.int64, "f64": np.float64, "f16hi": np.float16}  # fmt: skip
_SPECIAL = {
    16: (0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3800, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01, 0xFE55, 0x7FFF, 0xFFFF, 0x4100),
    32: (0, 1 << 31, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x3FC00000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
         0x7FC00000, 0x7F800001, 0xFFA00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x4F000000, 0xCF000000, 0x4B800001, 31, 32, 0x00100004),
    64: (0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000, 0x3FE0000000000000, 0x7FEFFFFFFFFFFFFF,
         0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001, (1 << 63) - 1, (1 << 64) - 1, 0x41E0000000000000, 63, 64),
}  # fmt: skip
# What hardware approximates: the text names the function, and a result may be this many units in the last place away (AMD's ISA guides).
_APPROXIMATE = ("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos")
_ULPS = 2


def _size(kind):
    return 32 if kind in ("mask", "scc", "mix") or re.search(r"x[48]$", kind) else 64 if kind == "f32x2" else int(re.search(r"\d+", kind)[0]) * (
        2 if kind.endswith("x2") else 1)  # fmt: skip


def _raw(kind, number, rng, place):
    """Bits of a source for so many lanes: every special number, in another order for each source, and random ones of all and of usual sizes."""
    if kind in ("mask", "scc"):
        return rng.integers(0, 2, number).astype(np.uint64)
    size = _size(kind)
    part = 32 if kind == "f32x2" else 16 if kind.endswith("x2") else size
    chosen = np.zeros(number, np.uint64)
    for shift in range(0, size, part):
        bits = rng.integers(0, 1 << 32, number, np.uint64) << np.uint64(32) | rng.integers(0, 1 << 32, number, np.uint64)
        bits &= np.uint64((1 << part) - 1)
        if kind.startswith(("f", "mix")):
            usual = rng.standard_normal(number) * 2.0 ** rng.integers(-6, 12, number)
            dtype = {16: np.float16, 32: np.float32, 64: np.float64}[part]
            plain = usual.astype(dtype).view({16: np.uint16, 32: np.uint32, 64: np.uint64}[part]).astype(np.uint64)
            bits = np.where(np.arange(number) % 3 != 0, plain, bits)
        special = np.array(_SPECIAL[part], np.uint64)
        few = number // 2
        bits[:few] = special[(np.arange(few) * (1, 5, 7)[place % 3] + place * 3) % len(special)]
        chosen |= bits << np.uint64(shift)
    return chosen


def _typed(kind, raw, signed):
    """As the emulator reads it, [1, lanes]."""
    if kind in ("mask", "scc"):
        return (raw == 1)[None]
    if kind.endswith("x2"):
        base, part = kind[:-2], 32 if kind == "f32x2" else 16
        halves = [(raw >> np.uint64(shift) & np.uint64((1 << part) - 1)).astype({16: np.uint16, 32: np.uint32}[part]) for shift in (0, part)]
        return np.stack([half.view(_DTYPES[base])[None] for half in halves])
    if found := re.match(r"(i|u|iu)([48])x([48])$", kind):
        width, count = int(found[2]), int(found[3])
        parts = np.stack([raw >> np.uint64(width * at) & np.uint64((1 << width) - 1) for at in range(count)], -1).astype(np.uint8)[None]
        if found[1] == "u" or (found[1] == "iu" and not signed):
            return parts
        return parts.view(np.int8) if width == 8 else (parts.astype(np.int8) ^ 8) - np.int8(8)
    kind = "f32" if kind == "mix" else kind
    unsigned = {16: np.uint16, 32: np.uint32, 64: np.uint64}[_size(kind)]
    return raw.astype(unsigned).view(_DTYPES[kind])[None]


def _bits(kind, value, number):
    """A result as integers, one a lane."""
    if kind in ("mask", "scc"):
        return np.broadcast_to(value, (1, number))[0].astype(np.uint64)
    if kind.endswith("x2"):
        low, high = (np.broadcast_to(one, (1, number))[0] for one in value)
        part = 32 if kind == "f32x2" else 16
        unsigned = np.uint32 if part == 32 else np.uint16
        return low.view(unsigned).astype(np.uint64) | high.view(unsigned).astype(np.uint64) << np.uint64(part)
    value = np.ascontiguousarray(np.broadcast_to(value, (1, number))[0])
    return value.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize]).astype(np.uint64)


def _parts(kind, raw):
    """The floats in a result, or None where it has none."""
    base = kind[:-2] if kind.endswith("x2") else kind
    if not base.startswith(("f", "bf")):
        return None
    base = "f16" if base == "f16hi" else base
    width = _size(base)
    letter = "bf" if base == "bf16" else "f"
    return [Bits(letter, width, raw >> shift & (1 << width) - 1) for shift in range(0, _size(kind), width)]


def same(name, kind, ours, theirs):
    """Whether two results are one: to the bit, but any NaN is any NaN, and near where hardware approximates."""
    if ours == theirs:
        return True
    mine, its = _parts(kind, ours), _parts(kind, theirs)
    if mine is None:
        return False
    for a, b in zip(mine, its, strict=True):
        if a.raw == b.raw or (math.isnan(a.number) and math.isnan(b.number)):
            continue
        if not any(f"v_{one}_" in name or f"_{one}_" in name for one in _APPROXIMATE) or a.width == 64:
            return False
        if not (math.isfinite(a.number) and math.isfinite(b.number)):
            return False
        spacing = np.spacing({16: np.float16, 32: np.float32}[a.width](b.number))
        if abs(a.number - b.number) > _ULPS * abs(float(spacing)):
            return False
    return True


def differences(generation, name, row, lanes=48, signed=True, judged=lambda given: True):
    """[(type, source bits, ours, theirs)] of one instruction, in lanes that `judged` takes. Raises NotUnderstoodError where the text has no rule."""
    op, text = lookup(name, row), texts(generation)[name]
    rng = np.random.default_rng(zlib.crc32(f"{name}".encode()))
    raw = [_raw(kind, lanes, rng, place) for place, kind in enumerate(op.src)]
    if len(raw) > 1 and op.src[0] == op.src[1]:  # equal, one less, and what carries
        mask, one, at = np.uint64((1 << _size(op.src[0])) - 1), np.uint64(1), lanes // 2
        for number, change in enumerate((lambda x: x, lambda x: ~x & mask, lambda x: x - one & mask, lambda x: ~x + one & mask)):
            few = slice(at + 2 * number, at + 2 * number + 2)
            raw[1][few] = change(raw[0][few])
        if op.src[-1] in ("mask", "scc"):
            raw[-1][at : at + 8] = np.arange(8) % 2
    if "ldexp" in name:  # the text multiplies by a power that it rounds to the type first
        size = {16: 14, 32: 126, 64: 1022}[_size(op.src[0])]
        raw[1] = (raw[1].astype(np.int64) % (2 * size) - size).astype(np.uint64) & np.uint64((1 << _size(op.src[1])) - 1)
    extra = {"bitop3": 0x6A} if op.takes else {}
    with np.errstate(all="ignore"):
        results = op.run(*[_typed(kind, one, signed) for kind, one in zip(op.src, raw, strict=True)], **extra)
    results = results if isinstance(results, tuple) else (results,)
    ours = [_bits(kind, one, lanes) for kind, one in zip(op.dst, results, strict=True)]
    wrong = []
    for lane in range(lanes):
        given = [int(one[lane]) for one in raw]
        if not judged(given):
            continue
        found = theirs(generation, text, op, given, signed)
        for kind, mine, its in zip(op.dst, ours, found, strict=True):
            if not same(name, kind, int(mine[lane]), its):
                wrong.append((kind, [hex(one) for one in given], hex(int(mine[lane])), hex(its)))
    return wrong


def theirs(generation, text, op, given, signed):
    """The pseudocode's results, in the order of the table's."""
    first = next(kind for kind in op.src if kind not in ("mask", "scc"))
    names = {
        "D0": Bits("b", 64, 0), "D1": Bits("b", 64, 0), "VCC": Bits("b", 64, 0), "EXEC": Bits("b", 64, 0), "SCC": Bits("u", 1, 0),
        "laneId": integer("i", 32, 0), "OPSEL": integer("u", 3, 0), "OPSEL_HI": integer("u", 3, 0 if "mix" in op.src else 7),
        "NEG": integer("u", 3, 3 * signed), "NEG_HI": integer("u", 3, 0), "ROUND_MODE": integer("u", 2, 0), "SIZE": _size(first),
        "INST.OMOD": integer("u", 2, 1), "INST.ABS": integer("u", 3, 5), "INST.NEG": integer("u", 3, 2),
    }  # fmt: skip
    place = 0
    for kind, value in zip(op.src, given, strict=True):
        if kind == "mask":
            names["VCC"] = Bits("b", 64, value)
        elif kind == "scc":
            names["SCC"] = Bits("u", 1, value)
        else:
            register = f"S{place}"
            if place == 1 and "fmamk" in op.name:
                register = "SIMM32"
            elif place == 2:
                register = "S1" if "fmamk" in op.name else "SIMM32" if "fmaak" in op.name else "S2"
            if register not in text and "S[i]" not in text and place == len(op.src) - 1 - ("scc" in op.src):
                register = "D0"
            names[register] = Bits("b", max(32, _size(kind)), value)
            place += 1
    if "div_scale" in op.name:  # what is not scaled stays the first source
        names["D0"] = names["S0"]
    names["S"] = [names.get(f"S{number}", Bits("b", 32, 0)) for number in range(3)]
    lane = Lane(generation, names)
    lane.run(text)
    lane.names["D0"] = lane.names.get("D", lane.names["D0"])
    found = []
    for number, kind in enumerate(op.dst):
        if kind == "scc":
            found.append(lane.names["SCC"].raw & 1)
        elif kind == "mask":
            register = "D1" if "D1" in text else "EXEC" if "EXEC" in text else "D0" if number == 0 else "VCC"
            found.append(lane.names[register].raw & 1)
        else:
            found.append(lane.names["D0"].raw >> 16 * kind.endswith("hi") & (1 << _size(kind.removesuffix("hi"))) - 1)
    return found
