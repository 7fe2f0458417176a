"""Model files byte by byte, right or wrong on purpose: what the tests of lanewise.files feed to the readers.

Written from the formats' descriptions, independently of the readers; `official_gguf` writes with the gguf package instead.
"""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lanewise.errors import ModelFileError
from lanewise.files import open_model
from lanewise.formats import FORMATS

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A GGUF string; `length` lies about its size."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


def key(name: str | bytes, kind: int, value: Any) -> bytes:
    """One key/value of a scalar type."""
    return text(name) + struct.pack("<I", kind) + scalar(kind, value)


def array(name: str | bytes, kind: int, values: Any, count: int | None = None) -> bytes:
    """One key/value that is an array; `count` lies about its length."""
    head = struct.pack("<IIQ", ARRAY, kind, len(values) if count is None else count)
    return text(name) + head + b"".join(scalar(kind, value) for value in values)


@dataclass
class Info:
    """A row of the tensor table. `ne` is innermost first, as the file has it."""

    name: str | bytes
    ne: tuple[int, ...]
    type: int
    offset: int
    dims: int | None = None

    def pack(self) -> bytes:
        dims = len(self.ne) if self.dims is None else self.dims % 2**32
        return (
            text(self.name) + struct.pack("<I", dims) + b"".join(struct.pack("<Q", n) for n in self.ne) + struct.pack("<IQ", self.type, self.offset)
        )


@dataclass
class Gguf:
    """A GGUF file in parts; `build` puts them together, whatever they say."""

    keys: list[bytes] = field(default_factory=list)
    tensors: list[Info] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    key_count: int | None = None
    tensor_count: int | None = None

    def header(self) -> bytes:
        keys = len(self.keys) if self.key_count is None else self.key_count
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        head = self.magic + struct.pack("<IQQ", self.version, tensors, keys)
        return head + b"".join(self.keys) + b"".join(info.pack() for info in self.tensors)

    def build(self) -> bytes:
        header = self.header()
        return header + bytes(-len(header) % self.alignment) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path

    def add(self, name: str, fmt: str, shape: tuple[int, ...], rng: np.random.Generator) -> "Gguf":
        """Append a tensor of random bytes, aligned."""
        return self._append(name, fmt, shape, rng.bytes(int(np.prod(shape[:-1])) * FORMATS[fmt].row_bytes(shape[-1])))

    def normal(self, name: str, fmt: str, shape: tuple[int, ...], rng: np.random.Generator) -> "Gguf":
        """Append a tensor of normally distributed weights, aligned."""
        return self._append(name, fmt, shape, FORMATS[fmt].quantize(rng.standard_normal(shape).astype(np.float32)).tobytes())

    def _append(self, name: str, fmt: str, shape: tuple[int, ...], raw: bytes) -> "Gguf":
        self.data += bytes(-len(self.data) % self.alignment)
        self.tensors.append(Info(name, shape[::-1], FORMATS[fmt].ggml_type, len(self.data)))
        self.data += raw
        return self


def small_gguf(seed: int = 0) -> Gguf:
    """A valid file of a few KB with every value type and several formats."""
    rng = np.random.default_rng(seed)
    model = Gguf(
        keys=[
            key("general.architecture", STRING, "llama"),
            key("llama.block_count", U32, 2),
            key("llama.epsilon", F32, 1e-5),
            key("u8", U8, 200),
            key("i8", I8, -3),
            key("u16", U16, 60_000),
            key("i16", I16, -300),
            key("i32", I32, -70_000),
            key("u64", U64, 2**40),
            key("i64", I64, -(2**40)),
            key("f64", F64, 0.5),
            key("flag", BOOL, True),
            array("tokenizer.ggml.tokens", STRING, ["<s>", "", "Ġthe", "naïve", "🙂"] + [f"t{i}" for i in range(70)]),
            array("few", STRING, ["one", "two"]),
            array("scores", F32, [0.0, -1.5, 3.25]),
            array("types", I32, [1, 3, -6]),
            array("flags", BOOL, [True, False]),
            array("empty", STRING, []),
        ]
    )
    for name, fmt, shape in (
        ("token_embd.weight", "Q8_0", (3, 64)),
        ("blk.0.attn_norm.weight", "F32", (64,)),
        ("blk.0.attn_v.weight", "Q4_K", (2, 256)),
        ("blk.0.ffn_gate_exps.weight", "Q4_0", (2, 3, 32)),
        ("blk.1.attn_norm.weight", "BF16", (5,)),
        ("blk.1.ffn_down.weight", "IQ4_XS", (1, 256)),
    ):
        model.add(name, fmt, shape, rng)
    return model


def safetensors(header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file; `length` lies about the header's size."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def small_safetensors(seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": entry("F16", [4, 6], 0, 48),
        "model.norm.weight": entry("F32", [6], 48, 72),
        "model.layers.0.mlp.gate.weight": entry("BF16", [2, 3], 72, 84),
        "scale": entry("F32", [], 84, 88),
    }
    return safetensors(header, rng.bytes(88))


def directory(path: Path, files: dict[str, bytes | dict[str, Any]]) -> Path:
    """A directory of files; a dict is written as JSON."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def refusal(path: Path | str) -> str:
    """The one line with which `path` is refused; anything else that happens is a failure."""
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    return one_line(caught.value)


def one_line(error: ModelFileError) -> str:
    """The error's message, if it is one short printable line that begins with the file."""
    message = str(error)
    assert message.isprintable(), f"control characters or line breaks: {message!r}"
    assert len(message) < len(error.file) + 500, f"{len(message)} characters long"
    assert message.startswith(error.file), message
    return message
