"""`bench kernel grouped_linear` on a GPU that is none: which arm runs what, which experts at which call, and what counts as their bytes."""

import numpy as np
import pytest
import torch
from support import gpu
from support.bundles import written
from test_bench_cuda import compiled

from lanewise.bench import gpu_operands
from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
from lanewise.bench.problem import Call, amounts
from lanewise.bench.replay import Gpu
from lanewise.bench.right import worst
from lanewise.bench.routing import active, routings
from lanewise.bench.sweep import grouped_calls, name_of, quantized_calls, sweep
from lanewise.errors import EvidenceError, LanewiseError, ShapeError
from lanewise.evidence import open_bundle, verify
from lanewise.formats import FORMATS
from lanewise.kernels.gpu.quant_expand import expand

CALL = Call("grouped_linear", 2, 24, 512, "Q4_K", "bf16", experts=12, top=3)
EXPERT = 24 * FORMATS["Q4_K"].row_bytes(512)
ACTIVE = active(2, 12, 3)
CODE = [compiled("_quantize", "mov;"), compiled("_grouped", "ret;")]


def plan(call=CALL, arms=("grouped", "blas"), **options):
    return KernelPlan(call, arms, "cuda", **{"pairs": 15, "seed": 3, **options})


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    gpu.install(monkeypatch, CODE)


