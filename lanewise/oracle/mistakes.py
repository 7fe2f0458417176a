"""What a kernel gets wrong, as changes of its arguments: a check that lets one of these through is too loose.

Called with the changed arguments, a right body computes what a wrong one would with the right ones. The result must be outside the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.oracle.cases import case

__all__ = ["MISTAKES", "Mistake"]

_Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    """`change(*arguments)` gives the arguments that imitate the mistake, on the case named `on`."""

    op: str
    name: str
    on: str
    change: Callable[..., _Arguments]

    def arguments(self) -> tuple[_Arguments, _Arguments]:
        """The right arguments and the wrong ones."""
        made = case(self.op, self.on)
        return made.arguments(), self.change(*made.arguments())

    def __str__(self) -> str:
        return f"{self.op}: {self.name}"


def _without(x: Any, axis: int, index: int) -> Any:
    """x with zeros at one index: a term that is left out."""
    y = np.moveaxis(x.copy(), axis, 0)
    y[index] = 0
    return np.moveaxis(y, 0, axis)


def _swapped(x: Any, axis: int, i: int, j: int) -> Any:
    y = np.moveaxis(x.copy(), axis, 0)
    y[[i, j]] = y[[j, i]]
    return np.moveaxis(y, 0, axis)


def _attention(q: Any, keys: Any, values: Any, table: Any, start: Any, context: Any, scale: float, window: int | None = None) -> dict[str, Any]:
    return {
        "q": q,
        "keys": np.nan_to_num(keys, nan=0.5),
        "values": np.nan_to_num(values, nan=0.5),
        "page_table": table,
        "query_start": start,
        "context": context,
        "scale": scale,
        "window": window,
    }


def _changed(**changes: Callable[[dict[str, Any]], Any]) -> Callable[..., _Arguments]:
    """Attention's arguments with some replaced, and the unused slots filled: a mistake is to show in the numbers, not as NaN."""

    def change(*arguments: Any) -> _Arguments:
        named = _attention(*arguments)
        return tuple({**named, **{name: new(named) for name, new in changes.items()}}.values())

    return change


def _heads_read(kv_head: Callable[[int, int, int], int]) -> Callable[..., _Arguments]:
    """Attention whose head h reads kv head kv_head(h, heads, kv_heads), as a cache with as many kv heads as heads."""

    def pick(name: str) -> Callable[[dict[str, Any]], Any]:
        def new(a: dict[str, Any]) -> Any:
            heads, kv_heads = a["q"].shape[1], a[name].shape[2]
            return a[name][:, :, [kv_head(h, heads, kv_heads) for h in range(heads)]]

        return new

    return _changed(keys=pick("keys"), values=pick("values"))


def _flip_bit(x: Any, raw: Any, fmt: str, *bias: Any) -> _Arguments:
    """One bit of the last byte of the first block that carries quants: a low-order bit of one weight."""
    wrong = raw.copy()
    wrong[0, _QUANT_BYTE] ^= 1
    return (x, wrong, fmt, *bias)


_QUANT_BYTE = 30  # inside the quants of Q8_0, Q4_K, Q6_K alike

_SEVERAL = "prompts and steps together"
_GREEDY, _EQUAL = "greedy, equal logits", "equal logits go by id"

