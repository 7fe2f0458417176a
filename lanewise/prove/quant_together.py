"""What one call of the quantized kernels does not show: the same bits again, on several streams, in graphs, behind what writes their operands."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.prove.quant_bodies import gemv_with, target
from lanewise.prove.quant_weights import weights
from lanewise.prove.result import Result
from lanewise.prove.together import _asked, _graph, _numbers, _same, _stream

__all__ = ["all_of", "configs"]

_REPEATS = 20
_LAYERS = 30
_WIDTH = 1024
# (format, m, k, n): both kinds of activations, with and without minima, short rows and long ones
_SHAPES = (("Q8_0", 1, 1024, 3072), ("Q4_K", 1, 4096, 1024), ("Q6_K", 4, 1024, 5120), ("Q4_1", 8, 2048, 1024), ("Q2_K", 16, 1024, 4096))
_FORMATS = ("Q8_0", "Q4_K", "Q6_K", "Q5_1")

_Body = Callable[..., torch.Tensor]


def all_of(device: torch.device) -> Iterator[Result]:
    """Every check through each body of the target, with and without splits of k."""
    for config in configs(device):
        for check in (_again, _streams, _graphs, _layers, _written):
            yield _asked(f"quant_gemv {config}", check, _of(config), device)
    yield _asked("dequantize", _scratch, _of(configs(device)[0]), device)


def configs(device: torch.device) -> tuple[QuantConfig, ...]:
    """Some that differ in who waits for whom: a few tiles held and a loop behind them, all of them held, a second kernel that adds up splits."""
    body, tokens = ("tiles", 8) if target(device).mma16 else ("dots", 1)
    cuts = ((8, 1, 1), (2, 16, 1), (4, 1, 2))
    return (*(QuantConfig(body, warps=w, ahead=a, tokens=tokens, splits=s) for w, a, s in cuts), QuantConfig("dots", warps=4, ahead=1, tokens=1))


def _of(config: QuantConfig) -> _Body:
    body = gemv_with(config)

    def call(x: torch.Tensor, w: QuantWeight, residual: Any = None, norm: Any = None, constant_w: bool = False) -> torch.Tensor:
        return body(x=x, w=w, bias=None, residual=residual, norm=norm, eps=1e-6, out=x.dtype, constant_w=constant_w)

    return call


def _again(body: _Body, device: torch.device) -> str:
    """The same call gives the same bits."""
    for x, w in _many(device):
        first = body(x=x, w=w)
        if not all(_same(body(x=x, w=w), first) for _ in range(_REPEATS)):
            return f"{_named(x, w)}: two runs differ"
    return ""


def _streams(body: _Body, device: torch.device) -> str:
    """Several streams at once give the bits of one."""
    given = list(_many(device))
    want = [body(x=x, w=w) for x, w in given]
    torch.cuda.synchronize(device)
    streams = [_stream(device) for _ in given]
    got: list[list[torch.Tensor]] = [[] for _ in given]
    for _ in range(_REPEATS):
        for (x, w), stream, results in zip(given, streams, got, strict=True):
            with torch.cuda.stream(stream):
                results.append(body(x=x, w=w))
    torch.cuda.synchronize(device)
    wrong = [_named(*pair) for pair, first, results in zip(given, want, got, strict=True) if not all(_same(y, first) for y in results)]
    return f"{', '.join(wrong)}: other bits than alone" if wrong else ""


def _graphs(body: _Body, device: torch.device) -> str:
    """Two graphs replayed in turns give the bits of eager calls."""
    pairs = list(_many(device))[:2]
    captured = [_graph(lambda x=x, w=w: body(x=x, w=w), device) for x, w in pairs]  # type: ignore[misc]
    for turn in range(_REPEATS):
        for (x, w), (graph, y) in zip(pairs, captured, strict=True):
            x.copy_(_numbers(x.shape, x.dtype, device, seed=turn))
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, body(x=x, w=w)):
                return f"{_named(x, w)}: turn {turn} differs"
    return ""


def _layers(body: _Body, device: torch.device) -> str:
    """Layers that wait for each other, norm and activations and product and residual, in a graph, with weights that may be read early."""
    for name in _FORMATS:
        layers = [_weight(name, _WIDTH, _WIDTH, device, seed) for seed in range(_LAYERS)]
        norm, start = torch.ones(_WIDTH, dtype=torch.bfloat16, device=device), _numbers((2, _WIDTH), torch.bfloat16, device, seed=99)

        def run(between: Callable[[], None], layers: list[QuantWeight] = layers, norm: torch.Tensor = norm, x: torch.Tensor = start) -> torch.Tensor:
            for w in layers:
                x = body(x=x, w=w, residual=x, norm=norm, constant_w=True)
                between()
            return x

        want = run(lambda: torch.cuda.synchronize(device))
        graph, y = _graph(lambda run=run: run(lambda: None), device)  # type: ignore[misc]
        for turn in range(_REPEATS):
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, want):
                return f"{name}: turn {turn} of {_LAYERS} layers differs from layers one by one"
            if not _same(run(lambda: None), want):
                return f"{name}: turn {turn} of {_LAYERS} layers without a graph differs from layers one by one"
    return ""


def _written(body: _Body, device: torch.device) -> str:
    """Weights and activations that the kernel in front writes are read after it."""
    for name in _FORMATS:
        x, w = _numbers((1, _WIDTH), torch.bfloat16, device, 1), _weight(name, 4096, _WIDTH, device, 2)
        tiles = [_weight(name, 4096, _WIDTH, device, seed).tiles for seed in range(3, 6)]
        xs = [_numbers(x.shape, x.dtype, device, seed) for seed in range(3, 6)]
        want = [[body(x=other, w=QuantWeight(w.format, w.n, w.k, w.gated, t)) for other in xs] for t in tiles]
        torch.cuda.synchronize(device)
        for turn in range(_REPEATS * 5):
            x.copy_(xs[turn % 2])
            w.tiles.copy_(tiles[turn % 3])
            if not _same(body(x=x, w=w), want[turn % 3][turn % 2]):
                return f"{name}: turn {turn}: what was there before was read"
    return ""


def _scratch(body: _Body, device: torch.device) -> str:
    """One buffer for the dequantized weights of several layers: nobody writes it while the layer in front still reads, nor reads it too early."""
    from lanewise.kernels.gpu.quant_gemm import dequantize

    arch = target(device)
    for name in _FORMATS:
        layers = [_weight(name, _WIDTH, _WIDTH, device, seed) for seed in range(_LAYERS)]
        start = _numbers((128, _WIDTH), torch.bfloat16, device, seed=98)
        buffer = torch.empty((_WIDTH, _WIDTH), dtype=torch.bfloat16, device=device)

        def run(
            between: Callable[[], None], layers: list[QuantWeight] = layers, buffer: torch.Tensor = buffer, x: torch.Tensor = start
        ) -> torch.Tensor:
            for w in layers:
                x = torch.nn.functional.linear(x, dequantize(w, torch.bfloat16, buffer, arch=arch))
                between()
            return x

        want = run(lambda: torch.cuda.synchronize(device))
        graph, y = _graph(lambda run=run: run(lambda: None), device)  # type: ignore[misc]
        for turn in range(_REPEATS):
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, want):
                return f"{name}: turn {turn} of {_LAYERS} layers differs from layers one by one"
    return ""


def _many(device: torch.device) -> Iterator[tuple[torch.Tensor, QuantWeight]]:
    for dtype in (torch.bfloat16, torch.float16):
        for seed, (name, m, k, n) in enumerate(_SHAPES):
            yield _numbers((m, k), dtype, device, seed), _weight(name, n, k, device, seed)


def _weight(name: str, n: int, k: int, device: torch.device, seed: int) -> QuantWeight:
    return pack(torch.from_numpy(weights(name, n, k, "even", seed).copy()).to(device), name)


def _named(x: torch.Tensor, w: QuantWeight) -> str:
    return f"{w.format} m={x.shape[0]} k={w.k} n={w.n} {x.dtype}"
