"""SamplingParams takes what it documents and refuses the rest with words."""

from typing import Any

import numpy as np
import pytest

from lanewise.engine.params import SamplingParams
from lanewise.errors import SamplingError


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_tokens", 0, "a whole number at least 1"),
        ("max_tokens", 2.5, "a whole number"),
        ("max_tokens", True, "a whole number"),
        ("temperature", -0.1, "at least 0"),
        ("temperature", float("nan"), "a finite number"),
        ("temperature", float("inf"), "a finite number"),
        ("temperature", "hot", "a finite number"),
        ("top_k", -1, "at least 0"),
        ("top_p", 0.0, "above 0.0 and at most 1.0"),
        ("top_p", 1.01, "at most 1.0"),
        ("min_p", -0.5, "at least 0.0 and at most 1.0"),
        ("repetition_penalty", 0, "at least 0.001 and at most 1000.0"),
        ("repetition_penalty", 1e300, "at most 1000.0"),
        ("presence_penalty", -1e300, "at least -10000.0"),
        ("max_tokens", 10**400, "more than 19 digits"),
        ("temperature", 10**400, "more than 19 digits"),
        ("top_k", -(10**400), "more than 19 digits"),
        ("seed", 2**64, "more than 19 digits"),
        ("stop", 5, "it takes a tuple"),
        ("stop", None, "it takes a tuple"),
        ("stop_ids", 5, "it takes a tuple"),
        ("presence_penalty", None, "a finite number"),
        ("frequency_penalty", float("-inf"), "a finite number"),
        ("seed", -1, "at least 0"),
        ("logprobs", 101, "at most 100"),
        ("stop", ("",), "texts that are not empty"),
        ("stop", (3,), "texts that are not empty"),
        ("stop_ids", (-4,), "at least 0"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_accepted(name: str, value: Any, words: str) -> None:
    with pytest.raises(SamplingError, match=name) as caught:
        SamplingParams(**{name: value})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_stop_string_may_be_given_without_a_tuple() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_limits_themselves_are_accepted() -> None:
    SamplingParams(max_tokens=1, temperature=0, top_k=0, top_p=1, min_p=0, logprobs=0, seed=0)
    SamplingParams(min_p=1.0, logprobs=100, presence_penalty=-2, frequency_penalty=2)


def test_numpy_scalars_are_numbers() -> None:
    assert SamplingParams(max_tokens=np.int64(4), temperature=np.float32(0.5)).max_tokens == 4  # type: ignore[arg-type]
