"""Broken and hostile GGUF files: each is refused in one line that names the file, the field, its value and what is allowed."""

import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from files_builders import ARRAY, BOOL, F32, I32, STRING, U8, U32, U64, Gguf, Info, array, key, refusal, scalar, small_gguf, text

F32_TYPE, Q4_0_TYPE, Q4_K_TYPE, IQ2_XXS_TYPE = 0, 2, 12, 16


def _one(info: Info, size: int = 4096) -> Gguf:
    return Gguf(tensors=[info], data=bytes(size))


def _two(first: Info, second: Info, size: int = 4096) -> Gguf:
    return Gguf(tensors=[first, second], data=bytes(size))


HEADERS: dict[str, tuple[Gguf, tuple[str, ...]]] = {
    "version 1": (Gguf(version=1), ("version is 1", "versions 2 and 3")),
    "version 4": (Gguf(version=4), ("version is 4", "versions 2 and 3")),
    "version 0": (Gguf(version=0), ("version is 0",)),
    "big endian": (Gguf(version=0x03000000), ("byte order is big endian", "only little endian", "gguf_convert_endian")),
    "big endian version 2": (Gguf(version=0x02000000), ("byte order is big endian",)),
    "too many tensors": (Gguf(tensor_count=2**63), ("tensor count is 9223372036854775808", "at most 0 fit")),
    "too many keys": (Gguf(key_count=2**64 - 1), ("key count is 18446744073709551615",)),
    "more keys than a model has": (
        Gguf([key("k", U8, 0)] * 5, data=bytes(2 << 20), key_count=70_000),
        ("key count is 70000", "at most 8192 are allowed"),
    ),
    "keys that are not there": (Gguf(key_count=2, data=bytes(26)), ("key 1 of 2",)),
}
KEYS: dict[str, tuple[list[bytes], tuple[str, ...]]] = {
    "empty key": ([key("", U8, 0)], ("key 1 of 1 is ''",)),
    "duplicate key": ([key("a", U8, 0), key("a", U8, 0)], ("key 2 of 2 is 'a'", "appears once")),
    "key too long": ([key("a" * 70_000, U8, 0)], ("the length of key 1 of 1 is 70000", "at most 65535")),
    "key past the end": ([text("a", 2**40) + bytes(5)], ("the length of key 1 of 1 is 1099511627776",)),
    "key length near 2^64": ([text("a", 2**64 - 1) + bytes(5)], ("the length of key 1 of 1 is 18446744073709551615",)),
    "key not UTF-8": ([key(b"a\xff", U8, 0)], ("key 1 of 1 is b'a\\xff'", "UTF-8")),
    "unknown type": ([text("a") + struct.pack("<I", 13)], ("the type of key 'a' is 13", "0 to 12")),
    "unknown element type": ([text("a") + struct.pack("<IIQ", ARRAY, 99, 0)], ("the element type of key 'a' is 99",)),
    "array of arrays": ([text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(12)], ("the element type of key 'a' is array", "arrays of arrays")),
    "array past the end": ([array("a", I32, [1], count=2**40)], ("the length of key 'a' is 1099511627776", "fit in the")),
    "array that wraps 2^64": ([array("a", U64, [1], count=2**61)], ("the length of key 'a' is 2305843009213693952",)),
    "strings past the end": ([array("a", STRING, ["x"], count=2**60)], ("the length of key 'a' is 1152921504606846976",)),
    "string value past the end": (
        [text("a") + struct.pack("<I", STRING) + text("x", 1000)],
        ("key 'a' is 1000 bytes at byte", "the file ends at byte"),
    ),
    "string value not UTF-8": ([text("a") + struct.pack("<I", STRING) + text(b"ok\xc3")], ("key 'a' is b'ok\\xc3'", "UTF-8")),
    "token past the end": (
        [text("a") + struct.pack("<IIQ", ARRAY, STRING, 3) + text("x") + text("y", 500) + text("z")],
        ("item 1 of key 'a' is 500 bytes",),
    ),
    "token length near 2^64": (
        [text("a") + struct.pack("<IIQ", ARRAY, STRING, 3) + text("x") + text("y", 2**64 - 1) + text("z")],
        ("the length of item 1 of key 'a' is 18446744073709551615",),
    ),
    "token length near 2^63": (
        [text("a") + struct.pack("<IIQ", ARRAY, STRING, 3) + text("x") + text("y", 2**63 - 60) + text("z")],
        ("the length of item 1 of key 'a' is 9223372036854775748",),
    ),
    "token not UTF-8": ([array("a", STRING, [*["t"] * 70_000, b"\xe2\x28\xa1", "t"])], ("item 70000 of key 'a' is b'\\xe2(\\xa1'", "UTF-8")),
    "last token cut short": ([text("a") + struct.pack("<IIQ", ARRAY, STRING, 2) + text("x" * 20) + b"\1\0"], ("the length of item 1 of key 'a'",)),
    "bool of 2": ([text("a") + struct.pack("<IB", BOOL, 2)], ("key 'a' is 2", "0 or 1")),
    "bools of 2": ([text("a") + struct.pack("<IIQBB", ARRAY, BOOL, 2, 1, 2)], ("key 'a' is 2", "0 or 1")),
    "scalar past the end": ([text("a") + struct.pack("<I", U64) + bytes(5)], ("key 'a' is 8 bytes at byte", "the file ends at byte")),
    "more strings than a model has": (
        [array("a", STRING, []), text("b") + struct.pack("<IIQ", ARRAY, STRING, 1_600_000) + bytes(8 * 1_600_000)],
        ("the length of key 'b' is 1600000", "together may hold 1048576 strings"),
    ),
    "control characters in a key": ([key("a\x1b[2J\n", U8, 0)] * 2, ("key 2 of 2 is 'a\\x1b[2J\\n'",)),
    "a key made to hide text": ([text("a\u202eb") + struct.pack("<I", 77)], ("the type of key 'a\\u202eb' is 77",)),
    **{
        f"alignment {value}": ([key("general.alignment", U32, value)], (f"general.alignment is {value}", "a power of two from 8 to 1048576"))
        for value in (0, 1, 4, 24, 33, 2**21, 2**32 - 1)
    },
    "alignment of another type": ([key("general.alignment", U64, 32)], ("the type of key general.alignment is uint64", "a uint32")),
    "alignment as text": ([key("general.alignment", STRING, "32")], ("the type of key general.alignment is string",)),
    "alignment as an array": ([array("general.alignment", U32, [32])], ("the type of key general.alignment is array",)),
}
TENSORS: dict[str, tuple[Gguf, tuple[str, ...]]] = {
    "empty name": (_one(Info("", (4,), F32_TYPE, 0)), ("the name of tensor 1 of 1 is ''",)),
    "duplicate name": (_two(Info("t", (4,), F32_TYPE, 0), Info("t", (4,), F32_TYPE, 32)), ("the name of tensor 2 of 2 is 't'", "once")),
    "name too long": (_one(Info("n" * 256, (4,), F32_TYPE, 0)), ("the length of the name of tensor 1 of 1 is 256", "at most 255")),
    "five dimensions": (_one(Info("t", (1,) * 5, F32_TYPE, 0)), ("the dimension count of tensor 't' is 5", "at most 4")),
    "2^32-1 dimensions": (_one(Info("t", (1,), F32_TYPE, 0, dims=2**32 - 1)), ("the dimension count of tensor 't' is 4294967295",)),
    "a dimension of zero": (_one(Info("t", (4, 0), F32_TYPE, 0)), ("the dimensions of tensor 't' is (4, 0)", "at least 1")),
    "a product that wraps 2^64": (_one(Info("t", (4, 2**30 - 1, 2**30 + 1, 2**2), F32_TYPE, 0)), ("tensor 't'", "2^63")),
    "a product of almost 2^62": (_one(Info("t", (4, 2**30 - 1, 2**30 + 1), F32_TYPE, 0)), ("the size of tensor 't'", "fewer than 2^63 bytes")),
    "a product that is 2^64 exactly": (_one(Info("t", (2**32, 2**32), F32_TYPE, 0)), ("(4294967296, 4294967296)", "below 2^63")),
    "dimensions of 2^64-1": (_one(Info("t", (2**64 - 1, 2**64 - 1), F32_TYPE, 0)), ("below 2^63",)),
    "a row that is not whole blocks of 32": (
        _one(Info("t", (33,), Q4_0_TYPE, 0)),
        ("the first dimension of tensor 't' is 33", "Q4_0 takes multiples of 32"),
    ),
    "a row that is not whole blocks of 256": (_one(Info("t", (128, 2), Q4_K_TYPE, 0)), ("is 128", "Q4_K takes multiples of 256")),
    "a scalar of a block format": (_one(Info("t", (), Q4_0_TYPE, 0)), ("is 1", "multiples of 32")),
    "a type that is known and not supported": (_one(Info("t", (256,), IQ2_XXS_TYPE, 0)), ("the type of tensor 't' is 16", "IQ2_XXS")),
    "a type that was removed": (_one(Info("t", (256,), 4, 0)), ("the type of tensor 't' is 4",)),
    "a type that does not exist": (_one(Info("t", (256,), 2**32 - 1, 0)), ("the type of tensor 't' is 4294967295",)),
    "an offset that is not aligned": (_one(Info("t", (4,), F32_TYPE, 16)), ("the offset of tensor 't' is 16", "a multiple of the alignment, 32")),
    "an offset past the end": (_one(Info("t", (4,), F32_TYPE, 4096)), ("tensor 't' is 16 bytes at byte", "the file ends at byte")),
    "an offset of 2^64-32": (_one(Info("t", (4,), F32_TYPE, 2**64 - 32)), ("tensor 't' is 16 bytes at byte 184467440737",)),
    "data that is cut short": (_one(Info("t", (2000,), F32_TYPE, 0)), ("tensor 't' is 8000 bytes at byte", "cut short")),
    "tensors that overlap": (
        _two(Info("a", (64,), F32_TYPE, 0), Info("b", (4,), F32_TYPE, 224)),
        ("the offset of tensor 'b' is 224", "tensor 'a' reaches to 256"),
    ),
    "tensors that share their data": (_two(Info("a", (4,), F32_TYPE, 0), Info("b", (4,), F32_TYPE, 0)), ("tensors must not overlap",)),
    "a tensor inside another": (_two(Info("b", (4,), F32_TYPE, 64), Info("a", (64,), F32_TYPE, 0)), ("the offset of tensor 'b' is 64",)),
    "no data at all": (Gguf(tensors=[Info("t", (4,), F32_TYPE, 0)]), ("tensor 't' is 16 bytes at byte",)),
    "a name made of control characters": (_one(Info("\x1b]0;x\x07\r", (0,), F32_TYPE, 0)), ("tensor '\\x1b]0;x\\x07\\r'",)),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_wrong_header_is_refused_by_field(tmp_path: Path, case: str) -> None:
    model, words = HEADERS[case]
    message = refusal(model.write(tmp_path / "m.gguf"))
    assert all(word in message for word in words), message


@pytest.mark.parametrize("case", KEYS)
def test_a_wrong_key_is_refused_by_field(tmp_path: Path, case: str) -> None:
    keys, words = KEYS[case]
    message = refusal(Gguf(keys, alignment=1).write(tmp_path / "m.gguf"))
    assert all(word in message for word in words), message


@pytest.mark.parametrize("case", TENSORS)
def test_a_wrong_tensor_is_refused_by_field(tmp_path: Path, case: str) -> None:
    model, words = TENSORS[case]
    message = refusal(model.write(tmp_path / "m.gguf"))
    assert all(word in message for word in words), message


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = small_gguf().build()
    path = tmp_path / "m.gguf"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_header_of_more_than_48_mib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = [text("a") + struct.pack("<I", STRING) + text("", 47 << 20)]
    path.write_bytes(Gguf(keys).header())
    os.truncate(path, 60 << 20)
    with path.open("r+b") as file:  # a second key, behind 47 MiB of zeros
        file.write(Gguf(keys, key_count=2).header())
        file.seek(len(Gguf(keys).header()) + (47 << 20))
        file.write(text("b") + struct.pack("<I", STRING) + text("", 2 << 20))
    assert "key 'b' is 2097152 bytes at byte 49283" in (message := refusal(path)), message
    assert "a header of at most 48 MiB is allowed" in message


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"x")


