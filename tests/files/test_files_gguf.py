"""Valid GGUF files: what the reader gives is what the official reader gives, and it is quick."""

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest
from files_builders import F32, STRING, U16, U32, Gguf, Info, array, key, refusal, small_gguf
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import ModelFileError
from lanewise.files import ModelFile, open_model
from lanewise.files.gguf_values import Cursor
from lanewise.formats import FORMATS


def _agrees(path: Path, arrays: bool = True) -> ModelFile:
    """The model at `path`, after comparing it with the official reader's: keys, values, tensors, bytes."""
    model, official = open_model(path), GGUFReader(path)
    fields = {name: f for name, f in official.fields.items() if not name.startswith("GGUF.")}
    assert list(model.metadata) == list(fields)
    for name, f in fields.items():
        value = model.metadata[name]
        if f.types[0] == GGUFValueType.ARRAY:
            assert len(value) == len(f.data)
            if arrays or len(f.data) < 1000:
                assert list(value) == f.contents()
        else:
            assert (type(value), value) == (type(f.contents()), f.contents())
    assert list(model.tensors) == [t.name for t in official.tensors]
    for t in official.tensors:
        mine = model.tensors[t.name]
        assert mine.format.ggml_type == t.tensor_type
        assert mine.shape == tuple(reversed(t.shape.tolist()))
        assert mine.data.shape == (*mine.shape[:-1], mine.format.row_bytes(mine.shape[-1]))
        assert mine.nbytes == t.n_bytes
        assert mine.data.tobytes() == t.data.tobytes()
    return model


def test_a_file_with_every_value_type_reads_as_the_official_reader_reads_it(tmp_path: Path) -> None:
    model = _agrees(small_gguf().write(tmp_path / "m.gguf"))
    assert model.kind == "gguf"
    assert model.path == tmp_path / "m.gguf"
    assert model.files == (tmp_path / "m.gguf",)
    assert model.nbytes == sum(t.nbytes for t in model.tensors.values())


def test_smollm2_reads_as_the_official_reader_reads_it(smollm2: Path) -> None:
    model = _agrees(smollm2, arrays=False)
    tokens, merges = model.metadata.strings("tokenizer.ggml.tokens"), model.metadata.strings("tokenizer.ggml.merges")
    assert (len(tokens), len(merges)) == (49152, 48900)
    # every merge joins two tokens into a third: a string read wrong would break the chain
    known = set(tokens)
    assert all(set(m.split(" ", 1)) <= known and m.replace(" ", "", 1) in known for m in merges)
    assert model.tensor("token_embd.weight", (49152, 576)).format.name == "Q8_0"


def test_every_format_written_by_the_official_writer_is_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    raws = {name: rng.integers(0, 256, (2, 3, fmt.row_bytes(256)), np.uint8) for name, fmt in FORMATS.items()}
    for name, raw in raws.items():
        writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType(FORMATS[name].ggml_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = _agrees(tmp_path / "m.gguf")
    for name, raw in raws.items():
        tensor = model.tensor(name, (2, 3, 256))
        assert np.array_equal(tensor.data, raw)
        assert np.array_equal(tensor.dequantize(), FORMATS[name].dequantize(raw), equal_nan=True)


def test_version_2_reads_like_version_3(tmp_path: Path) -> None:
    model = small_gguf()
    model.version = 2
    _agrees(model.write(tmp_path / "m.gguf"))


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_a_custom_alignment_moves_the_data(tmp_path: Path, alignment: int) -> None:
    rng = np.random.default_rng(2)
    model = Gguf(keys=[key("general.alignment", U32, alignment)], alignment=alignment)
    for index in range(3):
        model.add(f"t{index}", "F32", (3,), rng)
    _agrees(model.write(tmp_path / "m.gguf"))


def test_a_scalar_tensor_has_an_empty_shape(tmp_path: Path) -> None:
    path = Gguf(tensors=[Info("s", (), 0, 0)], data=np.float32(2.5).tobytes()).write(tmp_path / "m.gguf")
    tensor = open_model(path).tensor("s", ())
    assert tensor.dequantize().shape == ()
    assert float(tensor.dequantize()) == 2.5


@pytest.mark.parametrize(
    "tokens", [["a\0b", *"cdefgh" * 30], [""] * 140, ["é" * n for n in range(90)], ["\0"] * 70, ["x"] * 65_535 + ["\0"] + ["y"] * 70]
)
def test_strings_with_nul_or_empty_or_beyond_ascii_come_back_unchanged(tmp_path: Path, tokens: list[str]) -> None:
    path = Gguf(keys=[array("tokens", STRING, tokens), key("after", U32, 7)]).write(tmp_path / "m.gguf")
    metadata = open_model(path).metadata
    assert metadata.strings("tokens") == tokens
    assert metadata.integer("after") == 7


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=12), min_size=60, max_size=70))
def test_any_list_of_strings_comes_back_unchanged(tmp_path_factory: pytest.TempPathFactory, tokens: list[str]) -> None:
    path = Gguf(keys=[array("tokens", STRING, tokens)]).write(tmp_path_factory.getbasetemp() / "strings.gguf")
    assert open_model(path).metadata.strings("tokens") == tokens


