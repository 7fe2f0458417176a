"""Open a GGUF model: one file, or all parts of a split one from any of its parts.

llama.cpp's split files are named PREFIX-00001-of-00003.gguf. Each part has its own tensors and the keys split.no (from 0),
split.count and split.tensors.count (of all parts together); the other keys stand in the first part.
"""

import os
import re
from pathlib import Path

import numpy as np

from lanewise.errors import ModelFileError
from lanewise.files.gguf import Part, read_part
from lanewise.files.gguf_values import Entry
from lanewise.files.mapped import Plain, shown
from lanewise.files.metadata import Metadata
from lanewise.files.model_file import ModelFile, Tensor

__all__ = ["open_gguf", "open_parts", "read_parts"]

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_NAMED = "the name of part 1 of 3 ends in -00001-of-00003.gguf"
_OWN = ("split.no", "split.count", "split.tensors.count")


def open_gguf(path: Path) -> ModelFile:
    """The model that a .gguf file, or the split that it is a part of, holds. Raises ModelFileError."""
    return open_parts(path, read_parts(path))


def open_parts(path: Path, parts: list[Part]) -> ModelFile:
    """Parts as one model; the metadata is the first part's. Raises ModelFileError for a tensor that two parts have."""
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for name in part.tensors:
            if name in tensors:
                raise ModelFileError(part.path, f"tensor {shown(name)}", Plain("in an earlier part too"), "a tensor's name appears once")
        tensors.update(part.tensors)
    return ModelFile(path, "gguf", _metadata(parts[0]), tensors, tuple(part.path for part in parts))


def read_parts(path: Path) -> list[Part]:
    """The parts of the model in order; one when it is not split. Raises ModelFileError, naming a part that is missing."""
    part = read_part(path)
    named = _NAME.fullmatch(path.name)
    count = _metadata(part).integer("split.count", 1, least=0, most=99_999)
    if count <= 1:
        if named and int(named[3]) > 1:
            allowed = f"the file's name says that it is one of {int(named[3])} parts; an unsplit file needs another name"
            raise ModelFileError(path, "split.count", count, allowed)
        return [part]
    if not named:
        raise ModelFileError(path, "path", Plain(f"one of {count} parts"), f"rename the parts so that all are found: {_NAMED}")
    if int(named[3]) != count:
        raise ModelFileError(path, "split.count", count, f"the file's name says {int(named[3])} parts")
    paths = [path.with_name(f"{named[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [p for p in paths if not os.path.exists(p)]
    if missing:
        raise ModelFileError(missing[0], "path", Plain("missing"), f"all {count} parts are needed, and {len(missing)} of them cannot be found")
    parts = [part if p == path else read_part(p) for p in paths]
    total = _metadata(parts[0]).integer("split.tensors.count")
    for number, each in enumerate(parts):
        _check(each, parts[0], number, count, total)
    found = sum(len(each.tensors) for each in parts)
    if found != total:
        raise ModelFileError(parts[0].path, "split.tensors.count", total, f"the {count} parts hold {found} tensors")
    return parts


def _check(part: Part, first: Part, number: int, count: int, total: int) -> None:
    """A part's own keys against its place and the first part."""
    metadata = _metadata(part)
    for key, expected in zip(_OWN, (number, count, total), strict=True):
        value = metadata.integer(key)
        if value != expected:
            raise ModelFileError(part.path, key, value, f"{expected} is expected from the name and the other parts")
    for key, entry in part.entries.items():
        if key in _OWN or part is first:
            continue
        known = first.entries.get(key)
        if known is None or not _same(entry, known):
            raise ModelFileError(part.path, f"key {shown(key)}", Plain("not what the first part has"), f"{first.path.name} holds the model's keys")


def _same(one: Entry, other: Entry) -> bool:
    if (one.type, one.element) != (other.type, other.element):
        return False
    if isinstance(one.value, np.ndarray):
        return bool(one.value.tobytes() == other.value.tobytes())
    return bool(one.value == other.value or (one.value != one.value and other.value != other.value))  # NaN


def _metadata(part: Part) -> Metadata:
    return Metadata(part.path, {key: entry.value for key, entry in part.entries.items()})
