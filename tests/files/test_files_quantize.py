"""quantize_file: which weight gets which format, a target that other readers open, and nothing left behind when it fails."""

import ctypes
import logging
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from files_builders import STRING, U16, U32, Gguf, Info, directory, key, small_gguf, small_safetensors
from gguf import GGML_QUANT_VERSION, GGUFReader, LlamaFileType

from lanewise.errors import FormatError, ModelFileError
from lanewise.files import open_model
from lanewise.files.quantize import QuantizeReport, quantize_file
from lanewise.files.recipes import choose, find, names
from lanewise.formats import FORMATS

LAYER = {
    "attn_norm": (256,),
    "attn_q": (2, 256),
    "attn_k": (2, 256),
    "attn_v": (2, 256),
    "attn_output": (2, 256),
    "ffn_norm": (256,),
    "ffn_gate": (2, 256),
    "ffn_up": (2, 256),
    "ffn_down": (2, 256),
}


def _llama(layers: int, head: bool = True, k: int = 256, fmt: str = "F32", keys: list[bytes] | None = None) -> Gguf:
    """A model with LLaMA's tensors, tiny; `k` replaces the length of the rows."""
    rng = np.random.default_rng(0)
    base = [key("general.architecture", STRING, "llama"), key("general.file_type", U32, 0), key("llama.block_count", U32, layers)]
    model = Gguf(base if keys is None else keys)
    shapes = {"token_embd": (3, 256), "output_norm": (256,)} | ({"output": (3, 256)} if head else {})
    shapes |= {f"blk.{n}.{name}": shape for n in range(layers) for name, shape in LAYER.items()}
    for name, shape in shapes.items():
        model.normal(f"{name}.weight", "F32" if len(shape) == 1 else fmt, (*shape[:-1], k), rng)
    return model


def _quantized(tmp_path: Path, model: Gguf, type_name: str) -> QuantizeReport:
    return quantize_file(model.write(tmp_path / "source.gguf"), tmp_path / "target.gguf", type_name)


# What llama.cpp prints of the published LLaMA-2-7B files (32 layers, a head of its own), and its default 65 norms in F32.
PUBLISHED = {
    "Q3_K_S": {"Q3_K": 225, "Q6_K": 1},
    "Q3_K_M": {"Q3_K": 129, "Q4_K": 92, "Q5_K": 4, "Q6_K": 1},
    "Q3_K_L": {"Q3_K": 129, "Q5_K": 96, "Q6_K": 1},
    "Q4_K_S": {"Q4_K": 217, "Q5_K": 8, "Q6_K": 1},
    "Q4_K_M": {"Q4_K": 193, "Q6_K": 33},
    "Q5_K_S": {"Q5_K": 225, "Q6_K": 1},
    "Q5_K_M": {"Q5_K": 193, "Q6_K": 33},
}


@pytest.mark.parametrize("type_name", PUBLISHED)
def test_a_mix_gives_llama_2_7b_the_published_numbers_of_each_format(tmp_path: Path, type_name: str) -> None:
    model = open_model(_llama(32).write(tmp_path / "m.gguf"))
    choices = choose(find(type_name), model.tensors)
    assert Counter(choice.format.name for choice in choices) == PUBLISHED[type_name] | {"F32": 65}


def test_q4_k_m_favours_both_ends_and_every_third_layer_between(tmp_path: Path) -> None:
    model = open_model(_llama(32).write(tmp_path / "m.gguf"))
    favoured = [c.tensor.name for c in choose(find("Q4_K_M"), model.tensors) if c.format.name == "Q6_K"]
    layers = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    assert sorted(favoured) == sorted(["output.weight", *(f"blk.{n}.{kind}.weight" for n in layers for kind in ("attn_v", "ffn_down"))])


