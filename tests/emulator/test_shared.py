"""LDS: bounds, alignment, unwritten bytes, and races between waves, byte by byte."""

import re

import pytest
from support.machine import ran

from lanewise.errors import EmulatorLimitError, KernelFaultError

SCHEDULES = pytest.mark.parametrize("schedule", ["lockstep", "serial", "reversed", "random:2"])
EVERY = pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
OWN = "v_lshlrev_b32_e32 v1, 2, v0\n"  # four bytes of each lane's own
SET = OWN + "ds_store_b32 v1, v0\nWAIT lds 0\nBARRIER\n"
# A lane of the first wave and one of the second alone: `v_cmpx` keeps EXEC for them.
ONLY = "v_cmpx_eq_u32_e32 {}, v0\n"


def wave(target):
    return 64 if target == "gfx942" else 32


def run(text, target, **options):
    return ran(text + "\ns_endpgm", target, **options)


def refused(text, target, words, **options):
    with pytest.raises(KernelFaultError, match=words) as caught:
        run(text, target, **options)
    return caught.value.at


def told(at):
    return at.instruction.source[1], at.group, at.wave, at.lane, at.buffer, at.offset


@EVERY
@pytest.mark.parametrize("schedule", ["lockstep", "reversed"])
def test_an_access_past_the_end_names_the_first_active_lane_that_is_there(target, schedule):
    """Lanes that are off hold addresses that are worse and are not named, nor are other workgroups."""
    text = "s_cmp_lt_u32 s2, 8\ns_cbranch_scc1 .end\nv_lshlrev_b32_e32 v1, 2, v0\nv_cmpx_lt_u32_e32 {}, v0\nds_store_b32 v1, v0 offset:8\n.end:"
    lanes = wave(target)
    groups = [(number, 0, 0) for number in (7, 8, 9)]
    size = 8 * lanes  # the last two lanes' bytes lie past it
    words = f"writes 4 bytes at offset {size} of LDS, of which there are {size} bytes"
    at = refused(text.format(lanes + 2), target, words, lds=size, groups=groups, schedule=schedule)
    assert told(at) == (5, (8, 0, 0), 1, lanes - 2, "LDS", size)


@EVERY
def test_addresses_below_zero_and_beyond_two_gib_are_past_the_end(target):
    for number, offset in ((-4, 2**32 - 4), (2**31 - 4, 2**31 - 4), (-(2**31), 2**31)):
        at = refused(f"v_mov_b32_e32 v1, {number & 0xFFFFFFFF:#x}\nds_load_b32 v2, v1", target, f"reads 4 bytes at offset {offset} of LDS")
        assert told(at) == (2, (0, 0, 0), 0, 0, "LDS", offset)


@EVERY
@pytest.mark.parametrize(("name", "by"), [("b16", 2), ("b32", 4), ("b64", 4), ("b128", 4)])
def test_an_access_that_is_not_aligned_names_the_lane_and_its_offset(target, name, by):
    """Lanes 5 and later are one byte off."""
    text = f"v_lshlrev_b32_e32 v1, 4, v0\nv_cmp_lt_u32_e32 vcc{'' if target == 'gfx942' else '_lo'}, 4, v0\n"
    text += f"v_addc_co_u32_e32 v1, vcc, 0, v1, vcc\nv_cmpx_gt_u32_e32 16, v0\nds_store_{name} v1, v[4:{4 + max(1, int(name[1:]) // 32) - 1}]"
    if target != "gfx942":
        text = text.replace("v_addc_co_u32_e32 v1, vcc, 0, v1, vcc", "v_add_co_ci_u32_e32 v1, vcc_lo, 0, v1, vcc_lo")
    text = text.replace("v[4:4]", "v4")
    at = refused(text, target, f"writes {int(name[1:]) // 8} bytes at offset 81 of LDS, which is not aligned to {by}")
    assert told(at)[2:] == (0, 5, "LDS", 81)


