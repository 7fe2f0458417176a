"""Loads that are on their way: who may touch their registers when, by old counters and by those of the newest targets."""

import numpy as np
import pytest
from support.machine import ran

from lanewise.emulator.memory import Buffer
from lanewise.errors import KernelFaultError

OLD, NEW = ("gfx942", "gfx1100", "gfx1030"), ("gfx1201",)
EVERY = pytest.mark.parametrize("target", OLD + NEW)
AT = "v_lshlrev_b32_e32 v1, 2, v0\n"  # four bytes a lane
IN_LDS = AT + "ds_store_b32 v1, v0\nWAIT lds 0\nBARRIER\n"
LOADING = r"touches a register that `{}.*` is still loading: a wait is missing"


def run(text, target, **options):
    data = np.arange(4096, dtype=np.uint32)
    return ran(text + "\ns_endpgm", target, buffers=[Buffer("x", data.view(np.uint8))], **options)


def refused(text, target, line, by, **options):
    """The line's number at which a load is still on its way."""
    with pytest.raises(KernelFaultError, match=LOADING.format(by)) as caught:
        run(text, target, **options)
    assert caught.value.at.instruction.source == ("hand.py", line)
    return caught.value.at


@EVERY
def test_what_a_load_brings_may_be_touched_behind_its_wait_and_not_in_front(target):
    load = AT + "global_load_b32 v2, v1, s[4:5]\n"
    run(load + "WAIT load 0\nv_add_u32_e32 v3, v2, v2", target)
    refused(load + "v_add_u32_e32 v3, v2, v2", target, 3, "global_load_b32")
    refused(load + "v_mov_b32_e32 v2, 0", target, 3, "global_load_b32")  # it would be overwritten
    refused(load + "global_store_b32 v1, v2, s[4:5]", target, 3, "global_load_b32")
    run(load + "v_add_u32_e32 v3, v2, v2", target, waits=False)


@EVERY
def test_loads_come_back_in_order_so_a_count_says_which_are_there(target):
    load = AT + "global_load_b32 v2, v1, s[4:5]\nglobal_load_b32 v3, v1, s[4:5] offset:4\nWAIT load 1\n"
    run(load + "v_mov_b32_e32 v4, v2", target)
    refused(load + "v_mov_b32_e32 v4, v3", target, 5, "global_load_b32 v3")


@EVERY
def test_a_load_into_a_register_of_another_load_is_in_order_and_its_address_is_not_there_yet(target):
    load = AT + "global_load_b32 v2, v1, s[4:5]\n"
    run(load + "global_load_b32 v2, v1, s[4:5]\nWAIT load 0\nv_mov_b32_e32 v4, v2", target)
    refused(load + "global_load_b32 v2, v2, s[4:5]", target, 3, "global_load_b32 v2")


@EVERY
def test_scalar_loads_come_back_in_any_order_so_only_a_wait_for_none_helps(target):
    load = "s_load_b32 s10, s[4:5], 0x0\ns_load_b32 s11, s[4:5], 0x4\n"
    refused(load + "WAIT scalar 1\ns_add_i32 s12, s10, 1", target, 4, "s_load_b32 s10")
    run(load + "WAIT scalar 0\ns_add_i32 s12, s10, s11", target)


PART = "v_cmp_gt_u32_e32 vcc{}, {}, v0\ns_cbranch_vccz .end\n"  # the first wave goes on


@pytest.mark.parametrize("target", OLD)
def test_a_scalar_load_behind_lds_does_not_say_that_lds_is_there(target):
    """Both count down the same counter, and the scalar load may be the first one that is back."""
    load = IN_LDS + "ds_load_b32 v2, v1\nds_load_b32 v3, v1\ns_load_b32 s10, s[4:5], 0x0\nWAIT lds 1\n"
    run(load + "v_mov_b32_e32 v4, v2", target)
    refused(load + "v_mov_b32_e32 v4, v3", target, 9, "ds_load_b32 v3")
    refused(load + "s_add_i32 s12, s10, 1", target, 9, "s_load_b32")
    run(load.replace("lds 1", "lds 0") + "v_add_u32_e32 v4, s10, v3", target)
    load = "s_load_b32 s10, s[4:5], 0x0\nds_load_b32 v2, v1\nds_load_b32 v3, v1\nWAIT lds 1\n"
    for begin in ("", PART.format("" if target == "gfx942" else "_lo", 64 if target == "gfx942" else 32)):  # of all waves, and of one
        begin = IN_LDS + begin
        line = begin.count("\n") + 5
        run(begin + load + "v_mov_b32_e32 v4, v2\n.end:", target)
        refused(begin + load + "v_mov_b32_e32 v4, v3\n.end:", target, line, "ds_load_b32 v3")
        refused(begin + load + "s_add_i32 s12, s10, 1\n.end:", target, line, "s_load_b32")


@EVERY
def test_flat_loads_are_counted_twice_and_in_no_order(target):
    flat = AT + "v_mov_b32_e32 v4, s4\nv_mov_b32_e32 v5, s5\nflat_load_b32 v2, v[4:5]\nglobal_load_b32 v3, v1, s[4:5]\n"
    refused(flat + "WAIT load 1\nWAIT lds 0\nv_mov_b32_e32 v6, v2", target, 8, "flat_load_b32")
    refused(flat + "WAIT load 0\nv_mov_b32_e32 v6, v2", target, 7, "flat_load_b32")
    run(flat + "WAIT load 0\nWAIT lds 0\nv_mov_b32_e32 v6, v2", target)


