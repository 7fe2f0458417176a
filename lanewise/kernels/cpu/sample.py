"""The passes over a whole row of logits that sampling is made of: the greatest, the sum of exponentials, those above a limit.

What is left for Python is a short list. Everything but the sum is exact; the sum is float64, in 16 partial sums and one tree.
A piece of a row is VECTORS vectors of 16 logits. `scan` leaves the greatest of each lane of each piece, so that `collect`
looks only into pieces that have something to give.
"""

import math
from collections.abc import Callable
from decimal import Decimal

from llvmlite import ir

from lanewise.kernels.cpu.emit import F32, F64, I32, I64, LANES, VD, VF, VI, VL, Emitter, Value
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel

__all__ = ["COLLECT", "SAMPLE_KERNELS", "SCAN", "TOTAL", "VECTORS"]

VECTORS = 32
_TOGETHER = 4  # vectors whose greatest are found side by side
_INF, _NAN = float("inf"), float("nan")

Read = Callable[[Value], Value]  # number of a vector -> float32[16]


def _vectors(e: Emitter, a: Arguments, filler: float) -> tuple[Value, Read]:
    """(vectors in the row, how to read one). Whatever lies behind the last logit reads as `filler`; memory there is not touched."""
    with e.b.goto_entry_block():
        place = e.b.alloca(VF)
    last, whole = e.b.ptrtoint(place, I64), e.div(a.n, LANES)
    e.store(e.all_floats(filler), last)
    with e.loop(e.rem(a.n, LANES)) as i:
        e.store(e.load(F32, a.logits, e.mul(e.add(e.mul(whole, LANES), i), 4)), last, e.mul(i, 4))

    def read(i: Value) -> Value:
        return e.floats(e.b.select(e.less(i, whole), e.add(a.logits, e.mul(i, 4 * LANES)), last))

    return e.div(e.add(a.n, LANES - 1), LANES), read


