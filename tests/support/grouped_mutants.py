"""Bodies of grouped_linear that are wrong in one way each, on torch tensors: what the cases must catch."""

from collections.abc import Callable
from typing import Any

import torch

from lanewise.kernels.gpu import grouped
from lanewise.kernels.gpu.quant_pack import QuantWeight
from support.quant_mutants import chain as product

Body = Callable[..., torch.Tensor]


def one_expert(x: torch.Tensor, w: QuantWeight, out: torch.dtype) -> torch.Tensor:
    """Row by row: numpy adds up one row in another order than several."""
    return torch.cat([product(x=row, w=w, bias=None, residual=None, norm=None, eps=0.0, out=out, constant_w=False) for row in x.split(1)])


def steps(
    expert: Callable[[int, int], int] = lambda e, experts: e,
    row: Callable[[int, int, bool], int] = lambda pair, top, own: pair if own else pair // top,
    inside: Callable[[int, int], bool] = lambda e, experts: 0 <= e < experts,
    alone: Callable[..., torch.Tensor] = one_expert,
    weigh: Callable[..., torch.Tensor] = lambda y, weights, out: (y.float() * weights[..., None].float()).to(out),
    nobody: float = float("nan"),
) -> Body:
    """Pair by pair the product of its row and its expert, and the router's weights behind, with some of its steps replaced."""

    def body(*, x, w, ids, weights, out, constant_w, ids_ready):
        flat, own, top = x.reshape(x.shape[:-1].numel(), w.k), x.dim() == 3, ids.shape[1]
        y = torch.full((ids.numel(), w.n), nobody, dtype=out)
        for pair, e in enumerate(ids.reshape(-1).tolist()):
            if w.n and inside(e, w.experts):
                at = row(pair, top, own) % len(flat)
                tiles = w.tiles[expert(e, w.experts) % w.experts]
                y[pair] = alone(flat[at : at + 1], QuantWeight(w.format, w.n, w.k, w.gated, tiles), out)[0]
        y = y.reshape(*ids.shape, w.n)
        return y if weights is None else weigh(y, weights, out)

    return body


right = steps()


def new_memory(**a: Any) -> torch.Tensor:
    y = right(**a)
    return grouped._new(tuple(y.shape), y.dtype, y.device).copy_(y)


def past_the_end(**a: Any) -> torch.Tensor:
    made = new_memory(**a)
    made.as_strided((made.numel() + 1,), (1,))[-1] = 1
    return made


def last_pair_unwritten(**a: Any) -> torch.Tensor:
    y = right(**a)
    made = grouped._new(tuple(y.shape), y.dtype, y.device)
    made[:-1] = y[:-1]
    return made


def into(name: str) -> Body:
    def body(**a: Any) -> torch.Tensor:
        y = right(**a)
        operand = a[name].tiles if name == "w" else a[name]
        if operand is not None:
            operand.as_strided((1,), (1,), operand.storage_offset()).fill_(1)
        return y

    return body


class Unsteady:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **a: Any) -> torch.Tensor:
        self.calls += 1
        y = right(**a)
        return y if self.calls % 2 or not y.numel() else torch.nextafter(y.float(), torch.tensor(float("inf"))).to(y.dtype)


def unrounded(**a: Any) -> torch.Tensor:
    """Products times weights in float32, rounded once where the chain rounds twice."""
    if a["weights"] is None:
        return right(**a)
    wide = right(**(a | {"weights": None, "out": torch.float32}))
    return (wide * a["weights"][..., None].float()).to(a["out"])


MUTANTS: dict[str, Body] = {
    "a row goes to the next expert": steps(expert=lambda e, experts: e + 1),
    "every row goes to the first expert": steps(expert=lambda e, experts: 0),
    "a token's slots have rows of their own though they share one": steps(row=lambda pair, top, own: pair),
    "a token's slots share the first one's row": steps(row=lambda pair, top, own: pair // top * top if own else pair // top),
    "rows are the next token's": steps(row=lambda pair, top, own: (pair if own else pair // top) + 1),
    "an id behind the last expert is the first's": steps(inside=lambda e, experts: 0 <= e <= experts),
    "an id in front of the first expert is the last's": steps(inside=lambda e, experts: -1 <= e < experts),
    "any id is some expert's": steps(inside=lambda e, experts: experts > 0),
    "rows of nobody are nought": steps(nobody=0.0),
    "the router's weights are dropped": steps(weigh=lambda y, weights, out: y),
    "a token's first weight serves all": steps(weigh=lambda y, weights, out: (y.float() * weights[:, :1, None].float()).to(out)),
    "weights are rounded to y's type": steps(weigh=lambda y, weights, out: y * weights[..., None].to(out)),
    "weights are without sign": steps(weigh=lambda y, weights, out: (y.float() * weights[..., None].float().abs()).to(out)),
    "y is not rounded before the weight": unrounded,
    "one code has another lowest bit": steps(
        alone=lambda x, w, out: one_expert(x, QuantWeight(w.format, w.n, w.k, w.gated, w.tiles ^ (w.tiles == w.tiles.flatten()[0]).int()), out)
    ),
    "the bits are not those of the expert alone": steps(alone=lambda x, w, out: (one_expert(x, w, torch.float32) * (1 + 2.0**-22)).to(out)),
    "two runs differ": Unsteady(),
    "one element behind y is written": past_the_end,
    "the last token is not written": last_pair_unwritten,
    "x is written to": into("x"),
    "w is written to": into("w"),
    "ids are written to": into("ids"),
    "weights are written to": into("weights"),
    "y has another dtype": lambda **a: right(**a).double(),
    "y has another shape": lambda **a: right(**a).flatten(0, 1),
}
