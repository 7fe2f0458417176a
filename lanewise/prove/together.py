"""What one call alone does not show: the same bits again, on several streams, in graphs, behind a writer of w, under torch.compile."""

import time
from collections.abc import Callable, Iterator

import torch

from lanewise import dispatch, ops
from lanewise.kernels.gpu.config import Config
from lanewise.prove.bodies import Body, dispatched, skinny_with
from lanewise.prove.linear import Result

__all__ = ["all_of"]

_REPEATS = 20
_LAYERS = 30
_SHAPES = ((1, 1024, 3072), (1, 4096, 1024), (4, 1024, 5120), (8, 2048, 1024), (16, 1024, 4096))
_DTYPES = (torch.bfloat16, torch.float16)


def all_of(device: torch.device) -> Iterator[Result]:
    """Every check, through the op and, where a kernel could be in its own way, through each body with and without splits of k."""
    configs = (Config("lanes", 4, 512, 4, 1, 4), Config("lanes", 2, 1024, 4, 1), Config("matrix", 16, 128, 4, 1, 2))
    bodies = {"ops.linear": dispatched, **{f"skinny {config}": skinny_with(config) for config in configs}}
    for name, body in bodies.items():
        for check in (_again, _streams, _graphs, _layers, _written, _made):
            yield _asked(name, check, body, device)
    for check in (_taken, _compiled):
        yield _asked("ops.linear", check, dispatched, device)


def _asked(name: str, check: Callable[[Body, torch.device], str], body: Body, device: torch.device) -> Result:
    began = time.perf_counter()
    try:
        problem = check(body, device)
    except Exception as error:  # noqa: BLE001 - a broken body may raise anything
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    title = (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
    return Result(title, name, problem, "", 0.0, 1.0, time.perf_counter() - began)


def _again(body: Body, device: torch.device) -> str:
    """The same call gives the same bits."""
    for x, w in _many(device):
        first = body(x=x, w=w)
        if not all(_same(body(x=x, w=w), first) for _ in range(_REPEATS)):
            return f"{_named(x, w)}: two runs differ"
    return ""


def _streams(body: Body, device: torch.device) -> str:
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


def _graphs(body: Body, device: torch.device) -> str:
    """Two graphs replayed in turns give the bits of eager calls."""
    (xa, wa), (xb, wb) = list(_many(device))[:2]
    captured = [_graph(lambda x=x, w=w: body(x=x, w=w), device) for x, w in ((xa, wa), (xb, wb))]  # type: ignore[misc]
    for turn in range(_REPEATS):
        for x, w, (graph, y) in ((xa, wa, captured[0]), (xb, wb, captured[1])):
            x.copy_(_numbers(x.shape, x.dtype, device, seed=turn))
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, body(x=x, w=w)):
                return f"{_named(x, w)}: turn {turn} differs"
    return ""


def _layers(body: Body, device: torch.device) -> str:
    """Calls that wait for each other's results, in a graph, with weights that may be read early."""
    for dtype in _DTYPES:
        weights = [_numbers((1024, 1024), dtype, device, seed, 1024**-0.5) for seed in range(_LAYERS)]
        x = _numbers((1, 1024), dtype, device, seed=99)

        def run(between: Callable[[], None], x: torch.Tensor = x, weights: list[torch.Tensor] = weights) -> torch.Tensor:
            for w in weights:
                x = body(x=x, w=w, constant_w=True)
                between()
            return x

        want = run(lambda: torch.cuda.synchronize(device))
        graph, y = _graph(lambda run=run: run(lambda: None), device)  # type: ignore[misc]
        for turn in range(_REPEATS):
            graph.replay()
            torch.cuda.synchronize(device)
            if not _same(y, want):
                return f"{dtype}: turn {turn} of {_LAYERS} layers differs from layers one by one"
    return ""


def _written(body: Body, device: torch.device) -> str:
    """Weights that the kernel in front writes are read after it."""
    x, w = _numbers((1, 1024), torch.bfloat16, device, 1), _numbers((4096, 1024), torch.bfloat16, device, 2)
    choices = [_numbers(w.shape, w.dtype, device, seed) for seed in range(3, 6)]
    want = [body(x=x, w=other) for other in choices]
    for turn in range(_REPEATS * 5):
        w.copy_(choices[turn % 3])
        if not _same(body(x=x, w=w), want[turn % 3]):
            return f"turn {turn}: old weights were read"
    return ""


def _made(body: Body, device: torch.device) -> str:
    """Weights that the same kernel makes are read after it."""
    x, w = _numbers((1, 4096), torch.bfloat16, device, 1), _numbers((4096, 1024), torch.bfloat16, device, 2)
    choices = [_numbers((16, 1024), w.dtype, device, seed) for seed in range(3, 6)]
    want = []
    for other in choices:
        between = body(x=other, w=w)
        torch.cuda.synchronize(device)
        want.append(body(x=x, w=between))
    for turn in range(_REPEATS * 5):
        if not _same(body(x=x, w=body(x=choices[turn % 3], w=w)), want[turn % 3]):
            return f"turn {turn}: weights were read before they were there"
    return ""


def _taken(body: Body, device: torch.device) -> str:
    """The skinny kernel is what runs."""
    with dispatch.witness() as ran:
        body(x=_numbers((1, 4096), torch.bfloat16, device, 1), w=_numbers((4096, 4096), torch.bfloat16, device, 2))
    return "" if dict(ran) == {"skinny": 1} else f"what ran is {dict(ran)}"


def _compiled(body: Body, device: torch.device) -> str:
    """Under torch.compile the kernel is called and gives its bits."""
    x, w = _numbers((1, 1024), torch.bfloat16, device, 1), _numbers((4096, 1024), torch.bfloat16, device, 2)
    compiled = torch.compile(lambda x, w: ops.linear(x, w) * 2, fullgraph=True)
    compiled(x, w)
    with dispatch.witness() as ran:
        y = compiled(x, w)
    if dict(ran) != {"skinny": 1}:
        return f"what ran is {dict(ran)}"
    return "" if _same(y, body(x=x, w=w) * 2) else "other bits than without torch.compile"


def _graph(call: Callable[[], torch.Tensor], device: torch.device) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    side = _stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        call()  # compiles, which a capture cannot
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    return graph, y


def _stream(device: torch.device) -> torch.cuda.Stream:
    made: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return made


def _many(device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for dtype in _DTYPES:
        for seed, (m, k, n) in enumerate(_SHAPES):
            yield _numbers((m, k), dtype, device, seed), _numbers((n, k), dtype, device, seed + 50, k**-0.5)


def _numbers(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return (torch.randn(shape, generator=generator, device=device) * size).to(dtype)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int16), b.view(torch.int16))


def _named(x: torch.Tensor, w: torch.Tensor) -> str:
    return f"m={x.shape[0]} k={x.shape[1]} n={w.shape[0]} {x.dtype}"
