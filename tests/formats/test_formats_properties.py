"""Properties of quantize and dequantize over drawn inputs: every weight gets the nearest code, and what can be held is held exactly."""

import numpy as np
import pytest
from formats_cases import BLOCKS, FACTS, LEGACY, half_error, with_code
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.contract import dtype
from lanewise.formats import get

U = dtype("f32").roundoff
# Roundings on the way from a weight to its code: x + offset, 1/step, their product, and step and offset themselves.
ROUNDINGS = 8


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray:
    """float32[rows, 256] or [rows, 512]: several shapes of distribution, sizes down to fp16's subnormals, and planted values."""
    rows = draw(st.integers(1, 3))
    k = draw(st.sampled_from([256, 512]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw(st.sampled_from([rng.standard_normal, rng.standard_exponential, lambda s: rng.standard_t(2, s), lambda s: rng.integers(-9, 10, s)]))(
        (rows, k)
    )
    x = x * 2.0 ** draw(st.integers(-22, 8)) + draw(st.sampled_from([0.0, 0.0, 1.0, -30.0]))
    for value in draw(st.lists(st.floats(-1e3, 1e3, width=32), max_size=4)):
        x[rng.integers(rows), rng.integers(k)] = value
    return np.clip(x, -65504, 65504).astype(np.float32)


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=25, deadline=None)
@given(x=tensors())
def test_every_weight_gets_the_nearest_code_of_its_block(name: str, x: np.ndarray) -> None:
    """So that it is within half a step of its value, or beyond the outermost code."""
    fmt = get(name)
    raw = fmt.quantize(x)
    got = fmt.dequantize(raw).astype(np.float64)
    values = np.stack([fmt.dequantize(with_code(raw, fmt, code)) for code in range(FACTS[name].codes)]).astype(np.float64)
    nearest = np.abs(values - x).min(axis=0)
    span = np.abs(values).max(axis=0)
    slack = ROUNDINGS * U * (np.abs(x) + 2 * span)
    if name in LEGACY:  # ggml chooses these codes before d and m are rounded to fp16: both candidates may have moved by that
        blocks = fmt.blocks(raw)
        moved = FACTS[name].codes * half_error(blocks["d"].astype(np.float64))
        if "m" in fmt.layout.names:
            moved = moved + half_error(blocks["m"].astype(np.float64))
        slack = slack + 2 * np.repeat(moved, fmt.block, axis=-1)
    assert (np.abs(got - x) <= nearest + slack).all()


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "Q8_0"])
@settings(max_examples=25, deadline=None)
@given(x=tensors())
def test_a_second_pass_changes_nothing_where_d_comes_from_the_furthest_weight(name: str, x: np.ndarray) -> None:
    fmt = get(name)
    raw = fmt.quantize(x)
    again = fmt.quantize(fmt.dequantize(raw))
    assert np.array_equal(fmt.dequantize(again), fmt.dequantize(raw))


# Bytes of the scale fields that are the outermost scale (and minimum) of the first sub-block: (field, byte, mask, bits).
OUTERMOST = {
    "Q2_K": [("scales", 0, 0xFF, 0xFF)],
    "Q3_K": [("scales", 0, 0x0F, 0), ("scales", 8, 0x03, 0)],
    "Q4_K": [("scales", 0, 0x3F, 0x3F), ("scales", 4, 0x3F, 0x3F)],
    "Q5_K": [("scales", 0, 0x3F, 0x3F), ("scales", 4, 0x3F, 0x3F)],
    "Q6_K": [("scales", 0, 0xFF, 0x80)],
    "IQ4_XS": [("scales_l", 0, 0x0F, 0), ("scales_h", 0, 0x03, 0)],
}


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_weights_that_a_format_can_hold_come_back_exactly(name: str, seed: int) -> None:
    """Weights on a block's own grid, with the outermost codes and scales in use, so that the plain choice of scale is the right one."""
    fmt, fact = get(name), FACTS[name]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (3, fmt.row_bytes(512)), dtype=np.uint8)
    blocks = raw.view(fmt.layout)
    blocks["d"] = d = rng.uniform(2.0**-8, 1, blocks.shape)
    for offset in {"m", "dmin"} & set(fmt.layout.names):
        blocks[offset] = d / 32 * rng.uniform(0.5, 1, blocks.shape)
    in_blocks = raw.reshape(*blocks.shape, fmt.nbytes)
    for field, byte, mask, bits in OUTERMOST.get(name, ()):
        at = fmt.layout.fields[field][1] + byte
        in_blocks[..., at] = in_blocks[..., at] & (255 - mask) | bits
    values = np.stack([fmt.dequantize(with_code(raw, fmt, code)) for code in range(fact.codes)])
    codes = rng.integers(0, fact.codes, values.shape[1:])
    codes[:, ::16], codes[:, 7::16] = 0, fact.codes - 1
    if name == "Q8_0":  # signed bytes, and -128 is never used
        codes[codes == 128], codes[:, ::16] = 129, 127
    x = np.take_along_axis(values, codes[None], 0)[0]
    assert np.array_equal(fmt.dequantize(fmt.quantize(x)), x)


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-10, 4))
def test_any_bytes_with_sane_scales_can_be_decoded_and_quantized_again(name: str, seed: int, exponent: int) -> None:
    fmt = get(name)
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (2, fmt.row_bytes(512)), dtype=np.uint8)
    blocks = raw.view(fmt.layout)
    for field in fmt.layout.names:
        if fmt.layout[field] == np.dtype("<f2"):
            blocks[field] = rng.uniform(-1, 1, blocks.shape) * 2.0**exponent
    x = fmt.dequantize(raw)
    y = fmt.dequantize(fmt.quantize(x))
    assert np.isfinite(y).all()
    assert np.abs(y - x).max() <= np.abs(x).max()  # never worse than a tensor of zeros
