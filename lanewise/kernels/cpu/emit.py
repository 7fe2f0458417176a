"""A small, typed way of writing LLVM IR: 16 lanes of int32, float32 or float64, addresses as int64, loops as `with` blocks.

Kernels are written once against this class. LLVM splits the 16 lanes over whatever registers the target has (one zmm, two
ymm, four xmm or NEON registers); only the dot product differs by target (`dots.py`). Nothing here allows the compiler to
reorder floating-point arithmetic: a kernel's bits follow from its source.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from lanewise.kernels.cpu.isa import Isa

__all__ = ["F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64", "LANES", "VD", "VF", "VI", "VL", "VOID", "Emitter", "Value", "vector"]

LANES = 16
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64, VOID = ir.HalfType(), ir.FloatType(), ir.DoubleType(), ir.VoidType()
Value = Any  # an llvmlite value; the library has no types of its own
Index = Value | int


def vector(element: Any, lanes: int = LANES) -> Any:
    """The type <lanes x element>."""
    return ir.VectorType(element, lanes)


VI, VL, VF, VD = vector(I32), vector(I64), vector(F32), vector(F64)


class Emitter:
    """Writes into one function. `b` is llvmlite's builder, for the few things that have no name here."""

    def __init__(self, builder: Any, isa: Isa) -> None:
        self.b, self.isa = builder, isa

    # addresses and scalars: int64; python ints are taken wherever an index is

    def index(self, value: Index) -> Value:
        return ir.Constant(I64, value) if isinstance(value, int) else value

    def add(self, a: Value, b: Index) -> Value:
        return a if isinstance(b, int) and b == 0 else self.b.add(a, self.index(b))

    def sub(self, a: Index, b: Index) -> Value:
        return self.b.sub(self.index(a), self.index(b))

    def mul(self, a: Value, b: Index) -> Value:
        return self.b.mul(a, self.index(b))

    def div(self, a: Value, b: Index) -> Value:
        return self.b.udiv(a, self.index(b))

    def rem(self, a: Value, b: Index) -> Value:
        return self.b.urem(a, self.index(b))

    def least(self, a: Index, b: Index) -> Value:
        """The smaller of two signed integers."""
        a, b = self.index(a), self.index(b)
        return self.b.select(self.b.icmp_signed("<", a, b), a, b)

    def less(self, a: Index, b: Index) -> Value:
        return self.b.icmp_signed("<", self.index(a), self.index(b))

    def equal(self, a: Index, b: Index) -> Value:
        return self.b.icmp_signed("==", self.index(a), self.index(b))

    def real(self, value: float) -> Value:
        return ir.Constant(F32, value)

    def bits_to_float(self, value: Value) -> Value:
        """The float32 whose bits are the low half of an int64: how a float travels in a table of integers."""
        return self.b.bitcast(self.b.trunc(value, I32), F32)

    # memory: always unaligned, so that any row may start anywhere

    def load(self, kind: Any, address: Value, offset: Index = 0) -> Value:
        return self.b.load(self._pointer(address, offset, kind), align=1)

    def store(self, value: Value, address: Value, offset: Index = 0) -> None:
        self.b.store(value, self._pointer(address, offset, value.type), align=1)

    def ints(self, address: Value, offset: Index = 0) -> Value:
        """16 int32 (64 bytes)."""
        return self.load(VI, address, offset)

    def floats(self, address: Value, offset: Index = 0) -> Value:
        """16 float32."""
        return self.load(VF, address, offset)

    def halves(self, address: Value, offset: Index = 0) -> Value:
        """16 float16, widened."""
        return self.widen(self.load(vector(I16), address, offset))

    def widen(self, bits: Value) -> Value:
        """16 float32 from the bits of 16 float16."""
        if self.isa.f16:
            return self.b.fpext(self.b.bitcast(bits, vector(F16)), VF)
        # Without the instruction: the bits, moved to float32's place, are 2^112 too small; Inf and NaN keep their exponent.
        bits = self.b.zext(bits, VI)
        value = self.b.bitcast(self.shl(self.b.and_(bits, self.all_ints(0x7FFF)), 13), VF)
        value = self.b.bitcast(self.b.fmul(value, self.all_floats(2.0**112)), VI)
        special = self.b.icmp_signed(">=", self.b.and_(bits, self.all_ints(0x7FFF)), self.all_ints(0x7C00))
        value = self.b.or_(value, self.b.select(special, self.all_ints(0x7F800000), self.all_ints(0)))
        return self.b.bitcast(self.b.or_(value, self.shl(self.b.and_(bits, self.all_ints(0x8000)), 16)), VF)

    def brain(self, address: Value, offset: Index = 0) -> Value:
        """16 bfloat16, widened: they are the high halves of float32."""
        return self.b.bitcast(self.shl(self.b.zext(self.load(vector(I16), address, offset), VI), 16), VF)

    def bytes_unsigned(self, address: Value, offset: Index = 0) -> Value:
        """16 uint8, widened to int32."""
        return self.b.zext(self.load(vector(I8), address, offset), VI)

    def bytes_signed(self, address: Value, offset: Index = 0) -> Value:
        """16 int8, widened to int32."""
        return self.b.sext(self.load(vector(I8), address, offset), VI)

    def splat_int(self, address: Value, offset: Index = 0) -> Value:
        """One int32 (or four int8 together) in all lanes."""
        return self.splat(self.load(I32, address, offset))

    def splat_float(self, address: Value, offset: Index = 0) -> Value:
        """One float32 in all lanes."""
        return self.splat(self.load(F32, address, offset))

    def prefetch(self, address: Value, offset: Index = 0) -> None:
        """Ask for a cache line that will be read soon."""
        pointer = self._pointer(address, offset, I8)
        hint = self.function("llvm.prefetch.p0", VOID, [I8.as_pointer(), I32, I32, I32])
        self.b.call(hint, [pointer, *(ir.Constant(I32, n) for n in (0, 3, 1))])

    # vectors

    def splat(self, scalar: Value) -> Value:
        one = self.b.insert_element(ir.Constant(vector(scalar.type), ir.Undefined), scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, ir.Constant(one.type, ir.Undefined), ir.Constant(VI, 0))

    def all_ints(self, value: int) -> Value:
        return ir.Constant(VI, value)

    def all_floats(self, value: float) -> Value:
        return ir.Constant(VF, value)

    def all_doubles(self, value: float) -> Value:
        return ir.Constant(VD, [value] * LANES)

    def lane_numbers(self) -> Value:
        """0, 1, ..., 15"""
        return ir.Constant(VI, list(range(LANES)))

    def and_bytes(self, x: Value, byte: int) -> Value:
        """Each of the 64 bytes of x masked with `byte`."""
        return self.b.and_(x, self.all_ints(int.from_bytes(bytes([byte] * 4), "little", signed=True)))

    def xor_bytes(self, x: Value, byte: int) -> Value:
        return self.b.xor(x, self.all_ints(int.from_bytes(bytes([byte] * 4), "little", signed=True)))

    def or_(self, x: Value, y: Value) -> Value:
        return self.b.or_(x, y)

    def shl(self, x: Value, bits: int) -> Value:
        """Left shift of each int32 lane; a negative number of bits shifts right."""
        if bits == 0:
            return x
        return self.b.shl(x, self.all_ints(bits)) if bits > 0 else self.b.lshr(x, self.all_ints(-bits))

    def shr(self, x: Value, bits: int) -> Value:
        return self.shl(x, -bits)

    def to_float(self, x: Value) -> Value:
        return self.b.sitofp(x, VF if isinstance(x.type, ir.VectorType) else F32)

    def to_int(self, x: Value) -> Value:
        """Toward zero; x is in range."""
        return self.b.fptosi(x, VI if isinstance(x.type, ir.VectorType) else I32)

    def round_to_int(self, x: Value) -> Value:
        """The nearest integer of each of 16 lanes, ties to the even one; x is in range."""
        return self.b.call(self.function("llvm.lrint.v16i32.v16f32", VI, [VF]), [x])

    def most(self, x: Value, y: Value) -> Value:
        """The greater of two signed integers, or of each of their lanes."""
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once; twice on a processor without the instruction, where a library call would take a hundred times as long."""
        if not self.isa.fma:
            return self.b.fadd(self.b.fmul(x, y), z)
        return self._math("fma", x, y, z)

    def sqrt(self, x: Value) -> Value:
        return self._math("sqrt", x)

    def fabs(self, x: Value) -> Value:
        return self._math("fabs", x)

    def rint(self, x: Value) -> Value:
        """To the nearest integer, ties to the even one."""
        return self._math("roundeven", x)

    def fmax(self, x: Value, y: Value) -> Value:
        """The greater; y where either is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def fmin(self, x: Value, y: Value) -> Value:
        """The smaller; y where either is NaN."""
        return self.b.select(self.b.fcmp_ordered("<", x, y), x, y)

    def true_lanes(self, condition: Value) -> Value:
        """A condition of 16 lanes as the low 16 bits of an int64; 0 where none holds."""
        return self.b.zext(self.b.bitcast(condition, I16), I64)

    def first_bit(self, bits: Value) -> Value:
        """The number of the lowest bit that is set in an int64, which is not 0."""
        return self.b.call(self.function("llvm.cttz.i64", I64, [I64, I1]), [bits, I1(1)])

    def count_bits(self, bits: Value) -> Value:
        return self.b.call(self.function("llvm.ctpop.i64", I64, [I64]), [bits])

    def reduce(self, x: Value, combine: Any) -> Value:
        """One scalar from 16 lanes by halving: lane i with lane i + 8, then i + 4, i + 2, i + 1. The same tree on every target."""
        for half in (8, 4, 2, 1):
            low, high = (ir.Constant(vector(I32, half), list(range(start, start + half))) for start in (0, half))
            x = combine(self.b.shuffle_vector(x, x, low), self.b.shuffle_vector(x, x, high))
        return self.b.extract_element(x, ir.Constant(I32, 0))

    def exp2(self, x: Value) -> Value:
        """2^x to about 1 ulp for x <= 0; 0 below -126.5 and for NaN. Half the instructions of `exp`.

        The polynomial is 2^r on [-1/2, 1/2] with the largest relative error made small (a reweighted least-squares fit: 2e-9).
        """
        x = self.fmax(x, self.all_floats(-127.0))
        n = self.rint(x)
        r = self.b.fsub(x, n)
        p = self.all_floats(0.00015353362)
        for c in (0.0013398875, 0.009618437, 0.055503324, 0.24022648, 0.6931472, 1.0):
            p = self.fma(p, r, self.all_floats(c))
        # -127 makes the bits of 0
        return self.b.fmul(p, self.b.bitcast(self.shl(self.b.add(self.to_int(n), self.all_ints(127)), 23), VF))

    def exp(self, x: Value) -> Value:
        """e^x to about 1 ulp for x <= 88; 0 far below and for NaN. Cody and Waite's reduction, then Cephes expf's polynomial."""
        x = self.fmin(self.fmax(x, self.all_floats(-104.0)), self.all_floats(88.0))
        n = self.rint(self.b.fmul(x, self.all_floats(1.4426950408889634)))
        r = self.fma(n, self.all_floats(-0.693359375), x)
        r = self.fma(n, self.all_floats(2.12194440e-4), r)
        p = self.all_floats(1.9875691500e-4)
        for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = self.fma(p, r, self.all_floats(c))
        p = self.fma(self.b.fmul(p, r), r, self.b.fadd(r, self.all_floats(1.0)))
        # 2^n in two factors: n reaches -150, past the smallest normal exponent
        whole = self.to_int(n)
        half = self.b.ashr(whole, self.all_ints(1))
        for part in (half, self.b.sub(whole, half)):
            p = self.b.fmul(p, self.b.bitcast(self.shl(self.b.add(part, self.all_ints(127)), 23), VF))
        return p

    # control

    def variable(self, start: Value) -> Value:
        """A place that `get` and `set` use; LLVM turns it into a register."""
        with self.b.goto_entry_block():
            place = self.b.alloca(start.type)
        self.b.store(start, place)
        return place

    def get(self, place: Value) -> Value:
        return self.b.load(place)

    def set(self, place: Value, value: Value) -> None:
        self.b.store(value, place)

    @contextmanager
    def loop(self, count: Index) -> Iterator[Value]:
        """`with e.loop(n) as i:` runs the block for i = 0..n-1."""
        counter = self.variable(self.index(0))
        head, body, end = (self.b.function.append_basic_block(name) for name in ("head", "body", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.load(counter)
        self.b.cbranch(self.b.icmp_signed("<", i, self.index(count)), body, end)
        self.b.position_at_end(body)
        yield i
        self.b.store(self.b.add(self.b.load(counter), self.index(1)), counter)
        self.b.branch(head)
        self.b.position_at_end(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self.b.if_then(condition):
            yield

    def function(self, name: str, result: Any, arguments: Sequence[Any]) -> Value:
        """A function declared in this module: an intrinsic, or a symbol of the process."""
        found = self.b.module.globals.get(name)
        return found or ir.Function(self.b.module, ir.FunctionType(result, arguments), name)

    def _math(self, name: str, *operands: Value) -> Value:
        kind = operands[0].type
        element = "f64" if F64 in (kind, getattr(kind, "element", None)) else "f32"
        suffix = f"v{kind.count}{element}" if isinstance(kind, ir.VectorType) else element
        return self.b.call(self.function(f"llvm.{name}.{suffix}", kind, [kind] * len(operands)), list(operands))

    def _pointer(self, address: Value, offset: Index, kind: Any) -> Value:
        return self.b.inttoptr(self.add(address, offset), kind.as_pointer())
