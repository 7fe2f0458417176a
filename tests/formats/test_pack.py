"""Packing for devices: the bytes come back exactly, and lie where the docstring says."""

import numpy as np
import pytest
from formats_cases import ALL, random_bytes

from lanewise.errors import FormatError
from lanewise.formats import get
from lanewise.formats.pack import pack, unpack


@pytest.mark.parametrize("panel", [1, 4, 16, 32])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("name", ALL)
def test_unpacking_gives_the_bytes_back_exactly(name: str, n: int, panel: int) -> None:
    fmt = get(name)
    for blocks in (0, 1, 3):
        raw = random_bytes(name, n, blocks, seed=n + panel)
        packed = pack(raw, fmt, panel)
        assert (packed.n, packed.k, packed.panel) == (n, blocks * fmt.block, panel)
        back = unpack(packed)
        assert back.dtype == np.uint8
        assert back.shape == raw.shape
        assert back.tobytes() == raw.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_a_plane_holds_one_field_with_the_rows_of_a_panel_side_by_side(name: str) -> None:
    fmt = get(name)
    raw = random_bytes(name, 21, 3)
    packed = pack(raw, fmt, panel=8)
    assert tuple(packed.planes) == fmt.layout.names
    for field, plane in packed.planes.items():
        assert plane.shape[:3] == (3, 3, 8)
        assert plane.flags.c_contiguous
        for row in (0, 7, 8, 20):
            for block in range(3):
                assert plane[row // 8, block, row % 8].tobytes() == fmt.blocks(raw)[row, block][field].tobytes()
        assert not plane[2, :, 5:].view(np.uint8).any()  # rows 21 to 23 do not exist: zero bytes
    assert packed.nbytes == 24 * 3 * fmt.nbytes


def test_strided_rows_pack_like_their_copies() -> None:
    raw = random_bytes("Q4_K", 34, 4)
    view = raw[::2, 144:432]
    assert np.array_equal(unpack(pack(view, get("Q4_K"))), view)


@pytest.mark.parametrize("panel", [0, -16])
def test_a_panel_without_rows_is_refused(panel: int) -> None:
    with pytest.raises(FormatError, match=rf"Q8_0: a panel of {panel} rows"):
        pack(random_bytes("Q8_0", 2, 2), get("Q8_0"), panel)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (np.zeros(34, np.uint8), "1 dimensions"),
        (np.zeros((1, 1, 34), np.uint8), "3 dimensions"),
        (np.zeros((1, 33), np.uint8), "33 bytes"),
        (np.zeros((1, 34), np.int8), "int8"),
    ],
)
def test_what_is_not_rows_of_blocks_is_refused(raw: np.ndarray, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        pack(raw, get("Q8_0"))
