"""What one call of grouped_linear does not show: the same bits again, on several streams, in graphs, behind what writes its operands."""

from collections.abc import Callable, Iterator

import torch

from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.prove.grouped_bodies import by_default
from lanewise.prove.quant_weights import weights
from lanewise.prove.result import Result
from lanewise.prove.together import _asked, _graph, _numbers, _same, _stream

__all__ = ["all_of"]

_REPEATS = 20
_LAYERS = 24
_EXPERTS, _TOP, _WIDTH = 16, 4, 1024
_SHAPES = (("Q8_0", 1, 1024, 768), ("Q4_K", 1, 2048, 768), ("Q6_K", 4, 768, 2048), ("Q4_1", 40, 1024, 256))  # (format, tokens, k, n)

_Call = Callable[..., torch.Tensor]


def all_of(device: torch.device) -> Iterator[Result]:
    """Every check, pair by pair and in order."""
    for ordered in (False, True):
        for check in (_again, _streams, _graphs, _layers, _written):
            yield _asked(f"grouped {'in order' if ordered else 'pair by pair'}", check, _of(ordered), device)


def _of(ordered: bool) -> _Call:
    body = by_default(ordered)

    def call(x: torch.Tensor, w: QuantWeight, ids: torch.Tensor, early: bool = False) -> torch.Tensor:
        return body(x=x, w=w, ids=ids, weights=None, out=torch.bfloat16, constant_w=early, ids_ready=early)

    return call


def _again(call: _Call, device: torch.device) -> str:
    """The same call gives the same bits."""
    for one in _many(device):
        first = call(*one)
        if not all(_same(call(*one), first) for _ in range(_REPEATS)):
            return f"{_named(*one)}: two runs differ"
    return ""


def _streams(call: _Call, device: torch.device) -> str:
    """Several streams at once give the bits of one."""
    given = list(_many(device))
    want = [call(*one) for one in given]
    torch.cuda.synchronize(device)
    streams = [_stream(device) for _ in given]
    got: list[list[torch.Tensor]] = [[] for _ in given]
    for _ in range(_REPEATS):
        for one, stream, results in zip(given, streams, got, strict=True):
            with torch.cuda.stream(stream):
                results.append(call(*one))
    torch.cuda.synchronize(device)
    wrong = [_named(*one) for one, first, results in zip(given, want, got, strict=True) if not all(_same(y, first) for y in results)]
    return f"{', '.join(wrong)}: other bits than alone" if wrong else ""


def _graphs(call: _Call, device: torch.device) -> str:
    """Two graphs replayed in turns, with other x and other ids each time, give the bits of eager calls."""
    several = list(_many(device))[1:3]
    captured = [_graph(lambda one=one: call(*one), device) for one in several]  # type: ignore[misc]
    for turn in range(_REPEATS):
        for (x, w, ids), (graph, y) in zip(several, captured, strict=True):
            x.copy_(_numbers(tuple(x.shape), x.dtype, device, seed=turn))
            ids.copy_(_ids(len(ids), device, seed=turn))
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, call(x, w, ids)):
                return f"{_named(x, w, ids)}: turn {turn} differs"
    return ""


def _layers(call: _Call, device: torch.device) -> str:
    """Layers that wait for each other, in a graph, with experts and ids that may be read early."""
    layers = [_experts("Q4_K", _WIDTH, _WIDTH, device, seed) for seed in range(_LAYERS)]
    ids, start = [_ids(2, device, seed) for seed in range(_LAYERS)], _numbers((2, _WIDTH), torch.bfloat16, device, seed=99)

    def run(between: Callable[[], None]) -> torch.Tensor:
        x = start
        for w, chosen in zip(layers, ids, strict=True):
            x = call(x, w, chosen, True).float().mean(1).to(x.dtype)
            between()
        return x

    want = run(lambda: torch.cuda.synchronize(device))
    graph, y = _graph(lambda: run(lambda: None), device)
    for turn in range(_REPEATS):
        graph.replay()
        torch.cuda.synchronize(device)
        if not _same(y, want):
            return f"turn {turn} of {_LAYERS} layers differs from layers one by one"
    return ""


def _written(call: _Call, device: torch.device) -> str:
    """Experts, x and ids that the kernel in front writes are read after it."""
    x, w, ids = next(iter(_many(device)))
    tiles = [_experts(w.format, w.n, w.k, device, seed).tiles for seed in range(3, 6)]
    xs, chosen = [_numbers(tuple(x.shape), x.dtype, device, seed) for seed in range(2)], [_ids(len(ids), device, seed) for seed in range(5)]
    for turn in range(_REPEATS * 5):
        want = call(xs[turn % 2], QuantWeight(w.format, w.n, w.k, w.gated, tiles[turn % 3]), chosen[turn % 5])
        torch.cuda.synchronize(device)
        x.copy_(xs[turn % 2])
        w.tiles.copy_(tiles[turn % 3])
        ids.copy_(chosen[turn % 5])
        if not _same(call(x, w, ids), want):
            return f"turn {turn}: what was there before was read"
    return ""


def _many(device: torch.device) -> Iterator[tuple[torch.Tensor, QuantWeight, torch.Tensor]]:
    for seed, (name, tokens, k, n) in enumerate(_SHAPES):
        yield _numbers((tokens, k), torch.bfloat16, device, seed), _experts(name, n, k, device, seed), _ids(tokens, device, seed)


def _experts(name: str, n: int, k: int, device: torch.device, seed: int) -> QuantWeight:
    raw = weights(name, _EXPERTS * n, k, "even", seed)
    return pack(torch.from_numpy(raw.reshape(_EXPERTS, n, -1).copy()).to(device), name)


def _ids(tokens: int, device: torch.device, seed: int) -> torch.Tensor:
    drawn = torch.rand(tokens, _EXPERTS, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return drawn[:, :_TOP].int().contiguous().to(device)


def _named(x: torch.Tensor, w: QuantWeight, ids: torch.Tensor) -> str:
    return f"{w.format} tokens={x.shape[0]} top={ids.shape[1]} k={w.k} n={w.n}"
