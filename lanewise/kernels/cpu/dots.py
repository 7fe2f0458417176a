"""The one operation that differs by target: the 4-way int8 dot product, 16 lanes at a time.

    acc[lane] += w[4 lane] * x[4 lane] + ... + w[4 lane + 3] * x[4 lane + 3]

w and x are 64 bytes each. x is signed. w is below 128, where signed and unsigned are the same; a weight that needs all 8
bits (`wide`) is unsigned where `isa.unsigned` says so, and signed elsewhere. Every body is exact in int32.

And one that some processors have and no other can stand in for: the 2-way bf16 dot product.
"""

from collections.abc import Callable, Sequence

from llvmlite import ir

from lanewise.kernels.cpu.emit import I1, I8, I16, I32, LANES, VF, VI, Emitter, Value, vector

__all__ = ["EXPECTED", "dot2", "dot2_brain", "dot4", "lookup16"]

# What a disassembler calls the instruction that each body must become.
EXPECTED = {
    "vnni512": "vpdpbusd",
    "vnni256": "vpdpbusd",
    "maddubs256": "vpmaddubsw",
    "maddubs128": "pmaddubsw",
    "usdot": "usdot",
    "sdot": "sdot",
    "portable": None,
}


def dot4(e: Emitter, acc: Value, w: Value, x: Value, *, wide: bool = False) -> Value:
    """acc + the dot products, as int32[16]; `w` and `x` are int32[16] that hold 4 bytes a lane."""
    body, lanes = _BODIES[e.isa.dot]
    if lanes == LANES:
        return body(e, acc, w, x, wide)
    pieces = []
    for start in range(0, LANES, lanes):
        part, of_w, of_x = (_piece(e, v, start, lanes) for v in (acc, w, x))
        pieces.append(body(e, part, of_w, of_x, wide))
    return _join(e, pieces)


def _vnni512(e: Emitter, acc: Value, w: Value, x: Value, wide: bool) -> Value:
    return e.b.call(e.function("llvm.x86.avx512.vpdpbusd.512", VI, [VI] * 3), [acc, w, x])


def _vnni256(e: Emitter, acc: Value, w: Value, x: Value, wide: bool) -> Value:
    return e.b.call(e.function("llvm.x86.avx512.vpdpbusd.256", acc.type, [acc.type] * 3), [acc, w, x])


def _maddubs(name_bytes: str, name_pairs: str, name_sign: str) -> Callable[[Emitter, Value, Value, Value, bool], Value]:
    def body(e: Emitter, acc: Value, w: Value, x: Value, wide: bool) -> Value:
        lanes = acc.type.count
        of_bytes, of_pairs = vector(I8, 4 * lanes), vector(I16, 2 * lanes)
        w, x = e.b.bitcast(w, of_bytes), e.b.bitcast(x, of_bytes)
        if wide:  # pairs of 255 * 127 would saturate: multiply |w| by x with w's sign, at most 128 * 127 each
            x = e.b.call(e.function(name_sign, of_bytes, [of_bytes] * 2), [x, w])
            w = e.b.call(e.function(f"llvm.abs.v{4 * lanes}i8", of_bytes, [of_bytes, I1]), [w, ir.Constant(I1, 0)])
        pairs = e.b.call(e.function(name_bytes, of_pairs, [of_bytes] * 2), [w, x])
        ones = ir.Constant(of_pairs, [1] * (2 * lanes))
        return e.b.add(acc, e.b.call(e.function(name_pairs, acc.type, [of_pairs] * 2), [pairs, ones]))

    return body


def _neon(name: str) -> Callable[[Emitter, Value, Value, Value, bool], Value]:
    def body(e: Emitter, acc: Value, w: Value, x: Value, wide: bool) -> Value:
        of_bytes = vector(I8, 16)
        kinds = [acc.type, of_bytes, of_bytes]
        return e.b.call(e.function(name, acc.type, kinds), [acc, e.b.bitcast(w, of_bytes), e.b.bitcast(x, of_bytes)])

    return body


def _portable(e: Emitter, acc: Value, w: Value, x: Value, wide: bool) -> Value:
    """Shifts and 32-bit products: right everywhere, fast nowhere."""

    def byte(v: Value, j: int) -> Value:
        return e.b.ashr(e.shl(v, 24 - 8 * j), e.all_ints(24))

    for j in range(4):
        acc = e.b.add(acc, e.b.mul(byte(w, j), byte(x, j)))
    return acc


_BODIES: dict[str, tuple[Callable[[Emitter, Value, Value, Value, bool], Value], int]] = {
    "vnni512": (_vnni512, 16),
    "vnni256": (_vnni256, 8),
    "maddubs256": (_maddubs("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx2.psign.b"), 8),
    "maddubs128": (_maddubs("llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd", "llvm.x86.ssse3.psign.b.128"), 4),
    "usdot": (_neon("llvm.aarch64.neon.usdot.v4i32.v16i8"), 4),
    "sdot": (_neon("llvm.aarch64.neon.sdot.v4i32.v16i8"), 4),
    "portable": (_portable, 16),
}


