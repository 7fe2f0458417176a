"""`bench kernel` on a GPU, as far as a machine without one can tell: what is captured, in which order it is timed, and what the bundle says.

torch.cuda is a stand-in here (`support.gpu`), the kernels are torch's own products; that a real graph replays what was captured is shown by
the bundles of a real card in bench/records.
"""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import gpu
from support.bundles import written
from support.gpu_bundles import DRIVER, NAME

from lanewise import settings
from lanewise.bench import cuda, gpu_around, stats
from lanewise.bench import manifest as manifests
from lanewise.bench.gpu_code import GpuArm
from lanewise.bench.kernel import KernelPlan, bench_kernel, command_of
from lanewise.bench.problem import Call, amounts
from lanewise.bench.right import worst
from lanewise.errors import DeviceError, EvidenceError, LanewiseError, NoKernelError
from lanewise.evidence import open_bundle, verify

CALL = Call("linear", 2, 64, 256, dtype="bf16")


def compiled(name="_lanes", code="ret;"):
    """What Triton gives back, as far as a bundle describes it."""
    function = SimpleNamespace(__module__="lanewise.kernels.gpu.skinny", __name__=name)
    source = SimpleNamespace(fn=function, signature={"x": "*bf16", "N": "constexpr"}, constants={(1,): 64}, attrs={(0,): [["tt.divisibility", 16]]})
    return SimpleNamespace(src=source, metadata=SimpleNamespace(num_warps=4, launch_pdl=True), asm={"ptx": f".target x\n\t{code}\n"})


def plan(call=CALL, arms=("skinny", "blas"), **options):
    return KernelPlan(call, arms, "cuda", **{"pairs": 15, "seed": 3, **options})


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    gpu.install(monkeypatch, [compiled()])


def test_a_run_is_a_whole_manifest_that_holds(tmp_path, monkeypatch):
    made = plan()
    found = bench_kernel(made, command_of(made))
    assert manifests.complaints(json.loads(manifests.text_of(found))) == []
    assert stats.figures(found) == found["figures"]
    assert found["question"] == "Is skinny or blas faster at linear m=2 n=64 k=256 bf16 on cuda, cold?"
    card = found["machine"]["gpu"]
    assert (card["name"], card["row"], card["driver"], card["capability"]) == (NAME, "sm_90", DRIVER, [9, 0])
    assert (found["plan"]["residency"], found["plan"]["buffers_bytes"] >= 4 * gpu.CACHE) == ("cold", True)
    found["commit"] = {"id": "0" * 40, "dirty": False}
    refused = {reason.where for reason in verify(open_bundle(written(tmp_path, found)))}
    # the stand-in's probes are small, and its kernel multiplies nothing
    assert refused == {"rounds[0].probes.read.bytes", "rounds[0].probes.float.macs", "arms.a.spec.compiled"}


def test_arms_ran_what_they_are_called_and_blas_is_the_skinny_kernel_switched_off(monkeypatch):
    found = bench_kernel(plan())["arms"]
    assert [found[key]["witness"]["kernel"] for key in "ab"] == ["skinny", "blas"]
    assert [found[key]["spec"]["switch"] for key in "ab"] == ["1", "0"]
    assert settings.SETTINGS["SKINNY"].variable not in os.environ
    assert found["a"]["spec"]["compiled"][0]["function"] == "lanewise.kernels.gpu.skinny:_lanes"
    assert found["a"]["artifact"] == manifests.digest(b".target x\n\tret;\n")


def test_an_arm_that_runs_another_kernel_than_it_is_called_is_refused(monkeypatch):
    monkeypatch.setitem(cuda.ARMS["linear"], "blas", GpuArm("linear", "blas", ("SKINNY",), "1"))
    with pytest.raises(EvidenceError, match="arm blas ran skinny where it was to run blas"):
        bench_kernel(plan())


def test_a_wrong_result_is_not_measured(monkeypatch):
    plain = gpu.Graph.replay

    def off(self):
        plain(self)
        for y, _, _ in self.last[-1:]:
            y[0, 0] += 5

    monkeypatch.setattr(gpu.Graph, "replay", off)
    with pytest.raises(EvidenceError, match="arm skinny gives a wrong result"):
        bench_kernel(plan())


def test_a_graph_that_writes_nothing_is_a_wrong_result(monkeypatch):
    monkeypatch.setattr(gpu.Graph, "replay", lambda self: None)
    with pytest.raises(EvidenceError, match="inf times the error that is allowed"):
        bench_kernel(plan())


def test_calls_are_counted_in_whole_graphs_of_whole_rotations():
    found = bench_kernel(plan())
    copies = found["plan"]["buffers_bytes"] // (64 * 256 * 2)
    for key in "ab":
        calls = found["arms"][key]["spec"]["calls"]
        samples = [s for r in found["rounds"] for s in (*r["samples"], *r["control"]) if s["arm"] == key]
        assert calls % copies == 0
        assert all(s["repeats"] % calls == 0 for s in samples)
        assert found["arms"][key]["witness"]["calls"] >= sum(s["repeats"] + calls for s in samples)


def test_a_sample_is_timed_by_events_behind_a_replay_that_is_not_counted():
    one = gpu.Gpu(0)
    piece = one.capture(lambda i: None, 4)
    gpu.LOG.clear()
    started, seconds = one.seconds(piece, 3)
    assert list(gpu.LOG) == ["replay", "record", "replay", "replay", "replay", "record", "synchronize"]
    assert seconds >= 3 * 20e-6
    assert started > 0


