"""Quantize a GGUF file into another: tensor by tensor, metadata unchanged, the target there whole or not at all."""

import math
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import FormatError, ModelFileError
from lanewise.files.gguf import ALIGNMENT
from lanewise.files.gguf_split import open_parts, read_parts
from lanewise.files.gguf_values import UINT32, Entry
from lanewise.files.mapped import Plain, reason, shown
from lanewise.files.model_file import ModelFile, Tensor
from lanewise.files.recipes import Choice, Recipe, choose, find
from lanewise.formats import Format

if TYPE_CHECKING:
    from gguf import GGUFWriter

__all__ = ["Change", "Progress", "QuantizeReport", "quantize_file"]

# Called after each tensor: bytes of the source done, bytes in all, the tensor's name.
Progress = Callable[[int, int, str], None]

# Weights held in float32 at a time: 4 MB, and as much again for their rounded values.
_CHUNK = 1 << 20
_ARCHITECTURE, _FILE_TYPE, _VERSION = "general.architecture", "general.file_type", "general.quantization_version"
_QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION in ggml.h: the layout of the formats


@dataclass(frozen=True, slots=True)
class Change:
    """One tensor: formats and bytes before and after. `wanted` is the recipe's format where the rows did not fit it.

    `error` is the root mean square of the rounding relative to that of the weights; None when the bytes were copied.
    """

    name: str
    before: str
    after: str
    bytes_before: int
    bytes_after: int
    wanted: str | None
    error: float | None


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """What was done. `dropped` names keys that hold an empty array, which the gguf package's writer does not write."""

    source: Path
    target: Path
    type_name: str
    changes: tuple[Change, ...]
    dropped: tuple[str, ...]
    seconds: float

    @property
    def bytes_before(self) -> int:
        return sum(change.bytes_before for change in self.changes)

    @property
    def bytes_after(self) -> int:
        return sum(change.bytes_after for change in self.changes)

    @property
    def fallbacks(self) -> tuple[Change, ...]:
        """Tensors whose rows are not whole blocks of what the recipe wanted."""
        return tuple(change for change in self.changes if change.wanted)

    @property
    def requantized(self) -> tuple[Change, ...]:
        """Tensors that were quantized before: rounded twice, and worse than from the original weights."""
        return tuple(change for change in self.changes if change.error is not None and change.before not in ("F32", "F16", "BF16"))


def quantize_file(
    source: str | PathLike[str], target: str | PathLike[str], type_name: str, progress: Progress | None = None, *, overwrite: bool = False
) -> QuantizeReport:
    """Write `source`, a .gguf file or any part of a split one, to `target` as one .gguf file of type `type_name` (see `recipes`).

    Norms, one-dimensional tensors and biases keep their format; a tensor that already has the wanted format is copied. One tensor is held at a
    time. The target appears under its name only when it is complete, and a run that fails or is interrupted leaves nothing behind.

    Raises FormatError for an unknown type; ModelFileError for a source that cannot be read, weights that are NaN, infinite or too
    large for the format, and a target that is there already (unless `overwrite`), is the source itself, or cannot be written.
    """
    began = time.monotonic()
    recipe = find(type_name)
    source, target = Path(source), Path(target)
    if os.path.isdir(source) or source.suffix == ".safetensors":
        raise ModelFileError(source, "path", Plain("safetensors"), "only .gguf is quantized; convert it first with llama.cpp's convert_hf_to_gguf.py")
    parts = read_parts(source)
    _refuse_target(target, [part.path for part in parts], overwrite)
    with open_parts(source, parts) as model:
        choices = choose(recipe, model.tensors)
        _refuse_full(target, choices)
        model.metadata.string(_ARCHITECTURE)
        entries, dropped = _entries(parts[0].entries, recipe)
        temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(4)}.part")
        try:
            changes = _write(temporary, model, entries, choices, progress)
            _refuse_target(target, [part.path for part in parts], overwrite)
            os.replace(temporary, target)
        except OSError as error:
            raise ModelFileError(target, "writing", reason(error), "a directory that exists, can be written and has room is expected") from None
        finally:
            temporary.unlink(missing_ok=True)  # nothing is left of it after a rename
    return QuantizeReport(source, target, recipe.name, changes, dropped, time.monotonic() - began)


