"""Which rows each expert gets, put in order on the device that the ids lie on: whole octets of an expert's rows, without a word to the host.

How many octets there are depends on the ids, so that memory and programs are for as many as there may be; those that are not have no rows.
"""

from dataclasses import dataclass

import torch

__all__ = ["Order", "in_order"]


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The pairs of (token, slot), number token * top_k + slot, expert by expert in eights, each in its order.

    pairs:  int32[8 * octets], the pair at each place, -1 where none is; an octet's pairs stand at its front
    octets: int32[octets, 2], the expert of an octet and how many pairs it has, 0 to 8; of pairs whose id is no expert's the number of experts
    """

    pairs: torch.Tensor
    octets: torch.Tensor


def in_order(ids: torch.Tensor, experts: int) -> Order:
    """The order of int32 or int64 ids[tokens, top_k], any strides; ids that are no expert's come last. By torch's functions, none of which waits."""
    flat = ids.reshape(-1).long()
    count, device = flat.shape[0], ids.device
    groups = experts + 1
    key, pair = torch.sort(torch.where((flat < 0) | (flat >= experts), experts, flat), stable=True)
    bounds = torch.searchsorted(key, torch.arange(groups + 1, device=device))
    starts, rows = bounds[:-1], bounds.diff()
    whole = (rows + 7) // 8
    ends = whole.cumsum(0)
    firsts = ends - whole
    # each group that has rows leaves at most seven places of its last octet free
    most = (count + 7 * min(groups, count)) // 8
    places = firsts[key] * 8 + torch.arange(count, device=device) - starts[key]
    pairs = torch.full((8 * most,), -1, dtype=torch.int32, device=device).scatter_(0, places, pair.int())
    octet = torch.arange(most, device=device)
    expert = torch.searchsorted(ends, octet, right=True).clamp_(max=experts)
    left = (rows[expert] - 8 * (octet - firsts[expert])).clamp_(0, 8)
    return Order(pairs, torch.stack((expert, left), 1).int())
