"""What a processor can do at most, as kernels that run where the real ones do: bytes read, int8 and float32 products a second; and a clock.

A percentage of a limit means something only when the limit was measured by the same threads, in the same minutes.
"""

from llvmlite import ir

from lanewise.kernels.cpu.dots import dot4
from lanewise.kernels.cpu.emit import I32, I64, LANES, VI, Emitter, Value, vector
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel

__all__ = [
    "CHUNK_BYTES", "CLOCK_FIELDS", "LINE", "clock_kernel", "float_chunk_macs", "float_kernel", "int8_chunk_macs", "int8_kernel", "read_kernel",
]  # fmt: skip

LINE = 64  # bytes of one load, and of each worker's place in `out`
CHUNK_BYTES = 1 << 20  # what the read probe reads a chunk
CLOCK_FIELDS = 2  # int64 seconds and nanoseconds
_LOADS = 16  # independent sums, and loads of one turn of the read probe's loop
_ROUNDS = 8  # dots of each chain in one turn of the int8 probe's loop
_MACS = 4 * LANES  # of one `dot4`
_MONOTONIC = 1  # CLOCK_MONOTONIC of Linux
# By `isa.dot`: chains, and the lanes of one register. A fused dot takes 5 cycles and two start each cycle, so at least 10
# registers must be summed into; the others only add at the end of the chain, and need their registers for the products.
_CHAINS = {"vnni512": (16, 16), "vnni256": (6, 8), "maddubs256": (4, 8), "maddubs128": (1, 4), "usdot": (4, 4), "sdot": (4, 4), "portable": (1, 4)}


def read_kernel() -> CpuKernel:
    """Reads CHUNK_BYTES of `data` a chunk, 64 bytes at a time, and leaves their sums at out + 64 * worker."""
    return CpuKernel("probe_read", ("data", "out"), _read)


def int8_kernel() -> CpuKernel:
    """`turns` turns of independent chains of 4-way dots, all in registers; leaves their sum at out + 64 * worker."""
    return CpuKernel("probe_int8", ("seed", "turns", "out"), _int8)


def int8_chunk_macs(dot: str, turns: int) -> int:
    """Multiplications of one chunk of `int8_kernel` for an `Isa.dot`."""
    return _CHAINS[dot][0] * _ROUNDS * _MACS * turns


def float_kernel() -> CpuKernel:
    """`turns` turns of independent chains of float32 multiply-adds, all in registers; leaves their sum at out + 64 * worker."""
    return CpuKernel("probe_float", ("seed", "turns", "out"), _float)


def float_chunk_macs(dot: str, turns: int) -> int:
    """Multiplications of one chunk of `float_kernel` for an `Isa.dot`, whose registers it has the use of."""
    return _CHAINS[dot][0] * _ROUNDS * LANES * turns


def clock_kernel() -> CpuKernel:
    """Writes the monotonic clock, two int64 (seconds, nanoseconds), to out + 16 * worker. Run by every worker."""
    return CpuKernel("probe_clock", ("out",), _clock)


def _read(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    start = e.add(a.data, e.mul(chunk, CHUNK_BYTES))
    sums = [e.variable(e.all_ints(0)) for _ in range(_LOADS)]
    with e.loop(CHUNK_BYTES // (LINE * _LOADS)) as i:
        place = e.add(start, e.mul(i, LINE * _LOADS))
        for j, total in enumerate(sums):
            e.set(total, e.b.add(e.get(total), e.ints(place, LINE * j)))
    _leave(e, a.out, worker, sums)


def _int8(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    chains, lanes = _CHAINS[e.isa.dot]
    w, x = e.variable(e.ints(a.seed)), e.variable(e.ints(a.seed, LINE))
    sums = [e.variable(e.ints(a.seed, LINE * (2 + j))) for j in range(chains)]
    with e.loop(a.turns):
        for _ in range(_ROUNDS):
            for total in sums:
                e.set(x, _opaque(e, e.get(x), lanes))
                e.set(total, dot4(e, e.get(total), e.get(w), e.get(x)))
    _leave(e, a.out, worker, sums)


def _float(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    """total / 2 + 1 again and again: each step needs the one before, and none of them leaves the normal numbers."""
    sums = [e.variable(e.floats(a.seed, LINE * j)) for j in range(_CHAINS[e.isa.dot][0])]
    with e.loop(a.turns):
        for _ in range(_ROUNDS):
            for total in sums:
                e.set(total, e.fma(e.get(total), e.all_floats(0.5), e.all_floats(1.0)))
    _leave(e, a.out, worker, sums)


def _opaque(e: Emitter, x: Value, lanes: int) -> Value:
    """x, as far as LLVM knows changed: without it a product that does not change would be computed once, outside the loop.

    An assembly statement of no instructions, a register at a time.
    """
    kind = vector(I32, lanes)
    register = "x" if e.isa.arch.vendor == "x86" else "w"
    pieces = []
    for start in range(0, LANES, lanes):
        piece = e.b.shuffle_vector(x, x, ir.Constant(kind, list(range(start, start + lanes))))
        pieces.append(e.b.asm(ir.FunctionType(kind, [kind]), "", f"={register},0", [piece], False))
    while len(pieces) > 1:
        both = 2 * pieces[0].type.count
        mask = ir.Constant(vector(I32, both), list(range(both)))
        pieces = [e.b.shuffle_vector(p, q, mask) for p, q in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def _clock(e: Emitter, a: Arguments, chunk: Value, worker: Value) -> None:
    read = e.function("clock_gettime", I32, [I32, I64])
    e.b.call(read, [ir.Constant(I32, _MONOTONIC), e.add(a.out, e.mul(worker, 8 * CLOCK_FIELDS))])


def _leave(e: Emitter, out: Value, worker: Value, sums: list[Value]) -> None:
    """Store what was summed, so that none of the work is dead."""
    total = ir.Constant(VI, [0] * LANES)
    for one in sums:
        total = e.b.xor(total, e.b.bitcast(e.get(one), VI))
    e.store(total, out, e.mul(worker, LINE))
