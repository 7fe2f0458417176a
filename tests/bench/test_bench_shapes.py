"""Random models have the published sizes and their recipe's formats, load like files, and give finite logits."""

import numpy as np
import pytest
from support.run import step_logits
from support.small import SMALL

from lanewise.backends import backend_for
from lanewise.bench.shapes import SHAPES, random_model
from lanewise.errors import FormatError, UnsupportedModelError
from lanewise.files.recipes import names
from lanewise.models import spec_of

# Parameters, the tied head counted once: the models' cards on Hugging Face, to the last one from their safetensors headers.
PUBLISHED = {"smollm2-135m": 134_515_008, "qwen3-0.6b": 596_049_920, "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360}


def test_every_shape_has_the_published_number_of_parameters(monkeypatch):
    monkeypatch.setattr("lanewise.bench.shapes._Drawn.bytes_of", lambda self, fmt, shape, most: np.empty((*shape[:-1], 0), np.uint8))
    assert {name: spec_of(random_model(name, "Q8_0")).parameters for name in SHAPES} == PUBLISHED


def test_formats_are_those_of_the_recipe():
    with random_model("smollm2-135m", "Q4_K_M") as model:
        formats = {name: tensor.format.name for name, tensor in model.tensors.items()}
    # 576 is not a multiple of 256: rows of hidden size fall back, as llama.cpp's do; the rows of ffn_down are 1536 long.
    assert formats["token_embd.weight"] == "Q8_0"
    assert formats["blk.0.attn_q.weight"] == "Q5_0"
    assert [formats[f"blk.{i}.ffn_down.weight"] for i in range(6)] == ["Q6_K", "Q6_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K"]
    assert formats["blk.0.attn_norm.weight"] == "F32"


# Every type on numpy; compiling each format's kernels is what the kernels' own tests do.
@pytest.mark.parametrize(("type_name", "device"), [*((name, "reference") for name in names()), ("Q4_K_M", "cpu"), ("Q4_0", "cpu"), ("F16", "cpu")])
def test_every_type_gives_finite_logits_that_differ(type_name, device):
    with random_model(SMALL, type_name) as model, np.errstate(all="raise"):
        runner = backend_for(device).lower(spec_of(model), model)
        logits = step_logits(runner, [1, 5, 300], [2, 1])
        runner.close()
    assert np.isfinite(logits).all()
    assert logits.std() > 0
    assert not np.array_equal(logits[0], logits[1])


def test_loading_leaves_the_weights_as_they_were():
    with random_model(SMALL, "Q4_K_M") as model:
        before = {name: tensor.data.copy() for name, tensor in model.tensors.items()}
        backend_for("cpu").lower(spec_of(model), model).close()
        assert all(np.array_equal(model.tensor(name).data, data) for name, data in before.items())
        assert all(data.any() for data in before.values())


def test_the_seed_decides_the_bytes():
    def embedding(seed):
        return random_model(SMALL, "Q6_K", seed).tensor("token_embd.weight").data

    assert np.array_equal(embedding(1), embedding(1))
    assert not np.array_equal(embedding(1), embedding(2))


@pytest.mark.parametrize("fmt", ["Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "F16", "BF16", "F32"])
def test_weights_are_about_as_large_as_trained_ones(fmt):
    weights = random_model(SMALL, fmt).tensor("blk.0.ffn_gate.weight").dequantize()
    assert 0.01 < weights.std() < 0.04
    assert abs(weights.mean()) < weights.std() / 4


def test_an_unknown_shape_or_type_is_refused_with_what_there_is():
    with pytest.raises(UnsupportedModelError, match=r"unknown shape 'qwen9'; there are smollm2-135m, qwen3-0.6b"):
        random_model("qwen9", "Q4_0")
    with pytest.raises(FormatError, match="unknown type 'Q9'"):
        random_model("qwen3-0.6b", "Q9")