@pytest.mark.parametrize(("m", "experts", "top"), [(1, 128, 8), (1, 144, 6), (4, 128, 8), (16, 128, 8), (512, 128, 8), (2, 12, 3), (3, 1, 1)])
def test_calls_of_a_copy_have_no_expert_in_common_and_each_is_one_that_could_be_drawn(m, experts, top):
    several = active(m, experts, top)
    ids = routings(m, experts, top, seed=5)
    assert ids.shape == (experts // several, m, top)
    assert top <= several <= min(experts, m * top)
    assert len(np.unique(ids)) == len(ids) * several
    assert all(len(np.unique(one)) == several for one in ids)
    assert all(len(set(token)) == top for one in ids for token in one.tolist())
    assert (ids >= 0).all()
    assert (ids < experts).all()
    assert (ids == routings(m, experts, top, seed=5)).all()
    assert experts == 1 or (ids != routings(m, experts, top, seed=6)).any()


def test_tokens_share_experts_as_often_as_random_ones_do():
    # of 16 tokens with 8 of 128 each an expert is left out with (1 - 8 / 128)^16, and the mean of many such draws is known
    expected = 128 * (1 - (1 - 8 / 128) ** 16)
    assert abs(active(16, 128, 8) - expected) < 4 * 128**0.5 / 2


def test_bytes_are_those_of_the_experts_with_rows():
    call = Call("grouped_linear", 1, 768, 2048, "Q4_K", "bf16", experts=128, top=8)
    facts = call.facts()
    assert (facts["experts"], facts["top"], facts["active"], facts["phase"]) == (128, 8, 8, "decode")
    assert call.read_bytes == 8 * 768 * 2048 * 144 // 256
    assert facts["bytes"] == call.read_bytes + 2 * (2048 + 8 * 768) + 4 * 8
    assert facts["operations"] == 2 * 8 * 768 * 2048
    assert amounts(facts) == (facts["bytes"], facts["operations"])
    assert call.idle_bytes == 15 * call.read_bytes


def test_a_run_is_a_whole_manifest_of_the_experts(tmp_path):
    made = plan()
    found = bench_kernel(made, command_of(made))
    assert found["question"] == "Is grouped or blas faster at grouped_linear m=2 n=24 k=512 experts=12 top=3 Q4_K bf16 on cuda, cold?"
    assert "--format Q4_K --dtype bf16 --ab grouped,blas --device cuda --pairs 15 --experts 12 --top 3 --seed 3" in " ".join(found["command"])
    rotated = found["plan"]["buffers_bytes"]
    assert (rotated % (ACTIVE * EXPERT), rotated >= 4 * gpu.CACHE, found["plan"]["residency"]) == (0, True, "cold")
    assert all(arm["spec"]["calls"] % (rotated // (ACTIVE * EXPERT)) == 0 for arm in found["arms"].values())
    ran = {arm["label"]: (arm["witness"]["kernel"], arm["witness"]["body"], "compiled" in arm["spec"]) for arm in found["arms"].values()}
    assert ran == {"grouped": ("grouped_quant", "gpu", True), "blas": ("blas", "blas", False)}
    found["commit"] = {"id": "0" * 40, "dirty": False}
    refused = {reason.where for reason in verify(open_bundle(written(tmp_path, found)))}
    # the stand-in's probes are small, and its kernels are those of another op
    assert refused == {"rounds[0].probes.read.bytes", "rounds[0].probes.float.macs", "arms.a.spec.compiled"}


def operands(copies, call=CALL):
    given = call.inputs(3)
    return given, gpu_operands.operands(gpu.Gpu(0), gpu.ROW, gpu.NAME, call, given, copies)


def test_a_rotation_reads_no_expert_of_a_copy_twice_and_then_begins_again(monkeypatch):
    read = []
    call = Call("grouped_linear", 1, 24, 512, "Q4_K", "bf16", experts=12, top=3)
    monkeypatch.setattr(
        gpu_operands.ops, "grouped_linear", lambda x, w, ids, **named: read.append((w.tiles.data_ptr(), tuple(ids.flatten().tolist()), named))
    )
    _, made = operands(6, call)
    for label in ("grouped", "late"):
        ready = made.ready(label)
        for i in range(12):
            ready.run(i)
        calls = [(copy, ids) for copy, ids, _ in read]
        assert calls[:6] == calls[6:]
        assert len({(copy, e) for copy, ids in calls for e in ids}) == 6 * 3
        assert {copy for copy, _ in calls} == {w.tiles.data_ptr() for w in made._packed}
        assert all(named == {"constant_w": True, "ids_ready": label == "grouped", "check": False} for _, _, named in read)
        read.clear()


@pytest.mark.parametrize("m", [1, 2, 40])
def test_both_arms_give_each_pair_the_product_of_its_expert(m):
    call = Call("grouped_linear", m, 24, 512, "Q4_K", "bf16", experts=12, top=3)
    given, made = operands(2, call)
    wide = expand(made._packed[0], torch.bfloat16)
    for i in range(2):
        ids = given["ids"][i % len(given["ids"])]
        y = made.ready("blas").run(i)
        assert y.shape == (m, 3, 24)
        assert max(worst(y[t, s : s + 1], made._x[t : t + 1], wide[ids[t, s]], "bf16") for t in range(m) for s in range(3)) <= 1
    y = made.ready("grouped").run(1)
    assert made.share(y, "grouped_quant") <= 1
    wrong = y.clone()
    wrong[-1, -1] = y[0, 0]
    assert made.share(wrong, "grouped_quant") > 1


def test_a_wrong_result_is_not_measured(monkeypatch):
    plain = gpu.Graph.replay

    def off(self):
        plain(self)
        for y, _, _ in self.last[-1:]:
            y[0, 0] += 2

    monkeypatch.setattr(gpu.Graph, "replay", off)
    with pytest.raises(EvidenceError, match="arm grouped gives a wrong result"):
        bench_kernel(plan())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: plan(arms=("grouped", "quant")), EvidenceError, "arms of grouped_linear on cuda are grouped, blas, late"),
        (lambda: Call("grouped_linear", 1, 8, 256, "Q4_K", "bf16"), ShapeError, "experts=0, top=0; grouped_linear has 1 to all of them"),
        (lambda: Call("grouped_linear", 1, 8, 256, "Q4_K", "bf16", experts=4, top=5), ShapeError, "experts=4, top=5"),
        (lambda: Call("quant_linear", 1, 8, 256, "Q4_K", "bf16", experts=4, top=2), ShapeError, "no other op has any"),
        (lambda: Call("grouped_linear", 1, 8, 256, None, "bf16", experts=4, top=2), LanewiseError, "have a format"),
        (lambda: KernelPlan(CALL, ("cpu", "reference"), "cpu", 15), EvidenceError, "experts are measured on GPUs"),
        (lambda: plan(Call("grouped_linear", 1, 8, 256, "Q4_K", experts=4, top=2)), LanewiseError, "in f16 or bf16"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(make, error, words):
    with pytest.raises(error) as refused:
        bench_kernel(make())
    assert words in str(refused.value)


def test_a_sweep_has_experts_where_they_are_asked_for_and_among_all_formats(tmp_path):
    calls = grouped_calls(("Q4_K",), ((16, 256),), (1,), experts=6, top=2)
    assert [str(call) for call in calls] == ["grouped_linear m=1 n=16 k=256 experts=6 top=2 Q4_K bf16"]
    assert name_of(calls[0]) == "grouped-q4_k-bf16-m1-16x256-2of6"
    runs = dict(sweep(tmp_path, calls))
    assert [(path.name, found["arms"]["b"]["label"]) for path, found in runs.items()] == [(name_of(calls[0]), "blas")]
    assert {(c.m, c.n, c.k, c.experts, c.top) for c in quantized_calls() if c.experts} == {(m, 768, 2048, 128, 8) for m in (1, 4, 16)}
    assert not [c for c in quantized_calls(("Q8_0",)) if c.experts]
    assert isinstance(gpu.Gpu(0), Gpu)
