"""What a process says that it ran: each field changed in turn, with every hash, figure and seal made again, and refused all the same."""

import pytest
from support.bundles import OPS, PROCESS, good_command, one_process, refigured, sampled, witnessed_again, written
from support.small import SMALL

from lanewise.backends.cpu.program import kernels_of
from lanewise.bench import random_model
from lanewise.bench.manifest import digest
from lanewise.evidence import open_bundle, verify
from lanewise.evidence.cpu_kernels import MOST_HEAD, kernel_named
from lanewise.models import spec_of

CARD = {"name": OPS["device"], "row": OPS["isa"], "capability": [9, 0], "multiprocessors": 132, "memory": 1 << 37, "l2": 50 << 20, "driver": None}
READINGS = dict.fromkeys(("clock_mhz", "memory_clock_mhz", "temperature", "power", "throttle", "processes"))


def reasons(tmp_path, manifest):
    return verify(open_bundle(written(tmp_path / "run", refigured(manifest))))


def codes(tmp_path, manifest):
    return {reason.code for reason in reasons(tmp_path, manifest)}


def on_a_card():
    """A bundle of two commands that called ops on a GPU that was watched."""
    made = good_command()
    made["plan"] |= {"device": "cuda", "rule": {"busy": None, "throttled": True, "clock": None, "alone": True}}
    made["command"][made["command"].index("--device") + 1] = "cuda"
    made["machine"] |= {"gpu": dict(CARD), "last_level_cache": CARD["l2"]}
    made["versions"] |= OPS["compiler"]
    for one in made["rounds"]:
        for side in ("before", "after"):
            one[side]["gpu"] = dict(READINGS)
    for name in "ab":
        one_process(made, name, **OPS | {"code": digest(name.encode())})
        made["arms"][name]["output"] = None
    for sample in sampled(made):
        sample["output"] = None
    return made


FIELDS = [
    ({"lanewise": "0.2.0"}, "versions"),
    ({"package": digest(b"another checkout")}, "source"),
    ({"device": "reference"}, "witness"),
    ({"isa": None}, "witness"),
    ({"isa": "x86-64-v9"}, "machine"),
    ({"isa": "sm_90"}, "machine"),
    ({"threads": None}, "witness"),
    ({"threads": 3}, "machine"),
    ({"code": None}, "witness"),
    ({"prompt": None}, "witness"),
    ({"kernels": []}, "witness"),
    ({"kernels": ["matmul_Q9"]}, "witness"),
    ({"kernels": ["attend_2048"]}, "witness"),
    ({"phases": []}, "witness"),
    ({"compiler": {}}, "witness"),
    ({"compiler": {"llvmlite": "0.50.0", "llvm": "21.1.0"}}, "versions"),
    ({"compiled": OPS["compiled"]}, "witness"),
]
ON_A_CARD = [
    ({"lanewise": "0.2.0"}, "versions"),
    ({"package": digest(b"another checkout")}, "source"),
    ({"device": "NVIDIA L4"}, "witness"),
    ({"device": "cpu"}, "witness"),
    ({"isa": None}, "witness"),
    ({"isa": "sm_89"}, "witness"),
    ({"isa": "x86-64-v3"}, "machine"),
    ({"isa": None, "code": None, "compiler": {}}, "witness"),
    ({"threads": 2}, "witness"),
    ({"code": None}, "witness"),
    ({"prompt": digest(b"a prompt")}, "witness"),
    ({"kernels": ["matmul_Q8_0"], "code": None, "isa": None}, "witness"),
    ({"kernels": ["skinnier"]}, "witness"),
    ({"phases": ["decode"]}, "witness"),
    ({"compiler": {"triton": "3.5.0"}}, "versions"),
    ({"compiler": {}}, "witness"),
]


def named(value):
    return "-".join(f"{key}={str(one)[:24]}" for key, one in value.items()) if isinstance(value, dict) else value


def test_the_bundles_are_good_before_anything_is_changed(tmp_path):
    assert reasons(tmp_path, good_command()) == []
    assert reasons(tmp_path, on_a_card()) == []
    assert {key for fields, _ in FIELDS for key in fields} == {*PROCESS["a"], "compiled"}


@pytest.mark.parametrize(("fields", "code"), FIELDS, ids=named)
def test_each_field_of_a_process_that_ran_a_model_is_held_to_something_else(tmp_path, fields, code):
    manifest = good_command()
    one_process(manifest, "a", **fields)
    assert code in codes(tmp_path, manifest)


@pytest.mark.parametrize(("fields", "code"), ON_A_CARD, ids=named)
def test_each_field_of_a_process_that_ran_ops_on_a_gpu_is_held_to_something_else(tmp_path, fields, code):
    manifest = on_a_card()
    one_process(manifest, "a", **OPS | fields)
    assert code in codes(tmp_path, manifest)


def test_code_of_triton_without_the_kernels_that_it_was_made_of_is_refused(tmp_path):
    manifest = on_a_card()
    for arm in manifest["arms"].values():
        del arm["witness"][0]["compiled"]
    assert "witness" in codes(tmp_path, manifest)


def test_a_kernel_of_triton_that_ran_on_a_gpu_without_a_hash_of_its_code_is_refused(tmp_path):
    for kernels, refused in ((["skinny"], {"witness"}), (["blas"], set())):
        manifest = on_a_card()
        for name in "ab":
            bare = {field: value for field, value in OPS.items() if field not in ("compiler", "compiled")}
            manifest["arms"][name]["witness"] = [{"lanewise": "0.1.0", "package": PROCESS[name]["package"], **bare, "isa": None, "code": None}]
            manifest["arms"][name]["witness"][0]["kernels"] = kernels
        witnessed_again(manifest)
        assert codes(tmp_path, manifest) == refused


@pytest.mark.parametrize(
    ("metric", "phases", "refused"),
    [
        (r"decode ([\d.]+)", ["prefill"], True),
        (r"Prefill ([\d.]+)", ["decode"], True),
        (r"decode ([\d.]+)", ["decode"], False),
        (r"(?:prefill|decode) ([\d.]+)", ["decode"], False),
        (r"decoder ([\d.]+)", ["prefill"], False),
    ],
)
def test_a_rate_of_a_phase_that_no_model_had_is_refused(tmp_path, metric, phases, refused):
    manifest = good_command()
    manifest["command"][manifest["command"].index("--metric") + 1] = metric
    manifest["question"] = manifest["question"].replace(manifest["plan"]["metric"], metric)
    manifest["plan"]["metric"] = metric
    for name in "ab":
        one_process(manifest, name, phases=phases)
    assert codes(tmp_path, manifest) == ({"phase"} if refused else set())


@pytest.mark.parametrize("name", ["", "attend_0", "attend_60", f"attend_{MOST_HEAD + 16}", "rotate_64_33_half", "rotate_64_32_other", "matmul_q8_0"])
def test_no_kernel_is_called_what_none_is_called(name):
    assert kernel_named(name) is None


@pytest.mark.parametrize("fmt", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"])
def test_every_kernel_of_a_model_is_found_again_by_its_name(fmt):
    with random_model(SMALL, "Q8_0") as model:
        kernels = kernels_of(spec_of(model), fmt, {"w": fmt})
    for kernel in kernels:
        assert kernel_named(kernel.name).arguments == kernel.arguments
