"""What a text of AMD's pseudocode does with one lane's registers. `Lane.run` is the door; numbers are exact, and rounded where the text assigns."""

import math
import re
from fractions import Fraction

from .pseudocode import Bits, NotUnderstoodError, integer, real, texts, tree
from .pseudocode_numbers import TYPE, bfloat, cut, exponent, function_of, fused, quiet_bit, truth, type_of, widen

_REAL = re.compile(r"(f16|f32|f64|bf16|u8|u16|u32|i8|i16|i32|i4|u4|u64|i64)_to_(f16|f32|f64|bf16|u8|u16|u32|i16|i32|snorm|unorm)$")


class _BreakError(Exception):
    pass


class _ReturnError(Exception):
    def __init__(self, value):
        self.value = value


class Lane:
    """names: registers and modes by the names that the text has for them."""

    def __init__(self, generation, names):
        self.generation, self.names, self.functions = generation, names, {}

    def run(self, text):
        try:
            self.block(tree(text))
        except _ReturnError as found:
            return found.value
        return None

    def block(self, statements):
        for one in statements:
            getattr(self, "do_" + one[0].replace("if", "choose").replace("for", "loop"))(*one[1:])

    def do_choose(self, parts):
        for condition, body in parts:
            if self.value(condition).raw:
                self.block(body)
                return

    def do_loop(self, name, first, last, body):
        for number in range(self.value(first).number, self.value(last).number + 1):
            self.names[name] = integer("i", 32, number)
            try:
                self.block(body)
            except _BreakError:
                break

    def do_break(self):
        raise _BreakError

    def do_return(self, what):
        raise _ReturnError(self.value(what))

    def do_declare(self, name, kind, count):
        if name == "S":  # the sources, which are there
            return
        width, letter = kind.split("'")
        empty = Bits(letter.lower(), int(width), 0)
        self.names[name] = empty if count is None else [empty] * self.value(count).number

    def do_lambda(self, name, names, body):
        self.functions[name] = (names, body)

    def do_set(self, target, what):
        value = self.value(what) if what != ("name", "ROUND_MODE") else self.names["ROUND_MODE"]
        self.put(target, value)

    def do_both(self, first, second, what):
        value = self.value(what)
        self.put(second, value)
        self.put(first, value)

    def put(self, target, value):
        if target[0] == "join":
            low = 0
            for part in reversed(target[1]):
                width = type_of(part[2])[1]
                self.put(part, Bits("b", width, value.raw >> low & (1 << width) - 1))
                low += width
            return
        if target[0] == "name":
            old = self.names.get(target[1])
            fixed = target[1] in ("D0", "VCC", "EXEC", "SCC")
            if fixed:
                value = Bits(old.kind, old.width, value.raw & (1 << old.width) - 1)
            self.names[target[1]] = value
            return
        if target[0] == "index" and isinstance(self.held(target[1]), list):
            name = target[1][1]
            self.names[name] = [*self.names[name]]
            self.names[name][self.value(target[2]).number] = value
            return
        name, low, width, kind = self.place(target)
        if name in ("TRAPSTS", "ROUND_MODE"):
            return
        old = self.names.get(name) or Bits("b", 64, 0)
        if kind is not None:
            value = self.convert(value, kind, width)
        size = max(old.width, low + width)
        mask = (1 << width) - 1 << low
        whole = old.raw & ~mask | value.raw << low & mask
        self.names[name] = Bits(kind, width, value.raw) if kind and low == 0 and name not in self.names else Bits(old.kind, size, whole)

    def held(self, what):
        return self.names.get(what[1]) if what[0] == "name" else None

    def place(self, target):
        """(name, lowest bit, width, type) of what an assignment writes."""
        if target[0] == "name":
            return target[1], 0, 64, None
        if target[0] == "as":
            name, low, width, _ = self.place(target[1])
            if not TYPE.match(target[2]):
                return name, low, width, None
            kind, bits = type_of(target[2])
            return name, low, bits, kind
        name, low, _, _ = self.place(target[1])
        first = self.value(target[2]).number
        last = self.value(target[3]).number if target[0] == "slice" else first
        return name, low + last, first - last + 1, None

    def convert(self, value, kind, width):
        """As an assignment to a type does: floats are rounded, integers cut."""
        if kind == "f" and value.kind in ("f", "bf"):
            return widen(value, width)
        if kind == "bf" and value.kind == "f":
            return bfloat(widen(value, 32))
        if kind in ("u", "i") and value.kind == "f":
            raise NotUnderstoodError("a float in an integer")
        if kind == "f" and value.kind in ("u", "i") and value.width != width:
            raise NotUnderstoodError("an integer in a float")
        return integer(kind, width, value.number if value.kind in ("u", "i") else value.raw)

    def value(self, what):
        return getattr(self, "get_" + what[0])(*what[1:])

    def get_int(self, text):
        bare = text.rstrip("UL")
        return integer("u" if "U" in text else "i", 64 if text.count("L") else 32, int(bare))

    def get_hex(self, text):
        bare = text.rstrip("UL")
        return integer("u" if "U" in text else "b", 64 if "L" in text else 32, int(bare, 16))

    def get_real(self, text):
        return real(32, float(text[:-1])) if text.endswith("F") else real(64, float(text))

    def get_sized(self, text):
        width, digits = text.split("'")
        if "." in digits:
            return real(int(width), float(digits))
        return integer("u", int(width), int(digits.rstrip("UL"), 0))

    def get_name(self, name):
        if name in self.names:
            return self.names[name]
        constants = {"INF": real(64, math.inf), "PI": real(64, math.pi), "UNDERFLOW_F32": real(32, 0.0), "OVERFLOW_F32": real(32, math.inf),
                     "UNDERFLOW_F64": real(64, 0.0), "OVERFLOW_F64": real(64, math.inf), "ROUND_TOWARD_ZERO": integer("u", 2, 3),
                     "ROUND_NEAREST_EVEN": integer("u", 2, 0)}  # fmt: skip
        if name not in constants:
            raise NotUnderstoodError(name)
        return constants[name]

    def get_as(self, what, name):
        if what[0] == "name" and what[1] in ("NAN", "INF"):
            return real(type_of(name)[1], math.nan if what[1] == "NAN" else math.inf)
        if what == ("name", "WAVE_MODE"):
            return integer("u", 1, 1)
        if what == ("name", "INST"):
            return self.names["INST." + name]
        if not TYPE.match(name):
            raise NotUnderstoodError(name)
        value = self.value(what)
        kind, width = type_of(name)
        if kind in ("u", "b", "i") and value.kind == "i" and width > value.width:
            return integer(kind, width, value.number)
        return integer(kind, width, value.raw)

    def get_slice(self, what, first, last):
        value, high, low = self.value(what), self.value(first).number, self.value(last).number
        if low > high:
            return integer("b", low - high + 1, int(f"{value.raw >> high & (1 << low - high + 1) - 1:0{low - high + 1}b}"[::-1], 2))
        return integer("b", high - low + 1, value.raw >> low)

    def get_index(self, what, at):
        value, number = self.value(what), self.value(at).number
        return value[number] if isinstance(value, list) else Bits("u", 1, value.raw >> number & 1)

    def get_join(self, parts):
        raw = width = 0
        for part in parts:
            value = self.value(part)
            raw, width = raw << value.width | value.raw, width + value.width
        return Bits("b", width, raw)

    def get_cast(self, kind, what):
        width, letter = int(kind.split("'")[0]), kind.split("'")[1].lower()
        value = self.value(what)
        if letter == "f":
            if value.kind == "b":
                return Bits("f", width, value.raw)
            return widen(value, width) if value.kind in ("f", "bf") else real(width, float(value.number))
        if letter == "b":
            return integer("b", width, value.raw)
        return cut(value.number, letter, width) if value.kind == "f" else integer(letter, width, value.number)

    def get_pick(self, condition, yes, no):
        return self.value(yes if self.value(condition).raw else no)

    def get_one(self, sign, what):
        value = self.value(what)
        if sign == "!":
            return truth(not value.raw)
        if sign == "~":
            return integer(value.kind, value.width, ~value.raw)
        if sign == "+":
            return value
        if value.kind == "f":
            return Bits("f", value.width, value.raw ^ 1 << value.width - 1)
        return integer(value.kind, value.width, -value.raw)

    def get_two(self, sign, left, right):
        if sign in ("==", "!=", "<>") and right[0] == "as" and right[1] == ("name", "DENORM"):
            # the text of float32 says DENORM.f64 of a reciprocal that it has widened, and no such one is denormal: that of float32 is meant
            value = widen(self.value(left), self.names["SIZE"])
            return truth(exponent(value).raw == 0 and value.raw << 1 & (1 << value.width) - 1)
        a = self.value(left)
        if sign in ("&&", "||"):
            short = bool(a.raw) == (sign == "||")
            return truth(a.raw) if short else truth(self.value(right).raw)
        b = self.value(right)
        if a.kind in ("f", "bf") or b.kind in ("f", "bf"):
            return self.floats(sign, a, b)
        return self.integers(sign, a, b)

    def floats(self, sign, a, b):
        x, y = a.number, b.number
        width = max((one.width for one in (a, b) if one.kind == "f"), default=32)
        if sign == "**":
            return real(width, math.ldexp(1.0, max(-1100, min(int(y), 1023))) if y < 1024 else math.inf) if x == 2 else real(width, x**y)
        if sign in ("==", "!=", "<>", "<", ">", "<=", ">="):
            return truth({"==": x == y, "!=": x != y, "<>": x < y or x > y, "<": x < y, ">": x > y, "<=": x <= y, ">=": x >= y}[sign])
        if not (math.isfinite(x) and math.isfinite(y)) or (sign == "/" and y == 0):
            if sign == "/":
                if y == 0:
                    return real(width, math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y))
                return real(width, x / y)
            return real(width, {"+": x + y, "-": x - y, "*": x * y}[sign])
        exact = {"+": lambda p, q: p + q, "-": lambda p, q: p - q, "*": lambda p, q: p * q, "/": lambda p, q: p / q}[sign](Fraction(x), Fraction(y))
        if exact == 0:
            return real(width, {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y}[sign]())
        return real(width, exact)

    def integers(self, sign, a, b):
        kind, width = "u" if "u" in (a.kind, b.kind) else "i" if "i" in (a.kind, b.kind) else "b", max(a.width, b.width)
        x, y = a.number, b.number
        if sign in ("<<", ">>"):
            return integer(a.kind, a.width, x << y if sign == "<<" else x >> y)
        if kind == "u":
            x, y = x & (1 << width) - 1, y & (1 << width) - 1
        if sign in ("==", "!=", "<>", "<", ">", "<=", ">="):
            return truth({"==": x == y, "!=": x != y, "<>": x != y, "<": x < y, ">": x > y, "<=": x <= y, ">=": x >= y}[sign])
        table = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "&": lambda: x & y, "|": lambda: x | y, "^": lambda: x ^ y}
        if sign not in table:
            raise NotUnderstoodError(sign)
        return integer(kind, width, table[sign]())

    def get_call(self, name, given):
        args = [self.value(one) for one in given]
        if name in self.functions:
            names, body = self.functions[name]
            before = {key: self.names.get(key) for key in names}
            self.names.update(zip(names, args, strict=True))
            try:
                self.block(body)
            except _ReturnError as found:
                return found.value
            finally:
                self.names.update(before)
        if name.startswith("v_"):
            kind = re.search(r"_([uif])(\d+)$", name) if not name.startswith("v_cvt_") else re.match(r"v_cvt_([uif])(\d+)", name)
            names = {**self.names, "D0": Bits("b", 64, 0), **{f"S{number}": Bits("b", 64, one.raw) for number, one in enumerate(args)}}
            if name in ("v_cvt_i16_f32", "v_cvt_u16_f32"):  # named by one instruction's text, and no instruction
                return cut(args[0].number, kind[1], 16)
            inner = Lane(self.generation, names)
            inner.run(next(texts(one)[name] for one in (self.generation, "rdna4") if name in texts(one)))
            return integer(kind[1], int(kind[2]), inner.names["D0"].raw)
        return self.named(name, args)

    def named(self, name, args):
        one = args[0]
        if name in ("isNAN", "isSignalNAN", "isQuietNAN"):
            return truth(math.isnan(one.number) and {"isNAN": True, "isSignalNAN": not quiet_bit(one), "isQuietNAN": quiet_bit(one)}[name])
        if name == "cvtToQuietNAN":
            return Bits("f", one.width, one.raw | 1 << {16: 9, 32: 22, 64: 51}[one.width])
        if name == "sign":
            return Bits("u", 1, one.raw >> one.width - 1)
        if name == "abs":
            return Bits("f", one.width, one.raw & (1 << one.width - 1) - 1) if one.kind == "f" else integer("i", one.width, abs(one.number))
        if name == "exponent":
            return exponent(one)
        if name == "mantissa":
            return real(one.width, math.frexp(one.number)[0])
        if name == "fma":
            return fused(*args)
        if name in ("floor", "trunc", "fract", "sqrt", "log2", "sin", "cos"):
            return function_of(name, one)
        if name == "pow":
            return real(one.width, math.inf if args[1].number > 1023 else 2.0 ** args[1].number if not math.isnan(args[1].number) else math.nan)
        if name == "ldexp":
            value = one.number
            return real(one.width, Fraction(value) * Fraction(2) ** args[1].number) if math.isfinite(value) and value else one
        if name == "isEven":
            return truth(math.isfinite(one.number) and one.number % 2 == 0)
        if name == "signext":
            return integer("i", max(32, one.width), one.number)
        if name == "signext_from_bit":
            bits = args[1].number
            return integer("i", one.width, integer("i", bits, one.raw).number if bits else 0)
        if found := _REAL.match(name):
            return self.converted(one, found[1], found[2])
        raise NotUnderstoodError(name)

    def converted(self, one, old, new):
        kind, width = type_of(old)
        value = integer(kind, width, one.raw)
        if new in ("snorm", "unorm"):
            most, low = (32767, -1) if new == "snorm" else (65535, 0)
            number = 0.0 if math.isnan(value.number) else max(low, min(1, value.number))
            return integer("i", 16, round(Fraction(number) * most))
        to, size = type_of(new)
        if to in ("u", "i"):
            return cut(value.number, to, size)
        if to == "bf":
            return bfloat(value)
        if kind in ("u", "i"):
            return real(size, Fraction(value.number)) if value.number else real(size, 0.0)
        found = widen(value, size)
        if size == 16 and self.names["ROUND_MODE"].raw == 3 and not math.isnan(value.number) and abs(found.number) > abs(value.number):
            found = Bits("f", 16, found.raw - 1)
        return found
