"""Llama 2, 3.x and everything with its shape (SmolLM2 among them): the plain dense decoder.

A GGUF file holds q and k with their rows permuted, so that rotated pairs are neighbours; safetensors files do not.
"""

from lanewise.files import ModelFile
from lanewise.models.config import read_config
from lanewise.models.decoder import dense_decoder
from lanewise.models.names import tensor_name
from lanewise.models.spec import ModelSpec

_ATTENTION, _MLP = frozenset("qkvo"), frozenset(("gate", "up", "down"))


def llama(file: ModelFile) -> ModelSpec:
    """The spec of a `llama` GGUF file or of a LlamaForCausalLM directory."""
    if file.kind == "gguf":  # the format has no key for biases: the tensors that are there tell
        biases = frozenset(p for p in _ATTENTION | _MLP if tensor_name("gguf", p, 0, "bias") in file.tensors)
    else:
        meta = file.metadata
        biases = (_ATTENTION if meta.flag("attention_bias", False) else frozenset()) | (_MLP if meta.flag("mlp_bias", False) else frozenset())
    return dense_decoder("llama", file, read_config(file, interleaved=file.kind == "gguf"), biases=biases)
