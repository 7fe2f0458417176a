"""`bench kernel quant_linear` on a GPU that is none: which arm runs what, on which copies, held to which definition, and what the bundle says.

As in test_bench_cuda torch.cuda is a stand-in; kernels are products of the oracle's numbers.
"""

import pytest
import torch
from support import gpu
from support.bundles import written
from support.gpu_bundles import NAME, ROW
from test_bench_cuda import compiled

from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
from lanewise.bench.problem import Call
from lanewise.bench.quant_right import QuantReference
from lanewise.bench.sweep import name_of, quantized_calls, sweep
from lanewise.contract import Problem
from lanewise.errors import DeviceError, EvidenceError, FormatError, LanewiseError
from lanewise.evidence import open_bundle, verify
from lanewise.formats import FORMATS
from lanewise.kernels.gpu import quant
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_pack import pack
from lanewise.kernels.gpu.quant_table import QuantChoice

CALL = Call("quant_linear", 2, 24, 512, "Q4_K", "bf16")
SIZE = 24 * FORMATS["Q4_K"].row_bytes(512)
CODE = [compiled("_quantize", "mov;"), compiled("_tiles", "ret;")]


def plan(call=CALL, arms=("quant", "blas"), **options):
    return KernelPlan(call, arms, "cuda", **{"pairs": 15, "seed": 3, **options})


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    gpu.install(monkeypatch, CODE)


def prefilled(monkeypatch):
    """A table that gives every problem to BLAS."""
    monkeypatch.setattr(quant, "choose_quant", lambda *problem: QuantChoice(QuantConfig("blas"), "some table"))


def test_a_run_is_a_whole_manifest_of_the_format_and_the_type(tmp_path):
    made = plan()
    found = bench_kernel(made, command_of(made))
    assert found["question"] == "Is quant or blas faster at quant_linear m=2 n=24 k=512 Q4_K bf16 on cuda, cold?"
    assert " ".join(found["command"]).startswith("lanewise bench kernel quant_linear --m 2 --n 24 --k 512 --format Q4_K --dtype bf16 --ab quant,blas")
    assert (found["problem"]["format"], found["problem"]["dtype"], found["problem"]["bytes"]) == ("Q4_K", "bf16", SIZE + 2 * 2 * (24 + 512))
    assert (found["figures"]["a"]["of_int8"], found["figures"]["a"]["of_float"]) == (None, None)
    found["commit"] = {"id": "0" * 40, "dirty": False}
    refused = {reason.where for reason in verify(open_bundle(written(tmp_path, found)))}
    # the stand-in's probes are small, and its kernels are those of another op
    assert refused == {"rounds[0].probes.read.bytes", "rounds[0].probes.float.macs", "arms.a.spec.compiled"}


def test_each_arm_runs_the_kernel_that_it_is_called_after():
    ran = {}
    for arms in (("quant", "blas"), ("quantized", "expand")):
        for arm in bench_kernel(plan(arms=arms))["arms"].values():
            ran[arm["label"]] = (arm["witness"]["kernel"], arm["witness"]["body"], arm["spec"]["switch"], "compiled" in arm["spec"])
    assert ran == {
        "quant": ("quant_gemv", "gpu", "1", True), "quantized": ("quant_gemv", "gpu", "1", True), "blas": ("blas", "blas", "0", False),
        "expand": ("quant_blas", "blas", "0", False),
    }  # fmt: skip


