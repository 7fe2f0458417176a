"""Quantize: the bytes of the simple formats, the error of the searched ones, and the inputs that have no answer."""

import ctypes
import time

import numpy as np
import pytest
from formats_cases import ALL, BLOCKS, FACTS, KINDS, LEGACY, SEARCHED, SIGNED, TABLE, rmse, weights
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize as gguf_quantize

from lanewise.errors import FormatError
from lanewise.formats import get

K_BY_BITS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["F32", "F16", "BF16", *LEGACY])
def test_simple_formats_give_the_bytes_of_the_official_package(name: str, kind: str) -> None:
    x = weights(kind)
    assert np.array_equal(get(name).quantize(x), gguf_quantize(x, GGMLQuantizationType[name]).view(np.uint8))


@pytest.mark.parametrize("name", LEGACY)
def test_halves_and_equal_extremes_give_the_bytes_of_the_official_package(name: str) -> None:
    """Blocks of small integers and halves: products land on ties, and the furthest value comes with both signs."""
    rng = np.random.default_rng(0)
    x = (rng.integers(-254, 255, (512, 256)) / 2).astype(np.float32)
    x[:, ::32], x[:, 1::32] = 127, -127
    x[1::2] *= -1
    assert np.array_equal(get(name).quantize(x), gguf_quantize(x, GGMLQuantizationType[name]))


def naive(x: np.ndarray, name: str) -> np.ndarray:
    """x[..., k] after the plainest rounding to the format: scales from minimum and maximum or from the furthest value, no search."""
    affine = {"Q2_K": (3, 16, 15), "Q4_K": (15, 32, 63), "Q5_K": (31, 32, 63)}
    signed = {"Q3_K": (4, 16, 32), "Q6_K": (32, 16, 128)}
    blocks = x.astype(np.float64).reshape(-1, 32 if name == "IQ4_NL" else 256)
    with np.errstate(all="ignore"):
        if name in affine:
            most, size, scale_most = affine[name]
            sub = blocks.reshape(len(blocks), -1, size)
            low = np.minimum(sub.min(-1), 0)
            step = _on_grid((np.maximum(sub.max(-1), 0) - low) / most, 0, scale_most)[..., None]
            offset = _on_grid(-low, 0, scale_most)[..., None]
            y = np.clip(np.nan_to_num(np.rint((sub + offset) / step)), 0, most) * step - offset
        elif name in signed:
            half, size, scale_most = signed[name]
            sub = blocks.reshape(len(blocks), -1, size)
            step = _on_grid(_furthest(sub)[..., 0] / -half, -scale_most, scale_most - 1)[..., None]
            y = np.clip(np.nan_to_num(np.rint(sub / step)), -half, half - 1) * step
        else:
            sub = blocks.reshape(len(blocks), -1, 32)
            step = _furthest(sub)[..., 0] / TABLE[0]
            step = (_on_grid(step, -32, 31) if name == "IQ4_XS" else step.astype(np.float16).astype(np.float64))[..., None]
            nearest = np.abs(np.nan_to_num(sub / step)[..., None] - TABLE).argmin(-1)
            y = TABLE[nearest] * step
    return y.reshape(x.shape)


def _furthest(sub: np.ndarray) -> np.ndarray:
    return np.take_along_axis(sub, np.abs(sub).argmax(-1)[..., None], -1)


def _on_grid(scales: np.ndarray, least: int, most: int) -> np.ndarray:
    """scales[n, sub-blocks] as whole multiples of one fp16 number per block."""
    d = _furthest(scales) / (least or most)
    d = d.astype(np.float16).astype(np.float64)
    return np.clip(np.nan_to_num(np.rint(scales / d)), least, most) * d


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_is_no_worse_than_rounding_without_one(name: str, kind: str) -> None:
    x = weights(kind)
    fmt = get(name)
    for rows in np.array_split(x, 8):  # small samples too: 32 to 256 blocks
        assert rmse(rows, fmt.dequantize(fmt.quantize(rows))) <= rmse(rows, naive(rows, name))


@pytest.mark.parametrize("kind", KINDS)
def test_more_bits_always_mean_less_error(kind: str) -> None:
    x = weights(kind)
    errors = [rmse(x, get(name).dequantize(get(name).quantize(x))) for name in K_BY_BITS]
    assert errors == sorted(errors, reverse=True)
    assert len(set(errors)) == len(errors)


