"""Numbers as AMD's pseudocode names them: one at a time, exact, and rounded where it says so."""

import math
import re
from fractions import Fraction

from .pseudocode import Bits, integer, real

TYPE = re.compile(r"(bf|[uifb])(\d+)$")


def type_of(name):
    found = TYPE.match(name)
    return found[1], int(found[2])


def widen(value, width):
    """A float in more bits, a NaN with its own."""
    if value.kind == "f" and value.width == width:
        return value
    if math.isnan(value.number):
        fraction = {16: 10, 32: 23, 64: 52}
        mine, sign = 7 if value.kind == "bf" else fraction[value.width], value.raw >> value.width - 1
        part = value.raw & (1 << mine) - 1
        part = part << fraction[width] - mine if fraction[width] >= mine else part >> mine - fraction[width] | 1 << fraction[width] - 1
        exponent = {16: 31, 32: 255, 64: 2047}[width]
        return Bits("f", width, sign << width - 1 | exponent << fraction[width] | part)
    return real(width, value.number)


def quiet_bit(value):
    return value.raw >> ({16: 9, 32: 22, 64: 51}[value.width] if value.kind == "f" else 6) & 1


def exponent(value):
    shift, mask = {16: (10, 31), 32: (23, 255), 64: (52, 2047)}[value.width]
    return integer("i", 32, value.raw >> shift & mask)


def truth(value):
    return Bits("u", 1, int(bool(value)))


def cut(value, kind, width):
    if math.isnan(value):
        return integer(kind, width, 0)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind == "i" else (0, (1 << width) - 1)
    return integer(kind, width, low if value < low else high if value > high else math.trunc(value))


def bfloat(value):
    if math.isnan(value.number):
        return Bits("bf", 16, value.raw >> 16 | 0x40)
    half, rest = value.raw >> 16, value.raw & 0xFFFF
    return Bits("bf", 16, half + (rest > 0x8000 or (rest == 0x8000 and half & 1)))


def fused(a, b, c):
    x, y, z = a.number, b.number, c.number
    if not all(math.isfinite(one) for one in (x, y, z)):
        if math.isfinite(x) and math.isfinite(y):
            return real(a.width, z)
        return real(a.width, (math.copysign(1, x) if math.isfinite(x) and x else x) * (math.copysign(1, y) if math.isfinite(y) and y else y) + z)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        negative = math.copysign(1, x) * math.copysign(1, y) < 0
        product = (-0.0 if negative else 0.0) if not (x and y) else None
        return real(a.width, product + z if product is not None else 0.0)
    return real(a.width, exact)


def function_of(name, one):
    x = one.number
    if math.isnan(x) or (math.isinf(x) and name in ("floor", "trunc")):
        return one
    if name == "sqrt":
        return real(one.width, math.sqrt(x) if x >= 0 else math.nan)
    if name == "log2":
        return real(one.width, math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan)
    if name in ("sin", "cos"):
        return real(one.width, getattr(math, name)(x) if math.isfinite(x) else math.nan)
    if name == "fract":
        return real(one.width, x - math.floor(x) if math.isfinite(x) else math.nan)
    whole = math.floor(x) if name == "floor" else math.trunc(x)
    return real(one.width, math.copysign(float(whole), x) if whole == 0 else float(whole))
