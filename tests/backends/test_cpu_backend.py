"""The cpu backend runs whole models: near the reference by a derived bound, and the same bits however the work is cut."""

import errno
import functools
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tiny
from support.cpu import BEST, FUSED
from support.moved import moved_bound
from support.run import PAGE, logits_of

from lanewise.backends import Batch, backend_for
from lanewise.backends.cpu.program import Shape, build
from lanewise.backends.cpu.runner import CpuRunner
from lanewise.backends.cpu.weights import aligned
from lanewise.backends.reference import ReferenceBackend, ReferenceRunner
from lanewise.errors import DeviceError, SettingError, ShapeError
from lanewise.files import open_model
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.attention import SPLIT
from lanewise.kernels.cpu.quantize import SOURCES
from lanewise.kernels.cpu.records import RECORDS
from lanewise.kernels.cpu.threads import ThreadPool
from lanewise.models import spec_of

IDS = [int(i) for i in np.random.default_rng(0).integers(3, 384, 40)]
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 16}  # rows of whole blocks of 256
SMALL = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL")
LARGE = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")
MODELS = [("llama", fmt) for fmt in (*SMALL, *LARGE, "mixed")] + [(family, fmt) for family in ("qwen2", "qwen3") for fmt in ("F32", "Q8_0", "Q4_K")]


def _format_of(name: str, fmt: str) -> str:
    """In a mixed model the weights that read the same x need different kinds of it."""
    if fmt != "mixed":
        return fmt
    kinds = {"attn_k": "Q8_0", "attn_q": "Q4_K", "attn_v": "F16", "attn_output": "BF16", "ffn_gate": "Q4_0", "ffn_up": "Q6_K"}
    return kinds.get(name.split(".")[-2], "Q4_K")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """model(family, format) -> path, each made once."""

    @functools.cache
    def made(family: str, fmt: str) -> Path:
        source = tiny.model_of(family, **(WIDE if fmt in (*LARGE, "mixed") else {}))
        return _save(source, tmp_path_factory.mktemp("cpu") / f"{family}-{fmt}.gguf", fmt)

    return made


def _save(source: Any, path: Path, fmt: str) -> Path:
    """As `tiny.save_gguf`, for every format that there is: its writer's quantize replaced by ours."""
    import gguf

    def quantize(array: np.ndarray, kind: Any) -> np.ndarray:
        return FORMATS[kind.name].quantize(np.ascontiguousarray(array, np.float32))

    class Writer(gguf.GGUFWriter):
        def add_tensor(self, name: str, tensor: np.ndarray, raw_shape: Any = None, raw_dtype: Any = None, **rest: Any) -> None:
            if tensor.ndim == 2 and fmt == "mixed":
                raw_dtype = gguf.GGMLQuantizationType[_format_of(name, fmt)]
                tensor = quantize(tensor, raw_dtype)
            super().add_tensor(name, tensor, raw_shape, raw_dtype, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Writer)
        patch.setattr(gguf.quants, "quantize", quantize)
        return tiny.save_gguf(source, path, "F32" if fmt == "mixed" else fmt)


def _reference(path: Path) -> tuple[ReferenceRunner, dict[str, str]]:
    with open_model(path) as file:
        return ReferenceBackend().lower(spec_of(file), file), {name: tensor.format.name for name, tensor in file.tensors.items()}


@pytest.mark.parametrize(("family", "fmt"), MODELS)
def test_logits_are_as_near_the_reference_as_int8_activations_and_a_float16_cache_allow(model: Any, family: str, fmt: str) -> None:
    path = model(family, fmt)
    want, bound = moved_bound(*_reference(path), IDS)
    off = np.abs(logits_of(path, IDS, device="cpu") - want).max()
    assert off <= bound
    assert bound < np.abs(want).max()  # or it would allow anything


@pytest.mark.parametrize(("family", "fmt"), [("llama", "F32"), ("qwen3", "Q8_0"), ("qwen2", "Q4_K"), ("llama", "mixed")])
def test_the_bits_do_not_depend_on_chunks_or_threads(model: Any, monkeypatch: pytest.MonkeyPatch, family: str, fmt: str) -> None:
    path = model(family, fmt)
    whole = logits_of(path, IDS, device="cpu")
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("LANEWISE_THREADS", threads)
        for chunks in ([len(IDS)], [1] * len(IDS), [3, 1, 16, 1, 19]):
            np.testing.assert_array_equal(logits_of(path, IDS, chunks, device="cpu"), whole)


