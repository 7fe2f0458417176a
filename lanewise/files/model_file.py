"""A model as its files have it: metadata, and tensors that are views of the mapped bytes."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import ModelFileError
from lanewise.files.mapped import Plain, shown
from lanewise.files.metadata import Metadata
from lanewise.formats import Format

__all__ = ["ModelFile", "Tensor"]

# Comparing names costs about 10 us each; a model with more tensors than this gets no suggestions beyond them.
_COMPARED = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One tensor. `shape` is row-major, outermost first: a weight is (n, k).

    `data` is uint8[*shape[:-1], format.row_bytes(shape[-1])], a read-only view of the mapped file at any byte alignment.
    A scalar has shape () and data uint8[row bytes of one element].
    """

    name: str
    format: Format
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.data.nbytes

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def dequantize(self) -> NDArray[np.float32]:
        """The values as a new float32[shape]."""
        return self.format.dequantize(self.data).reshape(self.shape)


class ModelFile:
    """An open model. A context manager: leaving it, or `close()`, drops the maps.

    path:     what the user named
    kind:     "gguf" or "safetensors"
    metadata: GGUF key/values, or the parsed config.json
    tensors:  by name, in file order
    files:    the mapped files, in order

    A tensor that outlives `close()` keeps its map alive; views never dangle.
    """

    __slots__ = ("files", "kind", "metadata", "path", "tensors")

    def __init__(self, path: Path, kind: str, metadata: Metadata, tensors: Mapping[str, Tensor], files: tuple[Path, ...]) -> None:
        self.path, self.kind, self.metadata, self.files = path, kind, metadata, files
        self.tensors: Mapping[str, Tensor] = MappingProxyType(dict(tensors))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensor data."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """The tensor of that name, of that shape where one is given. Raises ModelFileError that names both shapes, or names that are close."""
        found = self.tensors.get(name)
        if found is None:
            raise ModelFileError(self.path, f"tensor {shown(name)}", Plain("missing"), self._suggestion(name))
        if shape is not None and found.shape != tuple(shape):
            wanted = "x".join(map(str, shape))
            raise ModelFileError(self.path, f"the shape of tensor {shown(name)}", Plain("x".join(map(str, found.shape))), f"{wanted} is expected")
        return found

    def close(self) -> None:
        """Drop the tensors and with them, once no view of them is left, the maps."""
        self.tensors = MappingProxyType({})

    def __enter__(self) -> "ModelFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ModelFile({str(self.path)!r}, {self.kind}, {len(self.tensors)} tensors)"

    def _suggestion(self, name: str) -> str:
        if not self.tensors:
            return "the file holds no tensors"
        names = [n for n in list(self.tensors)[:_COMPARED] if abs(len(n) - len(name)) <= len(name)]
        close = difflib.get_close_matches(name, names, n=3)
        if not close:
            return f"none of its {len(self.tensors)} tensors has a name like it"
        return f"the nearest of its {len(self.tensors)} tensors: {', '.join(map(shown, close))}"
