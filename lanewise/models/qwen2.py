"""Qwen2 and Qwen2.5, dense: the plain decoder with biases on q, k and v."""

from lanewise.files import ModelFile
from lanewise.models.config import read_config
from lanewise.models.decoder import dense_decoder
from lanewise.models.spec import ModelSpec


def qwen2(file: ModelFile) -> ModelSpec:
    """The spec of a `qwen2` GGUF file or of a Qwen2ForCausalLM directory."""
    return dense_decoder("qwen2", file, read_config(file), biases=frozenset("qkv"))