def test_stores_count_with_loads_on_gfx9_and_apart_on_later_targets():
    text = AT + "global_load_b32 v2, v1, s[4:5]\nglobal_store_b32 v1, v1, s[4:5]\nWAIT load 1\nv_mov_b32_e32 v4, v2"
    run(text, "gfx942")  # the one that is on its way is the store
    refused(text, "gfx1100", 5, "global_load_b32")
    refused(text, "gfx1201", 5, "global_load_b32")


def test_a_counter_of_another_kind_does_not_help():
    refused(AT + "global_load_b32 v2, v1, s[4:5]\ns_wait_dscnt 0x0\ns_wait_kmcnt 0x0\nv_mov_b32_e32 v4, v2", "gfx1201", 5, "global_load")
    refused(AT + "global_load_b32 v2, v1, s[4:5]\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v4, v2", "gfx942", 4, "global_load")
    run(AT + "global_load_b32 v2, v1, s[4:5]\ns_wait_loadcnt_dscnt 0x3f\nv_mov_b32_e32 v4, v2", "gfx1201")
    refused(AT + "global_load_b32 v2, v1, s[4:5]\ns_wait_loadcnt_dscnt 0x100\nv_mov_b32_e32 v4, v2", "gfx1201", 4, "global_load")
    run(AT + "global_load_b32 v2, v1, s[4:5]\ns_wait_idle\nv_mov_b32_e32 v4, v2", "gfx1201")


@EVERY
def test_a_branch_by_a_register_that_is_loaded_waits_as_well(target):
    vcc = "vcc_lo" if target != "gfx942" else "vcc"
    load = f"s_load_b32 {vcc}, s[4:5], 0x0\n" if target != "gfx942" else "s_load_b64 vcc, s[4:5], 0x0\n"
    refused(load + "s_cbranch_vccz .end\n.end:", target, 2, "s_load_b")
    run(load + "WAIT scalar 0\ns_cbranch_vccz .end\n.end:", target)


APART = """v_cmp_gt_u32_e32 vcc{}, {}, v0
v_lshlrev_b32_e32 v1, 2, v0
global_load_b32 v2, v1, s[4:5]
s_cbranch_vccz .late
WAIT load 0
.late:
v_mov_b32_e32 v3, v2"""


@EVERY
@pytest.mark.parametrize("schedule", ["lockstep", "serial", "reversed", "random:3"])
def test_of_waves_that_part_each_has_its_own_counters(target, schedule):
    """The first wave waits and the second one, which jumps over it, does not."""
    wave = 64 if target == "gfx942" else 32
    text = APART.format("" if wave == 64 else "_lo", wave)
    at = refused(text, target, 7, "global_load_b32", schedule=schedule, groups=3)
    assert (at.group, at.wave) == ((0, 0, 0), 1)
    run(text.replace(f", {wave},", f", {2 * wave - 1},"), target, schedule=schedule, groups=3)


@EVERY
@pytest.mark.parametrize("schedule", ["lockstep", "reversed"])
def test_a_wave_that_has_not_loaded_waits_for_nothing(target, schedule):
    wave = 64 if target == "gfx942" else 32
    text = f"""v_cmp_gt_u32_e32 vcc{"" if wave == 64 else "_lo"}, {wave}, v0
v_lshlrev_b32_e32 v1, 2, v0
s_cbranch_vccnz .waits
v_mov_b32_e32 v2, 0
s_branch .met
.waits:
global_load_b32 v2, v1, s[4:5]
.met:
s_cbranch_vccz .late
WAIT load 0
.late:
v_mov_b32_e32 v3, v2"""
    w = run(text, target, schedule=schedule, groups=2).w
    assert (w.v[3] == np.where(w.v[0] < wave, w.v[0], 0)).all()
    at = refused(text.replace("vccz .late", "vccnz .late"), target, 12, "global_load_b32 v2", schedule=schedule, groups=2)
    assert at.wave == 0


@EVERY
def test_what_is_counted_before_waves_part_is_waited_for_by_each_of_them(target):
    wave = 64 if target == "gfx942" else 32
    text = f"""v_cmp_gt_u32_e32 vcc{"" if wave == 64 else "_lo"}, {wave}, v0
v_lshlrev_b32_e32 v1, 2, v0
global_load_b32 v2, v1, s[4:5]
global_load_b32 v3, v1, s[4:5] offset:8
s_cbranch_vccz .late
WAIT load 1
v_mov_b32_e32 v5, v2
s_branch .met
.late:
WAIT load 0
v_mov_b32_e32 v5, v3
.met:
v_mov_b32_e32 v6, v2
"""
    w = run(text, target).w
    assert (w.v[6] == w.v[0]).all()
    at = refused(text + "v_mov_b32_e32 v7, v3", target, 14, "global_load_b32 v3")
    assert at.wave == 0


@EVERY
def test_an_lds_access_has_to_be_done_when_a_barrier_is_reached(target):
    store = AT + "ds_store_b32 v1, v0\n"
    with pytest.raises(KernelFaultError, match="is reached while `ds_store_b32 v1, v0` is still on its way: a wait is missing") as caught:
        run(store + "BARRIER", target)
    assert caught.value.at.instruction.source == ("hand.py", 3)
    run(store + "WAIT lds 0\nBARRIER", target)
    run(store + "BARRIER", target, waits=False)
    run(AT + "ds_bpermute_b32 v2, v1, v0\nBARRIER", target)  # it moves data between lanes and touches no LDS
