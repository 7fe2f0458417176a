"""Orders of waves: what is right has the same bits in all of them; barriers that not all waves reach, and loops without an end."""

import numpy as np
import pytest
from support.machine import ran

from lanewise.emulator.memory import Buffer
from lanewise.emulator.schedule import SCHEDULES, schedule
from lanewise.errors import EmulatorLimitError, KernelFaultError

ORDERS = ("lockstep", "serial", "reversed", "random:1", "random:2")
EVERY = pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
EACH = pytest.mark.parametrize("order", ORDERS)


def wave(target):
    return 64 if target == "gfx942" else 32


def vcc(target):
    return "vcc" if target == "gfx942" else "vcc_lo"


def run(text, target, **options):
    return ran(text + "\ns_endpgm", target, **options)


def refused(text, target, words, **options):
    with pytest.raises(KernelFaultError, match=words) as caught:
        run(text, target, **options)
    return caught.value.at


def order_of(target, order, **options):
    """(wave, workgroups) of every first instruction that ran."""
    seen = []
    run(
        "v_mov_b32_e32 v1, v0\nv_mov_b32_e32 v2, v0",
        target,
        schedule=order,
        watch=lambda step, w: seen.append((step.one.index, w.wave.tolist())),
        **options,
    )
    return seen


def test_lockstep_runs_all_waves_at_once_and_the_others_one_after_the_other():
    assert order_of("gfx1100", "lockstep", warps=3) == [(0, [0, 1, 2]), (1, [0, 1, 2])]
    assert order_of("gfx1100", "serial", warps=3) == [(line, [one]) for one in (0, 1, 2) for line in (0, 1)]
    assert order_of("gfx1100", "reversed", warps=3) == [(line, [one]) for one in (2, 1, 0) for line in (0, 1)]
    assert order_of("gfx1100", "serial", warps=2, groups=2) == [(line, [one, one]) for one in (0, 1) for line in (0, 1)]


def test_a_seed_gives_the_same_order_every_time_and_another_one_another():
    orders = {seed: order_of("gfx1100", f"random:{seed}", warps=8) for seed in range(6)}
    assert orders == {seed: order_of("gfx1100", f"random:{seed}", warps=8) for seed in range(6)}
    assert len({str(one) for one in orders.values()}) == 6
    assert order_of("gfx1100", "random", warps=8) == orders[0]
    assert schedule("reversed").groups(4).tolist() == [3, 2, 1, 0]
    assert schedule("random:1").groups(20).tolist() != schedule("random:2").groups(20).tolist()
    assert sorted(schedule("random:1").groups(20).tolist()) == list(range(20))


@pytest.mark.parametrize("name", ["", "backwards", "random:", "random:x", "serial:1", "Lockstep", "random:-1", "lockstep\n"])
def test_a_name_that_is_none_is_refused_with_those_that_are(name):
    with pytest.raises(EmulatorLimitError, match=r"no schedule is .*; there are lockstep, serial, reversed, random, random:SEED"):
        schedule(name)
    assert len(SCHEDULES) == 5


# x[i] is written, and behind a barrier that of the other wave is read: in memory, which has no race detector.
THROUGH_MEMORY = """v_lshlrev_b32_e32 v1, 2, v0
v_add_u32_e32 v2, 100, v0
global_store_b32 v1, v2, s[4:5]
WAIT store 0
BARRIER
v_xor_b32_e32 v1, {}, v1
global_load_b32 v3, v1, s[4:5]
WAIT load 0"""


@EVERY
@EACH
def test_a_barrier_makes_the_other_waves_stores_visible_in_any_order(target, order):
    """Without it lockstep gives the same, which is luck; in every other order a wave reads what nobody has written."""
    lanes = wave(target)
    text = THROUGH_MEMORY.format(4 * lanes)

    def buffers():
        size = 8 * lanes
        return [Buffer("x", np.zeros(size, np.uint8), known=np.zeros(size, bool))]

    w = run(text, target, schedule=order, buffers=buffers()).w
    assert (w.v[3] == (w.v[0] ^ lanes) + 100).all()
    deleted = text.replace("BARRIER\n", "")
    if order == "lockstep":
        assert (run(deleted, target, schedule=order, buffers=buffers()).w.v[3] == w.v[3]).all()
        return
    at = refused(deleted, target, "of x, which nobody has written", schedule=order, buffers=buffers())
    assert (at.instruction.source, at.buffer, at.lane) == (("hand.py", 6), "x", 0)
    late = {"serial": 0, "reversed": 1}.get(order, at.wave)
    assert (at.wave, at.offset) == (late, 4 * lanes * (1 - late))


