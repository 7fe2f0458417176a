"""Launches on arrays of numpy: what a driver would do, and which arguments it would not take."""

import inspect
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from support.edited import edited, lines_of  # noqa: E402
from support.objects import compiled, taken_once  # noqa: E402

from lanewise import emulator  # noqa: E402
from lanewise.arch import TARGETS  # noqa: E402
from lanewise.emulator import Buffer, launch, running  # noqa: E402
from lanewise.emulator.arguments import packed  # noqa: E402
from lanewise.emulator.memory import Memory  # noqa: E402
from lanewise.emulator.registers import POISON  # noqa: E402
from lanewise.errors import DeviceError, EmulatorLimitError, KernelFaultError, ShapeError  # noqa: E402
from lanewise.isa.code_object import Argument  # noqa: E402

TARGETS_OF_ALL_KINDS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
EVERY = pytest.mark.parametrize("target", TARGETS_OF_ALL_KINDS)
SOME = pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])


@triton.jit
def ids(y, WIDTH: tl.constexpr):
    x, other, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = ((z * tl.num_programs(1) + other) * tl.num_programs(0) + x) * WIDTH
    lane = tl.arange(0, WIDTH)
    tl.store(y + at + lane, (z * 100 + other) * 100 + x + 1000000 * lane)


@triton.jit
def plus(x, y, n, factor, wide, flag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n) * factor + wide.to(tl.float32)
    tl.store(y + at, tl.where(flag, values, -values), mask=at < n)


@triton.jit
def bare(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) + 1)


