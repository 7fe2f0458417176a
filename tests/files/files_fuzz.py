"""Random damage to a valid model, in a process of its own with little memory: run by test_files_fuzz.py.

    python files_fuzz.py gguf|safetensors SEED COUNT FOLDER

Each round changes some bytes of the small valid model, opens it and, where that succeeds, reads and dequantizes every tensor. Anything but success or
ModelFileError ends the process with a traceback; so does a request for more than 256 MB beyond what the process had at its start.
Prints one JSON object: rounds opened and refused, the slowest round's processor seconds, and the distinct kinds of refusal.
"""

import json
import re
import resource
import sys
import time
from pathlib import Path

import numpy as np
from files_builders import directory, one_line, small_gguf, small_safetensors

from lanewise.errors import ModelFileError
from lanewise.files import open_model

EXTRA = 256 << 20
# Where integers wrap, overflow, turn negative or pass a limit.
EDGES = [0, 1, 2, 4, 8, 9, 12, 31, 32, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**61, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


def damaged(whole: bytes, header: int, rng: np.random.Generator, most: int) -> bytes:
    """`whole` with one to `most` changes, most of them in its first `header` bytes."""
    out = bytearray(whole)
    for _ in range(rng.integers(1, most + 1)):
        end = header if rng.random() < 0.8 else len(whole)
        at = int(rng.integers(0, max(1, min(end, len(out)))))
        kind = rng.integers(0, 8)
        if kind == 0 and out:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            out[at : at + 1] = rng.bytes(1)
        elif kind == 2:
            out[at : at + 8] = int(rng.choice(np.array(EDGES, np.uint64))).to_bytes(8, "little")
        elif kind == 3:
            out[at : at + 4] = (int(rng.choice(np.array(EDGES, np.uint64))) % 2**32).to_bytes(4, "little")
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            del out[at : at + int(rng.integers(1, 40))]
        elif kind == 6:
            out[at:at] = rng.bytes(int(rng.integers(1, 40)))
        else:
            start = int(rng.integers(0, max(1, len(out))))
            piece = bytes(out[start : start + int(rng.integers(1, 200))])
            out[at : at + len(piece)] = piece
    return bytes(out)


def text_damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """The JSON header of a safetensors file with numbers, names and brackets exchanged, and its length corrected."""
    length = int.from_bytes(whole[:8], "little")
    header = whole[8 : 8 + length]
    tokens = re.findall(rb'\d+|"[^"]*"|[^\d"]', header)
    numbers = [b"0", b"-1", b"1e9", b"true", b"null", b"1" * 30, b"9223372036854775807", b"[]", b"{}", b'"x"', b"[[[[", b"NaN"]
    for _ in range(rng.integers(1, 3)):
        at = int(rng.integers(0, len(tokens)))
        kind = rng.integers(0, 4)
        if kind < 2:  # another name, or one that is not UTF-8 or not JSON
            names = [n for n, token in enumerate(tokens) if token.startswith(b'"')]
            at = names[rng.integers(0, len(names))] if names else at
            place = int(rng.integers(0, len(tokens[at])))
            tokens[at] = tokens[at][:place] + rng.bytes(1) + tokens[at][place + 1 :]
        else:
            tokens[at] = numbers[rng.integers(0, len(numbers))] if kind == 2 else tokens[rng.integers(0, len(tokens))]
    changed = b"".join(tokens)
    return len(changed).to_bytes(8, "little") + changed + whole[8 + length :]


def touch(path: Path) -> None:
    """Open a model and use all of it."""
    with open_model(path) as model:
        for tensor in model.tensors.values():
            assert tensor.dequantize().shape == tensor.shape
            model.tensor(tensor.name, tensor.shape)
        for key in model.metadata:
            for getter in (model.metadata.integer, model.metadata.number, model.metadata.string, model.metadata.strings, model.metadata.numbers):
                try:
                    getter(key)
                except ModelFileError:
                    continue


def virtual() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(kind: str, seed: int, count: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    gguf, tensors = small_gguf(), small_safetensors()
    if kind == "gguf":
        whole, header, path = gguf.build(), len(gguf.header()), folder / "m.gguf"
        target = path
    else:
        whole, header = tensors, 8 + int.from_bytes(tensors[:8], "little")
        path = directory(folder / "m", {"config.json": {"model_type": "llama"}})
        target = path / "model.safetensors"
    target.write_bytes(whole)
    touch(path)  # what is imported late is imported before the limit
    limit = virtual() + EXTRA
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    opened, refused, slowest = 0, 0, 0.0
    kinds: set[str] = set()
    for _ in range(count):
        text = kind == "safetensors" and rng.random() < 0.6
        target.write_bytes(text_damaged(whole, rng) if text else damaged(whole, header, rng, 4 if kind == "gguf" else 1))
        began = time.process_time()
        try:
            touch(path)
            opened += 1
        except ModelFileError as error:
            refused += 1
            kinds.add(re.sub(r"'.*?'|\"|\d+", "*", error.field))
            one_line(error)
        slowest = max(slowest, time.process_time() - began)
    print(json.dumps({"opened": opened, "refused": refused, "slowest": slowest, "kinds": sorted(kinds)}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
