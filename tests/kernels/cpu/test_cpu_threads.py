"""Threads that walk a table of kernels: the same results for any number of them, in any order of arrival, across close, fork and neglect."""

import functools
import gc
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from support.cpu import BEST, digested

from lanewise.errors import DeviceError
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.emit import Emitter, Value
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.threads import OP_FIELDS, ThreadPool, physical_cores

COUNTS = (1, 2, 3, 5)
WIDTH = 37


def _blend(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    """to[chunk] = 3 * of[chunk] + of[the next]: wrong unless the step before is over everywhere."""
    one, two = (e.load(chunk.type, a.of, e.mul(i, 8)) for i in (chunk, e.rem(e.add(chunk, 1), WIDTH)))
    e.store(e.add(e.mul(one, 3), two), a.to, e.mul(chunk, 8))


def _count(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    """seen[chunk] += 1, who[chunk] = worker; every seventh chunk takes much longer."""
    with e.when(e.equal(e.rem(chunk, 7), 0)), e.loop(5_000) as i:
        e.store(i, a.slow, e.mul(worker, 64))
    e.store(e.add(e.load(chunk.type, a.seen, e.mul(chunk, 8)), 1), a.seen, e.mul(chunk, 8))
    e.store(worker, a.who, e.mul(chunk, 8))


BLEND = digested(CpuKernel("test_blend", ("of", "to"), _blend), BEST)
COUNT = digested(CpuKernel("test_count", ("seen", "who", "slow"), _count), BEST)


@functools.cache
def _library() -> Library:
    return Library([BLEND, COUNT], ISAS[BEST])


class _Ring:
    """A program of `steps` blends back and forth between two arrays, each behind a barrier."""

    def __init__(self, steps: int = 60) -> None:
        self.steps, self.arrays = steps, (np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64))
        tables = [BLEND.pack(of=a.ctypes.data, to=b.ctypes.data) for a, b in (self.arrays, self.arrays[::-1])]
        self.kept = tables
        self.ops = np.array([[_library().address(BLEND.name), tables[i % 2].ctypes.data, WIDTH, 1] for i in range(steps)], np.int64)

    def run(self, pool: ThreadPool) -> None:
        start = np.random.default_rng(0).integers(0, 9, WIDTH)
        self.arrays[0][:] = want = start
        pool.run(self.ops)
        for _ in range(self.steps):
            want = 3 * want + np.roll(want, -1)
        np.testing.assert_array_equal(self.arrays[self.steps % 2], want)


def _count_program(chunks: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    seen, who, slow = np.zeros(width, np.int64), np.full(width, -1), np.zeros(8 * max(COUNTS), np.int64)
    table = COUNT.pack(seen=seen.ctypes.data, who=who.ctypes.data, slow=slow.ctypes.data)
    return np.array([[_library().address(COUNT.name), table.ctypes.data, chunks, 1]], np.int64), seen, who, [table, slow]


def _workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lanewise-")}


@pytest.mark.parametrize("threads", COUNTS)
def test_a_barrier_holds_every_thread_until_all_have_come(threads: int) -> None:
    pool, ring = ThreadPool(ISAS[BEST], threads), _Ring()
    for _ in range(20):
        ring.run(pool)
    pool.close()


@pytest.mark.parametrize("threads", COUNTS)
def test_every_chunk_is_done_once_by_one_of_the_threads_in_every_run(threads: int) -> None:
    pool = ThreadPool(ISAS[BEST], threads)
    ops, seen, who, _kept = _count_program(1000, 1000)
    for run in range(1, 6):
        pool.run(ops)
        assert (seen == run).all()
    assert who.min() >= 0
    assert who.max() < threads
    pool.close()


@pytest.mark.parametrize("threads", COUNTS)
def test_an_op_of_no_chunks_is_run_by_every_thread_as_its_own(threads: int) -> None:
    pool = ThreadPool(ISAS[BEST], threads)
    ops, seen, who, _kept = _count_program(0, threads)
    pool.run(ops)
    np.testing.assert_array_equal(seen, 1)
    np.testing.assert_array_equal(who, np.arange(threads))
    pool.close()


def test_ops_without_a_barrier_between_them_are_all_done_when_run_returns() -> None:
    pool = ThreadPool(ISAS[BEST], 3)
    made = [_count_program(100, 100) for _ in range(9)]
    ops = np.concatenate([one[0] for one in made])
    ops[:, 3] = 0
    pool.run(ops)
    assert all((seen == 1).all() for _, seen, _, _ in made)
    pool.run(np.zeros((0, OP_FIELDS), np.int64))
    pool.close()


def test_threads_that_have_gone_to_sleep_wake_up() -> None:
    pool, ring = ThreadPool(ISAS[BEST], 3), _Ring()
    for pause in (0.0, 0.05, 0.0, 0.05):
        time.sleep(pause)
        ring.run(pool)
    pool.close()


def test_a_closed_pool_has_no_threads_and_starts_again() -> None:
    before = _workers()
    pool, ring = ThreadPool(ISAS[BEST], 3), _Ring()
    assert _workers() == before
    for _ in range(3):
        ring.run(pool)
        assert len(_workers() - before) == 2
        pool.close()
        assert _workers() == before
    pool.close()


def test_a_forgotten_pool_ends_its_threads() -> None:
    before = _workers()
    pool = ThreadPool(ISAS[BEST], 3)
    _Ring().run(pool)
    assert len(_workers() - before) == 2
    del pool
    gc.collect()
    assert _workers() == before


@pytest.mark.parametrize(
    ("error", "seen", "words"),
    [
        (RuntimeError("can't start new thread"), DeviceError, "9 threads were asked for; the system lets this process start 3"),
        (KeyboardInterrupt("pressed"), KeyboardInterrupt, "pressed"),
    ],
)
def test_where_not_all_threads_start_those_that_have_are_ended(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, seen: type[BaseException], words: str
) -> None:
    before, start = _workers(), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name == "lanewise-3":
            raise error
        start(thread)

    pool, ring = ThreadPool(ISAS[BEST], 9), _Ring()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        with pytest.raises(seen, match=words):
            ring.run(pool)
        assert _workers() == before
    ring.run(pool)
    assert len(_workers() - before) == 8
    pool.close()


def test_two_pools_run_at_the_same_time() -> None:
    pools, rings, failures = [ThreadPool(ISAS[BEST], 2) for _ in range(2)], [_Ring() for _ in range(2)], []

    def work(i: int) -> None:
        try:
            for _ in range(30):
                rings[i].run(pools[i])
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for pool in pools:
        pool.close()


FORK = """
    import os, sys
    from test_cpu_threads import BEST, ISAS, ThreadPool, _Ring, _workers

    pool, ring = ThreadPool(ISAS[BEST], 3), _Ring()
    {before}
    child = os.fork()
    ring.run(pool)
    if child == 0:
        assert len(_workers()) == 2
        {end}
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    ring.run(pool)
    pool.close()
    ring.run(pool)
    print("parent done")
"""


@pytest.mark.parametrize("before", ["ring.run(pool)", "pass"])
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "pool.close(); ring.run(pool); sys.exit(0)"])
def test_a_forked_child_starts_its_own_threads_and_the_parent_keeps_its_own(before: str, end: str) -> None:
    script = textwrap.dedent(FORK).format(before=before, end=end)
    folder = __file__.rpartition("/")[0]
    code = f"import sys; sys.path[:0] = {[*sys.path, folder]!r}\n{script}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "parent done", "")


def test_a_process_that_ends_without_closing_does_not_hang() -> None:
    code = f"import sys; sys.path[:0] = {[*sys.path, __file__.rpartition('/')[0]]!r}\n"
    code += "from test_cpu_threads import BEST, ISAS, ThreadPool, _Ring; pool = ThreadPool(ISAS[BEST], 3); _Ring().run(pool)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_pinned_threads_still_give_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_PIN", "1")
    pool = ThreadPool(ISAS[BEST], 3)
    _Ring().run(pool)
    pool.close()


def test_the_process_has_at_least_one_core() -> None:
    assert physical_cores() >= 1