@triton.jit
def one_bad(y, x, z, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    bad = (tl.program_id(0) == x) & (tl.program_id(1) == 1) & (tl.program_id(2) == z)
    if bad:
        lane = tl.where(lane % 128 > 100, lane + 1000, lane)
    tl.store(y + lane.to(tl.int64), lane)  # the store


def compiled_ids(target):
    return compiled(target, lambda: ids[(2, 2, 2)](torch.zeros(8, dtype=torch.int32), WIDTH=64, num_warps=1))


def compiled_plus(target, dtype=torch.float32):
    return compiled(target, lambda: plus[(1,)](torch.zeros(8), torch.zeros(8), 7, 2.5, 2**40 + 1, True, BLOCK=128))


def compiled_bare(target, dtype=torch.int32, odd=False):
    x = torch.zeros(64, dtype=dtype)[int(odd) :]
    return compiled(target, lambda: bare[(1,)](x, x, BLOCK=64, num_warps=1))


@EVERY
def test_every_workgroup_has_its_numbers_in_x_y_and_z_and_knows_how_many_there_are(target):
    code, (x, y, z) = compiled_ids(target), (3, 2, 4)
    want = np.arange(z)[:, None, None, None] * 10000 + np.arange(y)[:, None, None] * 100 + np.arange(x)[:, None] + 1000000 * np.arange(64)
    for options in ({}, {"lanes": 1}, {"lanes": 5 * 64}, {"schedule": "reversed"}, {"schedule": "random:4", "lanes": 128}, {"preload": False}):
        out = np.full((z, y, x, 64), -1, np.int32)
        ran = launch(code, (x, y, z), [out], **options)
        assert (out == want).all()
        assert ran.groups == 24
    out = np.full((1, 1, 5, 64), -1, np.int32)
    launch(code, (5,), {"y": out})
    assert (out[0, 0] == np.arange(5)[:, None] + 1000000 * np.arange(64)).all()
    assert launch(code, (5, 0, 1), [out]).instructions == 0


def run_plus(code, n=300, options=None, **changed):
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    given = {"x": x, "y": y, "n": n, "factor": 2.5, "wide": 2**40, "flag": True, **changed}
    launch(code, (3,), given, **(options or {}))
    return y


@EVERY
def test_numbers_arrive_as_they_were_given(target):
    code = compiled_plus(target)
    x = np.arange(300, dtype=np.float32)
    assert (run_plus(code) == x * np.float32(2.5) + np.float32(2**40)).all()
    assert (run_plus(code, factor=-0.5, wide=-3, flag=False) == -(x * np.float32(-0.5) - 3)).all()
    given = {"n": np.int32(300), "factor": np.float32(0.25), "wide": np.int64(2**33 + 2**20), "flag": np.bool_(True)}
    assert (run_plus(code, **given) == x * np.float32(0.25) + np.float32(2**33 + 2**20)).all()
    assert (run_plus(code, n=0) == 0).all()


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_both_entries_of_a_kernel_with_preloaded_arguments_give_the_same(target):
    code = compiled_plus(target)
    assert code.descriptor.preload_length > 0
    assert (run_plus(code) == run_plus(code, options={"preload": False})).all()
    x, y = np.ones(300, np.float32), np.zeros(300, np.float32)
    later, first = (launch(code, (3,), [x, y, 300, 1.0, 0, True], preload=preload).counts for preload in (True, False))
    assert later[0] == 0
    assert first[0] == 3 * code.warps
    assert code.instructions[later.index(next(filter(None, later)))].pc == 256


def test_hidden_arguments_are_laid_out_as_metadata_say():
    kinds = ["hidden_block_count_x", "hidden_block_count_y", "hidden_block_count_z"]
    more = [(f"hidden_group_size_{axis}", 2) for axis in "xyz"] + [("hidden_grid_dims", 2), ("hidden_global_offset_x", 8), ("hidden_none", 8)]
    layout, offset = [Argument("by_value", 0, 4)], 8
    for kind, size in [*((kind, 4) for kind in kinds), *more]:
        layout.append(Argument(kind, offset, size))
        offset += size
    code = SimpleNamespace(kernel="f", arguments=layout, warps=4, row=TARGETS["gfx942"], descriptor=SimpleNamespace(kernargs=offset))
    data = packed(code, [7], (5, 6, 9), Memory())
    read = {one.kind: int.from_bytes(data[one.offset : one.offset + one.size], "little") for one in layout}
    assert [read[kind] for kind in ("by_value", *kinds)] == [7, 5, 6, 9]
    assert [read[kind] for kind, _ in more[:5]] == [256, 1, 1, 3, 0]
    assert data[offset:] == b"\xdb" * (len(data) - offset)


def named(code, *names):
    arguments = tuple(replace(one, name=name) for one, name in zip(code.arguments, names, strict=False))
    return SimpleNamespace(kernel="f", arguments=arguments, warps=1, row=code.row, descriptor=SimpleNamespace(kernargs=64))


def test_names_that_the_code_object_knows_decide_and_others_are_refused():
    code = named(compiled_bare("gfx1100"), "x", "y")
    x, y = np.zeros(4, np.int32), np.zeros(8, np.int32)
    for given in ([x, y], {"x": x, "y": y}, {"y": y, "x": x}):
        memory = Memory()
        data = packed(code, given, (1, 1, 1), memory)
        sizes = {one.address: one.data.size for one in memory.buffers}
        assert [sizes[int.from_bytes(data[8 * i : 8 * i + 8], "little")] for i in (0, 1)] == [16, 32]
    with pytest.raises(ShapeError, match="f has no argument 'z'; it has x, y"):
        packed(code, {"x": x, "z": y}, (1, 1, 1), Memory())
    with pytest.raises(ShapeError, match="f takes 2 arguments; 1 were given"):
        packed(code, {"x": x}, (1, 1, 1), Memory())


X, Y = np.zeros(300, np.float32), np.zeros(300, np.float32)
GOOD = (X, Y, 300, 2.5, 1, True)
REFUSED = {
    "one too few": (GOOD[:5], "plus takes 6 arguments; 5 were given"),
    "one too many": ((*GOOD, X), "plus takes 6 arguments; 7 were given"),
    "none": ((), "plus takes 6 arguments; 0 were given"),
    "a number for a pointer": ((0, *GOOD[1:]), "argument 0 is a pointer; int was given"),
    "a tensor": ((torch.zeros(3), *GOOD[1:]), "argument 0 is a pointer; Tensor was given"),
    "a list": (([1.0], *GOOD[1:]), "argument 0 is a pointer; list was given"),
    "nothing": ((None, *GOOD[1:]), "argument 0 is a pointer; NoneType was given"),
    "a strided array": ((X[::2], *GOOD[1:]), "argument 0 is not contiguous"),
    "a transposed array": ((np.zeros((3, 4), np.float32).T, *GOOD[1:]), "argument 0 is not contiguous"),
    "objects": ((np.array([None, 1]), *GOOD[1:]), "argument 0 is an array of object"),
    "the other byte order": ((X.astype(">f4"), *GOOD[1:]), "argument 0 is an array of >f4"),
    "an array for a number": ((X, Y, X, *GOOD[3:]), "argument 2 is a number of 4 bytes; ndarray was given"),
    "a text for a number": ((X, Y, "300", *GOOD[3:]), "argument 2 is a number of 4 bytes; str was given"),
    "a number of eight bytes": ((X, Y, np.int64(300), *GOOD[3:]), "argument 2 has 4 bytes; int64 has 8"),
    "a half": ((X, Y, 300, np.float16(2), *GOOD[4:]), "argument 3 has 4 bytes; float16 has 2"),
    "too large a number": ((X, Y, 2**32, *GOOD[3:]), "argument 2 has 32 bits; 4294967296 does not fit"),
    "too small a number": ((X, Y, -(2**31) - 1, *GOOD[3:]), "argument 2 has 32 bits; -2147483649 does not fit"),
    "too large a float": ((X, Y, 300, 1e39, *GOOD[4:]), r"argument 3 is a float of 32 bits; 1e\+39 does not fit"),
    "a float for a byte": ((*GOOD[:5], 1.0), "argument 5 is a number of 1 bytes; float was given"),
    "a text for all": ("arguments", "arguments are a list, or a dict in the kernel's order; str was given"),
    "a set": ({1, 2}, "arguments are a list, or a dict in the kernel's order; set was given"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_arguments_that_do_not_fit_are_refused_with_one_line_before_anything_runs(kind):
    given, words = REFUSED[kind]
    with pytest.raises(ShapeError, match=words) as caught:
        launch(compiled_plus("gfx1100"), (1,), given)
    assert "\n" not in str(caught.value)
    assert not Y.any()


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), (-1,), (2.0,), (1, 65536), (1, 1, 70000), ("4",)], ids=str)
def test_a_grid_that_is_none_is_refused(grid):
    with pytest.raises(ShapeError, match=f"a grid has up to three whole numbers of workgroups.*; {re.escape(str(grid))} was given"):
        launch(compiled_ids("gfx1100"), grid, [X])


