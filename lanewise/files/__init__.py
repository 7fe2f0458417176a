"""GGUF and safetensors readers, tokenizer, chat template: a model's files, checked before they are trusted."""

from lanewise.files.metadata import Metadata
from lanewise.files.model_file import ModelFile, Tensor
from lanewise.files.opening import open_model

__all__ = ["Metadata", "ModelFile", "Tensor", "open_model"]
