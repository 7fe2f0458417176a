"""Runs a model file below the engine: token ids in, every row's logits out, in chunks of any size."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lanewise.backends import Batch, Runner, backend_for
from lanewise.files import open_model
from lanewise.models import spec_of

PAGE = 16


def logits_of(path: Path, ids: Sequence[int], chunks: Sequence[int] | None = None, device: str = "reference") -> np.ndarray:
    """logits[len(ids), vocab] of a model file; see `step_logits`."""
    with open_model(path) as file:
        runner = backend_for(device).lower(spec_of(file), file)
    logits = step_logits(runner, ids, chunks)
    runner.close()
    return logits


def step_logits(runner: Runner, ids: Sequence[int], chunks: Sequence[int] | None = None) -> np.ndarray:
    """logits[len(ids), vocab], computed in steps of `chunks` tokens (all at once when None), over shuffled pages."""
    pages = -(-len(ids) // PAGE)
    runner.allocate(pages + 3, PAGE)
    table = np.random.default_rng(0).permutation(pages + 3)[:pages].astype(np.int32)
    done, rows = 0, []
    for count in chunks or [len(ids)]:
        positions = np.arange(done, done + count, dtype=np.int32)
        batch = Batch(
            tokens=np.array(ids[done : done + count], np.int32),
            positions=positions,
            slots=(table[positions // PAGE] * PAGE + positions % PAGE).astype(np.int32),
            query_start=np.array([0, count], np.int32),
            context=np.array([done + count], np.int32),
            page_table=table[None],
            logit_rows=np.arange(count, dtype=np.int32),
        )
        rows.append(runner.step(batch))
        done += count
    return np.concatenate(rows)