def dot2(e: Emitter, acc: Value, w: Value, x: Value) -> Value:
    """acc[lane] += w[2 lane] * x[2 lane] + w[2 lane + 1] * x[2 lane + 1], as int32[16]; `w` and `x` hold 2 int16 a lane."""
    name, lanes, adds = _PAIRS.get(e.isa.dot, ("", LANES, True))
    if not name:
        half = e.all_ints(16)
        low = e.b.mul(e.b.ashr(e.shl(w, 16), half), e.b.ashr(e.shl(x, 16), half))
        return e.b.add(acc, e.b.add(low, e.b.mul(e.b.ashr(w, half), e.b.ashr(x, half))))
    pieces = []
    for start in range(0, LANES, lanes):
        part, of_w, of_x = (_piece(e, v, start, lanes) for v in (acc, w, x))
        if adds:
            pieces.append(e.b.call(e.function(name, part.type, [part.type] * 3), [part, of_w, of_x]))
        else:
            pairs = vector(I16, 2 * lanes)
            products = e.b.call(e.function(name, part.type, [pairs] * 2), [e.b.bitcast(of_w, pairs), e.b.bitcast(of_x, pairs)])
            pieces.append(e.b.add(part, products))
    return _join(e, pieces)


# name, lanes, and whether the instruction adds to the accumulator
_PAIRS = {
    "vnni512": ("llvm.x86.avx512.vpdpwssd.512", 16, True),
    "vnni256": ("llvm.x86.avx512.vpdpwssd.256", 8, True),
    "maddubs256": ("llvm.x86.avx2.pmadd.wd", 8, False),
    "maddubs128": ("llvm.x86.sse2.pmadd.wd", 4, False),
}


class _Brain(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no type for."""

    def _to_string(self) -> str:
        return "bfloat"


_BRAINS = vector(_Brain(), 2 * LANES)


def dot2_brain(e: Emitter, acc: Value, w: Value, x: Value) -> Value:
    """acc[lane] += w[2 lane + 1] * x[2 lane + 1], then += w[2 lane] * x[2 lane]: float32[16], and 2 bfloat16 a lane of int32[16].

    Only where `isa.bf16` is set. VDPBF16PS (Intel 64 and IA-32 software developer's manual, volume 2): two fused multiply-adds, each
    rounded to nearest even; a subnormal operand counts as zero and a subnormal sum becomes zero, whatever MXCSR says.
    """
    call = e.function("llvm.x86.avx512bf16.dpbf16ps.512", VF, [VF, _BRAINS, _BRAINS])
    return e.b.call(call, [acc, e.b.bitcast(w, _BRAINS), e.b.bitcast(x, _BRAINS)])


def lookup16(e: Emitter, table: Sequence[int], indices: Value) -> Value:
    """table[i] for each of the 64 bytes i (0..15) of int32[16]; the table holds 16 bytes."""
    lanes, name = _LOOKUPS.get(e.isa.dot, (LANES, ""))
    if not name:
        return _lookup_by_selects(e, table, indices)
    of_bytes = vector(I8, 4 * lanes)
    signed = [value - 256 if value > 127 else value for value in table]
    entries = ir.Constant(of_bytes, signed * (lanes // 4))
    kinds, pieces = [of_bytes, of_bytes], []
    for start in range(0, LANES, lanes):
        index = e.b.bitcast(_piece(e, indices, start, lanes), of_bytes)
        pieces.append(e.b.bitcast(e.b.call(e.function(name, of_bytes, kinds), [entries, index]), vector(I32, lanes)))
    return _join(e, pieces)


_LOOKUPS = {
    "vnni512": (16, "llvm.x86.avx512.pshuf.b.512"),
    "vnni256": (8, "llvm.x86.avx2.pshuf.b"),
    "maddubs256": (8, "llvm.x86.avx2.pshuf.b"),
    "maddubs128": (4, "llvm.x86.ssse3.pshuf.b.128"),
    "usdot": (4, "llvm.aarch64.neon.tbl1.v16i8"),
    "sdot": (4, "llvm.aarch64.neon.tbl1.v16i8"),
}


def _lookup_by_selects(e: Emitter, table: Sequence[int], indices: Value) -> Value:
    of_bytes = vector(I8, 4 * LANES)
    index = e.b.bitcast(indices, of_bytes)
    found = ir.Constant(of_bytes, [table[0] - 256 if table[0] > 127 else table[0]] * (4 * LANES))
    for i, value in enumerate(table[1:], 1):
        hit = e.b.icmp_unsigned("==", index, ir.Constant(of_bytes, [i] * (4 * LANES)))
        found = e.b.select(hit, ir.Constant(of_bytes, [value - 256 if value > 127 else value] * (4 * LANES)), found)
    return e.b.bitcast(found, VI)


def _piece(e: Emitter, v: Value, start: int, lanes: int) -> Value:
    return e.b.shuffle_vector(v, v, ir.Constant(vector(I32, lanes), list(range(start, start + lanes))))


def _join(e: Emitter, pieces: list[Value]) -> Value:
    while len(pieces) > 1:
        size = 2 * pieces[0].type.count
        mask = ir.Constant(vector(I32, size), list(range(size)))
        pieces = [e.b.shuffle_vector(a, b, mask) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]
