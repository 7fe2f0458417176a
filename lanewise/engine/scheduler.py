"""Continuous batching: each step decodes every running request and prefills a chunk of those that wait.

Requests start in order, as soon as the batch and the KV cache have room; one that ends makes room at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from lanewise.backends import Batch, Progress, Runner
from lanewise.engine.pages import PAGE_SIZE
from lanewise.engine.request import Chunk, Request

__all__ = ["Scheduler"]


class Scheduler:
    """Runs requests on a runner until all have ended.

    max_batch: requests that run at a time; prefill_chunk: most prompt tokens in a step.
    """

    def __init__(self, runner: Runner, max_batch: int, prefill_chunk: int, progress: Progress | None = None) -> None:
        self._runner, self._max_batch, self._prefill_chunk, self._progress = runner, max_batch, prefill_chunk, progress

    def run(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Chunk]]:
        """Every new piece of every request, as it is made. Closing the iterator stops the work between two steps."""
        waiting = deque(requests)
        running: list[Request] = []
        while waiting or running:
            while waiting and len(running) < self._max_batch and (not running or waiting[0].cache.fits(waiting[0].limit)):
                running.append(waiting.popleft())
                running[-1].start()
            pieces = self._step(running)
            for request in running:
                if request.finish_reason:
                    request.end()
            running = [request for request in running if not request.finish_reason]
            yield from pieces

    def _step(self, running: list[Request]) -> list[tuple[Request, Chunk]]:
        budget = self._prefill_chunk
        parts: list[tuple[Request, list[int]]] = []
        for request in running:
            take = request.pending if request.generated else request.pending[:budget]
            if take:
                parts.append((request, take))
                budget -= 0 if request.generated else len(take)
        logits = self._runner.step(_batch(parts))
        done: list[Request] = []
        for request, tokens in parts:
            request.written(tokens)
            if not request.generated and self._progress:
                self._progress("prefill", len(request.cache.tokens) - request.cached, len(request.prompt) - request.cached)
            if not request.pending:
                done.append(request)
        return [(request, request.accept(self._runner.distribution(row))) for request, row in zip(done, logits, strict=True)]


def _batch(parts: list[tuple[Request, list[int]]]) -> Batch:
    """The step's arrays; logits are wanted behind the last token of each request whose prompt is then complete."""
    counts = [len(tokens) for _, tokens in parts]
    past = [len(request.cache.tokens) for request, _ in parts]
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    table = np.zeros((len(parts), max(len(s.cache.pages) for s, _ in parts)), np.int32)
    for row, (request, _) in zip(table, parts, strict=True):
        row[: len(request.cache.pages)] = request.cache.pages
    positions = np.concatenate([np.arange(p, p + c, dtype=np.int32) for p, c in zip(past, counts, strict=True)])
    owner = np.repeat(np.arange(len(parts)), counts)
    complete = [count == len(request.pending) for (request, _), count in zip(parts, counts, strict=True)]
    return Batch(
        tokens=np.array([token for _, tokens in parts for token in tokens], np.int32),
        positions=positions,
        slots=table[owner, positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE,
        query_start=start,
        context=np.array([p + c for p, c in zip(past, counts, strict=True)], np.int32),
        page_table=table,
        logit_rows=(start[1:] - 1)[complete],
    )