def test_the_bits_do_not_depend_on_chunks_where_splits_are_spread(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [int(i) for i in np.random.default_rng(1).integers(3, 384, SPLIT + 9)]
    path = model("llama", "Q8_0")
    whole = logits_of(path, ids, device="cpu")
    for threads in ("1", "3"):
        monkeypatch.setenv("LANEWISE_THREADS", threads)
        np.testing.assert_array_equal(logits_of(path, ids, [SPLIT - 3, 1, 1, 1, 1, 1, 5, 2], device="cpu"), whole)


@pytest.mark.parametrize("isa", FUSED)
def test_the_bits_do_not_depend_on_the_instruction_set(model: Any, monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    path = model("qwen3", "Q8_0")
    best = logits_of(path, IDS, device="cpu")
    if isa in (BEST, "x86-64-v4", "x86-64-v3"):
        monkeypatch.setenv("LANEWISE_CPU_ISA", isa)
        np.testing.assert_array_equal(logits_of(path, IDS, [30, 10], device="cpu"), best)


def _runner(path: Path, pages: int) -> CpuRunner:
    with open_model(path) as file:
        runner = backend_for("cpu").lower(spec_of(file), file)
    assert isinstance(runner, CpuRunner)
    runner.allocate(pages, PAGE)
    return runner


def _batch(parts: list[tuple[list[int], int, list[int]]], wanted: list[int] | None = None) -> Batch:
    """(new tokens, tokens before them, pages) of each sequence."""
    positions = [np.arange(before, before + len(new)) for new, before, _ in parts]
    slots = [np.array(pages)[p // PAGE] * PAGE + p % PAGE for p, (_, _, pages) in zip(positions, parts, strict=True)]
    table = np.zeros((len(parts), max(len(pages) for _, _, pages in parts)), np.int32)
    for row, (_, _, pages) in zip(table, parts, strict=True):
        row[: len(pages)] = pages
    tokens = np.array([token for new, _, _ in parts for token in new], np.int32)
    return Batch(
        tokens=tokens, positions=np.concatenate(positions).astype(np.int32), slots=np.concatenate(slots).astype(np.int32),
        query_start=np.cumsum([0, *(len(new) for new, _, _ in parts)], dtype=np.int32),
        context=np.array([before + len(new) for new, before, _ in parts], np.int32), page_table=table,
        logit_rows=np.arange(len(tokens), dtype=np.int32) if wanted is None else np.array(wanted, np.int32),
    )  # fmt: skip


@pytest.mark.parametrize(("family", "fmt"), [("llama", "F16"), ("qwen3", "Q8_0"), ("llama", "Q4_K")])
def test_the_bits_do_not_depend_on_what_else_is_in_the_batch(model: Any, family: str, fmt: str) -> None:
    path = model(family, fmt)
    first, second, third = IDS[:17], IDS[17:20], IDS[20:40]
    alone = [logits_of(path, ids, device="cpu") for ids in (first, second, third)]
    runner = _runner(path, 8)
    pages = ([5, 2], [7], [0, 3])
    one = runner.step(_batch([(first[:10], 0, pages[0]), (third, 0, pages[2])]))
    two = runner.step(_batch([(first[10:16], 10, pages[0]), (second[:2], 0, pages[1])]))
    three = runner.step(_batch([(first[16:], 16, pages[0]), (second[2:], 2, pages[1])]))
    runner.close()
    np.testing.assert_array_equal(np.concatenate([one[:10], two[:6], three[:1]]), alone[0])
    np.testing.assert_array_equal(np.concatenate([two[6:], three[1:]]), alone[1])
    np.testing.assert_array_equal(one[10:], alone[2])


def test_records_are_not_replaced_while_a_product_may_still_read_them(model: Any) -> None:
    """Too rare a race to wait for: in front of every op that fills the shared records there must be a barrier."""
    runner = _runner(model("llama", "mixed"), 4)
    program, library = build(runner.model, Shape(rows=1, logits=0, tasks=1, splits=0)), runner.model.library
    assert not [op for op in program.ops.tolist() if op[2] == 0 and op[3]]  # one row: each worker fills records of its own
    assert program.ops[0, 3]  # from the embedding's row, which one of them has written
    runner.step(_batch([(IDS, 0, [0, 1, 2])]))
    program = build(runner.model, Shape(rows=len(IDS), logits=1, tasks=7, splits=0))
    prepares = {library.address(f"prepare_{source}_{kind}") for source in SOURCES for kind in RECORDS}
    filling = [i for i, (function, _, chunks, _) in enumerate(program.ops.tolist()) if function in prepares and chunks]
    assert len(filling) > 5 * len(runner.spec.layers)  # q, k, v of three kinds, gate and up of two, o and down
    assert all(i == 0 or program.ops[i - 1, 3] for i in filling)
    assert all(program.ops[i, 3] for i in filling)
    runner.close()


def test_only_the_wanted_rows_have_logits_and_a_step_may_want_none(model: Any) -> None:
    path = model("llama", "Q8_0")
    whole = logits_of(path, IDS, device="cpu")
    runner = _runner(path, 4)
    pages = [3, 1, 0]
    assert runner.step(_batch([(IDS[:20], 0, pages)], [])).shape == (0, 384)
    np.testing.assert_array_equal(runner.step(_batch([(IDS[20:], 20, pages)], [19, 0, 7])), whole[[39, 20, 27]])
    runner.close()


def test_a_step_after_a_longer_one_is_not_touched_by_it(model: Any) -> None:
    """Buffers are reused: what 40 rows left in them must not reach the next request."""
    path = model("qwen2", "Q8_0")
    short = logits_of(path, IDS[:3], device="cpu")
    runner = _runner(path, 8)
    runner.step(_batch([(IDS, 0, [0, 1, 2])]))
    np.testing.assert_array_equal(runner.step(_batch([(IDS[:3], 0, [1])])), short)
    runner.close()


def test_the_largest_step_of_the_engine_finds_its_buffers_made(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_PREFILL_CHUNK", "24")
    monkeypatch.setenv("LANEWISE_MAX_BATCH", "3")
    runner = _runner(model("llama", "Q8_0"), 8)
    made = runner.model.buffers
    runner.step(_batch([(IDS[:24], 0, [0, 1]), (IDS[:1], 0, [2]), (IDS[:1], 0, [3])]))
    assert runner.model.buffers is made
    runner.close()


def test_memory_is_given_where_the_system_has_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: Any) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    room = aligned(5 << 20)
    assert room.nbytes == 5 << 20
    assert not room.any()


def test_two_runners_live_side_by_side(model: Any) -> None:
    paths = model("llama", "Q8_0"), model("qwen3", "F32")
    want = [logits_of(path, IDS, device="cpu") for path in paths]
    runners = [_runner(path, 4) for path in paths]
    for start, end in ((0, 25), (25, 40)):
        for runner, expected in zip(runners, want, strict=True):
            np.testing.assert_array_equal(runner.step(_batch([(IDS[start:end], start, [2, 0, 3])])), expected[start:end])
    for runner in runners:
        runner.close()


def test_tokens_outside_the_vocabulary_and_other_page_sizes_are_refused(model: Any) -> None:
    runner = _runner(model("llama", "Q8_0"), 2)
    for token in (-1, 384):
        with pytest.raises(ShapeError, match="the vocabulary has 384"):
            runner.step(_batch([([1, token], 0, [0])]))
    with pytest.raises(ShapeError, match="pages of 16 tokens; 8"):
        runner.allocate(4, 8)
    runner.close()


def test_more_threads_than_any_processor_has_are_refused_before_one_starts(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadPool, "run", lambda *_: pytest.fail("a thread was started"))
    monkeypatch.setenv("LANEWISE_THREADS", "99999999999999999999")
    with pytest.raises(SettingError, match="threads is 99999999999999999999; it takes a positive number, at most 4096"):
        _runner(model("llama", "Q8_0"), 2)


def test_a_head_size_without_a_kernel_is_refused_with_the_device_that_runs_it(tmp_path: Path) -> None:
    path = tiny.save_gguf(tiny.model_of("qwen3", head_dim=24), tmp_path / "odd.gguf")
    with pytest.raises(DeviceError, match=r"head size k=24 is not a multiple of 16.*reference"):
        logits_of(path, IDS, device="cpu")
