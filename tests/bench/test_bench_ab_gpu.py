"""`ab --device cuda`: the GPU's lock, and its readings around every round, with torch.cuda a stand-in (`support.gpu`)."""

import json
import os
import time
from types import SimpleNamespace

import pytest
import torch
from support import gpu
from support.bundles import written
from support.gpu_bundles import DRIVER, NAME
from support.runs import QUIET

from lanewise.bench import gpu_around, gpu_beside, gpu_card, stats
from lanewise.bench import manifest as manifests
from lanewise.bench.ab import Command, CommandPlan, bench_commands
from lanewise.bench.around import GPU_RULE
from lanewise.bench.lock import held
from lanewise.errors import DeviceError, EvidenceError
from lanewise.evidence import open_bundle, verify


@pytest.fixture(autouse=True)
def _card(monkeypatch, tmp_path):
    """In a directory of its own, on a busy host, beside a quiet GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lanewise.bench.ab.look", lambda: dict(QUIET))
    monkeypatch.setattr(gpu_beside, "_LET_GO", 0.001)
    gpu.install(monkeypatch, [])


def plan(device="cuda", a="echo value 1", b="echo value 2"):
    return CommandPlan(Command(a), Command(b), r"value (\S+)", 15, seed=1, device=device)


def test_the_gpu_is_in_the_plan_the_machine_and_both_sides_of_every_round():
    found = bench_commands(plan())
    assert manifests.complaints(json.loads(manifests.text_of(found))) == []
    assert (found["plan"]["device"], found["plan"]["rule"]) == ("cuda", GPU_RULE)
    card = found["machine"]["gpu"]
    assert (card["name"], card["row"], card["driver"], card["l2"]) == (NAME, "sm_90", DRIVER, found["machine"]["last_level_cache"])
    assert found["versions"]["torch"] == torch.__version__
    assert {one[side]["gpu"]["clock_mhz"] for one in found["rounds"] for side in ("before", "after")} == {1980}
    assert found["figures"]["verdict"] == "a is better"


def test_the_bundle_of_a_run_beside_a_gpu_holds(tmp_path, monkeypatch):
    moments = iter(range(10**6))
    monkeypatch.setattr("lanewise.bench.ab.look", lambda: {**QUIET, "time": float(next(moments)), "ticks": None, "throttle": None})
    words = ["lanewise", "ab", "--a", "echo value 1", "--b", "echo value 2", "--metric", r"value (\S+)", "--lower-is-better", "--pairs", "15"]
    found = bench_commands(plan(), [*words, "--device", "cuda", "--timeout", "600"])
    found["commit"] = {"id": "0" * 40, "dirty": False}
    # the moments are not those of the samples
    assert {reason.code for reason in verify(open_bundle(written(tmp_path / "run", found)))} <= {"chronology"}


def test_nothing_of_a_gpu_is_in_a_run_beside_the_processor():
    found = bench_commands(plan("cpu"))
    assert found["plan"]["device"] == "cpu"
    assert "gpu" not in found["machine"]
    assert not any("gpu" in one[side] for one in found["rounds"] for side in ("before", "after"))


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ({"processes": [{"pid": 7, "memory": 1}]}, "another process computed on the GPU"),
        ({"throttle": ["idle", "power cap"]}, "the GPU was slowed down: power cap"),
    ],
)
def test_a_neighbour_on_the_gpu_and_a_gpu_that_is_held_down_leave_rounds_of_commands_out(monkeypatch, readings, why):
    gpu.install(monkeypatch, [], readings)
    found = bench_commands(plan())
    assert {one["left_out"] for one in found["rounds"]} == {why}
    assert found["figures"]["verdict"] == stats.NO_DIFFERENCE


def other_holder(device, folder, monkeypatch):
    """As if process 1 of another tree held the lock of a device."""
    monkeypatch.setattr("lanewise.bench.lock.ancestors", lambda pid: set())
    return held(device)


@pytest.mark.parametrize(("taken", "device", "refused"), [("cuda:0", "cuda", True), ("cuda:0", "cuda:00", True), ("cpu", "cuda", False)])
def test_a_run_takes_the_lock_of_its_own_device(tmp_path, monkeypatch, taken, device, refused):
    with other_holder(taken, tmp_path, monkeypatch):
        if refused:
            with pytest.raises(EvidenceError, match="is measuring on device cuda:0"):
                bench_commands(plan(device))
        else:
            assert bench_commands(plan(device))["plan"]["device"] == device
    assert (tmp_path / "locks" / "cuda-0.lock").exists()


@pytest.mark.parametrize(
    ("device", "words"),
    [("tpu", "no device 'tpu' to watch"), ("cuda:", "no device 'cuda:' to watch"), ("reference", "to watch"), ("cuda:1", "PyTorch sees 1 GPU here")],
)
def test_a_device_that_nobody_can_watch_is_refused_in_words(device, words):
    with pytest.raises(DeviceError, match=words):
        bench_commands(plan(device))


def test_what_pytorch_says_of_a_gpu_is_asked_in_a_process_of_its_own_and_refused_in_its_words(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="there is no device cuda:9999: PyTorch sees 0 GPUs here"):
        gpu_beside.asked("cuda:9999")


@pytest.mark.parametrize(
    ("printed", "complained", "words"),
    [
        (
            "",
            "ModuleNotFoundError: No module named 'torch'\n",
            r"takes PyTorch, which knows the GPUs: .*named 'torch'; .*'lanewise\[gpu\]' brings it",
        ),
        ("no json\n", "", "takes PyTorch"),
        ('noise\n{"error": "it is gone"}\n', "", "^it is gone$"),
    ],
)
def test_without_torch_a_gpu_is_refused_in_words(monkeypatch, printed, complained, words):
    monkeypatch.undo()
    monkeypatch.setattr(gpu_beside.subprocess, "run", lambda *given, **named: SimpleNamespace(stdout=printed, stderr=complained))
    with pytest.raises(DeviceError, match=words):
        bench_commands(plan())


def test_the_card_that_a_process_told_of_is_looked_at_where_it_lies():
    told = json.loads(json.dumps(gpu_card.answer("cuda")))
    assert told["place"] == {"uuid": "0-1", "pci_domain_id": 0, "pci_bus_id": 1, "pci_device_id": 0}
    assert (told["index"], told["gpu"]["name"], told["versions"]["torch"]) == (0, NAME, torch.__version__)


def test_what_holds_the_clock_down_while_commands_run_is_in_the_reading_behind_them_and_in_no_other(monkeypatch):
    bits = [["idle"]]
    monkeypatch.setattr(gpu_beside, "_BETWEEN", 0.002)
    seen = SimpleNamespace(driver=None, read=lambda: {"throttle": list(bits[0]), "processes": []})
    monkeypatch.setattr(gpu_beside, "watch", lambda given, computes=True: seen)
    with gpu_beside.Beside("cuda") as beside:
        assert beside.read()["throttle"] == ["idle"]
        bits[0] = ["heat", "sync boost", "power cap"]
        time.sleep(0.1)
        bits[0] = ["idle"]
        time.sleep(0.05)
        assert beside.read()["throttle"] == ["idle", "power cap", "heat"]
        assert beside.read()["throttle"] == ["idle"]
        bits[0] = ["heat"]
        time.sleep(0.05)
        assert beside.read()["throttle"] == ["heat"]
    assert not beside._looking.is_alive()


def test_a_gpu_that_tells_no_reasons_is_not_said_to_have_none(monkeypatch):
    seen = SimpleNamespace(driver=None, read=lambda: {"throttle": None, "processes": None})
    monkeypatch.setattr(gpu_beside, "_BETWEEN", 0.001)
    monkeypatch.setattr(gpu_beside, "watch", lambda given, computes=True: seen)
    with gpu_beside.Beside("cuda") as beside:
        time.sleep(0.02)
        assert beside.read() == {"throttle": None, "processes": None}


def test_a_gpu_that_was_held_down_only_while_a_command_ran_leaves_its_round_out(monkeypatch, tmp_path):
    """The third sample's process says that it runs by a file."""
    busy = tmp_path / "busy"
    quiet = {"clock_mhz": 1980, "memory_clock_mhz": 1, "temperature": 40, "power": 1.0, "processes": []}
    seen = SimpleNamespace(driver=None, read=lambda: {**quiet, "throttle": ["power cap"] if busy.exists() else ["idle"]})
    monkeypatch.setattr(gpu_beside, "_BETWEEN", 0.005)
    monkeypatch.setattr(gpu_beside, "watch", lambda given, computes=True: seen)
    hot = "n=$(cat count || true)x; echo $n > count; if [ $n = xxxx ]; then touch busy; sleep 0.2; rm busy; fi; echo value 1"
    found = bench_commands(plan(a=hot))
    marked = [one["left_out"] for one in found["rounds"] if one["left_out"]]
    assert marked == ["the GPU was slowed down: power cap"]
    assert not busy.exists()


