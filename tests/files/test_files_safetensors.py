"""Hugging Face directories: what opens agrees with the safetensors package; what is broken or hostile is refused in one line."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from files_builders import directory, entry, refusal, safetensors, small_gguf, small_safetensors
from safetensors.torch import save_file

from lanewise.files import open_model

CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "rope_scaling": {"factor": 2.0}}
INDEX = "model.safetensors.index.json"


def _model(path: Path, weights: bytes, config: Any = CONFIG) -> Path:
    return directory(path / "m", {"config.json": config, "model.safetensors": weights})


def test_what_the_safetensors_package_writes_is_read_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        "a": torch.randn(3, 5),
        "b.weight": torch.randn(4, 2, 6).to(torch.bfloat16),
        "c": torch.randn(7).to(torch.float16),
        "scalar": torch.tensor(1.5),
        "odd": torch.randn(1, 3).to(torch.bfloat16),
    }
    folder = directory(tmp_path / "m", {"config.json": CONFIG})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = open_model(folder)
    assert model.kind == "safetensors"
    assert sorted(model.tensors) == sorted(tensors)
    for name, tensor in tensors.items():
        mine = model.tensor(name, tuple(tensor.shape))
        assert mine.format.name == {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[tensor.dtype]
        assert mine.nbytes == tensor.nbytes
        assert np.array_equal(mine.dequantize(), tensor.float().numpy())
        assert not mine.data.flags.writeable
    assert model.nbytes == sum(t.nbytes for t in tensors.values())


def test_the_metadata_is_the_parsed_config(tmp_path: Path) -> None:
    metadata = open_model(_model(tmp_path, small_safetensors())).metadata
    assert metadata.integer("num_hidden_layers") == 1
    section = metadata.section("rope_scaling")
    assert section is not None
    assert section.number("factor") == 2.0


def _shards(path: Path, weight_map: dict[str, str] | None = None) -> Path:
    """Two shards of one tensor each, "a" and "b", with the index or another."""
    row = np.arange(4, dtype=np.float32)
    return directory(
        path / "m",
        {
            "config.json": CONFIG,
            INDEX: {"metadata": {"total_size": 32}, "weight_map": weight_map or {"a": "one.safetensors", "b": "two.safetensors"}},
            "one.safetensors": safetensors({"a": entry("F32", [4], 0, 16)}, row.tobytes()),
            "two.safetensors": safetensors({"b": entry("F32", [4], 0, 16)}, (row * 2).tobytes()),
        },
    )


def test_shards_are_found_through_the_index(tmp_path: Path) -> None:
    model = open_model(_shards(tmp_path))
    assert [path.name for path in model.files] == ["one.safetensors", "two.safetensors"]
    assert model.tensor("b", (4,)).dequantize().tolist() == [0, 2, 4, 6]


def test_links_out_of_the_directory_are_followed_as_the_hub_cache_makes_them(tmp_path: Path) -> None:
    folder = _shards(tmp_path)
    (folder / "one.safetensors").rename(tmp_path / "blob")
    os.symlink("../blob", folder / "one.safetensors")
    assert len(open_model(folder).tensors) == 2


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": "../one.safetensors"}, "the shard of 'a' is '../one.safetensors'; the name of a .safetensors file in the same directory"),
        ({"a": "/etc/passwd"}, "the shard of 'a' is '/etc/passwd'"),
        ({"a": ".."}, "the shard of 'a' is '..'"),
        ({"a": "sub/one.safetensors"}, "the shard of 'a'"),
        ({"a": "..\\one.safetensors"}, "the shard of 'a'"),
        ({"a": "one\x1b.safetensors"}, "the shard of 'a' is 'one\\x1b.safetensors'"),
        ({"a": "one.bin"}, "the shard of 'a' is 'one.bin'"),
        ({"a": ""}, "the shard of 'a' is ''"),
        ({"a": 3}, "the shard of 'a' is int"),
        ({"a": "absent.safetensors"}, "absent.safetensors: path is missing"),
        (
            {"a": "one.safetensors", "b": "one.safetensors"},
            "one.safetensors: tensor 'b' is missing; model.safetensors.index.json says",
        ),
        ({"b": "two.safetensors", "x": "one.safetensors"}, "one.safetensors: tensor 'a' is not in the index"),
        ({str(n): f"{n}.safetensors" for n in range(5000)}, "the number of shards is 5000; at most 4096"),
        ({"a": "n" * 300 + ".safetensors"}, "path is file name too long"),
    ],
)
def test_an_index_that_points_elsewhere_or_lies_is_refused(tmp_path: Path, weight_map: dict[str, str], words: str) -> None:
    message = refusal(_shards(tmp_path, weight_map))
    assert words in message, message


@pytest.mark.parametrize("content", [{}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": "x"}])
def test_an_index_without_a_weight_map_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    folder = _shards(tmp_path)
    (folder / INDEX).write_text(json.dumps(content))
    assert "weight_map is" in refusal(folder)


DATA = bytes(64)
FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("size is 0",)),
    "shorter than a length": (b"\2\0\0", ("the header's length is",)),
    "header past the end": (safetensors({}, length=500), ("the header's length is 500", "at most 2 bytes")),
    "header of 2^63": (safetensors({}, DATA, length=2**63), ("the header's length is 9223372036854775808",)),
    "header of 2^64-1": (safetensors({}, DATA, length=2**64 - 1), ("the header's length is 18446744073709551615",)),
    "a zip archive": (b"PK\x03\x04" + bytes(40), ("looks like a zip archive",)),
    "a web page": (b"<!DOCTYPE html><html>" + bytes(40), ("looks like a web page",)),
    "a GGUF file": (small_gguf().build(), ("looks like a GGUF model",)),
    "not JSON": (safetensors(b"{nope}"), ("the header is not valid JSON",)),
    "cut JSON": (safetensors(b'{"a":'), ("the header is not valid JSON",)),
    "an array": (safetensors(b"[1]"), ("the header's length",)),
    "not UTF-8": (safetensors(b'{"\xff":1}'), ("the header is not UTF-8",)),
    "UTF-16": (safetensors("{}".encode("utf-16-le")), ("the header is not valid JSON",)),
    "half a surrogate pair": (safetensors(b'{"\\ud800":{}}'), ("the header is not UTF-8",)),
    "nested deeply": (safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), ("the header is nested too deeply",)),
    "too many values": (safetensors(b'{"a":[' + b"1," * 600_000 + b"1]}"), ("the header is 1200009 bytes with 600002 values", "524288 values")),
    "an integer of 5000 digits": (safetensors(b'{"a":' + b"9" * 5000 + b"}"), ("the header is not valid JSON",)),
    "duplicate names": (
        safetensors(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        ("duplicate key 'a'",),
    ),
    "duplicate fields": (safetensors(b'{"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}}', bytes(4)), ("duplicate key 'dtype'",)),
    "an empty name": (safetensors({"": entry("F32", [1], 0, 4)}, bytes(4)), ("a tensor's name is ''",)),
    "a name of 600": (safetensors({"n" * 600: entry("F32", [1], 0, 4)}, bytes(4)), ("(600 long)", "1 to 512")),
    "an entry that is a list": (safetensors({"a": [1]}), ("tensor 'a' is list",)),
    "an empty entry": (safetensors({"a": {}}), ("the dtype of tensor 'a' is NoneType",)),
    "integers": (safetensors({"a": entry("I64", [1], 0, 8)}, bytes(8)), ("the dtype of tensor 'a' is 'I64'", "F32, F16, BF16 are read")),
    "8-bit floats": (safetensors({"a": entry("F8_E4M3", [1], 0, 1)}, bytes(1)), ("'F8_E4M3'",)),
    "a dtype that is a list": (safetensors({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), ("is list",)),
    "no shape": (safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)), ("the shape of tensor 'a' is NoneType",)),
    "a size of zero": (safetensors({"a": entry("F32", [0], 0, 0)}), ("the shape of tensor 'a' is [0]", "at least 1")),
    "a negative size": (safetensors({"a": entry("F32", [-1], 0, 4)}, bytes(4)), ("the shape of tensor 'a'",)),
    "a size that is true": (safetensors({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4)), ("the shape of tensor 'a'",)),
    "a size with a fraction": (safetensors({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, bytes(4)), ("the shape of tensor 'a'",)),
    "nine dimensions": (safetensors({"a": entry("F32", [1] * 9, 0, 4)}, bytes(4)), ("the shape of tensor 'a' is a list of 9",)),
    "a product that wraps": (safetensors({"a": entry("F32", [4, 2**30 - 1, 2**30 + 1], 0, 4)}, bytes(4)), ("product below 2^60",)),
    "a size of 2^64": (safetensors({"a": entry("F32", [2**64], 0, 4)}, bytes(4)), ("the shape of tensor 'a'",)),
    "three offsets": (
        safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(4)),
        ("tensor 'a' is [0, 4, 8]",),
    ),
    "a negative offset": (safetensors({"a": entry("F32", [1], -4, 0)}, bytes(4)), ("data_offsets of tensor 'a'", "two byte offsets")),
    "offsets in reverse": (safetensors({"a": entry("F32", [1], 4, 0)}, bytes(4)), ("data_offsets of tensor 'a' is [4, 0]", "takes 4 bytes")),
    "offsets and shape that differ": (safetensors({"a": entry("F16", [3], 0, 8)}, bytes(8)), ("F16 [3] takes 6 bytes",)),
    "data past the end": (safetensors({"a": entry("F32", [4], 0, 16)}, bytes(12)), ("[0, 16]", "the file has 12 bytes of data")),
    "offsets far past the end": (safetensors({"a": entry("F32", [1], 2**62, 2**62 + 4)}, bytes(4)), ("0 is the next byte",)),
    "a hole": (
        safetensors({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, bytes(12)),
        ("'b' is [8, 12]", "4 is the next byte"),
    ),
    "a hole in front": (safetensors({"a": entry("F32", [1], 4, 8)}, bytes(8)), ("0 is the next byte",)),
    "overlap": (safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)}, bytes(8)), ("'b' is [4, 8]", "must not overlap")),
    "bytes behind the data": (safetensors({"a": entry("F32", [1], 0, 4)}, bytes(9)), ("the size of the data is 9", "describes 4 bytes")),
    "notes that are no strings": (safetensors({"__metadata__": {"a": 1}}), ("__metadata__ is",)),
    "notes that are a list": (safetensors({"__metadata__": ["a"]}), ("__metadata__ is list",)),
    "control characters in a name": (safetensors({"\x1b[2J\n": {}}), ("tensor '\\x1b[2J\\n'",)),
}


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_refused_by_field(tmp_path: Path, case: str) -> None:
    weights, words = FILES[case]
    message = refusal(_model(tmp_path, weights))
    assert "model.safetensors: " in message
    assert all(word in message for word in words), message


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = small_safetensors()
    for length in range(0, len(whole), 7):
        refusal(_model(tmp_path, whole[:length]))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (b"", "config.json: size is 0"),
        (b"[]", "config.json is a JSON list; a JSON object is expected"),
        (b"null", "config.json is a JSON NoneType"),
        (b"{", "config.json is not valid JSON"),
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b"[" * 200_000, "config.json is nested too deeply"),
        (b"\xff\xfe{}", "config.json is not UTF-8"),
        (b'{"a": "\\udc00"}', "config.json is not UTF-8"),
        (b" " * (25 << 20), "size is 26214400; at most 25165824 bytes of JSON"),
        (b"[" + b"{}," * 600_000 + b"{}]", "values are read"),
    ],
)
def test_a_broken_config_is_refused(tmp_path: Path, config: bytes, words: str) -> None:
    message = refusal(_model(tmp_path, small_safetensors(), config))
    assert words in message, message


def test_a_directory_without_a_model_says_what_it_holds_instead(tmp_path: Path) -> None:
    assert "config.json: path is missing; a directory with config.json and" in refusal(directory(tmp_path / "a", {}))
    assert "model.safetensors: path is missing" in refusal(directory(tmp_path / "b", {"config.json": CONFIG}))
    assert "it holds 'x.gguf': name one of its .gguf files" in refusal(directory(tmp_path / "c", {"x.gguf": b"GGUF"}))
    pickles = directory(tmp_path / "d", {"config.json": CONFIG, "pytorch_model.bin": b"PK"})
    assert "it holds 'pytorch_model.bin': PyTorch .bin checkpoints are pickles" in refusal(pickles)


def test_a_safetensors_file_named_alone_is_refused_with_what_to_name(tmp_path: Path) -> None:
    folder = _model(tmp_path, small_safetensors())
    message = refusal(folder / "model.safetensors")
    assert "looks like a safetensors file; a .gguf file or a Hugging Face directory is expected" in message