def test_layers_are_counted_among_those_that_have_the_tensor(tmp_path: Path) -> None:
    model = Gguf([key("general.architecture", STRING, "llama")])
    for n in range(0, 32, 2):  # a hybrid: attention in every second layer, 16 in all
        model.add(f"blk.{n}.attn_v.weight", "F32", (1, 256), np.random.default_rng(n))
    opened = open_model(model.write(tmp_path / "m.gguf"))
    favoured = [int(c.tensor.name.split(".")[1]) // 2 for c in choose(find("Q4_K_M"), opened.tensors) if c.format.name == "Q6_K"]
    assert favoured == [0, 1, 4, 7, 10, 13, 14, 15]


def test_tied_embeddings_are_the_head_and_get_its_format(tmp_path: Path) -> None:
    tied = {c.tensor.name: c.format.name for c in choose(find("Q4_K_M"), open_model(_llama(1, head=False).write(tmp_path / "a.gguf")).tensors)}
    apart = {c.tensor.name: c.format.name for c in choose(find("Q4_K_M"), open_model(_llama(1).write(tmp_path / "b.gguf")).tensors)}
    assert tied["token_embd.weight"] == apart["output.weight"] == "Q6_K"
    assert apart["token_embd.weight"] == "Q4_K"


def test_norms_routers_biases_and_one_dimension_keep_their_format(tmp_path: Path) -> None:
    model = Gguf([key("general.architecture", STRING, "llama")])
    kept = ["blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight", "blk.0.attn_q.bias", "token_types.weight"]
    for name in kept:
        model.add(name, "F16", (2, 256), np.random.default_rng(0))
    model.add("blk.0.one.weight", "BF16", (256,), np.random.default_rng(0))
    report = _quantized(tmp_path, model, "Q4_0")
    assert [(c.name, c.before == c.after, c.error) for c in report.changes] == [(name, True, None) for name in [*kept, "blk.0.one.weight"]]


@pytest.mark.parametrize(
    ("wanted", "k", "fallback"),
    [
        *[(wanted, 288, "Q4_0") for wanted in ("Q2_K", "Q3_K")],
        ("Q4_K", 288, "Q5_0"),
        ("Q5_K", 288, "Q5_1"),
        ("Q6_K", 288, "Q8_0"),
        ("IQ4_XS", 288, "IQ4_NL"),
        ("Q4_0", 100, "F16"),
        ("Q6_K", 100, "F16"),
        ("Q8_0", 33, "F16"),
    ],
)
def test_rows_that_are_not_whole_blocks_fall_back_to_at_least_as_many_bits_and_are_listed(tmp_path: Path, wanted: str, k: int, fallback: str) -> None:
    report = _quantized(tmp_path, _llama(1, k=k), wanted)
    assert {(c.wanted, c.after) for c in report.fallbacks} == {(wanted, fallback)}
    assert len(report.fallbacks) == 9  # the embedding, the head and a layer's seven
    assert FORMATS[fallback].bits_per_weight >= FORMATS[wanted].bits_per_weight


@pytest.mark.parametrize("type_name", names())
def test_the_target_holds_what_the_formats_make_of_the_weights(tmp_path: Path, type_name: str) -> None:
    report = _quantized(tmp_path, _llama(2), type_name)
    source, target, official = open_model(report.source), open_model(report.target), GGUFReader(report.target)
    assert list(target.tensors) == list(source.tensors) == [t.name for t in official.tensors]
    for change, theirs in zip(report.changes, official.tensors, strict=True):
        before, after = source.tensors[change.name], target.tensors[change.name]
        assert after.shape == before.shape
        assert (after.format.name, after.nbytes) == (change.after, change.bytes_after)
        assert (theirs.tensor_type, theirs.data.tobytes()) == (after.format.ggml_type, after.data.tobytes())
        assert after.data.tobytes() == after.format.quantize(before.dequantize()).tobytes()
        if change.error is not None:
            x = before.dequantize()
            lost = np.linalg.norm((after.dequantize() - x).astype(np.float64)) / np.linalg.norm(x.astype(np.float64))
            assert change.error == pytest.approx(float(lost), rel=x.size * np.finfo(np.float64).eps)  # two sums of that many terms
    assert report.bytes_after == target.nbytes
    assert (report.fallbacks, report.dropped) == ((), ())


@pytest.mark.parametrize("type_name", names())
def test_the_file_type_is_llama_cpps_number_for_it(type_name: str) -> None:
    # llama.cpp has no number for a K format alone; its small mix is that format everywhere but in a few places
    known = {"F32": "ALL_F32", "Q3_K": "MOSTLY_Q3_K_S", "Q4_K": "MOSTLY_Q4_K_S", "Q5_K": "MOSTLY_Q5_K_S"}
    assert find(type_name).file_type == LlamaFileType[known.get(type_name, f"MOSTLY_{type_name}")]


def test_the_target_carries_its_file_type_and_the_version_of_the_formats(tmp_path: Path) -> None:
    metadata = open_model(_quantized(tmp_path, _llama(1), "Q5_K_M").target).metadata
    assert metadata.integer("general.file_type") == LlamaFileType.MOSTLY_Q5_K_M
    assert metadata.integer("general.quantization_version") == GGML_QUANT_VERSION


def test_other_metadata_is_copied_with_its_types_and_order(tmp_path: Path) -> None:
    source = Gguf(small_gguf().keys).normal("t.weight", "F16", (2, 32), np.random.default_rng(0))
    source.keys.insert(3, key("general.file_type", U32, 1))
    source.write(tmp_path / "s.gguf")
    report = quantize_file(tmp_path / "s.gguf", tmp_path / "t.gguf", "Q8_0")
    before, after = GGUFReader(tmp_path / "s.gguf").fields, GGUFReader(tmp_path / "t.gguf").fields
    assert report.dropped == ("empty",)  # the official writer cannot write an empty array
    kept = [name for name in before if name not in ("empty", "GGUF.kv_count", "GGUF.version", "GGUF.tensor_count")]
    assert [name for name in after if name in kept] == kept
    for name in kept:
        if name != "general.file_type":
            assert after[name].types == before[name].types
            assert [after[name].parts[i].tobytes() for i in after[name].data] == [before[name].parts[i].tobytes() for i in before[name].data]
    assert set(after) - set(before) == {"general.quantization_version"}


def test_a_custom_alignment_is_kept(tmp_path: Path) -> None:
    keys = [key("general.architecture", STRING, "llama"), key("general.alignment", U32, 256)]
    padded = Gguf(keys, alignment=256)
    for n in range(3):
        padded.normal(f"t{n}.weight", "F32", (2, 32), np.random.default_rng(n))
    report = _quantized(tmp_path, padded, "Q8_0")
    assert all(t.data_offset % 256 == 0 for t in GGUFReader(report.target).tensors)
    assert open_model(report.target).metadata.integer("general.alignment") == 256


def test_a_split_source_becomes_one_file(tmp_path: Path) -> None:
    for n in range(2):
        keys = [key("general.architecture", STRING, "llama")] if n == 0 else []
        keys += [key("split.no", U16, n), key("split.count", U16, 2), key("split.tensors.count", U32, 2)]
        Gguf(keys).normal(f"t{n}.weight", "F32", (2, 32), np.random.default_rng(n)).write(tmp_path / f"m-{n + 1:05d}-of-00002.gguf")
    report = quantize_file(tmp_path / "m-00002-of-00002.gguf", tmp_path / "whole.gguf", "Q8_0")
    target = open_model(report.target)
    assert list(target.tensors) == ["t0.weight", "t1.weight"]
    assert not [name for name in target.metadata if name.startswith("split.")]
    with pytest.raises(ModelFileError, match="target is the source itself"):
        quantize_file(tmp_path / "m-00002-of-00002.gguf", tmp_path / "m-00001-of-00002.gguf", "Q8_0", overwrite=True)


def test_tensors_that_have_the_format_are_copied_and_others_are_counted_as_requantized(tmp_path: Path) -> None:
    report = _quantized(tmp_path, _llama(1, fmt="Q8_0"), "Q6_K")
    assert len(report.requantized) == 9
    again = quantize_file(report.target, tmp_path / "again.gguf", "Q6_K")
    assert again.requantized == ()
    assert all(change.error is None for change in again.changes)
    assert open_model(again.target).tensors["output.weight"].data.tobytes() == open_model(report.target).tensors["output.weight"].data.tobytes()


def test_ggmls_own_reader_takes_every_target(tmp_path: Path) -> None:
    module = pytest.importorskip("xllamacpp.xllamacpp", reason="xllamacpp is not installed: no check with ggml's own reader")
    library = ctypes.CDLL(module.__file__)
    if not hasattr(library, "gguf_init_from_file"):
        pytest.skip("this xllamacpp does not export gguf_init_from_file: no check with ggml's own reader")

    class Params(ctypes.Structure):
        _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))

    library.gguf_init_from_file.restype = ctypes.c_void_p
    library.gguf_init_from_file.argtypes = (ctypes.c_char_p, Params)
    library.gguf_get_n_tensors.restype = ctypes.c_int64
    library.gguf_get_n_tensors.argtypes = library.gguf_free.argtypes = (ctypes.c_void_p,)
    library.gguf_get_tensor_type.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    for type_name in names():
        report = quantize_file(_llama(1).write(tmp_path / "source.gguf"), tmp_path / "target.gguf", type_name, overwrite=True)
        context = library.gguf_init_from_file(os.fsencode(report.target), Params(True, None))
        assert context, f"ggml refuses the {type_name} target"
        types = [library.gguf_get_tensor_type(context, n) for n in range(library.gguf_get_n_tensors(context))]
        library.gguf_free(context)
        assert types == [FORMATS[change.after].ggml_type for change in report.changes]