LISTED = [{"pid": 7, "memory": 1}, {"pid": 8, "memory": None}]


@pytest.mark.parametrize(
    ("later", "counted"),
    [
        ([[]], []),
        ([LISTED[1:], []], []),
        ([LISTED[:1]], LISTED[:1]),
        ([[], LISTED], []),
        ([None], []),
        ([LISTED], LISTED),
        ([[LISTED[0], {"pid": 9}]], LISTED[:1]),
    ],
    ids=["gone", "gone in turns", "one stays", "another with its number", "no longer told", "both stay", "a new one"],
)
def test_a_process_that_the_driver_forgets_within_a_moment_has_ended_and_one_that_stays_is_a_neighbour(monkeypatch, later, counted):
    lists = [LISTED, *later]
    monkeypatch.setattr(gpu_beside, "_AGAIN", 0.001)
    monkeypatch.setattr(gpu_beside, "_LET_GO", 0.05)
    seen = lambda: {"processes": lists.pop(0) if len(lists) > 1 else lists[0]}  # noqa: E731
    monkeypatch.setattr(gpu_beside, "watch", lambda given, computes=True: SimpleNamespace(driver=None, read=seen))
    assert gpu_beside.Beside("cuda").read()["processes"] == counted


def test_the_process_that_looks_makes_nothing_on_the_gpu_and_takes_nobody_there_for_itself(monkeypatch):
    for name in ("is_available", "device_count", "get_device_properties", "set_device", "Stream", "stream", "synchronize", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, lambda *given: pytest.fail("asks or computes on the GPU"))
    told = {"index": 0, "place": {"uuid": "0-1"}, "gpu": {"l2": 1}, "versions": {}}
    monkeypatch.setattr(gpu_beside, "asked", lambda device: told)
    asked = []
    monkeypatch.setattr(gpu_beside, "watch", lambda given, computes=True: asked.append(computes) or SimpleNamespace(driver="5", read=dict))
    beside = gpu_beside.Beside("cuda")
    assert (beside.read(), beside.facts()["machine"]["gpu"]) == ({}, {"l2": 1, "driver": "5"})
    assert asked == [False]
    assert gpu_around._others([(10**9, 5)], computes=False) == [{"pid": 10**9, "memory": 5}]
    assert gpu_around._others([(os.getpid(), 5)], computes=False) == []
