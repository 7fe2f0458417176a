"""Memory: bounds, alignment, rights and unwritten bytes of every lane, each against a truth that is counted apart from the emulator."""

import numpy as np
import pytest
from support.machine import ran

from lanewise.emulator.memory import Buffer, Memory, called, overlapping
from lanewise.errors import EmulatorLimitError, KernelFaultError, ShapeError

EVERY = pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
BY = pytest.mark.parametrize("by", ["global", "buffer", "flat"])
GROUPS = [(number, 0, 0) for number in (3, 5, 9)]
# v3 = 4 * (lane in the launch): workgroups of two waves; v2 = that plus what a test adds; lanes from `first` to `last` of the launch are active.
BEGIN = """s_mul_i32 s10, s2, {threads}
v_add_u32_e32 v3, s10, v0
v_cmp_le_u32_e32 vcc{lo}, {first}, v3
s_and_b{wave} exec{lo}, exec{lo}, vcc{lo}
v_cmp_ge_u32_e32 vcc{lo}, {last}, v3
s_and_b{wave} exec{lo}, exec{lo}, vcc{lo}
s_cbranch_execz .end
v_lshlrev_b32_e32 v3, 2, v3
"""
FORMS = {
    "global": "global_{verb}_{kind} {result}v3, {value}s[4:5] offset:{offset}",
    "buffer": "s_mov_b32 s12, s4\ns_mov_b32 s13, s5\ns_mov_b32 s14, -2\ns_mov_b32 s15, 0\n"
    "buffer_{verb}_{kind} {both}, v3, s[12:15], 0 offen offset:{offset}",
    "flat": "v_mov_b32_e32 v11, s5\nv_add_co_u32_e64 v10, vcc{lo}, v3, s4\nv_addc_co_u32_e32 v11, vcc{lo}, 0, v11, vcc{lo}\n"
    "flat_{verb}_{kind} {result}v[10:11], {value}offset:{offset}",
}


def lanes(target):
    return 64 if target == "gfx942" else 32