def test_tensor_data_is_a_read_only_view_of_the_file(tmp_path: Path) -> None:
    data = next(iter(open_model(small_gguf().write(tmp_path / "m.gguf")).tensors.values())).data
    with pytest.raises(ValueError, match="read-only"):
        data[...] = 0
    assert not data.flags.owndata


def _mapped(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


def test_close_releases_the_map_once_no_view_is_left(tmp_path: Path) -> None:
    path = small_gguf().write(tmp_path / "to-be-closed.gguf")
    with open_model(path) as model:
        assert _mapped(path.name)
        kept = model.tensor("blk.0.attn_norm.weight").data
        before = kept.tobytes()
    assert not model.tensors
    gc.collect()
    assert kept.tobytes() == before
    del kept
    gc.collect()
    assert not _mapped(path.name)


def test_a_missing_tensor_is_named_with_its_neighbours(tmp_path: Path) -> None:
    model = open_model(small_gguf().write(tmp_path / "m.gguf"))
    with pytest.raises(ModelFileError, match=r"m\.gguf: tensor 'blk\.0\.attn_w\.weight' is missing; .*'blk\.0\.attn_v\.weight'"):
        model.tensor("blk.0.attn_w.weight")
    with pytest.raises(ModelFileError, match="none of its 6 tensors has a name like it"):
        model.tensor("zzzz")


def test_a_tensor_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    model = open_model(small_gguf().write(tmp_path / "m.gguf"))
    with pytest.raises(ModelFileError, match=r"the shape of tensor 'token_embd\.weight' is 3x64; 64x3 is expected"):
        model.tensor("token_embd.weight", (64, 3))
    assert model.tensor("token_embd.weight", (3, 64)).elements == 192


def _split(folder: Path, parts: int = 3, **own: int) -> list[Path]:
    """A model of three tensors in `parts` files; keyword arguments replace the second part's own keys."""
    paths = [folder / f"m-{n + 1:05d}-of-{parts:05d}.gguf" for n in range(parts)]
    for n, path in enumerate(paths):
        keys = {"no": n, "count": parts, "total": parts} | (own if n == 1 else {})
        model = Gguf([key("general.name", STRING, "whole")] if n == 0 else [])
        model.keys += [key("split.no", U16, keys["no"]), key("split.count", U16, keys["count"]), key("split.tensors.count", U32, keys["total"])]
        model.add(f"t{n}", "F32", (4,), np.random.default_rng(n)).write(path)
    return paths


@pytest.mark.parametrize("named", [0, 1, 2])
def test_naming_any_part_opens_the_whole_split(tmp_path: Path, named: int) -> None:
    paths = _split(tmp_path)
    model = open_model(paths[named])
    assert list(model.tensors) == ["t0", "t1", "t2"]
    assert model.metadata.string("general.name") == "whole"
    assert (model.path, model.files) == (paths[named], tuple(paths))


def test_a_split_of_the_official_writer_opens(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for n in range(5):
        writer.add_tensor(f"t{n}", np.full((2, 4), n, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = open_model(tmp_path / "m-00002-of-00003.gguf")
    assert [float(t.dequantize()[0, 0]) for t in model.tensors.values()] == [0, 1, 2, 3, 4]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    paths[2].unlink()
    assert "m-00003-of-00003.gguf: path is missing; all 3 parts are needed, and 1 of them cannot be found" in refusal(paths[0])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"no": 2}, "m-00002-of-00003.gguf: split.no is 2; 1 is expected"),
        ({"count": 4}, "split.count is 4; 3 is expected"),
        ({"total": 9}, "split.tensors.count is 9; 3 is expected"),
    ],
)
def test_a_part_that_contradicts_the_others_is_refused(tmp_path: Path, own: dict[str, int], message: str) -> None:
    paths = _split(tmp_path, **own)
    assert message in refusal(paths[0])


