"""open_model: the one way in, whatever the model's files are."""

import os
from os import PathLike
from pathlib import Path

from lanewise.errors import ModelFileError
from lanewise.files.gguf import ACCEPTED
from lanewise.files.gguf_split import open_gguf
from lanewise.files.model_file import ModelFile
from lanewise.files.safetensors import open_directory

__all__ = ["open_model"]


def open_model(path: str | PathLike[str]) -> ModelFile:
    """A model from a .gguf file (any part of a split one) or from a directory with config.json and *.safetensors.

    The files are mapped read-only and checked whole, sizes and offsets included, before anything in them is used; tensor data is not
    read. Raises ModelFileError: which file, which field, its value, what is allowed. The files must not shrink while the
    model is open (see `mapped.map_file`).

    >>> open_model("absent.gguf")
    Traceback (most recent call last):
    lanewise.errors.ModelFileError: absent.gguf: path is missing; a .gguf file or a Hugging Face directory is expected
    """
    if not isinstance(path, str | os.PathLike):
        raise ModelFileError("the model's path", "value", path, ACCEPTED)
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise ModelFileError("the model's path", "value", os.fspath(path), ACCEPTED)
    where = Path(path)
    return open_directory(where) if os.path.isdir(where) else open_gguf(where)
