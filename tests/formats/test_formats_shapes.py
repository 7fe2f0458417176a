"""Shapes, dtypes, `out`, strides and memory: the part of a format that is the same for all of them."""

import tracemalloc

import numpy as np
import pytest
from formats_cases import ALL, official, random_bytes, weights

from lanewise.errors import FormatError
from lanewise.formats import get

LEADING = [(), (0,), (1,), (3,), (0, 5), (2, 3), (2, 1, 3), (2, 0, 3)]
SCRATCH = 16 << 20  # bytes that quantize and dequantize may use beside their result


@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_any_leading_dimensions_go_both_ways(name: str, leading: tuple[int, ...]) -> None:
    fmt = get(name)
    x = np.random.default_rng(0).standard_normal((*leading, 512)).astype(np.float32)
    raw = fmt.quantize(x)
    assert raw.shape == (*leading, fmt.row_bytes(512))
    assert fmt.dequantize(raw).shape == x.shape
    assert fmt.blocks(raw).shape == (*leading, 512 // fmt.block)


@pytest.mark.parametrize("name", ALL)
def test_rows_of_no_weights_are_rows_of_no_bytes(name: str) -> None:
    fmt = get(name)
    assert fmt.row_bytes(0) == 0
    assert fmt.quantize(np.zeros((4, 0), np.float32)).shape == (4, 0)
    assert fmt.dequantize(np.zeros((4, 0), np.uint8)).shape == (4, 0)


@pytest.mark.parametrize("name", [n for n in ALL if get(n).block > 1])
def test_a_row_that_is_no_whole_number_of_blocks_is_refused_with_both_numbers(name: str) -> None:
    fmt = get(name)
    k = fmt.block + 1
    with pytest.raises(FormatError, match=rf"{name}: .*k={k}.* {fmt.block}$"):
        fmt.row_bytes(k)
    with pytest.raises(FormatError, match=rf"{name}: .*k={k}.* {fmt.block}$"):
        fmt.quantize(np.zeros((2, k), np.float32))
    with pytest.raises(FormatError, match=rf"{name}: .* {fmt.nbytes - 1} bytes .* {fmt.nbytes} bytes"):
        fmt.dequantize(np.zeros((2, fmt.nbytes - 1), np.uint8))
    with pytest.raises(FormatError, match="k=-"):
        fmt.row_bytes(-fmt.block)


@pytest.mark.parametrize("x", [np.zeros((1, 256)), np.zeros((1, 256), np.float16), np.zeros((1, 256), ">f4"), np.float32(1), [1.0] * 256], ids=str)
def test_quantize_takes_float32_arrays_only(x: object) -> None:
    with pytest.raises(FormatError, match=r"Q4_K: x is .*; quantize takes float32\[\.\.\., k\]"):
        get("Q4_K").quantize(x)  # type: ignore[arg-type]


@pytest.mark.parametrize("raw", [np.zeros((1, 144), np.int8), np.zeros((1, 36), np.float32), np.uint8(1), b"0" * 144])
def test_dequantize_takes_uint8_arrays_only(raw: object) -> None:
    with pytest.raises(FormatError, match=r"Q4_K: raw is .*; it must be uint8\[\.\.\., row_bytes\]"):
        get("Q4_K").dequantize(raw)  # type: ignore[arg-type]


def test_out_is_filled_and_returned() -> None:
    raw = random_bytes("Q5_K", 9, 3)
    out = np.full((9, 768), np.nan, np.float32)
    assert get("Q5_K").dequantize(raw, out=out) is out
    assert np.array_equal(out.view(np.uint32), official(raw, "Q5_K").view(np.uint32))


def _read_only(shape: tuple[int, int]) -> np.ndarray:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((9, 512), np.float32),
        np.zeros((9, 768)),
        np.zeros((768, 9), np.float32).T,
        np.zeros((18, 768), np.float32)[::2],
        _read_only((9, 768)),
    ],
    ids=["shape", "dtype", "order", "strides", "read-only"],
)
def test_an_out_that_does_not_fit_is_refused(out: np.ndarray) -> None:
    with pytest.raises(FormatError, match=r"Q5_K: out is .*; it must be writeable, C-contiguous float32\[9, 768\]"):
        get("Q5_K").dequantize(random_bytes("Q5_K", 9, 3), out=out)


@pytest.mark.parametrize("name", ALL)
def test_strided_views_give_what_their_copies_give(name: str) -> None:
    fmt = get(name)
    nbytes = fmt.row_bytes(256)
    raw = fmt.quantize(weights("normal", 24, 1024))
    x = weights("normal", 24, 1024, seed=1)
    for view in (raw[::2], raw[:, :nbytes], raw[::-3, nbytes:], np.asfortranarray(raw), raw.reshape(2, 12, -1)[:, ::2], raw[0, ::-1]):
        copy = np.ascontiguousarray(view)
        assert np.array_equal(fmt.dequantize(view).view(np.uint32), fmt.dequantize(copy).view(np.uint32))
        assert np.array_equal(fmt.blocks(view).view(np.uint8), copy)
    for view in (x[::2], x[:, 256:768], np.asfortranarray(x), x.reshape(4, 6, -1)[:, ::-1], x[::5, ::-1], x[3, ::-1]):
        assert np.array_equal(fmt.quantize(view), fmt.quantize(np.ascontiguousarray(view)))


def test_a_strided_row_wider_than_a_chunk_is_taken_in_pieces() -> None:
    wide = np.random.default_rng(5).standard_normal((2, 1 << 18)).astype(np.float32)
    fmt = get("Q8_0")
    strided = np.repeat(wide, 2, axis=1)[:, ::2]
    assert np.array_equal(fmt.quantize(strided), fmt.quantize(wide))


def test_blocks_are_a_view_of_the_bytes() -> None:
    raw = np.zeros((3, 2 * 34), np.uint8)
    get("Q8_0").blocks(raw)["d"] = 1
    assert (raw.reshape(3, 2, 34)[..., :2] == (0, 60)).all()  # fp16 1.0 is 0x3C00


@pytest.mark.parametrize("name", ALL)
def test_scratch_memory_does_not_grow_with_the_tensor(name: str) -> None:
    fmt = get(name)
    x = np.zeros((2048, 1024), np.float32)
    x[:, ::3] = 1
    out = np.empty_like(x)
    tracemalloc.start()
    try:
        raw = fmt.quantize(x)
        assert tracemalloc.get_traced_memory()[1] < raw.nbytes + SCRATCH
        tracemalloc.reset_peak()
        fmt.dequantize(raw, out=out)
        assert tracemalloc.get_traced_memory()[1] < raw.nbytes + SCRATCH // 4
    finally:
        tracemalloc.stop()
