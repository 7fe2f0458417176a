"""An instruction of the table as a function of waves: sources read as their types, the table's function, results written under EXEC."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lanewise.arch import Arch
from lanewise.emulator.fault import limit
from lanewise.emulator.lanemoves import dpp, sub_dword
from lanewise.emulator.modifiers import Modifiers
from lanewise.emulator.operands import DOTS, HALVES, PACKED, WIDE, Operand, Read, Via, mixed, operand, packed, read
from lanewise.emulator.registers import MODE, SCALAR, VCC, Array, Waves
from lanewise.emulator.step import Step, registers
from lanewise.isa.assembly import Instruction

__all__ = ["alu", "base"]

Write = Callable[[Waves, Array, bool], None]
_EIGHTHS = ("_fp8_f32", "_bf8_f32")  # what clamp is to others the mode is to these
_SIXTEEN = (("f16",), ("f16x2",), ("f16hi",))  # results that can be too large for 16 bits


def base(mnemonic: str) -> str:
    """The name without its encoding.

    >>> base("v_add_f32_e64_dpp"), base("v_dual_fmac_f32"), base("v_cvt_f32_f16_sdwa")
    ('v_add_f32', 'v_fmac_f32', 'v_cvt_f32_f16')
    """
    return re.sub(r"(_e32|_e64|_dpp|_sdwa)+$", "", mnemonic).replace("v_dual_", "v_")


def alu(one: Instruction, op: Any, row: Arch, bounded: bool = False) -> Step:
    """op: a row of the table (name, dst, src, run); bounded: whether somewhere the mode is changed that says what float16 does that overflows."""
    given = Modifiers(one)
    found = [operand(text) for text in one.operands]
    if op.name.startswith("v_cmpx"):
        op, found = _into_exec(op, found)
    shown = [kind for kind in op.dst if kind != "scc"]
    targets, sources = found[: len(shown)], found[len(shown) :]
    sources = _completed(one, op, targets, sources, row)
    moved, written = dpp(one, given, row.wave) if _is_dpp(one) else (None, None)
    reads, half = _reads(one, op, sources, given, row, moved)
    run = op.run
    eighths = op.clamp is not None and op.name.endswith(_EIGHTHS)
    if op.clamp is not None and not eighths and given.flag("clamp"):
        run = op.clamp
    if op.takes:
        run = partial(run, **{name: given.number(name) for name in op.takes})
    after = _finished(one, op, given)
    bounded = bounded and (op.dst[:1] in _SIXTEEN or eighths)
    to_exec = any(target.kind == "exec" for target in targets)
    writes = _writes(one, op, targets, given, row, half)
    given.done()
    touched = registers(targets) | registers(sources)
    if len(writes) == 1 and written is None and after is None and not bounded:
        return Step(one, _single(run, reads, writes[0]), touched)

    def step(w: Waves) -> None:
        args = [one(w) for one in reads]
        results = run(*args)
        results = results if isinstance(results, tuple) else (results,)
        if bounded:
            results = (np.where(w.s[MODE] == 1, op.clamp(*args), results[0]) if eighths else _within(results[0], args, w.s[MODE]),)
        if after is not None:
            results = (after(results[0]), *results[1:])
        if written is None:
            for write, result in zip(writes, results, strict=True):
                write(w, result, not any(result is arg for arg in args))
            return
        before, full = w.exec, w.full
        w.exec, w.full = before & written(w), False
        for write, result in zip(writes, results, strict=True):
            write(w, result, False)
        if to_exec:
            before[...] = w.exec
            full = w.full
        w.exec, w.full = before, full

    return Step(one, step, touched | {SCALAR + MODE} if bounded else touched)


def _into_exec(op: Any, found: list[Operand]) -> tuple[Any, list[Operand]]:
    """A comparison into EXEC; what is older writes a mask as well."""
    if len(found) == len(op.src):
        return op, [operand("exec"), *found]
    return replace(op, dst=("mask", "mask"), run=lambda *args: (op.run(*args),) * 2), [found[0], operand("exec"), *found[1:]]


def _within(result: Any, args: list[Any], mode: Array) -> Any:
    """Where the mode says so what overflows float16 is its largest number; what is infinite because a source was stays so."""
    most = np.copysign(np.finfo(np.float16).max, result)
    there = np.isinf(result) & (mode == 1)
    for arg in args:
        if isinstance(arg, list) or arg.dtype.kind == "f":
            there = there & np.isfinite(arg)
    return np.where(there, most, result)


def _single(run: Callable[..., Any], reads: list[Read], write: Write) -> Callable[[Waves], None]:
    """The usual case without a loop."""
    if len(reads) == 1:
        (first,) = reads

        def unary(w: Waves) -> None:
            a = first(w)
            result = run(a)
            write(w, result, result is not a)

        return unary
    if len(reads) == 2:
        left, right = reads

        def binary(w: Waves) -> None:
            a, b = left(w), right(w)
            result = run(a, b)
            write(w, result, result is not a and result is not b)

        return binary

    def several(w: Waves) -> None:
        args = [one(w) for one in reads]
        result = run(*args)
        write(w, result, not any(result is arg for arg in args))

    return several


def _is_dpp(one: Instruction) -> bool:
    return "_dpp" in one.mnemonic


def _completed(one: Instruction, op: Any, targets: list[Operand], sources: list[Operand], row: Arch) -> list[Operand]:
    """With the sources that are not printed: VCC, SCC, or what the destination holds."""
    made: list[Operand] = []
    left = list(sources)
    missing = sum(kind != "scc" for kind in op.src) - len(left)
    for number, kind in enumerate(op.src):
        last = number == len(op.src) - 1 or all(k == "scc" for k in op.src[number + 1 :])
        if kind == "scc":
            made.append(Operand("scc", "scc"))
        elif left and not (missing and last):
            made.append(left.pop(0))
        elif missing == 1 and last:
            made.append(Operand("s", "vcc", VCC, row.wave // 32) if kind == "mask" else targets[0])
        else:
            raise limit(one, f"form with {len(sources)} sources of {op.name}")
    if left:
        raise limit(one, f"form with {len(sources)} sources of {op.name}")
    return made


def _reads(one: Instruction, op: Any, sources: list[Operand], given: Modifiers, row: Arch, moved: Via) -> tuple[list[Read], int]:
    """Of every source, and which half of a 16-bit destination is meant."""
    count = len(op.src)
    several = any(kind in PACKED or kind in DOTS or kind in ("f32x2", "mix") for kind in op.src)
    low = given.bits("op_sel", 0, count + 1)
    high = given.bits("op_sel_hi", 0 if "mix" in op.src else 1, count) if several else []
    signs = [given.bits(name, 0, count) for name in ("neg_lo", "neg_hi")] if several else []
    made = []
    for number, (kind, source) in enumerate(zip(op.src, sources, strict=True)):
        via = moved if number == 0 else None
        if "_sdwa" in one.mnemonic and f"src{number}_sel" in given:
            via = sub_dword(one, given.word(f"src{number}_sel"), source.extended)
        elif source.extended:
            raise limit(one, "sext() here")
        if low[number] and kind not in (*HALVES, *PACKED, "f32x2", "mix"):
            raise limit(one, f"op_sel of source {number}")
        if kind == "mix":
            half = low[number] if high[number] else None
            made.append(mixed(one, source, half, bool(signs[0][number]) != source.negative, bool(signs[1][number]) or source.absolute, via))
        elif kind in PACKED or kind == "f32x2":
            made.append(packed(one, source, kind, low[number], high[number], (bool(signs[0][number]), bool(signs[1][number])), via))
        elif kind in DOTS:
            made.append(read(one, source, kind, signed=bool(signs[0][number]), via=via))
        else:
            if several and (signs[0][number] or signs[1][number]):
                raise limit(one, f"sign of source {number}")
            made.append(read(one, source, kind, half=low[number] if kind in HALVES else 0, wave=row.wave, via=via))
    return made, low[count]


def _finished(one: Instruction, op: Any, given: Modifiers) -> Callable[[Array], Array] | None:
    """What clamp and the output modifiers do to the first result."""
    kind = op.dst[0] if op.dst else ""
    scale = {"": 1.0, "2": 2.0, "4": 4.0}[given.word("mul")] * {"": 1.0, "2": 0.5}[given.word("div")]
    clamp = given.flag("clamp")
    if not clamp and scale == 1.0:
        return None
    if kind not in ("f32", "f16", "f64", "f16x2", "f32x2", "f16hi"):
        raise limit(one, f"clamp of {kind}")

    def after(result: Any) -> Any:
        if isinstance(result, list):
            return [after(part) for part in result]
        result = result * result.dtype.type(scale) if scale != 1.0 else result
        if clamp:  # NaN becomes 0 (DX10_CLAMP, which Triton asks for)
            zero, top = result.dtype.type(0), result.dtype.type(1)
            result = np.where(result > zero, np.minimum(result, top), zero)
        return result

    return after


def _writes(one: Instruction, op: Any, targets: list[Operand], given: Modifiers, row: Arch, half: int) -> list[Write]:
    left, made = list(targets), list[Write]()
    keeps = row.keeps_half or op.keeps
    if half and not any(kind in HALVES for kind in op.dst):
        raise limit(one, "op_sel of the result")
    for kind in op.dst:
        if kind == "scc":
            made.append(_write_scc)
            continue
        target = left.pop(0)
        if "_sdwa" in one.mnemonic and kind != "mask":
            made.append(_sdwa_write(one, target, kind, given))
        elif kind == "mask":
            made.append(_mask_write(one, target))
        elif target.kind == "v":
            made.append(_vector_write(one, target, kind, half if target.half is None else target.half, keeps))
        else:
            made.append(_scalar_write(one, target, kind))
    return made


def _write_scc(w: Waves, value: Array, ours: bool) -> None:
    w.scc[...] = value


def _mask_write(one: Instruction, target: Operand) -> Write:
    if target.kind == "exec":
        return lambda w, value, ours: w.set_exec(value & w.exec)
    if target.kind != "s":
        raise limit(one, f"mask in {target.text}")
    first = target.first
    return lambda w, value, ours: w.put_mask(first, value)


def _scalar_write(one: Instruction, target: Operand, kind: str) -> Write:
    wide = kind in WIDE
    if target.kind == "exec" and target.first == 0 and (target.count == 2) == wide:
        return lambda w, value, ours: w.put_exec(_halves(value) if wide else [_raw(value, kind)])
    if target.kind != "s" or target.count != (2 if wide else 1):
        raise limit(one, f"{kind} result in {target.text}")
    first = target.first
    if not wide:
        return lambda w, value, ours: w.put_scalar(first, _raw(value, kind))

    def pair(w: Waves, value: Array, ours: bool) -> None:
        for number, word in enumerate(_halves(_typed(value, kind))):
            w.put_scalar(first + number, word)

    return pair


_DTYPES: dict[str, Any] = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64, "f64": np.float64, "u16": np.uint16, "i16": np.int16,
    "f16": np.float16, "bf16": np.uint16, "f16hi": np.float16,
}  # fmt: skip


def _typed(value: Array, kind: str) -> Array:
    dtype = _DTYPES[kind]
    return value if value.dtype == dtype else value.astype(dtype)


def _raw(value: Array, kind: str) -> Array:
    typed = _typed(value, kind)
    return typed.view(np.uint16).astype(np.uint32) if kind in HALVES else typed.view(np.uint32)


def _halves(value: Array) -> list[Array]:
    """Lower and upper words of 64 bits."""
    both = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
    return [both[..., 0], both[..., 1]]


def _vector_write(one: Instruction, target: Operand, kind: str, half: int, keeps: bool) -> Write:
    first = target.first
    if kind in ("u32", "i32", "f32"):
        dtype = _DTYPES[kind]

        def whole(w: Waves, value: Array, ours: bool) -> None:
            if value.dtype != dtype:
                w.put(first, value.astype(dtype).view(np.uint32), True)
            else:
                w.put(first, value.view(np.uint32), ours and value.base is None)

        return whole
    if kind in WIDE:

        def pair(w: Waves, value: Array, ours: bool) -> None:
            for number, word in enumerate(_halves(_typed(value, kind))):
                w.put(first + number, word, False)

        return pair
    if kind == "f32x2":

        def floats(w: Waves, value: Array, ours: bool) -> None:
            # what was only moved may be a register that the first of the two writes overwrites
            for number, part in enumerate([part if part.base is None else part.copy() for part in value]):
                w.put(first + number, part.view(np.uint32), ours)

        return floats
    if kind in PACKED:
        dtype = _DTYPES[PACKED[kind]]

        def two(w: Waves, value: Array, ours: bool) -> None:
            raw = value.astype(dtype, copy=False).view(np.uint16).astype(np.uint32)
            w.put(first, raw[0] | raw[1] << np.uint32(16), True)

        return two
    if kind in ("b96", "b128"):

        def many(w: Waves, value: Array, ours: bool) -> None:
            for number, word in enumerate(value):
                w.put(first + number, word, False)

        return many
    return _half_write(one, first, kind, 1 if kind == "f16hi" else half, keeps or "mix" in one.mnemonic or half == 1)


def _half_write(one: Instruction, first: int, kind: str, half: int, keeps: bool) -> Write:
    if kind not in _DTYPES:
        raise limit(one, f"result of type {kind}")

    def write(w: Waves, value: Array, ours: bool) -> None:
        raw = _typed(value, kind).view(np.uint16)
        if not keeps:
            w.put(first, raw.astype(np.uint32), True)
            return
        halves = w.v[first].view(np.uint16)[:, half::2]
        if w.full:
            halves[...] = raw
        else:
            np.copyto(halves, raw, where=w.exec)

    return write


def _sdwa_write(one: Instruction, target: Operand, kind: str, given: Modifiers) -> Write:
    select, unused = given.word("dst_sel", "DWORD"), given.word("dst_unused", "UNUSED_PAD")
    if unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE") or target.kind != "v" or target.count != 1:
        raise limit(one, f"SDWA destination {unused}")
    sub_dword(one, select, False)
    first, narrow = target.first, kind in HALVES
    size, _, number = select.partition("_")
    bits = {"DWORD": 32, "WORD": 16, "BYTE": 8}[size]
    shift, field = bits * int(number or 0), (1 << bits) - 1

    def write(w: Waves, value: Array, ours: bool) -> None:
        value = _typed(value, kind)
        word = value.view(np.uint16).astype(np.uint32) if narrow else value.view(np.uint32)
        if bits < 32:
            word = (word & np.uint32(field)) << np.uint32(shift)
            if unused == "UNUSED_PRESERVE":
                word = word | w.v[first] & np.uint32(~(field << shift) & 0xFFFFFFFF)
            elif unused == "UNUSED_SEXT":
                word = (word.view(np.int32) << (32 - bits - shift) >> (32 - bits - shift)).view(np.uint32)
        w.put(first, word, False)

    return write