def test_a_split_with_fewer_tensors_than_it_says_is_refused(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    for n, path in enumerate(paths):
        keys = [key("split.no", U16, n), key("split.count", U16, 3), key("split.tensors.count", U32, 3)]
        Gguf(keys).add(f"t{n}", "F32", (4,), np.random.default_rng(n)).write(path) if n else Gguf(keys).write(path)
    assert "split.tensors.count is 3; the 3 parts hold 2 tensors" in refusal(paths[1])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    keys = [key("split.no", U16, 2), key("split.count", U16, 3), key("split.tensors.count", U32, 3)]
    Gguf(keys).add("t0", "F32", (4,), np.random.default_rng(0)).write(paths[2])
    assert "00003-of-00003.gguf: tensor 't0' is in an earlier part too" in refusal(paths[0])


def test_a_part_with_keys_of_its_own_is_refused(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    keys = [key("split.no", U16, 1), key("split.count", U16, 3), key("split.tensors.count", U32, 3), key("general.name", STRING, "other")]
    Gguf(keys).add("t1", "F32", (4,), np.random.default_rng(0)).write(paths[1])
    assert "key 'general.name' is not what the first part has" in refusal(paths[0])


@pytest.mark.parametrize(("value", "opens"), [([1.0, 2.0], True), ([1.0, 3.0], False)])
def test_a_part_may_repeat_keys_of_the_first_but_not_change_them(tmp_path: Path, value: list[float], opens: bool) -> None:
    for n in range(2):
        own = [key("split.no", U16, n), key("split.count", U16, 2), key("split.tensors.count", U32, 2)]
        repeated = [array("scores", F32, value if n else [1.0, 2.0]), key("nan", F32, float("nan")), key("name", STRING, "x")]
        Gguf(own + repeated).add(f"t{n}", "F32", (4,), np.random.default_rng(n)).write(tmp_path / f"m-{n + 1:05d}-of-00002.gguf")
    path = tmp_path / "m-00001-of-00002.gguf"
    if opens:
        assert len(open_model(path).tensors) == 2
    else:
        assert "key 'scores' is not what the first part has" in refusal(path)


def test_a_renamed_part_is_refused_with_the_name_it_needs(tmp_path: Path) -> None:
    renamed = _split(tmp_path)[0].rename(tmp_path / "model.gguf")
    assert "path is one of 3 parts; rename" in refusal(renamed)
    whole = small_gguf().write(tmp_path / "m-00001-of-00002.gguf")
    assert "the file's name says that it is one of 2 parts" in refusal(whole)


def test_a_part_named_for_another_count_is_refused(tmp_path: Path) -> None:
    renamed = _split(tmp_path)[0].rename(tmp_path / "m-00001-of-00007.gguf")
    assert "split.count is 3; the file's name says 7 parts" in refusal(renamed)


def _fastest(path: Path) -> float:
    """Processor seconds of the fastest of three openings: what the machine does besides must not count."""
    times = []
    for _ in range(3):
        began = time.process_time()
        open_model(path)
        times.append(time.process_time() - began)
    return min(times)


def test_smollm2_opens_in_a_tenth_of_a_second(smollm2: Path) -> None:
    assert _fastest(smollm2) < 0.1


def test_a_vocabulary_of_150k_is_read_in_a_quarter_of_a_second(tmp_path: Path) -> None:
    keys = [array("tokens", STRING, [f"Ġtoken{i}" for i in range(150_000)]), array("scores", F32, np.zeros(150_000))]
    assert _fastest(Gguf(keys).write(tmp_path / "m.gguf")) < 0.25


def test_the_path_may_be_a_string_or_a_path_object_or_a_link(tmp_path: Path) -> None:
    path = small_gguf().write(tmp_path / "m.gguf")
    os.symlink(path, tmp_path / "link.gguf")
    assert len(open_model(str(path)).tensors) == len(open_model(tmp_path / "link.gguf").tensors) == 6


def test_a_plain_vocabulary_is_decoded_in_bulk_and_not_string_by_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Gguf([array("tokens", STRING, [f"Ġtoken{i}" for i in range(70_000)])]).write(tmp_path / "m.gguf")
    decoded: list[str] = []
    one_by_one = Cursor.decode
    monkeypatch.setattr(Cursor, "decode", lambda self, raw, field: decoded.append(field) or one_by_one(self, raw, field))
    assert len(open_model(path).metadata.strings("tokens")) == 70_000
    assert decoded == ["key 1 of 1"]
