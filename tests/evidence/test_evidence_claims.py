"""Single claims of a manifest against each other: sizes, machine, plan, times. Whole bundles are in test_evidence_ways.py."""

import copy

import pytest
from support.bundles import CALL, good

from lanewise.bench.arms import ROTATING
from lanewise.bench.problem import Call
from lanewise.evidence.claims import check_claims, operand_bytes
from lanewise.evidence.samples import check_samples


def found(change):
    manifest = copy.deepcopy(good())
    change(manifest)
    return {(reason.code, reason.where) for reason in (*check_claims(manifest), *check_samples(manifest))}


@pytest.mark.parametrize("call", [CALL, Call("linear", 3, 48, 64), Call("attention", 2, 40, 64, heads=4, kv_heads=2)], ids=str)
def test_what_rotates_is_as_large_as_what_is_drawn(call):
    drawn = sum(array.nbytes for name, array in call.inputs(0).items() if name in ROTATING)
    assert operand_bytes(call.facts()) == drawn


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m["commit"].update(id="HEAD"), ("commit", "commit.id")),
        (lambda m: m["plan"].update(min_seconds=1e-4), ("plan", "plan.min_seconds")),
        (lambda m: m["plan"]["rule"].update(busy=None), ("plan", "plan.rule.busy")),
        (lambda m: m["plan"]["rule"].update(throttled=False), ("plan", "plan.rule.throttled")),
        (lambda m: m["plan"].update(threads=3), ("machine", "plan.threads")),
        (lambda m: m["plan"].update(buffers_bytes=1 << 40), ("residency", "plan.buffers_bytes")),
        (lambda m: m["machine"].update(row="z80"), ("machine", "machine.row")),
        (lambda m: m["machine"].update(row="x86-64-v4"), ("machine", "machine.row")),
        (lambda m: m["machine"].update(usable_cores=0), ("machine", "machine.usable_cores")),
        (lambda m: m["machine"].update(last_level_cache="large"), ("machine", "machine.last_level_cache")),
        (lambda m: m["machine"].update(memory=1), ("machine", "rounds[0].before.memory_available")),
        (lambda m: m["problem"].update(format="F16"), ("probe", "rounds[0].probes")),
        (lambda m: m["problem"].update(op="fly"), ("problem", "problem")),
        (lambda m: m["problem"].update(k=100), ("problem", "problem")),
        (lambda m: m["inputs"].update(seed=1), ("inputs", "inputs.seed")),
        (lambda m: m["inputs"]["sha256"].pop("w"), ("inputs", "inputs.sha256")),
        (lambda m: m["arms"]["b"].update(label=m["arms"]["a"]["label"]), ("arms-equal", "arms.b.label")),
        (lambda m: m["arms"]["b"].update(spec=m["arms"]["a"]["spec"]), ("arms-equal", "arms.b.spec")),
        (lambda m: m["arms"]["a"]["spec"].update(device="cuda:0"), ("witness", "arms.a.spec.device")),
        (lambda m: m["arms"]["a"]["spec"].update(kernels=[]), ("witness", "arms.a.spec.kernels")),
        (lambda m: m.update(began="yesterday"), ("chronology", "began")),
        (lambda m: m.update(began="2026-11-30T12:00:00"), ("chronology", "began")),
        (lambda m: m["rounds"][1]["before"].update(load=[-1, 0, 0]), ("chronology", "rounds[1].before.load")),
        (lambda m: m["rounds"][1]["before"].update(time=1.0), ("chronology", "rounds[1].before.time")),
        (lambda m: m["rounds"][1]["after"]["ticks"].update(user=10**7), ("chronology", "rounds[1].after.ticks")),
        (lambda m: m["rounds"][1]["after"].update(peak_memory=1), ("chronology", "rounds[1].after.peak_memory")),
        (lambda m: m["rounds"][1]["probes"]["read"]["seconds"].pop(), ("sample-missing", "rounds[1].probes.read.seconds")),
        (lambda m: m["rounds"][1]["probes"]["int8"].update(macs=1), ("probe", "rounds[1].probes.int8.macs")),
    ],
)  # fmt: skip
def test_each_claim_is_held_against_the_others(change, reason):
    assert reason in found(change)


def test_a_good_manifest_has_nothing_against_it():
    assert found(lambda m: None) == set()
