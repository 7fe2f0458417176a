"""What a spec says, and what a config or a tensor that does not fit is refused with."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support import tiny

from lanewise.errors import ModelFileError, UnsupportedModelError
from lanewise.files import open_model
from lanewise.models import FAMILIES, spec_of
from lanewise.models.rope import Scaling, frequencies


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny.save_directory(tiny.model_of("llama"), tmp_path / "hf")


def _changed(directory: Path, **changes: Any) -> Path:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))
    return directory


def _refusal(path: Path) -> str:
    with open_model(path) as file, pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        spec_of(file)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_spec_is_plain_data_that_can_be_compared(directory: Path) -> None:
    with open_model(directory) as one, open_model(directory) as two:
        assert spec_of(one) == spec_of(two)
        spec = spec_of(one)
    assert (spec.family, spec.hidden, spec.vocab, spec.context, len(spec.layers)) == ("llama", 128, 384, 256, 3)
    assert spec.head.weight == spec.embedding  # tied
    names = [w.name for w in spec.weights()]
    assert len(names) == len(set(names)) == 2 + 3 * 9
    assert names[0] == "model.embed_tokens.weight"
    assert spec.parameters == sum(p.numel() for p in tiny.model_of("llama").parameters())


def test_a_family_costs_one_small_file() -> None:
    for family in FAMILIES.values():
        source = Path(family.__code__.co_filename).read_text()
        assert len(source.splitlines()) < 40


def test_an_unknown_family_is_refused_with_the_known_ones(directory: Path) -> None:
    assert "model family 'mamba' is not supported; supported: llama, qwen2, qwen3" in _refusal(_changed(directory, model_type="mamba"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"hidden_size": 2**40}, f"hidden_size is {2**40}"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_key_value_heads": 3}, "must divide the 8 heads"),
        ({"vocab_size": 383}, "the shape of tensor"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"attention_bias": True}, "self_attn.q_proj.bias"),
        ({"tie_word_embeddings": False}, "lm_head.weight"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "RoPE scaling 'longrope' is not known"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "factor is 0.5; 1 to 1000000"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 1}}, "yarn needs 0.001 <= slow"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0}}, "llama3 needs 0 < low"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "hot"}}, "rope_parameters.rope_theta is 'hot'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor other than 1"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e308}}, "<= 1000000"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_slow": 1e-308}}, "yarn needs 0.001 <= slow"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e38}}, "0.001 to 1000 is expected"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 1, "mscale_all_dim": -10.0}}, "mscale_all_dim is -10.0"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "each layer type"),
        ({"rms_norm_eps": 1e308}, "rms_norm_eps is 1e+308"),
        ({"layer_types": ["x", "y", "z"]}, "layer type x is not supported"),
        ({"num_hidden_layers": 1}, "are not part of a llama model of 1 layers"),
        ({"head_dim": 15}, "rotated dimensions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_does_not_fit_is_refused(directory: Path, changes: dict[str, Any], words: str) -> None:
    with open_model(_changed(directory, **changes)) as file, pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        spec_of(file)
    assert words.replace("'", "") in str(caught.value).replace("'", "")
    assert "\n" not in str(caught.value)


def test_the_older_spelling_of_rope_scaling_means_the_same(directory: Path) -> None:
    new = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
    with open_model(_changed(directory, rope_parameters=new)) as file:
        want = spec_of(file).layers[0].mixer.rope
    old = {"rope_parameters": None, "rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    with open_model(_changed(directory, **old)) as file:
        assert spec_of(file).layers[0].mixer.rope == want


def test_sliding_windows_follow_the_layer_types(tmp_path: Path) -> None:
    directory = tiny.save_directory(tiny.model_of("qwen2"), tmp_path / "hf")
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    with open_model(_changed(directory, use_sliding_window=True, sliding_window=32, layer_types=kinds)) as file:
        assert [layer.mixer.window for layer in spec_of(file).layers] == [None, 32, 32]
    with open_model(_changed(directory, layer_types=kinds[:2])) as file, pytest.raises(ModelFileError, match="num_hidden_layers is 3"):
        spec_of(file)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    directory = tiny.save_directory(tiny.model_of("llama"), tmp_path / "hf")
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, directory / "model.safetensors")
    assert "model.layers.1.mlp.up_proj.weight" in _refusal(directory)


def test_tensors_that_the_spec_does_not_read_are_refused(tmp_path: Path) -> None:
    model = tiny.model_of("llama", attention_bias=True)
    directory = _changed(tiny.save_directory(model, tmp_path / "hf"), attention_bias=False)
    assert "are not part of a llama model" in _refusal(directory)


def test_gguf_keys_that_change_the_arithmetic_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    monkeypatch.setattr(gguf.GGUFWriter, "add_name", lambda self, name: self.add_uint32("llama.expert_count", 8))
    assert "llama.expert_count is 8; only 0 is supported" in _refusal(tiny.save_gguf(tiny.model_of("llama"), tmp_path / "moe.gguf"))


def test_biases_of_a_llama_are_read_from_both_kinds_of_file(tmp_path: Path) -> None:
    model = tiny.model_of("llama", attention_bias=True, mlp_bias=True)
    for path in (tiny.save_directory(model, tmp_path / "hf"), tiny.save_gguf(model, tmp_path / "t.gguf")):
        with open_model(path) as file:
            layer = spec_of(file).layers[0]
        assert all(linear.bias for linear in (layer.mixer.q, layer.mixer.o, layer.channel.gate, layer.channel.down))


def _gguf_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> Path:
    """A tiny GGUF whose RoPE keys are only those given."""

    def add(writer: Any, config: Any) -> None:
        writer.add_rope_freq_base(10000.0)
        for key, value in keys.items():
            (writer.add_string if isinstance(value, str) else writer.add_float32)(f"llama.rope.{key.replace('__', '.')}", value)

    monkeypatch.setattr(tiny, "_add_rope", add)
    return tiny.save_gguf(tiny.model_of("llama"), tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf")


def test_a_gguf_factor_without_a_type_is_linear_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, linear, untyped, legacy, none = (
        _gguf_with(tmp_path, monkeypatch, **keys)
        for keys in ({}, {"scaling__type": "linear", "scaling__factor": 4.0}, {"scaling__factor": 4.0}, {"scale_linear": 4.0}, {"scale_linear": 0.0})
    )
    ropes = []
    for path in (plain, linear, untyped, legacy, none):
        with open_model(path) as file:
            ropes.append(spec_of(file).layers[0].mixer.rope)
    assert ropes[1] == ropes[2] == ropes[3] != ropes[0]
    assert ropes[4] == ropes[0]


def test_scaling_without_a_factor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    for path in (_gguf_with(tmp_path, monkeypatch, scaling__type="yarn"), _changed(directory, rope_parameters={"rope_type": "linear"})):
        assert "the RoPE scaling factor is None" in _refusal(path)


def test_a_refused_scaling_names_the_file(directory: Path) -> None:
    assert "factor is 0.5" in _refusal(_changed(directory, rope_parameters={"rope_type": "linear", "factor": 0.5}))


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_a_factor_of_one_changes_no_frequency(kind: str) -> None:
    plain, _ = frequencies(16, 10000.0)
    scaled, magnitude = frequencies(16, 10000.0, Scaling(kind, factor=1.0, original=64))
    assert scaled == pytest.approx(plain, rel=4 * sys.float_info.epsilon)
    assert magnitude == 1.0