def test_what_no_card_or_no_emulator_would_start_is_refused():
    code = compiled_plus("gfx1100")
    with pytest.raises(DeviceError, match="plus asks for 65537 bytes of LDS; gfx1100 has 65536"):
        launch(replace(code, shared=65537), (1,), GOOD)
    with pytest.raises(DeviceError, match="plus asks for 70000 bytes of LDS"):
        launch(replace(code, descriptor=replace(code.descriptor, lds=70000)), (1,), GOOD)
    with pytest.raises(EmulatorLimitError, match="plus is compiled for sm_90"):
        launch(replace(code, row=TARGETS["sm_90"]), (1,), GOOD)
    with pytest.raises(EmulatorLimitError, match="float mode 0xc0; the emulator rounds to nearest and keeps denormals"):
        launch(replace(code, descriptor=replace(code.descriptor, rsrc1=code.descriptor.rsrc1 ^ 0x30 << 12)), (1,), GOOD)
    with pytest.raises(EmulatorLimitError, match="waves of 64 lanes; the emulator has 32 for gfx1100"):
        launch(replace(code, descriptor=replace(code.descriptor, properties=code.descriptor.properties & ~0x400)), (1,), GOOD)
    with pytest.raises(EmulatorLimitError, match="asks the driver for its dispatch packet, which the emulator has not"):
        launch(replace(code, descriptor=replace(code.descriptor, properties=code.descriptor.properties | 2)), (1,), GOOD)
    with pytest.raises(EmulatorLimitError, match="no schedule is 'sideways'"):
        launch(code, (1,), GOOD, schedule="sideways")
    assert not Y.any()