def _scan(e: Emitter, a: Arguments) -> None:
    _, read = _vectors(e, a, -_INF)
    greatest, broken = e.variable(e.all_floats(-_INF)), e.variable(e.all_ints(0))
    with e.loop(a.pieces) as piece:
        most = [e.variable(e.all_floats(-_INF)) for _ in range(_TOGETHER)]
        with e.loop(VECTORS // _TOGETHER) as i:
            first = e.add(e.mul(piece, VECTORS), e.mul(i, _TOGETHER))
            for j, place in enumerate(most):
                v = read(e.add(first, j))
                e.set(place, e.fmax(v, e.get(place)))
                e.set(broken, e.or_(e.get(broken), e.b.sext(e.b.fcmp_unordered("uno", v, v), VI)))
        one, two, three, four = map(e.get, most)
        v = e.fmax(e.fmax(one, two), e.fmax(three, four))
        e.store(v, a.maxima, e.mul(piece, 4 * LANES))
        e.set(greatest, e.fmax(v, e.get(greatest)))
    top = e.splat(e.reduce(e.get(greatest), e.fmax))
    found = e.variable(a.pieces)
    with e.loop(a.pieces) as piece, e.when(_any(e, e.b.fcmp_ordered("==", e.floats(a.maxima, e.mul(piece, 4 * LANES)), top))):
        e.set(found, e.least(e.get(found), piece))
    best = e.variable(a.n)
    with e.loop(VECTORS) as i:
        number = e.add(e.mul(e.get(found), VECTORS), i)
        lanes = e.true_lanes(e.b.fcmp_ordered("==", read(number), top))
        with e.when(e.b.icmp_signed("!=", lanes, e.index(0))):
            e.set(best, e.least(e.get(best), e.add(e.mul(number, LANES), e.first_bit(lanes))))
    e.store(e.get(best), a.out)
    e.store(e.b.zext(_any(e, e.b.icmp_signed("!=", e.get(broken), e.all_ints(0))), I64), a.out, 8)


def _any(e: Emitter, condition: Value) -> Value:
    return e.b.icmp_signed("!=", e.true_lanes(condition), e.index(0))


def _total(e: Emitter, a: Arguments) -> None:
    count, read = _vectors(e, a, -_INF)
    greatest = e.b.fpext(e.splat(a.real("greatest")), VD)
    rate = e.splat(e.b.bitcast(a.rate, F64))
    sums = e.variable(e.all_doubles(0.0))
    with e.loop(count) as i:
        below = e.b.fsub(e.b.fpext(read(i), VD), greatest)
        e.set(sums, e.b.fadd(e.get(sums), _exp(e, e.b.fmul(below, rate))))
    e.store(e.reduce(e.get(sums), e.b.fadd), a.out)


_LN2_HIGH = math.ldexp(round(math.ldexp(math.log(2), 32)), -32)  # times any whole number of 20 bits it is exact
_LN2_LOW = float(Decimal(2).ln() - Decimal(_LN2_HIGH))
_ROUNDING = 1.5 * 2.0**52  # a float64 this large has no bits behind the point: what is added to it is rounded to a whole number
_LEAST = -700.0  # e^-700 is still a normal number and far below half an ulp of any sum that has a 1 in it
_DEGREE = 13  # the next term of the series is at most 0.35^14 / 14!, a 25th of half an ulp of 1


def _exp(e: Emitter, x: Value) -> Value:
    """e^x in float64 to about 1 ulp for -700 <= x <= 0, and e^-700 for anything below: Cody and Waite's reduction, then the series."""
    x = e.fmax(x, e.all_doubles(_LEAST))
    shifted = e.fma(x, e.all_doubles(1 / math.log(2)), e.all_doubles(_ROUNDING))
    n = e.b.fsub(shifted, e.all_doubles(_ROUNDING))
    r = e.fma(n, e.all_doubles(-_LN2_HIGH), x)
    r = e.fma(n, e.all_doubles(-_LN2_LOW), r)
    p = e.all_doubles(1 / math.factorial(_DEGREE))
    for k in range(_DEGREE - 1, -1, -1):
        p = e.fma(p, r, e.all_doubles(1 / math.factorial(k)))
    # n stands in the low bits of `shifted`: moved to the exponent's place, it multiplies by 2^n
    exponent = e.b.shl(e.b.bitcast(shifted, VL), ir.Constant(VL, [52] * LANES))
    return e.b.bitcast(e.b.add(e.b.bitcast(p, VL), exponent), VD)


def _collect(e: Emitter, a: Arguments) -> None:
    count, read = _vectors(e, a, _NAN)  # which is not above any limit
    least = e.splat(a.real("least"))
    found = e.variable(e.index(0))
    with e.loop(a.pieces) as piece, e.when(_any(e, e.b.fcmp_ordered(">=", e.floats(a.maxima, e.mul(piece, 4 * LANES)), least))):
        first = e.mul(piece, VECTORS)
        with e.loop(e.least(e.sub(count, first), VECTORS)) as i:
            number = e.add(first, i)
            lanes = e.variable(e.true_lanes(e.b.fcmp_ordered(">=", read(number), least)))
            with e.loop(e.count_bits(e.get(lanes))):
                token = e.add(e.mul(number, LANES), e.first_bit(e.get(lanes)))
                e.store(_key(e, e.load(F32, a.logits, e.mul(token, 4)), token), a.keys, e.mul(e.get(found), 8))
                e.set(found, e.add(e.get(found), 1))
                e.set(lanes, e.b.and_(e.get(lanes), e.sub(e.get(lanes), 1)))
    e.store(e.get(found), a.out)


def _key(e: Emitter, logit: Value, token: Value) -> Value:
    """An int64 that sorts by falling logit and then by rising token, which is its low half."""
    bits = e.b.bitcast(e.b.fadd(logit, e.real(0.0)), I32)  # -0.0 becomes 0.0, its equal
    rising = e.b.xor(bits, e.b.lshr(e.b.ashr(bits, ir.Constant(I32, 31)), ir.Constant(I32, 1)))  # as an integer
    return e.b.or_(e.b.shl(e.b.sext(e.b.not_(rising), I64), e.index(32)), token)


# logits: float32[n]; maxima: float32[pieces, 16], one piece for every VECTORS vectors begun. out: int64, whose meaning each has
SCAN = CpuKernel("sample_scan", ("logits", "n", "pieces", "maxima", "out"), lambda e, a, chunk, worker: _scan(e, a))
"""maxima; out[0] = the lowest id of the greatest logit (n when all are NaN), out[1] = whether one is NaN"""
TOTAL = CpuKernel("sample_total", ("logits", "n", "greatest", "rate", "out"), lambda e, a, chunk, worker: _total(e, a))
"""out[0] = the bits of float64 sum(exp((logits - greatest) * rate)); greatest has a float32's bits, rate a float64's, and is finite"""
COLLECT = CpuKernel("sample_collect", ("logits", "n", "pieces", "maxima", "least", "keys", "out"), lambda e, a, chunk, worker: _collect(e, a))
"""keys = one int64 for each logit >= least (a float32's bits), none of which is NaN; out[0] = how many"""
SAMPLE_KERNELS = (SCAN, TOTAL, COLLECT)