def test_what_rotates_are_the_files_bytes_and_the_other_arm_has_as_many_copies():
    found = bench_kernel(plan())
    rotated = found["plan"]["buffers_bytes"]
    assert (found["plan"]["residency"], rotated % SIZE, rotated >= 4 * gpu.CACHE) == ("cold", 0, True)
    assert all(arm["spec"]["calls"] % (rotated // SIZE) == 0 for arm in found["arms"].values())


def test_weights_that_are_expanded_at_every_call_are_captured_once_each():
    found = bench_kernel(plan(arms=("quant", "expand")))
    copies = found["plan"]["buffers_bytes"] // SIZE
    assert found["arms"]["b"]["spec"]["calls"] == copies < found["arms"]["a"]["spec"]["calls"]


def test_where_the_table_says_blas_the_arm_runs_the_dequantizing_kernel_and_there_is_none_to_run_alone(monkeypatch):
    prefilled(monkeypatch)
    found = bench_kernel(plan())
    assert found["arms"]["a"]["witness"]["kernel"] == "quant_gemm"
    with pytest.raises(EvidenceError, match="runs quant_gemm, which takes x as it is"):
        bench_kernel(plan(arms=("quantized", "blas")))


@pytest.mark.parametrize("large", [False, True])
def test_a_wrong_result_of_either_definition_is_not_measured(monkeypatch, large):
    if large:
        prefilled(monkeypatch)
    plain = gpu.Graph.replay

    def off(self):
        plain(self)
        for y, _, _ in self.last[-1:]:
            y[0, 0] += 2

    monkeypatch.setattr(gpu.Graph, "replay", off)
    with pytest.raises(EvidenceError, match="arm quant gives a wrong result"):
        bench_kernel(plan())


def test_a_result_that_is_another_at_the_end_counts_for_nothing(monkeypatch):
    plain, replays = gpu.Graph.replay, []

    def drifting(self):
        plain(self)
        replays.append(1)
        for y, _, _ in self.last[-1:] if len(replays) > 20 else ():
            y[0, 0] += 1

    monkeypatch.setattr(gpu.Graph, "replay", drifting)
    with pytest.raises(EvidenceError, match="arm quant gave another result at the end than at the start"):
        bench_kernel(plan())


@pytest.mark.parametrize("fmt", list(LAYOUTS))
def test_both_definitions_tell_right_from_a_group_that_is_off(fmt):
    call = Call("quant_linear", 3, 16, 768, fmt, "bf16")
    given = call.inputs(1)
    x = torch.from_numpy(given["x"].view("int16").copy()).view(torch.bfloat16)
    w = pack(torch.from_numpy(given["w"]), fmt)
    reference = QuantReference(x, given["w"], fmt, "bf16")
    kernel = gpu._product("quant_gemv", *gpu._definition("quant_gemv", x, w))
    assert reference.integer(kernel, w.layout.activation) <= 1
    assert reference.integer(kernel[:1], w.layout.activation) <= 1
    assert reference.integer(kernel * 1.02, w.layout.activation) > 1
    wide = expand(w, torch.bfloat16)
    library = (x.double() @ wide.double().T).to(torch.bfloat16)
    assert reference.expanded(library, wide) <= 1
    wrong = wide.clone()
    wrong[5, 256:288] *= 1.1
    assert reference.expanded((x.double() @ wrong.double().T).to(torch.bfloat16), wrong) > 1
    rounded, exact = gpu._definition("quant_gemv", x, w)
    exact[5, 256:288] *= 1.5
    assert reference.integer((rounded @ exact.T).to(torch.bfloat16), w.layout.activation) > 1
    assert reference.integer(kernel * float("nan"), w.layout.activation) == float("inf")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: plan(arms=("quant", "quant")), EvidenceError, "are the same arm"),
        (lambda: plan(arms=("quant", "skinny")), EvidenceError, "arms of quant_linear on cuda are quant, blas, quantized, expand"),
        (lambda: plan(Call("quant_linear", 1, 8, 256, "Q4_K")), LanewiseError, "in f16 or bf16"),
        (lambda: plan(Call("quant_linear", 1, 8, 250, "Q4_K", "bf16")), FormatError, "Q4_K"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(make, error, words):
    with pytest.raises(error) as refused:
        bench_kernel(make())
    assert words in str(refused.value)


def test_too_little_memory_is_said_in_the_bytes_of_the_packed_weights(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1000, 1000))
    nbytes = 2 * 2 * LAYOUTS["Q4_K"].record * 4
    with pytest.raises(DeviceError, match=f"1 copy of 24x512 weights need {nbytes} bytes, and the GPU has 1000 left"):
        bench_kernel(plan(copies=1))


def test_inputs_are_the_same_for_every_m_and_another_type_has_other_ones():
    one, other, wide = (Call("quant_linear", m, 8, 256, "Q6_K", dtype).inputs(5) for m, dtype in ((1, "bf16"), (3, "bf16"), (1, "f32")))
    assert (one["w"] == other["w"]).all()
    assert (one["x"][0] == other["x"][0]).all()
    assert (one["x"].dtype, wide["x"].dtype) == ("uint16", "float32")


def test_the_list_of_speeds_has_every_format_and_each_shape_with_its_own_m():
    calls = quantized_calls()
    assert {call.fmt for call in calls if (call.m, call.n, call.k) == (1, 4096, 14336)} == set(LAYOUTS)
    assert {(c.fmt, c.m) for c in calls if (c.n, c.k) == (12288, 4096)} == {("Q4_K", m) for m in (1, 32, 512, 2048)}
    assert {(c.fmt, c.m, c.n) for c in calls if c.n > 20000} == {("Q6_K", 1, 151936), ("Q4_K", 1, 24576)}
    assert {c.m for c in calls if c.fmt == "IQ4_NL"} == {1, 4, 8}
    assert len({name_of(call) for call in calls}) == len(calls) == 45
    assert [str(c) for c in quantized_calls(("q8_0",), ((16, 32),), (7,), "fp16")] == ["quant_linear m=7 n=16 k=32 Q8_0 f16"]


def test_a_sweep_writes_a_bundle_of_each_call(tmp_path):
    runs = dict(sweep(tmp_path, quantized_calls(("Q4_K", "Q8_0"), ((16, 256),), (1, 2))))
    assert sorted(path.name for path in runs) == [f"quant-{fmt}-bf16-m{m}-16x256" for fmt in ("q4_k", "q8_0") for m in (1, 2)]
    assert {found["arms"]["b"]["label"] for found in runs.values()} == {"blas"}


def test_the_kernel_is_named_by_the_same_table_that_dispatch_asks(monkeypatch):
    problem = Problem("quant_linear", ROW, 1, 64, 512, "bf16", "Q4_K", card=NAME)
    assert str(quant._choice(problem).config) in quant._note(problem)
