"""What the emulator is for: kernels with a mistake of the kind that real ones had, each named with the line that is guilty."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import inspect  # noqa: E402

import triton.language as tl  # noqa: E402
from support.edited import edited, lines_of, without  # noqa: E402
from support.objects import taken_once  # noqa: E402

from lanewise.arch import parse  # noqa: E402
from lanewise.emulator import Buffer, launch, running  # noqa: E402
from lanewise.emulator.origin import Stores  # noqa: E402
from lanewise.errors import KernelFaultError  # noqa: E402

WAVES = ("gfx1100", "gfx942", "gfx1201", "gfx90a", "gfx1030")


@triton.jit
def copied(x, y, n, LOADS: tl.constexpr, STORES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if LOADS:
        values = tl.load(x + at, mask=at < n, other=0.0)
    else:
        values = tl.load(x + at)  # the load
    if STORES:
        tl.store(y + at, values, mask=at < n)
    else:
        tl.store(y + at, values)  # the store


@triton.jit
def turned(x, y, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    values = tl.load(x + i * N + j)
    other = tl.trans(values)
    tl.store(y + i * N + j, other * 2)  # the exchange


@triton.jit
def added(x, y, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, N), values + 1)  # the use


@triton.jit
def passed_on(x, between, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(between + at, tl.load(x + at))
    tl.debug_barrier()
    tl.store(y + at, tl.load(between + N - 1 - at))  # what is passed on


@triton.jit
def of_32_lanes(x, y, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    sums = tl.inline_asm_elementwise(
        "v_mov_b32 $0, $1\ns_nop 1\nv_add_u32_dpp $0, $0, $0 row_shr:1 bound_ctrl:0\ns_nop 1\nv_add_u32_dpp $0, $0, $0 row_shr:2 bound_ctrl:0\n"
        "s_nop 1\nv_add_u32_dpp $0, $0, $0 row_shr:4 bound_ctrl:0\ns_nop 1\nv_add_u32_dpp $0, $0, $0 row_shr:8 bound_ctrl:0\ns_nop 1\n"
        "v_add_u32_dpp $0, $0, $0 row_bcast:15 row_mask:0xa\ns_nop 1\nv_readlane_b32 s20, $0, 31\ns_nop 3\nv_mov_b32 $0, s20",
        "=&v,v,~{s20}", [values], tl.int32, True, 1)  # the lanes  # fmt: skip
    tl.store(y + tl.arange(0, N), sums)


def line(kernel, words):
    """`file:line` of a comment in a kernel."""
    text, first = inspect.getsourcelines(kernel.fn)
    (at,) = [number for number, one in enumerate(text) if words in one]
    return f"test_shown.py:{first + at}"


def place(error):
    """(source line, workgroup, wave, lane) that a fault names."""
    found = re.search(r"\((\S+:\d+)\), `.*`, workgroup \((\d+), 0, 0\), wave (\d+)(?:, lane (\d+))?", str(error))
    return found[1], int(found[2]), int(found[3]), None if found[4] is None else int(found[4])


@pytest.mark.parametrize("target", WAVES)
def test_an_unmasked_store_at_an_odd_n(target):
    """One element past the first workgroup's is there, in lane 0 of the second's first wave; lane 1 is past the end."""
    block = 4 * parse(target).wave
    x, y = torch.arange(2.0 * block), torch.zeros(block + 1)
    with running(parse(target)), pytest.raises(KernelFaultError) as caught:
        copied[(2,)](x, y, block + 1, LOADS=True, STORES=False, BLOCK=block)
    assert place(caught.value) == (line(copied, "# the store"), 1, 0, 1)
    size = 4 * (block + 1)
    assert f"writes 4 bytes at offset {size} of y, which has {size} bytes" in str(caught.value)
    assert (caught.value.at.buffer, caught.value.at.offset) == ("y", size)


@pytest.mark.parametrize("target", WAVES)
def test_an_unmasked_load_of_the_tail_of_k(target):
    wave = parse(target).wave
    k = 4 * wave + wave + 12  # it ends in the second workgroup's second wave
    x, y = torch.arange(float(k)), torch.zeros(8 * wave)
    with running(parse(target)), pytest.raises(KernelFaultError) as caught:
        copied[(2,)](x, y, k, LOADS=False, STORES=True, BLOCK=4 * wave)
    assert place(caught.value) == (line(copied, "# the load"), 1, 1, 12)
    assert f"reads 4 bytes at offset {4 * k} of x, which has {4 * k} bytes" in str(caught.value)


@pytest.mark.parametrize("target", WAVES)
def test_with_both_masks_it_is_right(target):
    x, y = torch.arange(257.0), torch.zeros(257)
    with running(parse(target)):
        copied[(3,)](x, y, 257, LOADS=True, STORES=True, BLOCK=128)
    assert torch.equal(x, y)


@pytest.mark.parametrize("target", ["gfx942", "gfx90a"])
def test_a_reduction_over_32_lanes_on_64(target):
    """The sum of the first half stands in both. Who stored a wrong element is known, and where its value came from other lanes."""
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    stores = Stores()
    with running(parse(target), stores=stores):
        of_32_lanes[(1,)](x, y, N=64, num_warps=1)
    want = np.repeat([np.arange(32).sum(), np.arange(32, 64).sum()], 32)
    wrong = np.flatnonzero(y.numpy() != want)
    assert wrong.tolist() == list(range(32, 64))
    origin = stores.of("y", 4 * int(wrong[0]))
    assert (origin.group, origin.wave, origin.lane) == (0, 0, 32)
    assert f"{origin.met.source[0]}:{origin.met.source[1]}" == line(of_32_lanes, "# the lanes")
    assert origin.met.mnemonic == "v_readlane_b32"


def barriers(text, row):
    """Lines of the first barrier."""
    return lines_of(text, "s_barrier_signal|s_barrier_wait")[:2] if row.split_waits else lines_of(text, "s_barrier")[:1]


@pytest.mark.parametrize("schedule", ["lockstep", "serial", "reversed", "random:5"])
@pytest.mark.parametrize("target", ["gfx1100", "gfx942", "gfx1201"])
def test_a_deleted_barrier(target, schedule):
    """In whatever order: the race is between two waves, also where it does no harm this time."""
    x, y, row = torch.randn(64, 64), torch.zeros(64, 64), parse(target)

    def changed(one):
        return edited(one, without(one.text, barriers(one.text, row)))

    with running(row, schedule=schedule, changed=changed), pytest.raises(KernelFaultError) as caught:
        turned[(1,)](x, y, N=64)
    assert place(caught.value)[0] == line(turned, "# the exchange")
    assert re.search(r"race in LDS at offset \d+: reads a byte that wave \d has written|LDS, which nobody has written", str(caught.value))


@pytest.mark.parametrize("target", ["gfx1100", "gfx942", "gfx1201"])
def test_the_kernel_whose_barrier_was_deleted_is_right_with_it(target):
    x, y = torch.randn(64, 64), torch.zeros(64, 64)
    with running(parse(target), schedule="reversed", changed=lambda one: edited(one, one.text)):
        turned[(1,)](x, y, N=64)
    assert torch.equal(y, 2 * x.T)


@pytest.mark.parametrize("target", WAVES)
def test_a_missing_wait(target):
    """The last wait for loads of memory is gone; the addition is what touches the register."""
    x, y = torch.arange(256.0), torch.zeros(256)

    def changed(one):
        return edited(one, without(one.text, lines_of(one.text, r"s_waitcnt vmcnt\(0\)|s_wait_loadcnt 0x0")[-1:]))

    with running(parse(target), changed=changed), pytest.raises(KernelFaultError) as caught:
        added[(1,)](x, y, N=256)
    assert place(caught.value)[0] == line(added, "# the use")
    assert re.search(r"touches a register that `\w+_load\w+ .*` is still loading: a wait is missing", str(caught.value))
    with running(parse(target), changed=changed, waits=False):
        added[(1,)](x, y, N=256)
    assert torch.equal(y, x + 1)


@pytest.mark.parametrize("target", ["gfx1100", "gfx942", "gfx1201"])
def test_a_race_of_two_waves_that_write_one_place(target):
    """Every address of the first store into LDS has become the same."""
    x, y = torch.randn(64, 64), torch.zeros(64, 64)

    def changed(one):
        lines = one.text.splitlines()
        at = lines_of(one.text, r"ds_(write|store)\w+")[0]
        register = re.search(r"\s(v\d+),", lines[at])[1]
        lines.insert(at, f"\tv_and_b32_e32 {register}, 31, {register}")
        return edited(one, "\n".join(lines) + "\n")

    with running(parse(target), changed=changed), pytest.raises(KernelFaultError) as caught:
        turned[(1,)](x, y, N=64)
    assert place(caught.value)[0] == line(turned, "# the exchange")
    assert re.search(r"race in LDS at offset \d+: writes a byte that wave \d has written too", str(caught.value))


@pytest.mark.parametrize("target", WAVES)
def test_a_wait_that_leaves_one_too_many_on_its_way(target):
    x, y = torch.arange(256.0), torch.zeros(256)

    def changed(one):
        lines = one.text.splitlines()
        at = lines_of(one.text, r"s_waitcnt vmcnt\(0\)|s_wait_loadcnt 0x0")[-1]
        lines[at] = lines[at].replace("vmcnt(0)", "vmcnt(1)").replace("0x0", "0x1")
        return edited(one, "\n".join(lines) + "\n")

    with running(parse(target), changed=changed), pytest.raises(KernelFaultError, match="is still loading: a wait is missing") as caught:
        added[(1,)](x, y, N=256)
    assert place(caught.value)[0] == line(added, "# the use")


@pytest.mark.parametrize("target", ["gfx1100", "gfx942", "gfx1201"])
def test_a_deleted_barrier_around_memory_shows_in_every_order_but_lockstep(target):
    """Memory has no race detector; there it is the order that shows it: by wrong numbers, or by the line where what memory holds is known."""
    row, n = parse(target), 4 * parse(target).wave
    empty = torch.zeros(n)
    one = taken_once(target, lambda: passed_on[(1,)](empty, empty, empty, N=n))
    x = np.arange(n, dtype=np.float32)
    right, wrong = edited(one, one.text), edited(one, without(one.text, barriers(one.text, row)))
    for order in ("lockstep", "serial", "reversed", "random:5"):
        for code in (right, wrong):
            y = np.zeros(n, np.float32)
            launch(code, (1,), {"x": x, "between": np.zeros(n, np.float32), "y": y}, schedule=order)
            assert (y == x[::-1]).all() == (code is right or order == "lockstep")
        between = Buffer("between", np.zeros(4 * n, np.uint8), known=np.zeros(4 * n, bool))
        if order == "lockstep":
            launch(wrong, (1,), {"x": x, "between": between, "y": np.zeros(n, np.float32)}, schedule=order)
            continue
        with pytest.raises(KernelFaultError, match=r"reads \d+ bytes at offset \d+ of between, which nobody has written") as caught:
            launch(wrong, (1,), {"x": x, "between": between, "y": np.zeros(n, np.float32)}, schedule=order)
        assert place(caught.value)[0] == line(passed_on, "# what is passed on")