NOT_MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "size is 0; an empty file is not a model"),
    "one byte": (lambda p: p.write_bytes(b"G"), "looks like text"),
    "zip": (_zip, "looks like a zip archive (PyTorch"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps({"a": 1})), "looks like a Python pickle"),
    "html": (lambda p: p.write_bytes(b"\n<!DOCTYPE html><html><body>Not found"), "looks like a web page"),
    "lfs": (lambda p: p.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0"), "looks like a Git LFS pointer"),
    "safetensors": (lambda p: p.write_bytes(struct.pack("<Q", 2) + b"{}"), "looks like a safetensors file"),
    "json": (lambda p: p.write_bytes(b'{"error": "gated"}'), "looks like JSON text"),
    "zeros": (lambda p: p.write_bytes(bytes(5000)), "looks like zero bytes only (an unfinished download)"),
    "ggjt": (lambda p: p.write_bytes(struct.pack("<II", 0x67676A74, 3)), "looks like a ggml model from before GGUF"),
    "gzip": (lambda p: p.write_bytes(b"\x1f\x8b\x08" + bytes(9)), "looks like a gzip file"),
    "text": (lambda p: p.write_bytes(b"hello world\nhere is no model\n"), "looks like text"),
    "noise": (lambda p: p.write_bytes(np.random.default_rng(5).bytes(99)), "looks like unknown data"),
    "lower case": (lambda p: p.write_bytes(b"gguf" + bytes(20)), "magic is b'gguf'"),
}


