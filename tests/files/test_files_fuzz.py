"""Damaged model files: only ModelFileError, never more than 256 MB, never over a second."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from files_builders import ARRAY, STRING, Gguf, Info, array, key, one_line, text
from files_fuzz import EDGES, touch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import ModelFileError
from lanewise.files import open_model
from lanewise.formats import FORMATS

ROUNDS = 3000


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_thousands_of_damaged_files_are_refused_or_read_within_256_mb_and_a_second(tmp_path: Path, kind: str) -> None:
    script = Path(__file__).with_name("files_fuzz.py")
    done = subprocess.run(
        [sys.executable, str(script), kind, "1", str(ROUNDS), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["opened"] + result["refused"] == ROUNDS
    # both ways are well trodden, or the damage is too light or too heavy to find anything
    assert min(result["opened"], result["refused"]) > ROUNDS // 50, result
    assert len(result["kinds"]) > 6, result
    assert result["slowest"] < 1.0, result


# A structure-aware generator: a well-formed file of a few keys and tensors, in which any field may be a lie.
_lie = st.sampled_from(EDGES)
_names = st.one_of(st.sampled_from(["a", "general.alignment", "split.count", "split.no", "t.weight", ""]), st.text(max_size=8))
_maybe = st.one_of(st.none(), st.none(), st.none(), _lie)


@st.composite
def _keys(draw: st.DrawFn) -> bytes:
    name, kind = draw(_names), draw(st.integers(0, 13))
    head = text(name, draw(_maybe))
    value = draw(st.integers(0, 100))
    if kind == ARRAY:
        element = draw(st.integers(0, 10))
        values: list[Any] = draw(st.lists(st.text(max_size=4), max_size=20)) if element == STRING else [value % 2] * draw(st.integers(0, 5))
        if element in (9, 10):
            return head + array("", 0, [])[8:]
        return head + array("", element, values, draw(_maybe))[8:]
    if kind > 12:
        return head + kind.to_bytes(4, "little")
    return head + key("", kind, draw(st.text(max_size=8)) if kind == STRING else value % 2 if kind == 7 else value)[8:]


@st.composite
def _files(draw: st.DrawFn) -> Gguf:
    model = Gguf(keys=draw(st.lists(_keys(), max_size=4)), data=bytes(draw(st.integers(0, 2048))))
    for n in range(draw(st.integers(0, 4))):
        fmt = draw(st.sampled_from(list(FORMATS.values())))
        ne = draw(st.lists(st.one_of(st.integers(1, 4), _lie), max_size=4))
        first = fmt.block * draw(st.integers(1, 2))
        number = draw(st.one_of(st.just(fmt.ggml_type), st.just(fmt.ggml_type), st.integers(0, 45)))
        offset = draw(st.one_of(st.just(n * 512), st.integers(0, 64).map(lambda i: i * 32), _lie))
        model.tensors.append(
            Info(draw(st.one_of(st.just(f"t{n}"), _names)), (first, *ne), number, offset, draw(_maybe) if draw(st.booleans()) else None)
        )
    if draw(st.integers(0, 9)) == 0:
        model.tensor_count = draw(_lie)
    if draw(st.integers(0, 9)) == 0:
        model.key_count = draw(_lie)
    model.version = draw(st.sampled_from([3, 3, 3, 2, 1, 0, 0x03000000]))
    return model


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_files())
def test_any_file_of_plausible_structure_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, model: Gguf) -> None:
    path = model.write(tmp_path_factory.getbasetemp() / "structured.gguf")
    try:
        touch(path)
    except ModelFileError as error:
        one_line(error)


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), _lie, st.floats(), st.sampled_from(["F32", "BF16", "I64", ""])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "__metadata__"]),
        st.one_of(
            _json,
            st.builds(
                lambda dtype, shape, begin, length: {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + length]},
                st.sampled_from(["F32", "F16", "BF16", "F64"]),
                st.lists(st.integers(0, 4), max_size=3),
                st.sampled_from([0, 4, 8]),
                st.integers(0, 64),
            ),
        ),
        max_size=3,
    ),
    st.integers(0, 64),
)
def test_any_safetensors_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], size: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "structured"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    raw = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    try:
        touch(folder)
    except ModelFileError as error:
        one_line(error)


def test_a_model_that_is_opened_again_and_again_leaves_no_file_open(tmp_path: Path) -> None:
    path = Gguf(keys=[key("a", 4, 1)]).write(tmp_path / "m.gguf")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        open_model(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
