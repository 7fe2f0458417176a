"""Threads that walk a table of kernels without Python: one call runs a whole token step.

A program is int64[ops, 4]: kernel address, argument table, number of chunks, and whether a barrier follows. Zero chunks
means that every thread runs the kernel once, as its own chunk; otherwise each thread has a run of neighbouring chunks, which
memory is read fastest in, and takes from the others' when its own are gone: one that the system delays holds up no more than
the chunk in its hands. The caller is worker 0.

Barriers spin, then yield the core, so that more threads than cores cost time and not progress. Idle threads sleep on a futex.
"""

import ctypes
import os
import platform
import threading
import weakref
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lanewise import settings
from lanewise.errors import DeviceError
from lanewise.kernels.cpu.compile import Library
from lanewise.kernels.cpu.emit import I32, I64, VOID, Emitter, Value
from lanewise.kernels.cpu.isa import Isa

__all__ = ["OP_FIELDS", "ThreadPool", "physical_cores"]

OP_FIELDS = 4
_LINE = 8  # int64 in a cache line
# Places in the shared block, in int64; what different threads write lies in different cache lines.
_GENERATION, _ARRIVALS, _DONE, _PROGRAM, _OPS, _THREADS, _BASE, _COUNTERS, _STOP, _SIZE = 0, 8, 16, 24, 25, 26, 27, 28, 32, 40
_SPINS_BARRIER, _SPINS_IDLE = 2_000, 20_000
_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # with FUTEX_PRIVATE_FLAG


