"""LANEWISE_WITNESS and a process that only calls ops: a line when it ends, and not a moment of a call where nobody asked."""

import json
import subprocess
import sys

import pytest
import torch

from lanewise import dispatch, ops, witness
from lanewise.bench.process import CHOOSING, common, tokens_of
from lanewise.settings import SETTINGS

USES = """
import torch, lanewise
from lanewise import ops
x, w = torch.ones(1, 4), torch.ones(2, 4)
for _ in range(3):
    ops.linear(x, w)
"""
PATCHES = """
import torch, lanewise
model = torch.nn.Sequential(torch.nn.Linear(4, 2))
lanewise.patch(model)
model(torch.ones(1, 4))
"""
PACKED = """
import torch
from lanewise import ops
from lanewise.kernels.gpu.quant_pack import pack
raw = torch.tensor([[0, 56] + [2] * 32], dtype=torch.uint8)
ops.quant_linear(torch.ones(1, 32), pack(raw, "Q8_0"))
"""


def said(tmp_path, program, monkeypatch):
    """What a process of that program adds to the file."""
    path = tmp_path / "witness"
    monkeypatch.setenv("LANEWISE_WITNESS", str(path))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    return done, path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("program", "kernels"), [(USES, {"blas": 3}), (PATCHES, {"blas": 1}), (PACKED, {"quant_blas": 1})], ids=["linear", "patch", "quant_linear"]
)
def test_a_process_of_ops_says_at_its_end_which_kernels_ran_how_often_of_which_package_and_where(tmp_path, monkeypatch, program, kernels):
    done, text = said(tmp_path, program, monkeypatch)
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, text.splitlines())
    assert line["kernels"] == kernels
    assert (line["package"], line["device"], line["prompt"], line["tokens"]) == (witness.package_digest(witness.sources()), "cpu", None, None)
    (process,) = common("a", text)
    assert (process["kernels"], process["phases"]) == (sorted(line["kernels"]), [])
    assert tokens_of(text) is None


def test_a_process_that_calls_no_op_says_nothing(tmp_path, monkeypatch):
    assert said(tmp_path, "import lanewise.ops", monkeypatch)[1] == ""


def test_a_file_that_cannot_be_written_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("LANEWISE_WITNESS", str(tmp_path / "gone" / "witness"))
    done = subprocess.run([sys.executable, "-c", USES], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "which cannot be written: No such file or directory" in done.stderr


def test_nobody_looks_on_where_the_variable_is_not_set(monkeypatch):
    monkeypatch.delenv("LANEWISE_WITNESS", raising=False)
    before = list(dispatch._WITNESSES)
    witness.until_exit()
    assert before == dispatch._WITNESSES
    with dispatch.witness() as ran:
        ops.linear(torch.ones(1, 4), torch.ones(2, 4))
    assert dict(ran) == {"blas": 1}


def test_the_device_is_called_as_its_driver_calls_it_and_named_only_where_memory_was(monkeypatch):
    names, memory = ("NVIDIA H200", "NVIDIA L4", "NVIDIA H200"), (5, 0, 6)
    for name, value in {
        "is_initialized": lambda: True, "device_count": lambda: 3, "max_memory_allocated": memory.__getitem__, "get_device_name": names.__getitem__
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    assert witness._devices() == "NVIDIA H200"
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 0)
    assert witness._devices() == "cpu"


def test_every_switch_of_a_kernel_is_one_that_chooses():
    switches = {kernel.switch for kernel in dispatch.kernels() if kernel.switch}
    assert switches <= set(CHOOSING) <= set(SETTINGS)
