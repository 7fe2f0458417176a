"""Errors that a user sees: one line each, bounded, and naming what was given and what is accepted."""

import pytest

from lanewise import errors
from lanewise.errors import LanewiseError, ModelFileError, NoKernelError


def test_every_public_error_is_a_lanewise_error():
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, LanewiseError) for kind in kinds)
    assert {k.__name__ for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception)} == set(errors.__all__)


def test_a_message_is_always_one_line():
    assert str(LanewiseError("two\nlines\t and   spaces")) == "two lines and spaces"
    assert "\n" not in str(ModelFileError("a.gguf", "key\n", "value\n", "one\nline"))


def test_a_model_file_error_names_file_field_value_and_what_is_allowed():
    error = ModelFileError("a.gguf", "version", 7, "2 and 3 are read")
    assert str(error) == "a.gguf: version is 7; 2 and 3 are read"
    assert (error.file, error.field, error.value, error.allowed) == ("a.gguf", "version", 7, "2 and 3 are read")


@pytest.mark.parametrize("value", ["x" * 10**7, b"x" * 10**7, list(range(1000))])
def test_a_huge_value_is_cut_in_the_message(value):
    assert len(str(ModelFileError("a.gguf", "name", value, "short ones are allowed"))) < 200


def test_a_hostile_value_cannot_write_control_characters():
    assert "\x1b" not in str(ModelFileError("a.gguf", "name", "\x1b[2J", "plain text is allowed"))


def test_no_kernel_keeps_every_refusal():
    error = NoKernelError("linear m=1", ["first no", "second no"])
    assert error.refusals == ("first no", "second no")
    assert str(error) == "no kernel for linear m=1: first no; second no"
