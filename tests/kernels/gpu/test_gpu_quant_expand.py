"""Packed weights expanded by torch's functions: the bits of the file's own definition, for any bytes."""

import numpy as np
import pytest
import torch
from support.quant import FORMATS, raw_of

from lanewise.formats import get
from lanewise.kernels.gpu import quant_expand
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_pack import pack


def blocks(fmt, rows, count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, count * get(fmt).nbytes), np.uint8)


def same(got, want):
    got = got.numpy()
    return bool(np.all((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))))


@pytest.mark.parametrize("fmt", FORMATS)
def test_any_bytes_become_the_numbers_of_the_format(fmt, monkeypatch):
    monkeypatch.setattr(quant_expand, "_PIECE", 4096)
    for rows, count, gated in ((5, 3, False), (34, 1, True), (40, 9, False)):
        raw = blocks(fmt, rows, count)
        assert same(expand(pack(torch.from_numpy(raw), fmt, gated), torch.float32), get(fmt).dequantize(raw))


def test_experts_and_nothing_keep_their_shape():
    raw = blocks("Q4_K", 21, 2).reshape(3, 7, -1)
    assert same(expand(pack(torch.from_numpy(raw), "Q4_K"), torch.float32), get("Q4_K").dequantize(raw))
    for shape in ((0, 144), (3, 0), (0, 3, 144)):
        assert expand(pack(torch.zeros(shape, dtype=torch.uint8), "Q4_K"), torch.half).shape == (*shape[:-1], shape[-1] // 144 * 256)


def test_a_narrower_type_is_rounded_to_once():
    raw = raw_of("Q6_K", 3, 256)
    wide = torch.from_numpy(get("Q6_K").dequantize(raw.numpy()))
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(expand(pack(raw, "Q6_K"), dtype), wide.to(dtype))