@SOME
@pytest.mark.parametrize("schedule", ["lockstep", "serial", "reversed", "random:9"])
def test_a_fault_names_its_workgroup_in_every_batch_and_order(target, schedule):
    """One of 36 workgroups is wrong, from lane 101 on. An element is stored by every lane, or two: the first bad one tells which lane it is."""
    code = compiled(target, lambda: one_bad[(1,)](torch.zeros(128, dtype=torch.int32), 5, 7, BLOCK=128, num_warps=2 if target == "gfx942" else 4))
    text, first = inspect.getsourcelines(one_bad.fn)
    line = first + next(number for number, one in enumerate(text) if "# the store" in one)
    wave = TARGETS[target].wave
    for (x, z), lanes in (((2, 3), 1), ((0, 0), 512), ((1, 2), 700), ((2, 1), 1 << 15)):
        y = np.zeros(128, np.int32)
        with pytest.raises(KernelFaultError) as caught:
            launch(code, (3, 2, 6), {"y": y, "x": x, "z": z}, schedule=schedule, lanes=lanes)
        at = caught.value.at
        assert (at.kernel, at.group, at.wave, at.lane, at.buffer, at.offset) == ("one_bad", (x, 1, z), 101 // wave, 101 % wave, "y", 4 * 1101)
        assert at.instruction == code.at(at.instruction.pc)
        place = f"one_bad, pc {at.instruction.pc:#x} (test_launch.py:{line}), `{at.instruction.text}`, workgroup ({x}, 1, {z})"
        assert str(caught.value) == f"{place}, wave {101 // wave}, lane {101 % wave}: writes 4 bytes at offset 4404 of y, which has 512 bytes"


@SOME
def test_a_register_that_nobody_has_set_is_poison_the_same_every_time(target):
    one = taken_once(target, lambda: bare[(1,)](torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), BLOCK=64, num_warps=1))
    lines = one.text.splitlines()
    (at,) = lines_of(one.text, r"buffer_store_\w+")
    lines[at] = re.sub(r"v(\d+|\[[\d:]+\])", "v30" if target == "gfx942" else "v[30:31]", lines[at], count=1)
    x = np.zeros(64 * 9, np.int32)
    for options in ({}, {"lanes": 64}, {"schedule": "random:3"}):
        y = np.zeros(64 * 9, np.uint32)
        launch(edited(one, "\n".join(lines) + "\n"), (9,), [x, y], **options)
        assert set(y.tolist()) == {POISON}
    assert np.isnan(np.uint32(POISON).view(np.float32))
    assert np.isnan(np.uint16(POISON >> 16).view(np.float16))


@SOME
def test_arrays_are_worked_on_in_place_wherever_they_lie(target):
    code = compiled_bare(target)
    for shift in (0, 4, 8, 12):
        whole = np.full(4 * 64 * 3 + 64, 0xEE, np.uint8)
        y = whole[shift : shift + 4 * 64 * 3].view(np.int32)
        launch(code, (3,), [np.arange(192, dtype=np.int32), y])
        assert (y == np.arange(192) + 1).all()
        assert set(whole[:shift].tolist()) | set(whole[shift + 768 :].tolist()) == {0xEE}