@pytest.mark.parametrize("case", NOT_MODELS)
def test_a_file_that_is_no_model_is_told_what_it_looks_like(tmp_path: Path, case: str) -> None:
    make, words = NOT_MODELS[case]
    make(tmp_path / "m.gguf")
    message = refusal(tmp_path / "m.gguf")
    assert words in message, message


def test_a_path_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "absent.gguf: path is missing; a .gguf file" in refusal(tmp_path / "absent.gguf")
    assert "path is not a directory" in refusal(small_gguf().write(tmp_path / "m.gguf") / "below")
    assert "value is ''" in refusal("")
    assert "value is 'a\\x00b.gguf'" in refusal("a\0b.gguf")
    os.mkfifo(tmp_path / "pipe")
    assert "path is a pipe" in refusal(tmp_path / "pipe")
    assert "path is a device" in refusal("/dev/zero")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    assert "path is too many levels of symbolic links" in refusal(tmp_path / "loop")
    assert "path is file name too long" in refusal(tmp_path / ("n" * 300))


def test_a_file_without_permission_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_gguf().write(tmp_path / "m.gguf")

    # root reads everything, so the operating system's answer is played
    def denied(*args: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("lanewise.files.mapped.os.open", denied)
    assert "m.gguf: path is permission denied; a .gguf file" in refusal(path)


def test_values_from_the_file_are_cut_and_escaped_in_the_message(tmp_path: Path) -> None:
    name = "\x1b[31m" + "x" * 60_000
    message = refusal(Gguf([text(name) + struct.pack("<I", 99)]).write(tmp_path / "m.gguf"))
    assert "the type of key '\\x1b[31mxxx" in message
    assert "x" * 65 not in message


def test_scalar_of_the_builder_is_what_struct_packs() -> None:
    assert scalar(F32, 1.0) == struct.pack("<f", 1.0)