PARTED = """v_cmp_gt_u32_e32 {vcc}, {lanes}, v0
v_mov_b32_e32 v1, 1
s_cbranch_vccz .second
v_add_u32_e32 v1, 10, v1
v_add_u32_e32 v1, 10, v1
{first}
s_branch .met
.second:
v_add_u32_e32 v1, 100, v1
{second}
.met:
v_add_u32_e32 v2, v1, v1
{both}"""


def parted(target, first="s_nop 0", second="s_nop 0", both="s_nop 0"):
    return PARTED.format(vcc=vcc(target), lanes=wave(target), first=first, second=second, both=both)


@EVERY
@EACH
def test_waves_that_part_meet_again(target, order):
    made = run(parted(target, both="BARRIER"), target, schedule=order, groups=4, warps=3)
    assert (made.w.v[2] == np.where(made.w.wave == 0, 42, 202)[:, None]).all()
    # Behind the meeting they run together again, where the order has them run together at all.
    assert made.counts[9] == made.counts[-1] == 12


def test_in_lockstep_waves_that_have_parted_run_together_behind_the_place_where_they_meet():
    turns = []
    run(parted("gfx1100"), "gfx1100", warps=4, watch=lambda step, w: turns.append((step.one.mnemonic, len(w.index))))
    assert [count for name, count in turns if name == "v_add_u32_e32"] == [1, 1, 3, 4]


@EVERY
@EACH
def test_a_wave_that_ends_and_never_reaches_the_barrier_is_named_with_its_place(target, order):
    words = r"waits at a barrier that wave [12] never reaches: it has ended at hand.py:9 \(instruction \d+\)"
    text = f"v_cmp_gt_u32_e32 {vcc(target)}, {wave(target)}, v0\ns_cbranch_vccz .end\nv_mov_b32_e32 v1, v0\nBARRIER\n\n.end:\n\ns_nop 0"
    at = refused(text, target, words, schedule=order, warps=3, groups=2)
    assert (at.instruction.source, at.wave, at.group, at.lane) == (("hand.py", 4), 0, (0, 0, 0), None)
    assert at.instruction.mnemonic.startswith("s_barrier")


@EVERY
@EACH
def test_waves_at_two_barriers_are_named_with_both_places(target, order):
    text = parted(target, first="BARRIER", second="BARRIER")
    at = refused(text, target, r"waits at another barrier than wave 1, which is at hand.py:10 \(instruction \d+\)", schedule=order, groups=3)
    assert (at.instruction.source, at.wave, at.group) == (("hand.py", 6), 0, (0, 0, 0))


def test_a_half_of_a_barrier_alone_is_named():
    at = refused("v_mov_b32_e32 v1, 0\ns_barrier_wait -1", "gfx1201", "waits at a barrier that it has not signalled")
    assert (at.instruction.source, at.wave) == (("hand.py", 2), 0)


@EVERY
@EACH
def test_a_loop_without_an_end_ends_with_words(target, order):
    """The second wave goes round for ever, and the first one waits for it."""
    text = (
        f"v_cmp_gt_u32_e32 {vcc(target)}, {wave(target)}, v0\ns_cbranch_vccnz .end\n.loop:\nv_add_u32_e32 v1, 1, v0\ns_branch .loop\n.end:\nBARRIER"
    )
    at = refused(text, target, "has come to branches backwards 50 times and not ended", schedule=order, most=50, groups=2)
    assert (at.instruction.source, at.wave) == (("hand.py", 5), 1)


@EVERY
@EACH
def test_the_limit_of_a_loop_is_each_waves_own(target, order):
    """Eight waves of three workgroups go round forty times each."""
    text = "s_mov_b32 s10, 40\n.loop:\ns_sub_i32 s10, s10, 1\ns_cmp_lg_u32 s10, 0\ns_cbranch_scc1 .loop\nv_mov_b32_e32 v1, s10"
    made = run(text, target, schedule=order, warps=8, groups=3, most=40)
    assert (made.w.v[1] == 0).all()
    refused(text, target, "come to branches backwards 39 times", schedule=order, warps=8, groups=3, most=39)
