"""Packing for GPUs: any bytes come back exactly, in little memory, and what cannot be packed is refused in words."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from lanewise.errors import FormatError, ShapeError
from lanewise.formats import get
from lanewise.kernels.gpu import quant_pack
from lanewise.kernels.gpu.quant_layout import BLOCK, LAYOUTS, ROWS
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack, unpack

ALL = tuple(LAYOUTS)
MB = 1 << 20


def random_raw(name, *shape, seed=0):
    """uint8[..., rows, row_bytes] of shape[..., rows, blocks of the file]: every pattern of bits, scales that are NaN and Inf among them."""
    bytes_ = np.random.default_rng(seed).integers(0, 256, (*shape[:-1], shape[-1] * get(name).nbytes), dtype=np.uint8)
    return torch.from_numpy(bytes_)


def comes_back(raw, name, gated=False):
    packed = pack(raw, name, gated)
    back = unpack(packed)
    assert back.dtype == torch.uint8
    assert torch.equal(back, raw), (name, tuple(raw.shape), gated)
    return packed


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [0, 1, 7, 16, 17, 33])
def test_unpacking_gives_the_bytes_back_exactly(name, n):
    for blocks in (0, 1, 2, 3, 5, 8, 9):
        packed = comes_back(random_raw(name, n, blocks, seed=blocks), name)
        assert (packed.n, packed.k, packed.rows, packed.experts, packed.gated) == (n, blocks * get(name).block, n, 0, False)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 17])
def test_gates_and_ups_come_back_exactly(name, n):
    for blocks in (1, 3, 9):
        packed = comes_back(random_raw(name, 2 * n, blocks, seed=blocks), name, gated=True)
        assert (packed.n, packed.rows, packed.gated) == (n, 2 * n, True)
        assert packed.tiles.shape[0] == -(-n // 8)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_each_expert_is_packed_as_it_would_be_alone(name, gated):
    raw = random_raw(name, 3, 18, 9)
    packed = comes_back(raw, name, gated)
    assert packed.experts == 3
    for expert in range(3):
        assert torch.equal(packed.tiles[expert], pack(raw[expert], name, gated).tiles)


def test_there_may_be_no_experts():
    raw = random_raw("Q4_K", 0, 16, 1)
    packed = pack(raw, "Q4_K")
    assert packed.tiles.shape == (0, 1, 1, LAYOUTS["Q4_K"].record)
    assert packed.experts == 0
    assert unpack(packed).shape == raw.shape


@pytest.mark.parametrize("name", ALL)
def test_a_block_of_one_byte_everywhere_comes_back(name):
    every = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, get(name).nbytes)
    comes_back(every, name)


@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "Q3_K", "IQ4_XS"])
def test_rows_that_do_not_lie_side_by_side_pack_like_their_copies(name):
    size = get(name).nbytes
    wide = random_raw(name, 40, 7)
    for view in (
        wide[::2, size : 4 * size],
        wide[1:18],
        wide[:, ::7],
        wide.t().contiguous().t(),
        wide[:1].expand(9, -1),
        wide.view(2, 20, -1)[:, 3:],
    ):
        assert torch.equal(pack(view, name).tiles, pack(view.contiguous(), name).tiles)
        comes_back(view, name)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("piece", [1, 5])
def test_the_size_of_a_piece_changes_nothing(name, gated, piece, monkeypatch):
    raw = random_raw(name, 4, 50, 17 if get(name).block < BLOCK else 3)
    whole = pack(raw, name, gated).tiles
    monkeypatch.setattr(quant_pack, "_PIECE", piece)
    assert torch.equal(comes_back(raw, name, gated).tiles, whole)


def test_what_is_handed_in_stays_as_it_is():
    for name in ALL:
        raw = random_raw(name, 16, 8)
        before = raw.clone()
        packed = pack(raw, name)
        tiles = packed.tiles.clone()
        unpack(packed)
        assert torch.equal(raw, before)
        assert torch.equal(packed.tiles, tiles)


@pytest.mark.parametrize("name", ALL)
def test_whole_tiles_take_hardly_more_memory_than_the_file(name):
    raw = random_raw(name, 2 * ROWS, 3 * BLOCK // get(name).block)
    for gated in (False, True):
        packed = pack(raw, name, gated)
        assert packed.nbytes == packed.tiles.untyped_storage().nbytes()
        assert raw.numel() <= packed.nbytes
        assert 100 * (packed.nbytes - raw.numel()) <= 4 * raw.numel()


class Alive(TorchDispatchMode):
    """The most bytes that were alive at once in tensors other than those given."""

    def __init__(self, *known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.storages, self.most = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.known:
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.storages = {key: (ref, size) for key, (ref, size) in self.storages.items() if not ref.expired()}
        self.most = max(self.most, sum(size for _, size in self.storages.values()))
        return result


@pytest.mark.parametrize("name", ALL)
def test_memory_beside_the_weights_is_bounded_by_pieces(name, monkeypatch):
    piece = 8
    limit = 128 * MB * piece // quant_pack._PIECE
    monkeypatch.setattr(quant_pack, "_PIECE", piece)
    blocks = BLOCK // get(name).block
    for shape in ((3, 70, 5 * blocks - (blocks > 1)), (9, 2, blocks), (2, 40 * blocks)):
        raw = random_raw(name, *shape)
        with Alive(raw) as packing:
            packed = pack(raw, name)
        assert 0 < packing.most - packed.nbytes < limit
        with Alive(packed.tiles) as unpacking:
            back = unpack(packed)
        assert 0 < unpacking.most - back.numel() < limit


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (torch.zeros(34, dtype=torch.uint8), "Q8_0: raw is uint8 [34]; it must be uint8 [rows, row_bytes] or [experts, rows, row_bytes]"),
        (torch.zeros(1, 1, 1, 34, dtype=torch.uint8), "Q8_0: raw is uint8 [1, 1, 1, 34]; it must be uint8 [rows, row_bytes] or "),
        (torch.zeros(1, 34, dtype=torch.int8), "Q8_0: raw is int8 [1, 34]; it must be uint8 "),
        (torch.zeros(1, 34), "Q8_0: raw is float32 [1, 34]; it must be uint8 "),
        (np.zeros((1, 34), np.uint8), "Q8_0: raw is ndarray; it must be uint8 "),
        (None, "Q8_0: raw is NoneType; it must be uint8 "),
    ],
)
def test_what_is_not_rows_of_bytes_is_refused(raw, words):
    with pytest.raises(ShapeError) as refused:
        pack(raw, "Q8_0")
    assert str(refused.value).startswith(words)


def test_a_row_that_ends_inside_a_block_is_refused():
    with pytest.raises(FormatError, match=r"^Q4_K: a row of 143 bytes is not a whole number of blocks of 144 bytes$"):
        pack(torch.zeros(1, 143, dtype=torch.uint8), "Q4_K")


@pytest.mark.parametrize("shape", [(5, 144), (2, 7, 144)])
def test_an_odd_number_of_gated_rows_is_refused(shape):
    with pytest.raises(ShapeError, match=f"Q4_K: {shape[-2]} rows of gated weights; they are n gates and then n ups"):
        pack(torch.zeros(shape, dtype=torch.uint8), "Q4_K", gated=True)


@pytest.mark.parametrize(("name", "words"), [("F16", "F16 is not quantized"), ("TQ1_0", "'TQ1_0' has no layout"), ("Q9_9", "'Q9_9' has no layout")])
def test_a_format_without_a_layout_is_refused(name, words):
    with pytest.raises(FormatError, match=f"^{words}.*Q8_0, .*IQ4_XS$"):
        pack(torch.zeros(1, 34, dtype=torch.uint8), name)


def test_tiles_that_are_not_the_weights_are_refused():
    packed = pack(random_raw("Q4_K", 17, 2), "Q4_K")
    record = LAYOUTS["Q4_K"].record
    for change in (
        {"n": 15}, {"k": 768}, {"gated": True}, {"format": "Q5_K"}, {"tiles": packed.tiles.to(torch.int64)}, {"tiles": packed.tiles[0]},
        {"tiles": packed.tiles.transpose(0, 1)}, {"tiles": packed.tiles.transpose(0, 1).contiguous().transpose(0, 1)}, {"tiles": None},
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=r"tiles are .*; of .*n=\d+, k=\d+ they are contiguous int32 \["):
            replace(packed, **change)
    for change in ({"n": -1}, {"k": -256}, {"k": 511}):
        with pytest.raises(ShapeError, match="whole number of blocks of 256"):
            replace(packed, **change)
    with pytest.raises(FormatError, match="F32 is not quantized"):
        replace(packed, format="F32")
    with pytest.raises(ShapeError) as refused:
        QuantWeight("Q4_K", 9, 256, True, packed.tiles)
    assert str(refused.value) == (
        f"Q4_K: tiles are int32 [2, 2, {record}]; of gated n=9, k=256 they are contiguous int32 [2, 1, {record}], or that for each expert"
    )


def test_a_name_in_small_letters_is_the_format():
    packed = pack(random_raw("Q6_K", 3, 1), "q6_k")
    assert (packed.format, packed.layout, packed.device) == ("Q6_K", LAYOUTS["Q6_K"], torch.device("cpu"))
    same = QuantWeight("q6_k", packed.n, packed.k, False, packed.tiles)
    assert same.format == "Q6_K"


def test_sizes_that_are_no_whole_numbers_and_a_gated_that_is_neither_are_refused():
    packed = pack(random_raw("Q6_K", 4, 1), "Q6_K")
    for change in ({"n": 4.0}, {"k": "256"}, {"gated": "no"}, {"gated": 1}):
        with pytest.raises(ShapeError, match="they have to be two whole numbers, and True or False"):
            replace(packed, **change)
    with pytest.raises(ShapeError, match="gated='no'; it has to be True or False"):
        pack(random_raw("Q6_K", 4, 1), "Q6_K", "no")