@EVERY
def test_bytes_that_nobody_has_written_are_not_read(target):
    at = refused(OWN + "ds_load_b32 v2, v1 offset:8", target, "reads 4 bytes at offset 8 of LDS, which nobody has written")
    assert told(at) == (2, (0, 0, 0), 0, 0, "LDS", 8)
    half = OWN + "ds_store_b16 v1, v0\nWAIT lds 0\n"
    run(half + "ds_load_u16 v2, v1", target)
    run(half + "ds_load_u8 v2, v1 offset:1", target)
    refused(half + "ds_load_u8 v2, v1 offset:2", target, "reads 1 bytes at offset 2 of LDS, which nobody has written")
    refused(half + "ds_load_b32 v2, v1", target, "reads 4 bytes at offset 0 of LDS, which nobody has written")
    wide = OWN + ONLY.format(3) + "ds_load_b64 v[2:3], v1 offset:32"
    assert told(refused(wide, target, "reads 8 bytes at offset 44 of LDS, which nobody has written")) == (3, (0, 0, 0), 0, 3, "LDS", 44)


@EVERY
def test_every_workgroup_has_bytes_of_its_own(target):
    """All write their number to one place and read it back."""
    text = "v_mov_b32_e32 v1, 0\nv_mov_b32_e32 v2, s2\nds_store_b32 v1, v2\nWAIT lds 0\nBARRIER\nds_load_b32 v3, v1\nWAIT lds 0\n"
    w = run(text, target, groups=5, lds=4).w
    assert (w.v[3] == w.group[:, None]).all()


RACES = {
    "read behind a write": (
        OWN + "ds_store_b32 v1, v0\nWAIT lds 0\n", "v_xor_b32_e32 v1, {off}, v1\nds_load_b32 v2, v1", "reads a byte that wave {} has written",
    ),
    "write behind a read": (
        SET + "ds_load_b32 v2, v1\nWAIT lds 0\n", "v_xor_b32_e32 v1, {off}, v1\nds_store_b32 v1, v0", "writes a byte that wave {} reads",
    ),
    "write behind a write": (
        OWN + "ds_store_b32 v1, v0\nWAIT lds 0\n", "v_xor_b32_e32 v1, {off}, v1\nds_store_b32 v1, v0", "writes a byte that wave {} has written too",
    ),
}  # fmt: skip


@SCHEDULES
@EVERY
@pytest.mark.parametrize("kind", RACES)
def test_two_waves_at_one_place_of_which_one_writes_are_a_race_in_any_order_and_none_with_a_barrier(kind, target, schedule):
    first, second, words = RACES[kind]
    second = second.format(off=4 * wave(target))
    found = "|".join(
        [re.escape(words.format(other)) for other in (0, 1)] + ["nobody has written", *(part.format("[01]") for _, _, part in RACES.values())]
    )
    at = refused(first + second, target, found, schedule=schedule, groups=2)
    assert at.buffer == "LDS"
    if schedule == "lockstep":
        line = (first + second).count("\n") + 1
        assert told(at) == (line, (0, 0, 0), 0, 0, "LDS", 4 * wave(target))
        refused(first + second, target, re.escape(words.format(1)) + " since the last barrier", schedule=schedule)
    run(first + "BARRIER\n" + second, target, schedule=schedule, groups=2)
    run(first + second, target, groups=2, races=False)
    run(first.replace("BARRIER\n", "") + second.replace(str(4 * wave(target)), "4"), target, schedule=schedule)  # lanes of one wave, in order


@SCHEDULES
@EVERY
def test_waves_that_write_one_value_to_one_place_are_no_race(target, schedule):
    text = "v_mov_b32_e32 v1, 0\nv_mov_b32_e32 v2, 7\nds_store_b32 v1, v2\nWAIT lds 0\nBARRIER\nds_load_b32 v3, v1\nWAIT lds 0"
    assert (run(text, target, schedule=schedule, groups=3).w.v[3] == 7).all()
    at = refused(text.replace("v2, 7", "v2, v0"), target, r"race in LDS at offset 0: writes a byte that wave \d has written too", schedule=schedule)
    assert (at.buffer, at.offset) == ("LDS", 0)


@SCHEDULES
@EVERY
def test_waves_that_read_one_place_are_no_race(target, schedule):
    text = SET + "v_mov_b32_e32 v1, 4\nds_load_b32 v3, v1\nds_load_b32 v4, v1 offset:8\nWAIT lds 0"
    w = run(text, target, schedule=schedule).w
    assert (w.v[3] == 1).all()
    assert (w.v[4] == 3).all()
    write = text + "\nds_store_b32 v1, v0\n"
    refused(
        write, target, r"race in LDS at offset 4: writes a byte that (another wave|wave \d) reads|has written too|reads a byte", schedule=schedule
    )


