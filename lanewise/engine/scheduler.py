"""Continuous batching: each step decodes every running request and prefills a chunk of those that wait.

Requests start in order, as soon as the batch and the KV cache have room; one that ends makes room at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

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
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    start, context, logit_rows = [0], [], []
    table = np.zeros((len(parts), max(len(request.cache.pages) for request, _ in parts)), np.int32)
    for row, (request, new) in zip(table, parts, strict=True):
        pages, past = request.cache.pages, len(request.cache.tokens)
        row[: len(pages)] = pages
        tokens += new
        positions += range(past, past + len(new))
        slots += [pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in range(past, past + len(new))]
        start.append(len(tokens))
        context.append(past + len(new))
        if len(new) == len(request.pending):
            logit_rows.append(len(tokens) - 1)
    return Batch(
        tokens=_ints(tokens),
        positions=_ints(positions),
        slots=_ints(slots),
        query_start=_ints(start),
        context=_ints(context),
        page_table=table,
        logit_rows=_ints(logit_rows),
    )


def _ints(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)