def _refuse_target(target: Path, sources: list[Path], overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if any(os.path.exists(target) and os.path.samefile(target, source) for source in sources):
        raise ModelFileError(target, "target", Plain("the source itself"), "another file is expected")
    if os.path.isdir(target):
        raise ModelFileError(target, "target", Plain("a directory"), "the name of a file is expected")
    if os.path.exists(target) and not os.path.isfile(target):
        raise ModelFileError(target, "target", Plain("a device or a pipe"), "the name of a file is expected")
    if not overwrite:
        raise ModelFileError(target, "target", Plain("there already"), "name a file that does not exist, or allow overwriting")


def _refuse_full(target: Path, choices: list[Choice]) -> None:
    needed = sum(math.prod(choice.tensor.shape[:-1]) * choice.format.row_bytes(choice.tensor.shape[-1]) for choice in choices if choice.tensor.shape)
    try:
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise ModelFileError(target, "directory", reason(error), "a directory that exists is expected") from None
    if needed > free:
        raise ModelFileError(target, "free space", Plain(f"{free} bytes"), f"{needed} bytes are needed")


def _entries(entries: dict[str, Entry], recipe: Recipe) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """The target's keys, and those that cannot be written. What described a split ends with it."""
    kept = {key: entry for key, entry in entries.items() if not key.startswith("split.")}
    dropped = tuple(key for key, entry in kept.items() if entry.element is not None and not len(entry.value))
    kept = {key: entry for key, entry in kept.items() if key not in dropped}
    kept[_FILE_TYPE] = Entry(UINT32, None, recipe.file_type)
    kept[_VERSION] = Entry(UINT32, None, _QUANTIZATION_VERSION)
    return kept, dropped


def _write(path: Path, model: ModelFile, entries: dict[str, Entry], choices: list[Choice], progress: Progress | None) -> tuple[Change, ...]:
    from gguf import GGMLQuantizationType, GGUFWriter

    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    writer = GGUFWriter(None, entries[_ARCHITECTURE].value)
    try:
        _add_entries(writer, entries)
        for choice in choices:
            tensor = choice.tensor
            nbytes = tensor.nbytes if choice.kept else math.prod(tensor.shape[:-1]) * choice.format.row_bytes(tensor.shape[-1])
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), nbytes, GGMLQuantizationType(choice.format.ggml_type))
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        changes, done = [], 0
        for choice in choices:
            changes.append(_write_tensor(writer, model, choice))
            done += choice.tensor.nbytes
            if progress is not None:
                progress(done, model.nbytes, choice.tensor.name)
        return tuple(changes)
    finally:
        writer.close()


def _add_entries(writer: "GGUFWriter", entries: dict[str, Entry]) -> None:
    from gguf import GGUFValueType

    for key, entry in entries.items():
        value: Any = entry.value.tolist() if isinstance(entry.value, np.ndarray) else entry.value
        if key == ALIGNMENT:
            writer.add_custom_alignment(value)
        elif key != _ARCHITECTURE or not value:  # the writer has put a name that is not empty first
            writer.add_key_value(key, value, GGUFValueType(entry.type), None if entry.element is None else GGUFValueType(entry.element))


def _write_tensor(writer: "GGUFWriter", model: ModelFile, choice: Choice) -> Change:
    tensor = choice.tensor
    raw, error = (tensor.data, None) if choice.kept else _convert(model, tensor, choice.format)
    writer.write_tensor_data(raw)
    return Change(tensor.name, tensor.format.name, choice.format.name, tensor.nbytes, raw.nbytes, choice.wanted, error)


def _convert(model: ModelFile, tensor: Tensor, target: Format) -> tuple[NDArray[np.uint8], float]:
    """uint8[rows, row_bytes] in the target format, and the relative root mean square of the rounding."""
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    out = np.empty((len(rows), target.row_bytes(tensor.shape[-1])), np.uint8)
    step = max(1, _CHUNK // tensor.shape[-1])
    lost = total = 0.0
    for start in range(0, len(rows), step):
        x = tensor.format.dequantize(rows[start : start + step])
        try:
            out[start : start + step] = target.quantize(x)
        except FormatError as problem:
            field = f"tensor {shown(tensor.name)}, from row {start} on,"
            raise ModelFileError(model.path, field, Plain("not quantizable"), str(problem)) from None
        total += float(np.square(x, dtype=np.float64).sum())
        lost += float(np.square(x - target.dequantize(out[start : start + step]), dtype=np.float64).sum())
    return out, math.sqrt(lost / total) if total else 0.0
