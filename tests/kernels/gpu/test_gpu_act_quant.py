"""What the quantization of activations refuses, and what it needs no kernel for."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch

from lanewise.arch import TARGETS
from lanewise.errors import FormatError, ShapeError
from lanewise.kernels.gpu.act_quant import act_quant, plain

ARCH = TARGETS["sm_90"]


@pytest.mark.parametrize(
    ("x", "kind", "norm", "error", "words"),
    [
        (torch.zeros(1, 64), "q8_1", None, FormatError, "activations of kind 'q8_1'; there are q8_0 and q8_k"),
        (torch.zeros(1, 48), "q8_0", None, FormatError, "q8_0: k=48 is not a whole number of groups of 32"),
        (torch.zeros(1, 288), "q8_k", None, FormatError, "q8_k: k=288 is not a whole number of groups of 256"),
        (torch.zeros(64), "q8_0", None, ShapeError, "q8_0: x is torch.float32[64]; it must be [m, k] of bfloat16, float16 or float32"),
        (torch.zeros(1, 64).double(), "q8_0", None, ShapeError, "q8_0: x is torch.float64[1, 64]; it must be [m, k] of bfloat16, float16 or float32"),
        (torch.zeros(2, 64).t(), "q8_0", None, FormatError, "q8_0: k=2 is not a whole number of groups of 32"),
        (torch.zeros(32, 64).t(), "q8_0", None, ShapeError, "q8_0: neighbours in a row of x lie 64 elements apart; they must lie side by side"),
        (
            torch.zeros(1, 64),
            "q8_0",
            torch.zeros(32),
            ShapeError,
            "q8_0: norm is torch.float32[32] with strides [1]; it must be [64] of bfloat16, float16 or float32, without gaps",
        ),
        (
            torch.zeros(1, 64),
            "q8_0",
            torch.zeros(128)[::2],
            ShapeError,
            "q8_0: norm is torch.float32[64] with strides [2]; it must be [64] of bfloat16, float16 or float32, without gaps",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(x, kind, norm, error, words):
    with pytest.raises(error) as caught:
        act_quant(x, kind, norm=norm, arch=ARCH)
    assert str(caught.value) == words


@pytest.mark.parametrize("rows", [torch.zeros(2), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2).int(), torch.zeros(4).int()[::2]])
def test_rows_that_are_no_list_of_int32_are_refused_in_words(rows):
    with pytest.raises(ShapeError) as caught:
        act_quant(torch.zeros(2, 64), "q8_0", rows=rows, arch=ARCH)
    words = f"q8_0: rows are {rows.dtype}{list(rows.shape)} with strides {list(rows.stride())}; they must be int32, one for each token"
    assert str(caught.value) == words


@pytest.mark.parametrize("kind", ["q8_0", "q8_k"])
@pytest.mark.parametrize(("m", "k"), [(0, 512), (3, 0)])
def test_nothing_is_quantized_to_nothing_without_a_kernel(kind, m, k):
    q, d, sums = plain(act_quant(torch.zeros(m, k), kind, arch=ARCH))
    assert q.shape == (m, k)
    assert d.shape == (m, k // (32 if kind == "q8_0" else 256))
    assert sums.shape == (m, k // (32 if kind == "q8_0" else 16))
