"""The probes do the work that they are credited with: every byte is read, every product formed, on every instruction set."""

import re
import time

import numpy as np
import pytest
from support.small import PROBE

from lanewise.bench.limits import Limits, probe_bytes
from lanewise.errors import DeviceError
from lanewise.kernels.cpu.compile import Library, assembly
from lanewise.kernels.cpu.dots import EXPECTED
from lanewise.kernels.cpu.isa import ISAS, runnable
from lanewise.kernels.cpu.probes import CHUNK_BYTES, clock_kernel, float_chunk_macs, float_kernel, int8_chunk_macs, int8_kernel, read_kernel
from lanewise.kernels.cpu.threads import ThreadPool

WORD = 4  # bytes of an int32


def ran(kernel, isa, chunks, threads=1, **values):
    """What the kernel leaves, int32[threads, 16]."""
    out = np.zeros((threads, 16), np.int32)
    library, pool = Library([kernel], isa), ThreadPool(isa, threads)
    table = kernel.pack(out=out.ctypes.data, **values)
    pool.run(np.array([[library.address(kernel.name), table.ctypes.data, chunks, 0]], np.int64))
    pool.close()
    return out


@pytest.mark.parametrize("isa", runnable(), ids=lambda isa: isa.name)
def test_the_read_probe_reads_every_byte(isa):
    data = np.random.default_rng(0).integers(-(2**31), 2**31, CHUNK_BYTES // WORD, np.int32)
    sums = data.reshape(-1, 16, 16).sum(axis=0, dtype=np.int32)  # 16 sums of vectors, in turn
    assert np.array_equal(ran(read_kernel(), isa, 1, data=data.ctypes.data)[0], np.bitwise_xor.reduce(sums, axis=0))


@pytest.mark.parametrize("isa", runnable(), ids=lambda isa: isa.name)
def test_the_int8_probe_forms_every_product(isa):
    turns = 3
    seed = np.random.default_rng(0).integers(0, 100, 64 * 32).astype(np.int8)
    w, x = (seed[64 * i : 64 * (i + 1)].reshape(16, 4).astype(np.int32) for i in (0, 1))
    starts = seed[128:].view(np.int32).reshape(-1, 16)
    chains = int8_chunk_macs(isa.dot, 1) // (8 * 64)
    with np.errstate(over="ignore"):
        sums = starts[:chains] + np.int32(8 * turns) * (w * x).sum(axis=1, dtype=np.int32)
    got = ran(int8_kernel(), isa, 1, seed=seed.ctypes.data, turns=turns)[0]
    assert np.array_equal(got, np.bitwise_xor.reduce(sums, axis=0))


@pytest.mark.parametrize("isa", runnable(), ids=lambda isa: isa.name)
def test_the_float_probe_forms_every_product(isa):
    turns = 1
    seed = np.arange(1, 16 * 32 + 1, dtype=np.float32)
    sums = seed.reshape(-1, 16)[: float_chunk_macs(isa.dot, 1) // (8 * 16)].copy()
    for _ in range(8 * turns):
        sums = sums * np.float32(0.5) + np.float32(1)  # exact: a half and a whole of a short number
    got = ran(float_kernel(), isa, 1, seed=seed.ctypes.data, turns=turns)[0]
    assert np.array_equal(got, np.bitwise_xor.reduce(sums.view(np.int32), axis=0))


@pytest.mark.parametrize("name", ["x86-64-v4+vnni", "x86-64-v3+avxvnni", "x86-64-v3"])
def test_no_product_of_the_float_probe_is_folded_away_or_leaves_its_register(name):
    isa = ISAS[name]
    found = re.findall(r"^\s(?:{vex}\s+)?vfm\w+\s.*", assembly(float_kernel(), isa), re.MULTILINE)
    assert sum(16 if "zmm" in line else 8 for line in found) == float_chunk_macs(isa.dot, 1)
    assert not any("rsp" in line for line in found)


@pytest.mark.parametrize("isa", [isa for isa in ISAS.values() if EXPECTED[isa.dot]], ids=lambda isa: isa.name)
def test_no_product_of_the_int8_probe_is_folded_away(isa):
    """One dot instruction for each register of products that is counted, none outside the loop, and sums that stay in registers."""
    text = assembly(int8_kernel(), isa)
    found = re.findall(rf"^\s(?:{{vex}}\s+)?{EXPECTED[isa.dot]}\s.*", text, re.MULTILINE)
    assert sum(64 if "zmm" in line else 32 if "ymm" in line else 16 for line in found) == int8_chunk_macs(isa.dot, 1)


@pytest.mark.parametrize("name", ["x86-64-v4+vnni", "x86-64-v3+avxvnni", "x86-64-v3", "x86-64-v2", "aarch64+dotprod", "aarch64+dotprod+i8mm"])
def test_the_int8_probe_keeps_its_sums_in_registers(name):
    assert not re.search(r"\(%rsp\)|\[sp", assembly(int8_kernel(), ISAS[name]))


def test_the_clock_is_the_monotonic_one():
    isa = runnable()[0]
    before = time.monotonic_ns()
    seconds, nanoseconds = ran(clock_kernel(), isa, 1).view(np.int64)[0, :2]
    assert before <= seconds * 10**9 + nanoseconds <= time.monotonic_ns()


@pytest.mark.parametrize("threads", [1, 2])
def test_probes_give_positive_rates_that_a_machine_can_have(threads):
    isa = runnable()[0]
    pool = ThreadPool(isa, threads)
    limits = Limits(pool, isa, PROBE)
    for probe in (limits.read(), limits.read(PROBE // 2), limits.int8()):
        assert len(probe.seconds) == 3
        for seconds in probe.seconds:
            assert 1e6 < probe.amount / seconds < 1e15  # from a microcontroller to any socket there is
    assert limits.read().amount == PROBE
    assert limits.read(PROBE // 2).amount == PROBE // 2
    assert limits.read(1).amount == CHUNK_BYTES
    assert limits.read(10 * PROBE).amount == PROBE
    pool.close()


def test_the_read_probe_is_as_large_as_caches_require_and_no_larger_than_a_gigabyte():
    assert probe_bytes(1 << 20) == 4 << 20
    assert probe_bytes(1 << 40) == 10**9
    assert probe_bytes(None) == 10**9


def test_a_probe_without_memory_is_refused():
    isa = runnable()[0]
    with pytest.raises(DeviceError, match="the read probe to read need"):
        Limits(ThreadPool(isa, 1), isa, 1 << 60)
