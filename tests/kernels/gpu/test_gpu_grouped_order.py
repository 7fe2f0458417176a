"""Pairs in order by expert: whole octets of each, every pair once, and none of it asked of the host."""

import numpy as np
import pytest
import torch

from lanewise.kernels.gpu.grouped_order import in_order


def described(ids: torch.Tensor, experts: int) -> list[tuple[int, list[int]]]:
    """(expert, its pairs) of every octet that has some, as the order says; whatever else it says must be nothing."""
    order = in_order(ids, experts)
    assert order.pairs.dtype == order.octets.dtype == torch.int32
    assert len(order.pairs) == 8 * len(order.octets)
    found = []
    for (expert, count), pairs in zip(order.octets.tolist(), order.pairs.view(-1, 8).tolist(), strict=True):
        assert [pair < 0 for pair in pairs] == [False] * count + [True] * (8 - count)
        found += [(expert, pairs[:count])] if count else []
    return found


def by_hand(ids: np.ndarray, experts: int) -> list[tuple[int, list[int]]]:
    flat = ids.reshape(-1)
    groups = [np.flatnonzero(flat == e) for e in range(experts)] + [np.flatnonzero((flat < 0) | (flat >= experts))]
    return [(e, group[i : i + 8].tolist()) for e, group in enumerate(groups) for i in range(0, len(group), 8)]


@pytest.mark.parametrize(("tokens", "top", "experts"), [(1, 1, 1), (1, 8, 128), (3, 6, 144), (64, 8, 128), (9, 1, 2), (33, 2, 1), (9000, 8, 128)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_every_pair_stands_once_in_an_octet_of_its_expert(tokens, top, experts, dtype):
    ids = np.random.default_rng(tokens).integers(-1, experts + 1, (tokens, top))
    assert described(torch.from_numpy(ids).to(dtype), experts) == by_hand(ids, experts)


@pytest.mark.parametrize(
    "ids", [np.zeros((20, 1)), np.arange(20)[:, None] % 4, np.full((3, 3), 7), np.full((3, 3), -(2**31)), np.arange(16).reshape(4, 4)]
)
def test_one_expert_for_all_one_each_and_no_expert_fit_into_the_memory_for_them(ids):
    assert described(torch.from_numpy(ids.astype(np.int64)), 4) == by_hand(ids, 4)


def test_ids_may_lie_apart():
    ids = torch.tensor([[2, 0], [1, 1], [0, 2]])
    wide = torch.zeros(2, 6, dtype=torch.int64)[:, ::2].t()
    wide.copy_(ids)
    assert described(wide, 3) == by_hand(ids.numpy(), 3)


def test_no_step_waits_for_the_ids():
    with torch.device("meta"):
        order = in_order(torch.zeros(5, 8, dtype=torch.int32), 128)
    assert (order.pairs.shape, order.octets.shape) == ((8 * 40,), (40, 2))
