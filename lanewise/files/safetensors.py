"""Read a Hugging Face directory: config.json and model.safetensors, or the shards that model.safetensors.index.json names.

Layout of one file (the safetensors format's README): u64 header length, a JSON object, tensor data.

    { "NAME": { "dtype": "BF16", "shape": [n, k], "data_offsets": [begin, end] }, ..., "__metadata__": {...} }

Offsets count from the end of the header; the tensors fill what follows without holes. Nothing is trusted before it is checked.
"""

import mmap
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from lanewise.errors import ModelFileError
from lanewise.files.json_file import parse_object, read_object
from lanewise.files.mapped import Plain, looks_like, map_file, shown
from lanewise.files.metadata import Metadata
from lanewise.files.model_file import ModelFile, Tensor
from lanewise.formats import get

__all__ = ["open_directory"]

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES: Final = ("F32", "F16", "BF16")
_HEADER, _DIMS, _NAME, _SHARDS = 24 << 20, 8, 512, 4096
_EXPECTED = f"a directory with config.json and {_SINGLE}, or {_INDEX} and its shards, is expected"


def open_directory(path: Path) -> ModelFile:
    """The model in a directory; model.safetensors goes before an index where both exist, as in transformers. Raises ModelFileError."""
    config = path / "config.json"
    if not os.path.exists(config):
        raise ModelFileError(config, "path", Plain("missing"), _instead(path))
    metadata = Metadata(config, read_object(config, _EXPECTED))
    single, index = path / _SINGLE, path / _INDEX
    if os.path.exists(single):
        return ModelFile(path, "safetensors", metadata, _read(single), (single,))
    if not os.path.exists(index):
        raise ModelFileError(single, "path", Plain("missing"), _instead(path))
    tensors, shards = _read_shards(path, index)
    return ModelFile(path, "safetensors", metadata, tensors, shards)


def _instead(path: Path) -> str:
    """What a directory that is not a model holds instead."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        return f"the directory cannot be listed ({error.strerror})"
    for ending, words in ((".gguf", "name one of its .gguf files"), (".bin", "PyTorch .bin checkpoints are pickles and are not read")):
        found = [name for name in names if name.endswith(ending)]
        if found:
            return f"{_EXPECTED}; it holds {shown(found[0])}: {words}"
    return _EXPECTED


def _read_shards(path: Path, index: Path) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """The tensors of every shard, each in the shard that the index says and none besides."""
    places = read_object(index, _EXPECTED).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelFileError(index, "weight_map", Plain(type(places).__name__), "an object of tensor name to shard is expected")
    listed: dict[str, set[str]] = {}
    for name, shard in places.items():
        # A plain name: no way out of the directory, and no surprise in it.
        if not isinstance(shard, str) or Path(shard).name != shard or "\\" in shard or not shard.isprintable() or not shard.endswith(".safetensors"):
            value = shard if isinstance(shard, str) else Plain(type(shard).__name__)
            raise ModelFileError(index, f"the shard of {shown(name)}", value, "the name of a .safetensors file in the same directory is expected")
        listed.setdefault(shard, set()).add(name)
    if len(listed) > _SHARDS:
        raise ModelFileError(index, "the number of shards", len(listed), f"at most {_SHARDS} are allowed")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(listed):
        held = _read(path / shard)
        for name in sorted(listed[shard] ^ held.keys()):
            if name not in held:
                raise ModelFileError(path / shard, f"tensor {shown(name)}", Plain("missing"), f"{_INDEX} says that it is here")
            raise ModelFileError(path / shard, f"tensor {shown(name)}", Plain("not in the index"), f"{_INDEX} lists every tensor with its shard")
        tensors.update(held)
    return tensors, tuple(path / shard for shard in sorted(listed))


@dataclass(frozen=True, slots=True)
class _Row:
    """One tensor of a header, checked: bytes begin to end of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of one file, in the order of their data."""
    buffer = map_file(path, _EXPECTED)
    length = int.from_bytes(buffer[:8], "little")
    if len(buffer) < 8 or length > len(buffer) - 8 or length > _HEADER or buffer[8:9] != b"{":
        allowed = f"at most {min(_HEADER, max(0, len(buffer) - 8))} bytes and an object are expected; this looks like {looks_like(buffer[:64])}"
        raise ModelFileError(path, "the header's length", length, allowed)
    header = parse_object(path, "the header", buffer[8 : 8 + length])
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise ModelFileError(path, "__metadata__", Plain(type(notes).__name__), "an object of strings is expected")
    rows = sorted((_row(path, name, entry) for name, entry in header.items()), key=lambda row: (row.begin, row.end))
    _refuse_gaps(path, rows, len(buffer) - 8 - length)
    return {row.name: _tensor(buffer, 8 + length, row) for row in rows}


def _row(path: Path, name: str, entry: Any) -> _Row:
    if not name or len(name) > _NAME:
        raise ModelFileError(path, "a tensor's name", name, f"1 to {_NAME} characters are allowed")
    field = f"tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise ModelFileError(path, field, Plain(type(entry).__name__), "an object with dtype, shape and data_offsets is expected")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if dtype not in _DTYPES:
        value = dtype if isinstance(dtype, str) else Plain(type(dtype).__name__)
        raise ModelFileError(path, f"the dtype of {field}", value, f"{', '.join(_DTYPES)} are read")
    if not isinstance(shape, list) or len(shape) > _DIMS or not all(_size(n, 1) for n in shape) or prod(shape) >= 2**60:
        allowed = f"at most {_DIMS} sizes, each at least 1, with a product below 2^60 are expected"
        raise ModelFileError(path, f"the shape of {field}", _brief(shape), allowed)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_size(n, 0) for n in offsets):
        raise ModelFileError(path, f"data_offsets of {field}", _brief(offsets), "two byte offsets are expected")
    nbytes = prod(shape) * get(dtype).nbytes
    begin, end = offsets
    if end - begin != nbytes:
        raise ModelFileError(path, f"data_offsets of {field}", offsets, f"{dtype} {shape} takes {nbytes} bytes")
    return _Row(name, dtype, tuple(shape), begin, end)


def _size(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**63


def _brief(value: Any) -> Any:
    """What an error prints of a value that is not the list it should be."""
    if isinstance(value, list) and all(_size(n, 0) for n in value[:_DIMS]):
        return value[:_DIMS] if len(value) <= _DIMS else Plain(f"a list of {len(value)}")
    return Plain(f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__)


def _refuse_gaps(path: Path, rows: list[_Row], size: int) -> None:
    """The data must be used from its first byte to its last, each byte once."""
    reached = 0
    for row in rows:
        if row.begin != reached:
            what = "tensors must not overlap" if row.begin < reached else "tensors follow one another without holes"
            raise ModelFileError(path, f"data_offsets of tensor {shown(row.name)}", [row.begin, row.end], f"{reached} is the next byte; {what}")
        reached = row.end
        if reached > size:
            allowed = f"the file has {size} bytes of data: it is cut short, or the header is wrong"
            raise ModelFileError(path, f"data_offsets of tensor {shown(row.name)}", [row.begin, row.end], allowed)
    if reached != size:
        raise ModelFileError(path, "the size of the data", size, f"the header describes {reached} bytes")


def _tensor(buffer: mmap.mmap, start: int, row: _Row) -> Tensor:
    raw = np.frombuffer(buffer, np.uint8, row.end - row.begin, start + row.begin)
    return Tensor(row.name, get(row.dtype), row.shape, raw.reshape(*row.shape[:-1], -1))