@pytest.fixture(scope="module")
def ggml_quantize():  # type: ignore[no-untyped-def]
    """llama.cpp's own quantizers, which the xllamacpp wheel exports beside its Python module."""
    module = pytest.importorskip("xllamacpp.xllamacpp", reason="xllamacpp is not installed: no comparison with llama.cpp's quantizers")
    chunk = getattr(ctypes.CDLL(module.__file__), "ggml_quantize_chunk", None)
    if chunk is None:
        pytest.skip("this xllamacpp does not export ggml_quantize_chunk: no comparison with llama.cpp's quantizers")
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def quantize(x: np.ndarray, name: str) -> np.ndarray:
        raw = np.zeros((len(x), get(name).row_bytes(x.shape[1])), np.uint8)
        assert chunk(get(name).ggml_type, x.ctypes.data, raw.ctypes.data, 0, *x.shape, None) == raw.nbytes
        return raw

    return quantize


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BLOCKS)
def test_the_error_is_no_larger_than_with_llama_cpp(name: str, kind: str, ggml_quantize) -> None:  # type: ignore[no-untyped-def]
    x = weights(kind)
    fmt = get(name)
    assert rmse(x, fmt.dequantize(fmt.quantize(x))) <= rmse(x, fmt.dequantize(ggml_quantize(x, name)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ALL)
def test_nan_and_inf_are_refused_where_they_are(name: str, bad: float) -> None:
    x = np.zeros((2, 300, 512), np.float32)
    x[1, 299, 511] = bad  # far behind the first chunk
    with pytest.raises(FormatError, match=rf"^{name}: x\[1, 299, 511\] is {bad}; quantize takes finite values up to "):
        get(name).quantize(x)
    x[1, 7, 3] = bad
    with pytest.raises(FormatError, match=r"x\[1, 7, 3\]"):
        get(name).quantize(x)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", [n for n in ALL if n != "F32"])
def test_a_value_that_no_scale_reaches_is_refused_and_the_largest_that_is_taken_stays_finite(name: str, sign: int) -> None:
    fmt = get(name)
    largest = np.float32(fmt.largest)
    x = np.zeros((1, 256), np.float32)
    x[0, 5] = sign * np.nextafter(largest, np.float32(np.inf))
    with pytest.raises(FormatError, match=rf"^{name}: x\[0, 5\] is "):
        fmt.quantize(x)
    for others in (0, largest, -largest, largest / 1000):
        x[:] = others
        x[0, 5] = sign * largest
        y = fmt.dequantize(fmt.quantize(x))
        assert np.isfinite(y).all()
        # In the coarsest format a block that also holds the opposite extreme keeps half of it.
        assert sign * y[0, 5] >= largest / 2


@pytest.mark.parametrize("name", ALL)
def test_zeros_stay_zeros(name: str) -> None:
    fmt = get(name)
    x = np.zeros((3, 512), np.float32)
    x[1] = -0.0
    x[2, 256:] = weights("normal", 1, 256)
    y = fmt.dequantize(fmt.quantize(x))
    assert not y[:2].any()
    assert not y[2, :256].any()
    if name in SIGNED:  # zero is a code: it survives beside other weights
        x[2, 256::2] = 0
        assert not fmt.dequantize(fmt.quantize(x))[2, 256::2].any()


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-30, 1e-12, 2.0**-40, 1e-8])
@pytest.mark.parametrize("name", BLOCKS)
def test_weights_too_small_for_any_scale_become_small_or_zero(name: str, size: float) -> None:
    x = weights("uniform", 8) * np.float32(size)
    y = get(name).dequantize(get(name).quantize(x))
    # fp16's smallest step is 2^-24, and no code of these formats is further than 128 steps from zero
    assert np.abs(y).max() <= 128 * 2.0**-24


@pytest.mark.parametrize("size", [1e-45, 1e-40])
@pytest.mark.parametrize("name", BLOCKS)
def test_where_one_over_d_overflows_the_codes_are_those_of_zeros(name: str, size: float) -> None:
    fmt = get(name)
    tiny = weights("uniform", 8)
    tiny[:, ::3] = 0
    got, zero = (fmt.blocks(fmt.quantize(x)) for x in (tiny * np.float32(size), tiny * 0))
    for field in FACTS[name].bytes:
        if "dmin" not in fmt.layout.names:  # under integer scales of 0 the affine K formats' codes mean nothing
            assert np.array_equal(got[field], zero[field])


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_subnormal_scales_reach_the_furthest_weight(name: str) -> None:
    """A block scale a little above one subnormal step, rounded down, would leave the largest weights out of reach."""
    step = np.float32(1.4 * 2.0**-24)
    x = weights("uniform", 64) * step * np.float32(get(name).largest / 65504)
    fmt = get(name)
    assert rmse(x, fmt.dequantize(fmt.quantize(x))) <= rmse(x, naive(x, name))


@pytest.mark.parametrize("constant", [3.0, -3.0, 1e-3, -60000.0])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_constant_block_comes_back_to_within_its_scale_rounding(name: str, constant: float) -> None:
    fmt = get(name)
    x = np.full((2, 256), constant, np.float32)
    y = fmt.dequantize(fmt.quantize(x))
    # fp16 rounds d, and integer scales of k bits round it once more; 2^-5 is the coarsest of them (Q2_K, Q3_K, IQ4_XS)
    assert np.abs(y - x).max() <= abs(constant) * 2.0**-5


@pytest.mark.parametrize("name", ALL)
def test_a_block_has_the_same_bytes_in_any_company(name: str) -> None:
    fmt = get(name)
    x = weights("normal", 700, 256)
    whole = fmt.quantize(x)
    assert np.array_equal(fmt.quantize(x.copy()), whole)
    for row in (0, 1, 255, 256, 699):
        assert np.array_equal(fmt.quantize(x[row]), whole[row])
    assert np.array_equal(fmt.quantize(x[3:6]), whole[3:6])


# In seconds of this thread, a tenth to a third of what was measured: a loop over weights in Python is a hundred times slower.
DECODE_FLOOR, ENCODE_FLOOR = 30e6, 2e6


@pytest.mark.parametrize("name", ALL)
def test_speed_is_that_of_vector_operations(name: str) -> None:
    fmt = get(name)
    x = weights("normal", 256)
    raw, out = fmt.quantize(x), np.empty_like(x)
    assert x.size / _fastest(lambda: fmt.quantize(x)) > ENCODE_FLOOR
    assert x.size / _fastest(lambda: fmt.dequantize(raw, out)) > DECODE_FLOOR


def _fastest(call) -> float:  # type: ignore[no-untyped-def]
    times = []
    for _ in range(3):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)
