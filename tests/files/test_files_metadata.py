"""Metadata getters: the right type and range, or one line with file, key, value and what is allowed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanewise.errors import ModelFileError
from lanewise.files import Metadata

VALUES: dict[str, Any] = {
    "int": 3,
    "negative": -1,
    "big": 2**40,
    "float": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "true": True,
    "text": "hello",
    "null": None,
    "strings": ["a", "b"],
    "mixed": ["a", 1],
    "ints": np.array([1, 2, 3], np.int32),
    "floats": np.array([0.5, 1.5], np.float64),
    "huge floats": np.array([0.5, 1e300]),
    "bools": np.array([True, False]),
    "json ints": [1, 2],
    "json floats": [1, 2.5],
    "empty": [],
    "object": {"factor": 8, "deep": {"x": "y"}},
    "long": 10**5000,
}
M = Metadata("m.gguf", VALUES)


def _message(call: Callable[[], object]) -> str:
    with pytest.raises(ModelFileError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable()
    return message


def test_getters_return_values_of_their_type() -> None:
    assert M.integer("int") == 3
    assert M.integer("negative", least=-1) == -1
    assert M.integer("big", most=2**63) == 2**40
    assert (M.number("float"), M.number("int")) == (2.5, 3.0)
    assert type(M.number("int")) is float
    assert M.flag("true") is True
    assert M.string("text") == "hello"
    assert M.strings("strings") == ["a", "b"]
    assert M.integers("ints") == [*M.integers("json ints"), 3] == [1, 2, 3]
    assert all(type(item) is int for item in M.integers("ints"))
    assert M.numbers("floats").tolist() == [0.5, 1.5]
    assert M.numbers("json floats").dtype == np.float32
    assert (M.strings("empty"), M.integers("empty"), M.numbers("empty").size) == ([], [], 0)


def test_a_missing_key_takes_the_default_or_is_refused() -> None:
    for getter in (M.integer, M.number, M.flag, M.string, M.strings, M.integers, M.numbers):
        default = object()
        assert getter("absent", default) is default
        assert getter("null", default) is default
        assert "m.gguf: 'absent' is missing; " in _message(lambda getter=getter: getter("absent"))
        assert "m.gguf: 'null' is null; " in _message(lambda getter=getter: getter("null"))


@pytest.mark.parametrize(
    ("getter", "key", "words"),
    [
        ("integer", "float", "'float' is 2.5; an integer from 0 to 2147483647 is expected"),
        ("integer", "true", "'true' is True"),
        ("integer", "negative", "'negative' is -1"),
        ("integer", "big", "'big' is 1099511627776"),
        ("integer", "text", "'text' is 'hello'"),
        ("integer", "long", "'long' is an integer of 16610 bits"),
        ("integer", "ints", "'ints' is a list of 3 that begins [1, 2, 3]"),
        ("number", "nan", "'nan' is nan; a finite number is expected"),
        ("number", "inf", "'inf' is inf"),
        ("number", "long", "'long' is an integer of 16610 bits"),
        ("number", "true", "'true' is True"),
        ("number", "text", "'text' is 'hello'"),
        ("flag", "int", "'int' is 3; true or false is expected"),
        ("string", "int", "'int' is 3; a string is expected"),
        ("strings", "text", "'text' is 'hello'; a list of strings is expected"),
        ("strings", "mixed", "'mixed' is a list of 2"),
        ("strings", "ints", "a list of 3 that begins"),
        ("integers", "floats", "'floats[0]' is 0.5"),
        ("integers", "bools", "'bools[0]' is True"),
        ("integers", "mixed", "'mixed[0]' is 'a'"),
        ("integers", "int", "'int' is 3; a list of integers"),
        ("numbers", "huge floats", "'huge floats[1]' is 1e+300; a list of numbers that are finite in float32"),
        ("numbers", "bools", "'bools' is a list of 2"),
        ("numbers", "mixed", "'mixed' is a list of 2"),
        ("numbers", "text", "'text' is 'hello'"),
        ("section", "int", "'int' is 3; an object is expected"),
        ("section", "strings", "'strings' is a list of 2"),
    ],
)
def test_a_value_of_another_type_or_out_of_range_is_refused(getter: str, key: str, words: str) -> None:
    message = _message(lambda: getattr(M, getter)(key))
    assert message.startswith("m.gguf: ")
    assert words in message, message


def test_bounds_are_checked_and_named() -> None:
    assert "an integer from 1 to 2 is expected" in _message(lambda: M.integer("int", least=1, most=2))
    assert "a finite number from 3 to 4 is expected" in _message(lambda: M.number("float", least=3, most=4))
    assert "a finite number from 3 is expected" in _message(lambda: M.number("float", least=3))
    assert "a finite number up to 2 is expected" in _message(lambda: M.number("float", most=2))
    assert "'ints[2]' is 3; a list of integers from 0 to 2" in _message(lambda: M.integers("ints", most=2))


def test_a_section_is_metadata_and_its_errors_name_the_whole_path() -> None:
    section = M.section("object")
    assert section is not None
    assert section.integer("factor") == 8
    deep = section.section("deep")
    assert deep is not None
    assert "m.gguf: 'object.deep.x' is 'y'; an integer" in _message(lambda: deep.integer("x"))
    assert M.section("absent") is None
    assert M.section("null") is None


def test_metadata_is_a_read_only_mapping() -> None:
    assert len(M) == len(VALUES)
    assert set(M) == set(VALUES)
    assert "int" in M
    assert M.get("absent") is None
    assert M.file == Path("m.gguf")
    with pytest.raises(KeyError):
        M["absent"]
    with pytest.raises(TypeError):
        M["int"] = 4  # type: ignore[index]


def test_lists_that_are_returned_can_be_changed_without_changing_the_metadata() -> None:
    M.strings("strings").append("c")
    M.integers("json ints").append(9)
    assert M.strings("strings") == ["a", "b"]
    assert M.integers("json ints") == [1, 2]


def test_values_are_cut_and_escaped_in_the_message() -> None:
    m = Metadata("m", {"k\x1b": "\x1b" * 500, "list": ["\x1b" * 500] * 9, "nested": [[1], {}, 10**90]})
    message = _message(lambda: m.integer("k\x1b"))
    assert "'k\\x1b' is '\\x1b" in message
    assert "(500 long)" in message
    assert len(_message(lambda: m.integer("list"))) < 400
    assert "begins [list, dict, int]" in _message(lambda: m.integer("nested"))
