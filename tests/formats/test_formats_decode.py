"""Dequantize against the official `gguf` package: every format, every bit pattern of a scale, bit for bit."""

import numpy as np
import pytest
from formats_cases import ALL, BLOCKS, official, random_bytes
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from lanewise.formats import by_ggml_type, get


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape == want.shape and bool(np.array_equal(got.view(np.uint32), want.view(np.uint32)))


@pytest.mark.parametrize("name", ALL)
def test_sizes_and_numbers_are_those_of_the_official_package(name: str) -> None:
    fmt, kind = get(name), GGMLQuantizationType[name]
    assert (fmt.block, fmt.nbytes) == GGML_QUANT_SIZES[kind]
    assert fmt.ggml_type == int(kind)
    assert by_ggml_type(int(kind)) is fmt
    assert fmt.bits_per_weight == 8 * fmt.nbytes / fmt.block
    assert sum(fmt.layout.fields[field][0].itemsize for field in fmt.layout.names) == fmt.nbytes  # no padding


@pytest.mark.parametrize("name", ALL)
def test_random_bytes_decode_bit_for_bit_like_the_official_package(name: str) -> None:
    raw = random_bytes(name, rows=37, blocks=max(1, 2048 // get(name).block))
    assert same_bits(get(name).dequantize(raw), official(raw, name))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_fp16_scale_decodes_bit_for_bit_nan_and_inf_and_subnormals_included(name: str) -> None:
    fmt = get(name)
    raw = random_bytes(name, rows=1 << 16, blocks=1, seed=1)
    blocks = raw.view(fmt.layout)[:, 0]
    patterns = np.arange(1 << 16, dtype=np.uint16)
    halves = [field for field in fmt.layout.names if fmt.layout[field] == np.dtype("<f2")]
    assert halves
    for shuffle, field in enumerate(halves):
        blocks[field] = (patterns if shuffle == 0 else np.random.default_rng(2).permutation(patterns)).view(np.float16)
    got = fmt.dequantize(raw)
    assert np.isnan(got).any()
    assert np.isinf(got).any()
    assert same_bits(got, official(raw, name))


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_sixteen_bit_float_decodes_bit_for_bit(name: str) -> None:
    raw = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(256, 512)
    assert same_bits(get(name).dequantize(raw), official(raw, name))


def test_f32_keeps_every_bit() -> None:
    raw = random_bytes("F32", rows=64, blocks=1024)
    raw.view(np.uint32)[0, :2] = 0x7F800001, 0xFFC12345  # a signalling NaN and a quiet one with a payload
    assert np.array_equal(get("F32").dequantize(raw).view(np.uint8), raw)


@pytest.mark.parametrize("name", ALL)
def test_a_tensor_longer_than_a_chunk_decodes_like_its_rows(name: str) -> None:
    fmt = get(name)
    raw = random_bytes(name, rows=700, blocks=512 // fmt.block, seed=3)  # 358,400 weights: three chunks, the last one ragged
    whole = fmt.dequantize(raw)
    for row in (0, 255, 256, 511, 512, 699):
        assert same_bits(fmt.dequantize(raw[row]), whole[row])