def test_progress_is_told_after_each_tensor_and_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    source = _llama(1).write(tmp_path / "s.gguf")
    report = quantize_file(source, tmp_path / "t.gguf", "q4_k_m", lambda *call: calls.append(call))
    assert report.type_name == "Q4_K_M"
    assert [name for _, _, name in calls] == [change.name for change in report.changes]
    assert [done for done, _, _ in calls] == list(np.cumsum([change.bytes_before for change in report.changes]))
    assert calls[-1][0] == calls[-1][1] == report.bytes_before


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, OSError])
def test_a_run_that_stops_leaves_nothing_and_keeps_an_old_target(tmp_path: Path, failure: type[BaseException]) -> None:
    source = _llama(1).write(tmp_path / "s.gguf")
    (tmp_path / "t.gguf").write_bytes(b"old")

    def stop(done: int, total: int, name: str) -> None:
        assert len(list(tmp_path.iterdir())) == 3  # the target is being written under another name
        assert (tmp_path / "t.gguf").read_bytes() == b"old"
        raise failure

    expected = ModelFileError if failure is OSError else failure
    with pytest.raises(expected):
        quantize_file(source, tmp_path / "t.gguf", "Q8_0", stop, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.gguf", "t.gguf"]
    assert (tmp_path / "t.gguf").read_bytes() == b"old"


def test_the_old_target_stays_until_the_new_one_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.gguf").write_bytes(b"old")

    def refuse(*paths: object) -> None:
        assert (tmp_path / "t.gguf").read_bytes() == b"old"
        raise OSError(5, "Input/output error")

    for name in ("replace", "rename"):
        monkeypatch.setattr(f"lanewise.files.quantize.os.{name}", refuse)
    with pytest.raises(ModelFileError, match=r"t\.gguf: writing is input/output error"):
        quantize_file(_llama(1).write(tmp_path / "s.gguf"), tmp_path / "t.gguf", "Q8_0", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.gguf", "t.gguf"]


def test_weights_that_no_format_can_hold_are_refused_by_tensor(tmp_path: Path) -> None:
    model = Gguf([key("general.architecture", STRING, "llama")]).add("t.weight", "F32", (2, 32), np.random.default_rng(0))
    model.data = np.array([1.0] * 40 + [np.nan] + [1.0] * 23, np.float32).tobytes()
    with pytest.raises(ModelFileError, match=r"source\.gguf: tensor 't\.weight', from row 0 on, is not quantizable; Q8_0: x\[1, 8\] is nan"):
        _quantized(tmp_path, model, "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["source.gguf"]


def test_a_target_that_must_not_be_written_is_refused(tmp_path: Path) -> None:
    source = _llama(1).write(tmp_path / "s.gguf")
    (tmp_path / "there.gguf").write_bytes(b"x")
    os.link(source, tmp_path / "hard.gguf")
    os.symlink(source, tmp_path / "soft.gguf")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling.gguf")
    for name, words in (
        ("there.gguf", "target is there already"),
        ("dangling.gguf", "target is there already"),
        ("s.gguf", "target is the source itself"),
        ("hard.gguf", "target is the source itself"),
        ("soft.gguf", "target is the source itself"),
        ("no/such/directory/t.gguf", "directory is missing"),
        ("n" * 300 + ".gguf", "file name too long"),
    ):
        with pytest.raises(ModelFileError, match=words):
            quantize_file(source, tmp_path / name, "Q8_0")
    for name in ("s.gguf", "hard.gguf", "soft.gguf"):
        with pytest.raises(ModelFileError, match="the source itself"):
            quantize_file(source, tmp_path / name, "Q8_0", overwrite=True)
    with pytest.raises(ModelFileError, match="target is a directory"):
        quantize_file(source, tmp_path, "Q8_0", overwrite=True)
    before = set(tmp_path.iterdir())
    assert len(open_model(quantize_file(source, tmp_path / "there.gguf", "Q8_0", overwrite=True).target).tensors) == 12
    assert set(tmp_path.iterdir()) == before


def test_a_source_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m", {"config.json": {}, "model.safetensors": small_safetensors()})
    for source in (folder, folder / "model.safetensors"):
        with pytest.raises(ModelFileError, match=r"path is safetensors; only \.gguf is quantized"):
            quantize_file(source, tmp_path / "t.gguf", "Q8_0")
    with pytest.raises(ModelFileError, match="path is missing"):
        quantize_file(tmp_path / "absent.gguf", tmp_path / "t.gguf", "Q8_0")


def test_a_source_without_an_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'general\.architecture' is missing"):
        _quantized(tmp_path, Gguf().add("t.weight", "F32", (2, 32), np.random.default_rng(0)), "Q8_0")


def test_an_unknown_type_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"unknown type 'Q4_X'; a model can be quantized to F32, F16, .*Q4_K_M"):
        _quantized(tmp_path, _llama(1), "Q4_X")


def test_a_full_disk_is_refused_before_and_reported_during_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _llama(1).write(tmp_path / "s.gguf")

    def full(self: object, tensor: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gguf.GGUFWriter.write_tensor_data", full)
        with pytest.raises(ModelFileError, match=r"t\.gguf: writing is no space left on device"):
            quantize_file(source, tmp_path / "t.gguf", "Q8_0")
    monkeypatch.setattr("lanewise.files.quantize.shutil.disk_usage", lambda path: type("usage", (), {"free": 10}))
    with pytest.raises(ModelFileError, match=r"t\.gguf: free space is 10 bytes; \d+ bytes are needed"):
        quantize_file(source, tmp_path / "t.gguf", "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]


def test_memory_is_bounded_by_the_largest_target_tensor_and_a_few_chunks(tmp_path: Path) -> None:
    _quantized(tmp_path, _llama(1), "Q8_0")  # what is imported late is imported before memory is counted
    keys = [key("general.architecture", STRING, "llama")]
    source = Gguf(keys, [Info("t.weight", (2048, 4096), 1, 0)], bytes(2 * 4096 * 2048)).write(tmp_path / "s.gguf")  # eight chunks, F16
    tracemalloc.start()
    try:
        report = quantize_file(source, tmp_path / "t.gguf", "Q8_0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    largest = max(change.bytes_after for change in report.changes)
    # a chunk of 2^20 weights: x, x again from its codes, the difference, and a square in float64; the formats' own scratch fits in as much again
    chunk = (1 << 20) * (4 + 4 + 4 + 8)
    assert peak < largest + 2 * chunk


def test_nothing_is_logged_or_printed(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.WARNING):
        _quantized(tmp_path, _llama(1), "Q4_K_M")
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