@EVERY
@pytest.mark.parametrize(("store", "step"), [("b8", 1), ("b16", 2)])
def test_neighbouring_bytes_and_halves_of_a_word_belong_to_whoever_writes_them(target, store, step):
    """Of each pair of neighbours one is the first wave's and the other one the second's."""
    lanes, size = wave(target), 8 * step
    mine = f"v_and_b32_e32 v1, {lanes - 1}, v0\nv_lshlrev_b32_e32 v1, {step}, v1\nv_lshrrev_b32_e32 v2, {lanes.bit_length() - 1}, v0\n"
    mine += f"v_lshlrev_b32_e32 v2, {step - 1}, v2\nv_add_u32_e32 v1, v1, v2\nds_store_{store} v1, v0\nWAIT lds 0\n"
    load = f"ds_load_u{size} v3, v1\nWAIT lds 0\n"
    w = run(mine + load, target).w
    assert (w.v[3] == w.v[0] % 256).all()
    words = f"race in LDS at offset {step}: reads a byte that wave 1 has written"
    at = refused(mine + f"v_xor_b32_e32 v1, {step}, v1\n" + load, target, words)
    assert told(at)[2:] == (0, 0, "LDS", step)
    assert (run(mine + "BARRIER\n" + f"v_xor_b32_e32 v1, {step}, v1\n" + load, target).w.v[3] % lanes == w.v[0] % 256 % lanes).all()
    refused(mine + "v_and_b32_e32 v1, -4, v1\nds_load_b32 v3, v1", target, "reads a byte that wave [01] has written|nobody has written")


ZEROED = "v_mov_b32_e32 v1, 0\nv_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 1\nds_store_b32 v1, v2\nWAIT lds 0\nBARRIER\n"


@SCHEDULES
@EVERY
def test_atomics_of_several_waves_are_no_race_but_with_plain_accesses_they_are(target, schedule):
    added = ZEROED + "ds_add_u32 v1, v3\nWAIT lds 0\n"
    w = run(added + "BARRIER\nds_load_b32 v4, v1\nWAIT lds 0", target, schedule=schedule, groups=2).w
    assert (w.v[4] == 2 * wave(target)).all()
    changes = r"a byte that (another wave|wave \d) changes by an atomic"
    at = refused(added + "ds_load_b32 v4, v1", target, rf"reads {changes}|changes a byte that wave \d reads", schedule=schedule)
    assert (at.buffer, at.offset) == ("LDS", 0)
    refused(added + "ds_store_b32 v1, v2", target, rf"writes {changes}|changes a byte that wave \d has written", schedule=schedule)
    text = ZEROED.replace("BARRIER\n", "") + "ds_add_u32 v1, v3"
    refused(text, target, rf"writes {changes}|changes a byte that wave \d has written", schedule=schedule)


@EVERY
def test_one_wave_alone_has_no_races(target):
    run(OWN + "ds_store_b32 v1, v0\nv_xor_b32_e32 v1, 4, v1\nWAIT lds 0\nds_load_b32 v2, v1\nWAIT lds 0\nds_store_b32 v1, v0", target, warps=1)


def test_lds_between_the_halves_of_a_barrier_is_refused_before_anything_runs():
    """A wave there may race with one in front of the signal and with one behind the wait: nothing that a compiler prints does it."""
    good = OWN + "ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1\n{}s_barrier_wait -1\n"
    run(good.format("v_mov_b32_e32 v3, 0\nds_bpermute_b32 v5, v1, v0\n"), "gfx1201")
    for between in ("ds_load_b32 v2, v1\n", "ds_add_u32 v1, v0\n", "flat_load_b32 v2, v[4:5]\n", ".there:\n", "s_branch .there\n.there:\n",
                    "s_barrier_signal -1\n", "s_endpgm\n"):  # fmt: skip
        with pytest.raises(EmulatorLimitError, match="split barrier with this between `s_barrier_signal -1` and its wait"):
            run(good.format(between), "gfx1201")