def test_every_sample_is_over_before_the_next_begins():
    samples = [s for r in bench_kernel(plan())["rounds"] for s in (*r["samples"], *r["control"])]
    ends = [s["started"] + 1e9 * s["seconds"] for s in samples]
    assert all(end <= s["started"] for end, s in zip(ends, samples[1:], strict=False))
    assert min(s["seconds"] for s in samples) >= plan().least == 0.002


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ({"processes": [{"pid": 7, "memory": 1}]}, "another process computed on the GPU"),
        ({"throttle": ["idle", "heat"]}, "the GPU was slowed down: heat"),
    ],
)
def test_a_neighbour_on_the_gpu_and_a_gpu_that_is_held_down_leave_rounds_out(monkeypatch, readings, why):
    gpu.install(monkeypatch, [compiled()], readings)
    found = bench_kernel(plan())
    assert {one["left_out"] for one in found["rounds"]} == {why}
    assert found["figures"]["verdict"] == stats.NO_DIFFERENCE


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: plan(arms=("skinny", "skinny")), EvidenceError, "are the same arm"),
        (lambda: plan(arms=("skinny", "cpu")), EvidenceError, "arms of linear on cuda are skinny, blas"),
        (lambda: plan(threads=2), EvidenceError, "on a GPU there are none to choose"),
        (lambda: plan(Call("linear", 1, 8, 8)), LanewiseError, "measured there is linear, quant_linear, grouped_linear in f16 or bf16"),
        (lambda: plan(Call("linear", 17, 8, 8, dtype="f16")), NoKernelError, "m=17"),
        (
            lambda: plan(Call("quant_linear", 1, 8, 256, "Q4_K")),
            LanewiseError,
            "measured there is linear, quant_linear, grouped_linear in f16 or bf16",
        ),
    ],
)
def test_what_a_gpu_cannot_measure_is_refused_in_words(make, error, words):
    with pytest.raises(error) as refused:
        bench_kernel(make())
    assert words in str(refused.value)


def test_too_little_memory_on_the_gpu_is_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1000, 1000))
    with pytest.raises(DeviceError, match="1 copy of 64x256 weights need 32768 bytes, and the GPU has 1000 left"):
        bench_kernel(plan(copies=1))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_inputs_are_rounded_to_nearest_even_centred_and_the_same_for_every_m(dtype):
    one, other = (Call("linear", m, 64, 100, dtype=dtype).inputs(5) for m in (1, 3))
    assert np.array_equal(one["w"], other["w"])
    bits = torch.from_numpy(one["w"].view(np.int16).copy()).view(torch.bfloat16 if dtype == "bf16" else torch.float16)
    drawn = np.random.default_rng((5, 1)).standard_normal((64, 100), np.float32)
    assert torch.equal(bits, torch.from_numpy(drawn).to(bits.dtype))  # torch rounds to nearest even
    assert abs(drawn.mean()) < 5 / drawn.size**0.5


def test_amounts_of_16_bits_are_half_those_of_32():
    wide, narrow = (amounts({"op": "linear", "m": 2, "n": 3, "k": 5, "dtype": dtype}) for dtype in ("f32", "bf16"))
    assert (wide[0], wide[1]) == (2 * narrow[0], narrow[1])


def test_an_error_beyond_the_bound_of_dtype_and_k_is_wrong():
    x, w = torch.randn(2, 300, dtype=torch.bfloat16), torch.randn(40, 300, dtype=torch.bfloat16)
    right = (x.double() @ w.double().T).to(torch.bfloat16)
    assert worst(right, x, w, "bf16") <= 1
    assert worst(right * 1.02, x, w, "bf16") > 1
    right[1, 3] = float("nan")
    assert worst(right, x, w, "bf16") == np.inf


def test_the_driver_is_asked_and_what_it_does_not_say_is_null(monkeypatch):
    def refuse(*args):
        raise RuntimeError("Not Supported")

    process = SimpleNamespace(pid=4321, usedGpuMemory=(1 << 64) - 1)
    asked = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlSystemGetDriverVersion=lambda: b"580.1",
        nvmlDeviceGetPowerUsage=lambda handle: 123456, nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x1 | 0x4 | 0x40,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [process, SimpleNamespace(pid=os.getpid(), usedGpuMemory=5)],
        nvmlDeviceGetClockInfo=lambda handle, which: 1000 + which, nvmlDeviceGetTemperature=refuse,
    )  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "pynvml", asked)
    one = gpu_around.watch(gpu.properties())
    assert one.driver == "580.1"
    assert one.read() == {
        "clock_mhz": 1001, "memory_clock_mhz": 1002, "temperature": None, "power": 123.456, "throttle": ["idle", "power cap", "hardware heat"],
        "processes": [{"pid": 4321, "memory": None}],
    }  # fmt: skip


def test_where_the_driver_counts_processes_otherwise_one_of_them_is_this_one():
    assert gpu_around._others([(10**9, 5)]) == []
    assert gpu_around._others([(10**9, 5), (10**9 + 1, None)]) == [{"pid": 10**9 + 1, "memory": None}]
    assert gpu_around._others([(os.getpid(), 5), (10**9, 6)]) == [{"pid": 10**9, "memory": 6}]


def test_without_a_library_for_the_driver_every_reading_is_null(monkeypatch):
    for name in ("pynvml", "amdsmi"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    one = gpu_around.watch(gpu.properties())
    assert (one.driver, set(one.read().values())) == (None, {None})