@SOME
def test_one_array_as_two_arguments_and_arrays_that_overlap_are_the_same_memory(target):
    code = compiled_bare(target)
    x = np.arange(192, dtype=np.int32)
    launch(code, (3,), {"x": x, "y": x})
    assert (x == np.arange(192) + 1).all()
    for shift in (0, 4, 8, 16):  # y is the second half and on, so the third workgroup reads what the first one has written
        whole = np.zeros(4 * 256 + 64, np.uint8)[shift : shift + 1024].view(np.int32)
        whole[:] = np.arange(256)
        launch(code, (2,), {"x": whole[:192], "y": whole[128:]}, schedule="serial")
        assert (whole == [*range(128), *range(1, 129)]).all()
        launch(code, (1,), {"x": whole[128:192], "y": whole[192:]})
        assert (whole[192:] == whole[128:192] + 1).all()
        launch(code, (3,), {"x": whole[:192], "y": whole[64:]}, lanes=1)  # one workgroup after the other
        assert (whole == [number % 64 + number // 64 for number in range(256)]).all()
    with pytest.raises(KernelFaultError, match=r"reads \d bytes at offset 1[26] of y and x, which has 16 bytes"):
        launch(code, (1,), {"x": whole[253:], "y": whole[252:]})


def test_memory_that_is_given_twice_with_other_rights_is_refused():
    code, x = compiled_bare("gfx1100"), np.zeros(192, np.int32)
    frozen = x[:64]
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="x and y lie in the same memory, and only a part of them may be written to"):
        launch(code, (1,), {"x": frozen, "y": x})
    with pytest.raises(ShapeError, match="a Buffer lies in the memory of another argument"):
        launch(code, (1,), {"x": Buffer("x", x.view(np.uint8)), "y": x})
    with pytest.raises(ShapeError, match="a Buffer lies in the memory of another argument"):
        launch(code, (1,), {"x": Buffer("x", x.view(np.uint8)[4:]), "y": Buffer("y", x.view(np.uint8))})
    with pytest.raises(KernelFaultError, match="of y, which may only be read"):
        launch(code, (1,), {"x": x, "y": np.frombuffer(bytes(256), np.int32)})


@SOME
def test_a_buffer_is_given_twice_and_with_offsets(target):
    code = compiled_bare(target)
    buffer = Buffer("both", np.arange(192, dtype=np.int32).view(np.uint8), known=np.arange(768) < 256)
    launch(code, (1,), [buffer, (buffer, 256)])
    launch(code, (1,), [(buffer, np.int64(256)), (buffer, 512)])
    assert buffer.data.view(np.int32).tolist() == [*range(64), *range(1, 65), *range(2, 66)]
    assert buffer.known.all()
    launch(code, (1,), [buffer, buffer])
    assert buffer.data.view(np.int32)[:64].tolist() == list(range(1, 65))
    with pytest.raises(KernelFaultError, match=r"writes \d bytes at offset 768 of both, which has 768 bytes"):
        launch(code, (1,), [buffer, (buffer, 528)])


@SOME
def test_an_array_without_elements_has_no_bytes(target):
    code = compiled_bare(target)
    with pytest.raises(KernelFaultError, match=r"reads \d bytes at offset 0 of x, which has 0 bytes") as caught:
        launch(code, (1,), {"x": np.zeros(0, np.int32), "y": np.zeros(64, np.int32)})
    assert (caught.value.at.lane, caught.value.at.buffer, caught.value.at.offset) == (0, "x", 0)
    x = torch.arange(64, dtype=torch.int32)
    with running(TARGETS[target]), pytest.raises(KernelFaultError, match="of y, which has 0 bytes"):
        bare[(1,)](x, x[16:16], BLOCK=64, num_warps=1)  # it lies within x and is none of it
    assert (x == torch.arange(64)).all()


@SOME
def test_tensors_that_overlap_are_one_and_those_that_touch_are_two(target):
    whole = torch.arange(256, dtype=torch.int32)
    with running(TARGETS[target]):
        bare[(1,)](whole[:64], whole[64:128], BLOCK=64, num_warps=1)
    assert whole[64:128].tolist() == list(range(1, 65))
    with running(TARGETS[target]), pytest.raises(KernelFaultError, match=r"writes \d bytes at offset 240 of y, which has 240 bytes"):
        bare[(1,)](whole[:64], whole[64:124], BLOCK=64, num_warps=1)
    with running(TARGETS[target]):
        bare[(2,)](whole[:128], whole[64:192], BLOCK=64, num_warps=1)
    with running(TARGETS[target]), pytest.raises(KernelFaultError, match="of x and y, which has 508 bytes"):
        bare[(2,)](whole[:64], whole[1:127], BLOCK=64, num_warps=1)


@SOME
def test_tensors_at_odd_addresses_are_launched_as_such(target):
    whole = torch.full((200,), 7, dtype=torch.int8)
    for shift in (1, 2, 3, 5):
        x, y = torch.arange(64, dtype=torch.int8), whole[shift : shift + 64]
        with running(TARGETS[target]):
            bare[(1,)](x, y, BLOCK=64, num_warps=1)
        assert (y == x + 1).all()
        assert set(whole[:shift].tolist()) | set(whole[shift + 64 :].tolist()) == {7}
        whole[:] = 7


def test_a_tensor_that_is_not_on_the_cpu_is_refused_before_its_memory_is_touched():
    x = torch.zeros(64, dtype=torch.int32)
    with running(TARGETS["gfx1100"]), pytest.raises(DeviceError, match="bare: y lies on meta; the emulator works on the memory of CPU tensors"):
        bare[(1,)](x, torch.zeros(64, dtype=torch.int32, device="meta"), BLOCK=64, num_warps=1)


def test_the_front_door_loads_nothing_of_torch_until_tensors_are_asked_for():
    text = (
        "import sys, lanewise.emulator as e; assert {'launch', 'Buffer', 'running', 'Ran'} <= set(e.__all__); e.launch, e.Buffer, e.Ran;"
        "print(sorted({'torch', 'triton'} & set(sys.modules))); e.running; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
    with pytest.raises(AttributeError, match="has no attribute 'lunch'; it has Buffer, Ran, launch, running"):
        emulator.lunch  # noqa: B018
    assert not set(emulator.__all__) & {one.name for one in pkgutil.iter_modules(emulator.__path__)}
