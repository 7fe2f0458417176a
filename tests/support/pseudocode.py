"""AMD's pseudocode of instructions, run one lane at a time on exact numbers: slow, and nothing of it is the emulator's.

The texts are those of the PyPI package tinygrad (`tinygrad.runtime.autogen.amd.*.str_pcode`), taken from AMD's ISA guides.
"""

import functools
import importlib
import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

GENERATIONS = ("rdna3", "rdna4", "cdna")
_TOKEN = re.compile(
    r"\s+|//[^\n]*|(?P<cast>\d+'[UIFB](?=\s*\())|(?P<sized>\d+'(?:0x[0-9a-fA-F]+|[\d.]+)[UL]*)|(?P<type>\d+'[UIFB])|(?P<hex>0x[0-9a-fA-F]+[UL]*)"
    r"|(?P<real>\d+\.\d+F?)|(?P<int>\d+[UL]*)|(?P<name>[A-Za-z_]\w*)|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|\|=|[-+*/%&|^~!<>=?:;.,(){}\[\]])"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_ENDS = ("else", "elsif", "endif", "endfor")
_FLOATS = {16: (11, -14, np.float16, np.uint16), 32: (24, -126, np.float32, np.uint32), 64: (53, -1022, np.float64, np.uint64)}


class NotUnderstoodError(Exception):
    """What this reader has no rule for."""


@dataclass(frozen=True, slots=True)
class Bits:
    """kind: u, i, f, bf (bfloat16) or b (bits of no type); width in bits; raw: as an unsigned integer."""

    kind: str
    width: int
    raw: int

    @property
    def number(self):
        if self.kind == "i":
            return self.raw - (1 << self.width) if self.width and self.raw >> self.width - 1 else self.raw
        if self.kind == "f":
            _, _, dtype, integer = _FLOATS[self.width]
            return float(integer(self.raw).view(dtype))
        if self.kind == "bf":
            return float(np.uint32(self.raw << 16).view(np.float32))
        return self.raw


def integer(kind, width, value):
    return Bits(kind, width, int(value) & (1 << width) - 1)


def real(width, value):
    """The nearest float of that width, ties to even, of a float or a Fraction."""
    _, _, dtype, unsigned = _FLOATS[width]
    if isinstance(value, Fraction):
        value = _nearest(value, width)
    with np.errstate(all="ignore"):
        return Bits("f", width, int(np.asarray(dtype(value)).view(unsigned)))


def _nearest(value, width):
    """A Fraction rounded once to a float of that width, as a Python float."""
    digits, smallest, _, _ = _FLOATS[width]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += 0 if size >= Fraction(2) ** exponent else -1
    unit = Fraction(2) ** (max(exponent, smallest) - digits + 1)
    found = round(value / unit) * unit  # round() of a Fraction is to even
    if abs(found) >= Fraction(2) ** {16: 16, 32: 128, 64: 1024}[width]:
        return math.inf if value > 0 else -math.inf
    return float(found) if found else (0.0 if value > 0 else -0.0)


class Reader:
    """A text to a tree of tuples."""

    def __init__(self, text):
        self.tokens, at = [], 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise NotUnderstoodError(text[at : at + 20])
            if found.lastgroup:
                self.tokens.append((found.lastgroup, found[0]))
            at = found.end()
        self.at = 0

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, text):
        if self.peek() != text:
            raise NotUnderstoodError(f"{self.peek()!r} where {text!r} is wanted")
        self.at += 1

    def block(self, ends):
        found = []
        while self.peek() not in ends:
            if self.peek() == "":
                if "" in ends:
                    break
                raise NotUnderstoodError("the end")
            if self.peek() == ";":
                self.at += 1
                continue
            found.append(self.statement())
        return found

    def statement(self):
        word = self.peek()
        if word == "if":
            self.at += 1
            parts, condition = [], self.expression()
            self.take("then")
            while True:
                parts.append((condition, self.block(_ENDS)))
                word = self.next()[1]
                if word == "endif":
                    return ("if", parts)
                condition = ("int", "1U")
                if word == "elsif":
                    condition = self.expression()
                    self.take("then")
        if word == "for":
            self.at += 1
            name = self.next()[1]
            self.take("in")
            first = self.expression()
            self.take(":")
            last = self.expression()
            self.take("do")
            body = self.block(_ENDS)
            self.take("endfor")
            return ("for", name, first, last, body)
        if word == "declare":
            self.at += 1
            name = self.next()[1]
            self.take(":")
            kind = self.next()[1]
            count = None
            if self.peek() == "[":
                self.at += 1
                count = self.expression()
                self.take("]")
            return ("declare", name, kind, count)
        if word == "break":
            self.at += 1
            return ("break",)
        if word == "return":
            self.at += 1
            return ("return", self.expression())
        target = self.expression()
        if self.peek() in ("=", "+=", "-=", "|="):
            sign = self.next()[1]
            if self.peek() == "lambda":
                return self.function(target)
            value = self.expression()
            if sign == "=" and self.peek() == "=":  # two targets of one value
                self.at += 1
                return ("both", target, value, self.expression())
            return ("set", target, value if sign == "=" else ("two", sign[:-1], target, value))
        return ("return", target)

    def function(self, target):
        self.take("lambda")
        self.take("(")
        names = []
        while self.peek() != ")":
            names.append(self.next()[1])
            if self.peek() == ",":
                self.at += 1
        self.take(")")
        self.take("(")
        body = self.block((")",))
        self.take(")")
        return ("lambda", target[1], names, body)

    def expression(self):
        condition = self.level(0)
        if self.peek() != "?":
            return condition
        self.at += 1
        yes = self.expression()
        self.take(":")
        return ("pick", condition, yes, self.expression())

    def level(self, number):
        if number == len(_LEVELS):
            return self.unary()
        left = self.level(number + 1)
        while self.peek() in _LEVELS[number]:
            sign = self.next()[1]
            left = ("two", sign, left, self.level(number + 1))
        return left

    def unary(self):
        if self.peek() in ("-", "!", "~", "+"):
            sign = self.next()[1]
            return ("one", sign, self.unary())
        left = self.postfix()
        if self.peek() == "**":
            self.at += 1
            return ("two", "**", left, self.unary())
        return left

    def postfix(self):
        found = self.atom()
        while self.peek() in (".", "["):
            if self.next()[1] == ".":
                found = ("as", found, self.next()[1])
                continue
            first = self.expression()
            if self.peek() == ":":
                self.at += 1
                found = ("slice", found, first, self.expression())
            else:
                found = ("index", found, first)
            self.take("]")
        return found

    def atom(self):
        kind, text = self.next()
        if kind == "cast":
            self.take("(")
            inside = self.expression()
            self.take(")")
            return ("cast", text, inside)
        if kind in ("sized", "hex", "real", "int"):
            return (kind, text)
        if text == "(":
            inside = self.expression()
            self.take(")")
            return inside
        if text == "{":
            parts = [self.expression()]
            while self.peek() == ",":
                self.at += 1
                parts.append(self.expression())
            self.take("}")
            return ("join", parts)
        if kind != "name":
            raise NotUnderstoodError(f"{text!r}")
        if self.peek() != "(":
            return ("name", text)
        self.at += 1
        given = []
        while self.peek() != ")":
            given.append(self.expression())
            if self.peek() == ",":
                self.at += 1
        self.take(")")
        return ("call", text, given)


@functools.cache
def texts(generation):
    """Every instruction's text by its name in lower case, without its encoding."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{generation}.str_pcode")
    return {re.sub(r"_e(32|64)$", "", code.name.lower()): text for code, text in module.PCODE.items()}


@functools.cache
def tree(text):
    return Reader(text).block(("",))
