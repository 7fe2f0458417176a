"""Names and numbers of formats: what is known, and the words for what is not."""

import numpy as np
import pytest
from formats_cases import ALL
from gguf.constants import GGMLQuantizationType

from lanewise.errors import FormatError
from lanewise.formats import FORMATS, by_ggml_type, get


def test_formats_are_found_by_name_in_either_case() -> None:
    for name in ALL:
        assert get(name) is get(name.lower()) is FORMATS[name]


@pytest.mark.parametrize("name", ["", "Q4", "Q4_K_M", "MXFP4", None, 12])
def test_an_unknown_name_is_refused_with_the_list(name: object) -> None:
    with pytest.raises(FormatError, match=r"unknown format .*F32, F16, BF16, Q4_0.*IQ4_XS"):
        get(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind in GGMLQuantizationType if kind.name not in FORMATS])
def test_a_ggml_type_without_support_is_refused_by_its_name(kind: GGMLQuantizationType) -> None:
    with pytest.raises(FormatError, match=rf"^{kind.name} \(ggml type {int(kind)}\) is not supported; supported: .*Q4_K \(12\)"):
        by_ggml_type(int(kind))


@pytest.mark.parametrize("number", [-1, 77, 2**32 - 1])
def test_a_number_that_ggml_does_not_have_is_refused_as_a_number(number: int) -> None:
    with pytest.raises(FormatError, match=rf"^ggml type {number} is not supported"):
        by_ggml_type(number)


@pytest.mark.parametrize("name", ALL)
def test_each_format_says_how_activations_meet_it(name: str) -> None:
    fmt = get(name)
    assert fmt.activation == {1: "float", 32: "q8_0", 256: "q8_k"}[fmt.block]


def test_a_format_prints_as_its_facts() -> None:
    assert "Q4_K" in repr(get("Q4_K"))
    assert "function" not in repr(get("Q4_K"))
    assert get("Q4_K").layout.names == ("d", "dmin", "scales", "qs")
    assert len({hash(f) for f in FORMATS.values()}) == len(FORMATS)
    assert get("BF16").layout == np.dtype([("w", "<u2")])