def text(target, by, verb, kind, first=0, last=10**6, offset=0):
    """An access of every active lane, at four bytes each."""
    count = max(1, int(kind[1:]) // 32)
    data = "v4" if count == 1 else f"v[4:{3 + count}]"
    loads = verb == "load"
    of = {"result": f"{data}, " if loads else "", "value": "" if loads else f"{data}, ", "both": data, "verb": verb, "kind": kind, "offset": offset}
    wave = lanes(target)
    lo = "" if wave == 64 else "_lo"
    form = FORMS[by].format(**of, lo=lo).replace(", offset", " offset")
    return BEGIN.format(threads=2 * wave, first=first, last=last, wave=wave, lo=lo) + form + "\n.end:\ns_endpgm"


def line(body, verb):
    return next(number for number, one in enumerate(body.splitlines(), 1) if f"_{verb}_" in one)


def refused(body, target, words, **options):
    with pytest.raises(KernelFaultError, match=words) as caught:
        ran(body, target, **{"groups": GROUPS, **options})
    return caught.value


@EVERY
@BY
@pytest.mark.parametrize("schedule", ["lockstep", "reversed"])
@pytest.mark.parametrize(("verb", "said"), [("load", "reads"), ("store", "writes")])
def test_the_first_active_lane_past_the_end_is_named_with_all_that_is_known_of_it(target, by, schedule, verb, said):
    """The buffer ends two bytes before what lane 7 of the second wave of workgroup 5 wants; lanes before the third one of that wave are off."""
    wave = lanes(target)
    bad = 5 * 2 * wave + wave + 7
    body = text(target, by, verb, "b32", first=bad - 4, last=6 * 2 * wave - 1)
    size = 4 * bad + 2
    words = f"{said} 4 bytes at offset {4 * bad} of x, which has {size} bytes"
    error = refused(body, target, words, schedule=schedule, buffers=[Buffer("x", np.zeros(size, np.uint8))])
    at = error.at
    assert (at.kernel, at.group, at.wave, at.lane, at.buffer, at.offset) == ("f", (5, 0, 0), 1, 7, "x", 4 * bad)
    assert at.instruction.source == ("hand.py", line(body, verb))
    assert at.instruction.mnemonic == f"{by}_{verb}_b32"
    place = f"f, instruction {at.instruction.index} (hand.py:{line(body, verb)}), `{at.instruction.text}`, workgroup (5, 0, 0), wave 1, lane 7: "
    assert str(error).startswith(place)


@EVERY
@BY
def test_what_lies_in_front_of_a_buffer_and_far_off_is_no_neighbours(target, by):
    """Three buffers in a row, and an offset that reaches over the next ones: every byte of them stays."""
    datas = [np.full(4096, number, np.uint8) for number in (1, 2, 3)]
    body = text(target, by, "store", "b32")
    for distance in (2**31 - 4, 2**31, 2**32 - 4096):
        moved = body.replace("v_lshlrev_b32_e32 v3, 2, v3", f"v_mov_b32_e32 v3, {distance:#x}")
        buffers = [Buffer(name, data) for name, data in zip("xyz", datas, strict=True)]
        if by == "buffer" and distance > 2**31:
            moved = moved.replace("s_mov_b32 s14, -2", "s_mov_b32 s14, -1")
        at = refused(moved, target, f"writes 4 bytes at offset {distance} of x, which has 4096 bytes", buffers=buffers).at
        assert (at.buffer, at.offset, at.lane) == ("x", distance, 0)
    assert [set(data.tolist()) for data in datas] == [{1}, {2}, {3}]


@EVERY
def test_addresses_far_in_front_are_named_by_their_own_buffer(target):
    for distance in (-1, -4096, -(2**31), -(2**33)):
        low, high = distance & 0xFFFFFFFF, distance >> 32 & 0xFFFFFFFF
        body = f"s_add_u32 s6, s6, {low:#x}\ns_addc_u32 s7, s7, {high:#x}\nv_mov_b32_e32 v3, 0\nglobal_load_u8 v4, v3, s[6:7]\ns_endpgm"
        buffers = [Buffer("x", np.zeros(64, np.uint8)), Buffer("y", np.zeros(64, np.uint8))]
        at = refused(body, target, f"reads 1 bytes at offset {distance} of y, which has 64 bytes", buffers=buffers).at
        assert (at.buffer, at.offset) == ("y", distance)


@EVERY
@BY
@pytest.mark.parametrize(("kind", "by_bytes"), [("b16", 2), ("b32", 4), ("b64", 4), ("b128", 4)])
def test_an_access_that_is_not_aligned_names_the_lane(target, by, kind, by_bytes):
    body = text(target, by, "store", kind, first=6 * 2 * lanes(target) - 3, last=10 * 2 * lanes(target) - 1, offset=1)
    offset = 4 * 9 * 2 * lanes(target) + 1
    words = f"writes {int(kind[1:]) // 8} bytes at offset {offset} of x, which is not aligned to {by_bytes}"
    at = refused(body, target, words, buffers=[Buffer("x", np.zeros(1 << 14, np.uint8))]).at
    assert (at.group, at.wave, at.lane, at.offset) == ((9, 0, 0), 0, 0, offset)


@EVERY
def test_alignment_is_that_of_the_address_and_not_of_the_offset(target):
    """A buffer that begins at an odd address: its odd offsets are even addresses."""
    body = text(target, "global", "store", "b16", last=10, offset=1)
    odd = np.zeros(1001, np.uint8)
    ran(body, target, groups=1, buffers=[Buffer("x", odd, aligned=3)])
    assert odd.any()
    at = refused(
        body.replace("offset:1", "offset:2"), target, "offset 2 of x, which is not aligned", groups=1, buffers=[Buffer("x", odd, aligned=3)]
    ).at
    assert (at.lane, at.offset) == (0, 2)


@EVERY
@BY
def test_what_may_only_be_read_is_not_written(target, by):
    body = text(target, by, "store", "b32", first=6 * 2 * lanes(target), last=9 * 2 * lanes(target) + 3)
    data = np.zeros(1 << 14, np.uint8)
    data.flags.writeable = False
    at = refused(body, target, "writes 4 bytes at offset [0-9]+ of x, which may only be read", buffers=[Buffer("x", data, write=False)]).at
    assert (at.group, at.wave, at.lane, at.offset) == ((9, 0, 0), 0, 0, 4 * 9 * 2 * lanes(target))
    ran(text(target, by, "load", "b32"), target, groups=GROUPS, buffers=[Buffer("x", data, write=False)])
    assert not data.any()


@EVERY
@BY
def test_bytes_that_nobody_has_written_are_not_read_and_what_is_written_is_known(target, by):
    known = np.ones(1 << 14, bool)
    bad = 9 * 2 * lanes(target) + 5
    known[4 * bad + 3] = False
    buffers = [Buffer("x", np.zeros(1 << 14, np.uint8), known=known)]
    words = f"reads 4 bytes at offset {4 * bad} of x, which nobody has written"
    at = refused(text(target, by, "load", "b32", first=bad - 1), target, words, buffers=buffers).at
    assert (at.group, at.wave, at.lane) == ((9, 0, 0), 0, 5)
    ran(text(target, by, "load", "b32", last=bad - 1), target, groups=GROUPS, buffers=buffers)
    ran(text(target, by, "store", "b8", offset=3), target, groups=GROUPS, buffers=buffers)
    assert known.all()
    ran(text(target, by, "load", "b32"), target, groups=GROUPS, buffers=buffers)


@EVERY
def test_an_atomic_reads_and_writes_so_it_needs_both_and_whole_words(target):
    glc = {"gfx942": "sc0", "gfx1100": "glc", "gfx1201": "th:TH_ATOMIC_RETURN"}[target]
    body = f"v_mov_b32_e32 v3, 4\nv_mov_b32_e32 v4, 1\nv_cmpx_eq_u32_e32 9, v0\nglobal_atomic_add_u32 v5, v3, v4, s[4:5] {glc}\ns_endpgm"
    data = np.zeros(64, np.uint8)
    assert ran(body, target, buffers=[Buffer("x", data)], groups=3).w.v[5][:3, 9].tolist() == [0, 1, 2]
    assert data.view(np.uint32)[1] == 3
    words = "writes 4 bytes at offset 6 of x, which is not aligned to 4"
    at = refused(body.replace("v3, 4", "v3, 6"), target, words, buffers=[Buffer("x", data)]).at
    assert (at.lane, at.offset, at.buffer) == (9, 6, "x")
    wide = body.replace("atomic_add_u32 v5, v3, v4", "atomic_add_u64 v[5:6], v3, v[4:5]")
    at = refused(wide, target, "an atomic of 8 bytes at offset 4 of x, which is not aligned to them", buffers=[Buffer("x", data)]).at
    assert (at.lane, at.offset, at.buffer) == (9, 4, "x")
    at = refused(body, target, "nobody has written", buffers=[Buffer("x", data, known=np.arange(64) < 6)]).at
    assert (at.lane, at.offset) == (9, 4)
    refused(body, target, "which may only be read", buffers=[Buffer("x", data, write=False)])
    at = refused(body.replace("v3, 4", "v3, 64"), target, "writes 4 bytes at offset 64 of x, which has 64 bytes", buffers=[Buffer("x", data)]).at
    assert at.lane == 9


@EVERY
def test_null_pointers_and_addresses_of_nobody_belong_to_no_buffer(target):
    body = "s_mov_b32 s6, {}\ns_mov_b32 s7, 0\nv_mov_b32_e32 v3, 0\nv_cmpx_eq_u32_e32 5, v0\nglobal_load_b32 v4, v3, s[6:7]\ns_endpgm"
    for address in (0, 16):
        at = refused(body.format(address), target, f"address {address:#x} belongs to no buffer").at
        assert (at.wave, at.lane, at.buffer, at.group) == (0, 5, None, (3, 0, 0))
    at = refused("s_mov_b32 s6, 0\ns_mov_b32 s7, 0\ns_load_b32 s8, s[6:7], 0x0\ns_endpgm", target, "address 0x0 belongs to no buffer").at
    assert (at.wave, at.lane) == (0, None)
    refused(body.replace("s_mov_b32 s7, 0", "s_mov_b32 s7, 0x7fff").format(0), target, "address 0x7fff00000000 belongs to no buffer")


@EVERY
def test_scalar_loads_are_held_to_the_same_and_are_of_no_lane(target):
    body = "s_mul_i32 s10, s2, 16\ns_add_u32 s6, s4, s10\ns_addc_u32 s7, s5, 0\ns_load_b64 s[8:9], s[6:7], {}\ns_endpgm"
    at = refused(body.format("0x8"), target, "reads 8 bytes at offset 88 of x, which has 92 bytes", buffers=[Buffer("x", np.zeros(92, np.uint8))]).at
    assert (at.group, at.wave, at.lane, at.offset) == ((5, 0, 0), 0, None, 88)
    known = np.arange(512) < 9 * 16 + 12
    at = refused(
        body.format("0x8"), target, "reads 8 bytes at offset 152 of x, which nobody", buffers=[Buffer("x", np.zeros(512, np.uint8), known=known)]
    ).at
    assert at.group == (9, 0, 0)
    ran(body.format("0x0"), target, groups=GROUPS, buffers=[Buffer("x", np.zeros(512, np.uint8), known=known)])


DESCRIBED = """s_mov_b32 s12, s4
s_mov_b32 s13, s5
s_mov_b32 s14, {records}
s_mov_b32 s15, 0
v_lshlrev_b32_e32 v3, 2, v0
"""


@EVERY
def test_a_descriptors_range_comes_first_and_then_the_buffers(target):
    """Past the descriptor's bytes loads are 0 and stores are dropped, whatever lies there; within it and past the buffer is a fault."""
    data = np.arange(64, dtype=np.uint32)
    begin = DESCRIBED.format(records=40)
    w = ran(
        begin + "buffer_load_b32 v4, v3, s[12:15], 0 offen offset:4\nWAIT load 0\ns_endpgm", target, buffers=[Buffer("x", data.view(np.uint8)[:40])]
    ).w
    assert (w.v[4] == np.where(w.v[0] < 9, w.v[0] + 1, 0)).all()
    ran(begin + "buffer_store_b32 v3, v3, s[12:15], 0 offen\ns_endpgm", target, buffers=[Buffer("x", data.view(np.uint8))])
    assert data.tolist() == [*range(0, 40, 4), *range(10, 64)]
    for masked in (0x80000000, 0xFFFFFFFC):  # what Triton gives lanes that are masked off
        body = begin.replace("v_lshlrev_b32_e32 v3, 2, v0", f"v_mov_b32_e32 v3, {masked:#x}")
        ran(body + "buffer_store_b32 v3, v3, s[12:15], 0 offen\ns_endpgm", target, buffers=[Buffer("x", data.view(np.uint8))])
    assert data.tolist() == [*range(0, 40, 4), *range(10, 64)]
    at = refused(begin + "buffer_load_b32 v4, v3, s[12:15], 0 offen\ns_endpgm", target, "reads 4 bytes at offset 24 of x, which has 24 bytes",
                 buffers=[Buffer("x", data.view(np.uint8)[:24])]).at  # fmt: skip
    assert at.lane == 6
    body = DESCRIBED.format(records=42) + "buffer_load_b32 v4, v3, s[12:15], 0 offen\ns_endpgm"
    at = refused(body, target, "4 bytes begin within the descriptor's 42 and end behind", buffers=[Buffer("x", data.view(np.uint8))]).at
    assert at.lane == 10


@EVERY
def test_a_descriptor_with_a_stride_is_refused_by_name(target):
    body = DESCRIBED.format(records=40).replace("s_mov_b32 s15, 0", "s_or_b32 s13, s13, 0x40000")
    with pytest.raises(EmulatorLimitError, match="stride or swizzling in a descriptor"):
        ran(body + "buffer_load_b32 v4, v3, s[12:15], 0 offen\ns_endpgm", target, buffers=[Buffer("x", np.zeros(64, np.uint8))])


@EVERY
def test_waves_with_descriptors_of_their_own_are_each_held_to_theirs(target):
    """Every workgroup's ends four bytes later than the one's before."""
    data = np.arange(64, dtype=np.uint32)
    begin = DESCRIBED.format(records=0).replace("s_mov_b32 s14, 0", "s_lshl_b32 s14, s2, 2")
    w = ran(
        begin + "buffer_load_b32 v4, v3, s[12:15], 0 offen\nWAIT load 0\ns_endpgm", target, groups=GROUPS, buffers=[Buffer("x", data.view(np.uint8))]
    ).w
    group = np.array([number for number, _, _ in GROUPS])[w.group][:, None]
    assert (w.v[4] == np.where(w.v[0] < group, w.v[0], 0)).all()


@pytest.mark.parametrize("shift", [0, 1, 2, 5, 8, 15])
def test_nothing_around_a_buffer_is_touched_wherever_it_lies(shift):
    """All of it is written, by bytes and by words, in place and on a copy."""
    for aligned in (0, shift, 77):
        whole = np.full(512, 0xEE, np.uint8)
        data = whole[64 + shift : 64 + shift + 133]
        memory = Memory()
        buffer = Buffer("x", data, aligned=aligned)
        address = memory.add(buffer)
        assert address % 256 == aligned
        buffer.store(np.arange(133)[None], 1, [np.arange(133, dtype=np.uint32)[None]], None)
        first = -aligned % 4
        words = np.arange(first, 130, 4)[None]
        buffer.store(words, 4, [words.astype(np.uint32) + 7], None)
        memory.back()
        want = np.arange(133, dtype=np.uint8)
        want[first : first + 4 * words.size] = (words.ravel().astype(np.uint32) + 7).view(np.uint8)
        assert data.tolist() == want.tolist()
        assert set(whole[: 64 + shift].tolist()) | set(whole[64 + shift + 133 :].tolist()) == {0xEE}
        assert buffer.load(words, 4, None)[0].tolist() == (words + 7).tolist()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": np.zeros(4, np.float32)}, r"uint8 \[size\]; float32 \[4\] was given"),
        ({"data": np.zeros((2, 2), np.uint8)}, r"uint8 \[2, 2\] was given"),
        ({"data": np.zeros(8, np.uint8)[::2]}, "contiguous"),
        ({"data": bytearray(8)}, "bytearray was given"),
        ({"data": np.zeros(8, np.uint8), "known": np.ones(7, bool)}, r"known is bool \[8\].*bool \[7\]"),
        ({"data": np.zeros(8, np.uint8), "known": np.ones(8, np.uint8)}, r"known is bool \[8\].*uint8 \[8\]"),
        ({"data": np.frombuffer(bytes(8), np.uint8)}, "write=False"),
        ({"data": np.zeros(8, np.uint8), "aligned": 256}, "0 to 255 bytes; 256 was given"),
    ],
    ids=["floats", "two axes", "strided", "no array", "few known", "known of bytes", "read-only", "aligned"],
)
def test_a_buffer_that_is_none_is_refused(given, words):
    with pytest.raises(ShapeError, match=f"^x: .*{words}"):
        Buffer("x", **given)


def test_runs_of_memory_hold_what_overlaps_and_what_is_empty_lies_alone():
    spans = {"a": (10, 20), "b": (20, 30), "c": (12, 14), "d": (14, 14), "e": (28, 40), "f": (10, 20), "g": (0, 0)}
    runs = {tuple(names): (begin, end) for begin, end, names in overlapping(spans)}
    assert runs == {("d",): (14, 14), ("g",): (0, 0), ("a", "f", "c"): (10, 20), ("b", "e"): (20, 40)}
    assert called(["a", "f", "c"], spans) == "a and c"


def test_more_buffers_than_addresses_have_room_for_are_refused():
    memory = Memory()
    for number in range(127):
        assert memory.add(Buffer(str(number), np.zeros(1, np.uint8))) < 1 << 47
    with pytest.raises(EmulatorLimitError, match="a launch has at most 127 buffers"):
        memory.add(Buffer("one more", np.zeros(1, np.uint8)))