def physical_cores() -> int:
    """Cores that this process may use, hardware threads of one core counted once."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                cores.add(file.read())
        except OSError:
            return len(allowed)
    return len(cores)


class ThreadPool:
    """Workers for one instruction set. `run` is to be called from one thread at a time.

    Threads start with the first run, which raises DeviceError where the system gives fewer, and end with `close`; a forked child
    starts its own.
    """

    def __init__(self, isa: Isa, threads: int) -> None:
        self.threads = threads
        self._code = _Code(isa)
        self._state = _lines(_SIZE)
        self._slots = -(-threads // _LINE) * _LINE  # a counter a thread for each op: how many of its own chunks are taken
        self._taken = _lines(0)
        self._owner = 0
        self._finalizer: Any = None

    def run(self, program: NDArray[np.int64]) -> None:
        """Walk int64[ops, 4] once."""
        self._start()
        used = len(program) * self._slots
        if used > len(self._taken):
            self._taken = _lines(2 * used)
        self._taken[:used] = 0
        s = self._state
        s[_PROGRAM], s[_OPS], s[_COUNTERS] = program.ctypes.data, len(program), self._taken.ctypes.data
        self._code.submit(s.ctypes.data)

    def close(self) -> None:
        """End the workers. The next run starts them again."""
        if self._finalizer is not None and self._owner == os.getpid():
            self._finalizer()
        self._finalizer = None

    def _start(self) -> None:
        if self._owner == os.getpid() and self._finalizer is not None:
            return
        self._owner = os.getpid()
        s = self._state
        s[:] = 0
        s[_THREADS] = self.threads
        pinned = settings.get("PIN")
        cores = sorted(os.sched_getaffinity(0))

        def work(worker: int) -> None:
            if pinned:
                os.sched_setaffinity(threading.get_native_id(), {cores[worker % len(cores)]})
            code.worker(state.ctypes.data, worker)

        code, state = self._code, s  # what a worker reads lives as long as the worker
        workers: list[threading.Thread] = []
        self._finalizer = weakref.finalize(self, _stop, code, s, workers)
        try:
            for i in range(1, self.threads):
                thread = threading.Thread(target=work, args=(i,), name=f"lanewise-{i}", daemon=True)
                thread.start()
                workers.append(thread)
        except BaseException as error:  # those that have started must not outlive this: Ctrl-C may come here too
            self.close()
            if isinstance(error, RuntimeError):
                raise DeviceError(f"{self.threads} threads were asked for; the system lets this process start {len(workers) + 1}") from None
            raise


def _lines(count: int) -> NDArray[np.int64]:
    """Zeros that begin with a cache line."""
    room = np.zeros(count + _LINE, np.int64)
    return room[(-room.ctypes.data // 8) % _LINE :][:count]


def _stop(code: "_Code", state: NDArray[np.int64], workers: list[threading.Thread]) -> None:
    state[_STOP] = 1
    code.wake(state.ctypes.data)
    for thread in workers:
        thread.join()


class _Code:
    """The compiled walker: submit(state), worker(state, id), wake(state)."""

    def __init__(self, isa: Isa) -> None:
        self._library = Library([_Walker()], isa)
        one, two = (ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * n) for n in (1, 2))
        self.submit, self.wake = (one(self._library.address(name)) for name in ("submit", "wake"))
        self.worker = two(self._library.address("worker"))


class _Walker:
    name = "threads"

    def ir(self, isa: Isa) -> str:
        return str(_module(isa))


def _module(isa: Isa) -> Any:
    module = ir.Module("threads")
    module.triple = isa.triple
    wait = _define_wait(module, isa)
    run = _define_run(module, isa, wait)
    _define_worker(module, isa, run)
    _define_submit(module, isa, run, wait)
    return module


def _function(module: Any, name: str, arguments: int, isa: Isa) -> tuple[Any, Emitter]:
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * arguments), name)
    function.attributes.add("nounwind")
    return function, Emitter(ir.IRBuilder(function.append_basic_block("entry")), isa)


def _place(e: Emitter, state: Value, index: int) -> Value:
    return e.b.inttoptr(e.add(state, 8 * index), I64.as_pointer())


def _read(e: Emitter, state: Value, index: int) -> Value:
    return e.b.load_atomic(_place(e, state, index), "acquire", 8)


def _plain(e: Emitter, state: Value, index: int) -> Value:
    return e.b.load(_place(e, state, index))


def _bump(e: Emitter, pointer: Value) -> Value:
    return e.b.atomic_rmw("add", pointer, e.index(1), "acq_rel")


def _pause(e: Emitter) -> None:
    name = "llvm.x86.sse2.pause" if e.isa.arch.vendor == "x86" else "llvm.aarch64.hint"
    if e.isa.arch.vendor == "x86":
        e.b.call(e.function(name, VOID, []), [])
    else:
        e.b.call(e.function(name, VOID, [I32]), [ir.Constant(I32, 1)])  # yield


def _futex(e: Emitter, state: Value, operation: int, value: Value) -> None:
    number = _FUTEX[platform.machine()]
    kind = ir.FunctionType(I64, [I64], var_arg=True)
    syscall = e.b.module.globals.get("syscall") or ir.Function(e.b.module, kind, "syscall")
    none = e.index(0)
    e.b.call(syscall, [e.index(number), state, e.index(operation), value, none, none, none])


def _define_wait(module: Any, isa: Isa) -> Any:
    """wait(address, target): until *address >= target; spins, then yields the core between looks."""
    function, e = _function(module, "wait", 2, isa)
    address, target = function.args
    look, again, give, done = (function.append_basic_block(name) for name in ("look", "again", "give", "done"))
    spins = e.variable(e.index(0))
    e.b.branch(look)
    e.b.position_at_end(look)
    reached = e.b.icmp_signed(">=", _read(e, address, 0), target)
    e.b.cbranch(reached, done, again)
    e.b.position_at_end(again)
    _pause(e)
    count = e.add(e.get(spins), 1)
    e.set(spins, count)
    e.b.cbranch(e.less(_SPINS_BARRIER, count), give, look)
    e.b.position_at_end(give)
    e.b.call(e.function("sched_yield", I32, []), [])
    e.b.branch(look)
    e.b.position_at_end(done)
    e.b.ret_void()
    return function


def _define_run(module: Any, isa: Isa, wait: Any) -> Any:
    """run(state, worker): one pass over the program."""
    function, e = _function(module, "run", 2, isa)
    state, worker = function.args
    program, ops, threads, counters = (_plain(e, state, i) for i in (_PROGRAM, _OPS, _THREADS, _COUNTERS))
    slots = e.mul(e.div(e.add(threads, _LINE - 1), _LINE), _LINE)
    arrivals = e.add(state, 8 * _ARRIVALS)
    goal = e.variable(_plain(e, state, _BASE))
    kernel_type = ir.FunctionType(VOID, [I64, I64, I64]).as_pointer()
    with e.loop(ops) as i:
        op = e.add(program, e.mul(i, 8 * OP_FIELDS))
        kernel = e.b.inttoptr(_plain(e, op, 0), kernel_type)
        arguments, chunks, barrier = (_plain(e, op, field) for field in (1, 2, 3))
        with e.b.if_else(e.equal(chunks, 0)) as (all_threads, shared):
            with all_threads:
                e.b.call(kernel, [arguments, worker, worker])
            with shared, e.loop(threads) as turn:
                owner = e.rem(e.add(worker, turn), threads)
                first, end = (e.div(e.b.mul(place, chunks), threads) for place in (owner, e.add(owner, 1)))
                counter = e.add(counters, e.mul(e.add(e.b.mul(i, slots), owner), 8))
                look, take, work, out = (function.append_basic_block(name) for name in ("look", "take", "work", "out"))
                e.b.branch(look)
                e.b.position_at_end(look)  # a look costs less than taking, and most often nothing is left of the others'
                e.b.cbranch(e.less(_read(e, counter, 0), e.sub(end, first)), take, out)
                e.b.position_at_end(take)
                chunk = e.add(first, _bump(e, _place(e, counter, 0)))
                e.b.cbranch(e.less(chunk, end), work, out)
                e.b.position_at_end(work)
                e.b.call(kernel, [arguments, chunk, worker])
                e.b.branch(look)
                e.b.position_at_end(out)
        with e.when(e.b.icmp_signed("!=", barrier, e.index(0))):
            e.set(goal, e.add(e.get(goal), threads))
            _bump(e, e.b.inttoptr(arrivals, I64.as_pointer()))
            e.b.call(wait, [arrivals, e.get(goal)])
    e.b.ret_void()
    return function


def _define_worker(module: Any, isa: Isa, run: Any) -> None:
    """worker(state, id): runs each new generation until told to stop; between them it spins a while, then sleeps."""
    function, e = _function(module, "worker", 2, isa)
    state, worker = function.args
    idle, look, nap, woken, work, out = (function.append_basic_block(n) for n in ("idle", "look", "nap", "woken", "work", "out"))
    seen, spins = e.variable(e.index(0)), e.variable(e.index(0))
    e.b.branch(idle)
    e.b.position_at_end(idle)
    e.set(spins, e.index(0))
    e.b.branch(look)
    e.b.position_at_end(look)
    _pause(e)
    e.set(spins, e.add(e.get(spins), 1))
    fresh = e.b.icmp_signed("!=", _read(e, state, _GENERATION), e.get(seen))
    tired = function.append_basic_block("tired")
    e.b.cbranch(fresh, woken, tired)
    e.b.position_at_end(tired)
    e.b.cbranch(e.less(_SPINS_IDLE, e.get(spins)), nap, look)
    e.b.position_at_end(nap)
    _futex(e, state, _FUTEX_WAIT, e.get(seen))
    e.b.branch(look)
    e.b.position_at_end(woken)
    e.set(seen, e.add(e.get(seen), 1))
    e.b.cbranch(e.equal(_read(e, state, _STOP), 0), work, out)
    e.b.position_at_end(work)
    e.b.call(run, [state, worker])
    _bump(e, _place(e, state, _DONE))
    e.b.branch(idle)
    e.b.position_at_end(out)
    e.b.ret_void()


def _define_submit(module: Any, isa: Isa, run: Any, wait: Any) -> None:
    """submit(state): start a generation, take part in it, and return when every worker has left it. wake(state): only start one."""
    function, e = _function(module, "wake", 1, isa)
    (state,) = function.args
    _bump(e, _place(e, state, _GENERATION))
    _futex(e, state, _FUTEX_WAKE, e.index(2**31 - 1))
    e.b.ret_void()
    wake = function
    function, e = _function(module, "submit", 1, isa)
    (state,) = function.args
    others = e.sub(_plain(e, state, _THREADS), 1)
    goal = e.add(_read(e, state, _DONE), others)
    e.b.store(_read(e, state, _ARRIVALS), _place(e, state, _BASE))
    e.b.call(wake, [state])
    e.b.call(run, [state, e.index(0)])
    e.b.call(wait, [e.add(state, 8 * _DONE), goal])
    e.b.ret_void()
