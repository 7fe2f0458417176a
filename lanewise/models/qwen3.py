"""Qwen3, dense: RMSNorm on every query and key head, and a head size of its own."""

from lanewise.files import ModelFile
from lanewise.models.config import read_config
from lanewise.models.decoder import dense_decoder
from lanewise.models.spec import ModelSpec


def qwen3(file: ModelFile) -> ModelSpec:
    """The spec of a `qwen3` GGUF file or of a Qwen3ForCausalLM directory."""
    biased = file.kind == "safetensors" and file.metadata.flag("attention_bias", False)
    return dense_decoder("qwen3", file, read_config(file), biases=frozenset("qkvo" if biased else ""), qk_norm=True)