MISTAKES: tuple[Mistake, ...] = (
    Mistake("linear", "the last product is left out", "several rows with a bias", lambda x, w, b: (_without(x, 1, -1), w, b)),
    Mistake("linear", "the bias is left out", "several rows with a bias", lambda x, w, b: (x, w)),
    Mistake("linear", "a row is computed from its neighbour", "several rows with a bias", lambda x, w, b: (_swapped(x, 0, 2, 3), w, b)),
    Mistake("linear", "two columns of k are swapped in w", "one row", lambda x, w: (x, _swapped(w, 1, 3, 4))),
    Mistake("linear", "operands are rounded to fp16", "one row", lambda x, w: (x.astype(np.float16).astype(np.float32), w)),
    Mistake("grouped_linear", "a row goes to the next expert", "rows spread over experts", lambda x, w, e: (x, w, np.roll(e, 1))),
    Mistake("grouped_linear", "every row goes to the first expert", "rows spread over experts", lambda x, w, e: (x, w, e * 0)),
    Mistake(
        "embedding", "the neighbour of a token is read", "first, last and repeated tokens", lambda w, t: (np.nan_to_num(w), np.maximum(t - 1, 0))
    ),
    Mistake("rms_norm", "eps is left out", "values that eps outweighs", lambda x, w, eps: (x, w, 0.0)),
    Mistake("rms_norm", "the weight is left out", "rows", lambda x, w, eps: (x, np.ones_like(w), eps)),
    Mistake("rms_norm", "weight + 1 is used", "rows", lambda x, w, eps: (x, w + 1, eps)),
    Mistake("rms_norm", "a head is normalised with the next one", "heads", lambda x, w, eps: (np.roll(x, 1, axis=1), w, eps)),
    Mistake("rope", "halves are turned as neighbours", "halves", lambda x, p, f, s, i: (x, p, f, s, not i)),
    Mistake("rope", "neighbours are turned as halves", "neighbours", lambda x, p, f, s, i: (x, p, f, s, not i)),
    Mistake("rope", "positions are off by one", "halves", lambda x, p, f, s, i: (x, p + 1, f, s, i)),
    Mistake("rope", "pairs turn backwards", "halves", lambda x, p, f, s, i: (x, -p, f, s, i)),
    Mistake("rope", "the magnitude is left out", "part of a head, with a magnitude", lambda x, p, f, s, i: (x, p, f, 1.0, i)),
    Mistake("rope", "frequencies are float32", "far positions", lambda x, p, f, s, i: (x, p, f.astype(np.float32).astype(np.float64), s, i)),
    Mistake("rope", "the last pair stays", "halves", lambda x, p, f, s, i: (x, p, _without(f, 0, -1), s, i)),
    Mistake("attention", "the scale is left out", _SEVERAL, _changed(scale=lambda a: 1.0)),
    Mistake("attention", "kv heads are reversed", _SEVERAL, _heads_read(lambda head, heads, kv_heads: kv_heads - 1 - head // (heads // kv_heads))),
    Mistake("attention", "heads take turns on the kv heads", _SEVERAL, _heads_read(lambda head, heads, kv_heads: head % kv_heads)),
    Mistake("attention", "one key too many", _SEVERAL, _changed(context=lambda a: a["context"] + 1)),
    Mistake("attention", "one key too few", "a long context", _changed(context=lambda a: a["context"] - 1)),
    Mistake("attention", "the oldest key is left out", "a long context", _changed(window=lambda a: 699)),
    Mistake("attention", "pages are read in order", _SEVERAL, _changed(page_table=lambda a: np.sort(a["page_table"], axis=1))),
    Mistake("attention", "sequences swap their pages", _SEVERAL, _changed(page_table=lambda a: a["page_table"][[2, 1, 0, 3]])),
    Mistake("attention", "slots of a page are reversed", "a long context", _changed(values=lambda a: a["values"][:, ::-1])),
    Mistake("attention", "the window is one longer", "a window", _changed(window=lambda a: a["window"] + 1)),
    Mistake("attention", "the window is one shorter", "a window", _changed(window=lambda a: a["window"] - 1)),
    Mistake("attention", "the window is left out", "a window", _changed(window=lambda a: None)),
    Mistake("silu_mul", "gate and up are swapped", "rows", lambda gate, up: (up, gate)),
    Mistake("silu_mul", "the gate is rounded to fp16", "rows", lambda gate, up: (gate.astype(np.float16).astype(np.float32), up)),
    *(Mistake("quant_linear", f"one bit of a {fmt} quant", f"{fmt}, one row", _flip_bit) for fmt in ("Q8_0", "Q4_K", "Q6_K")),
    Mistake("quant_linear", "the bias is left out", "Q4_K, several rows with a bias", lambda x, raw, fmt, bias: (x, raw, fmt)),
    Mistake(
        "sample", "the last of equal logits wins", _GREEDY, lambda logits, *rest: (logits + np.arange(len(logits), dtype=np.float32) / 1024, *rest)
    ),
    Mistake("sample", "temperature is left out", "temperature 2.0, u 0.93", lambda logits, u, t, *rest: (logits, u, 1.0, *rest)),
    Mistake("sample", "temperature multiplies", "temperature 2.0, u 0.93", lambda logits, u, t, *rest: (logits, u, 1 / t, *rest)),
    Mistake("sample", "top_k is left out", "top_k 5, u 0.97", lambda logits, u, t, k, *rest: (logits, u, t, 0, *rest)),
    Mistake("sample", "top_k keeps one more", "top_k 5, u 0.97", lambda logits, u, t, k, *rest: (logits, u, t, k + 1, *rest)),
    Mistake("sample", "top_p is left out", "top_p 0.6, u 0.97", lambda logits, u, t, k, p, m: (logits, u, t, k, 1.0, m)),
    Mistake("sample", "min_p is left out", "min_p 0.2, u 0.97", lambda logits, u, t, k, p, m: (logits, u, t, k, p, 0.0)),
)
