"""Dispatch of linear on torch tensors: every guard refuses in words, and each call asks the tensors' own device."""

import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace

import pytest
import torch

from lanewise import arch, dispatch, ops
from lanewise.contract import Problem
from lanewise.kernels.gpu import device, linear
from lanewise.kernels.gpu.config import Config

Chosen = namedtuple("Chosen", "config source")
SM = "sm_90"


def refusal(target="gfx1100", kernel="skinny", **more):
    problem = Problem("linear", arch.of_gpu(target), **{"m": 1, "n": 64, "k": 64, "dtype": "bf16", "torch": True, **more})
    verdicts = dispatch.explain(problem)
    return next(str(v.refusal) if v.refusal else None for v in verdicts if v.kernel.name == kernel)


@pytest.fixture
def on(monkeypatch):
    """Names the device of every tensor from now on; the kernel's body is the chain, as nothing here has that device."""

    def be(name, card=None):
        monkeypatch.setattr(device, "named", lambda given: (name, card))

    row = [replace(k, run=dispatch.kernels("linear")[1].run) if k.name == "skinny" else k for k in dispatch.kernels("linear")]
    monkeypatch.setitem(dispatch._REGISTRY, "linear", row)
    return be


def ran(*args, **more):
    with dispatch.witness() as counter, torch.no_grad():
        ops.linear(*args, **more)
    return dict(counter)


def few(m=1, n=32, k=64, dtype=torch.bfloat16):
    return torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "cpu"}, "skinny refuses (gpu): cpu is no GPU of AMD or NVIDIA; the kernel is written for theirs"),
        ({"target": "gfx906:xnack-"}, "skinny refuses (triton): Triton does not compile for gfx906:xnack-, as far as is known"),
        ({"target": "gfx1300"}, "skinny refuses (triton): Triton does not compile for gfx1300, as far as is known"),
        ({"dtype": "f32"}, "skinny refuses (dtype): x and w are f32; the kernel multiplies bf16 or f16"),
        ({"out": "f16"}, "skinny refuses (out): y is f16; the kernel stores bf16 or f32"),
        ({"x_inner": 2}, "skinny refuses (x_inner): neighbours in a row of x lie 2 elements apart; the kernel needs 1"),
        ({"w_inner": 0}, "skinny refuses (w_inner): neighbours in a row of w lie 0 elements apart; the kernel needs 1"),
        ({"m": 17}, "skinny refuses (rows): m=17; the kernel takes up to 16 rows, which share one pass over w"),
        ({"grad": True}, "skinny refuses (gradient): a gradient is wanted; the kernel has no backward"),
        ({"kernel": "blas", "torch": False}, "blas refuses (torch): operands are numpy arrays; this kernel takes torch tensors"),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_guard_refuses_in_words(change, words):
    assert refusal(**change) == words


@pytest.mark.parametrize(
    "change", [{"m": 0}, {"m": 16}, {"out": "f32"}, {"dtype": "f16"}, {"n": 50257, "k": 1023}, {"fused": ("norm", "gated")}], ids=str
)
def test_what_the_kernel_is_for_it_accepts(change):
    for target in ("gfx1100", "gfx942:sramecc+:xnack-", "gfx1201", SM):
        assert refusal(target, **change) is None


def test_the_table_can_say_that_blas_wins_and_says_why(monkeypatch):
    monkeypatch.setattr(linear, "choose", lambda *asked: Chosen(Config("blas"), f"measured for {asked[1:]}"))
    words = "skinny refuses (table): BLAS is the faster one here (measured for ('bf16', 1, 64, 64, 'a card'))"
    assert refusal(card="a card") == words


def test_an_empty_product_asks_the_table_for_sizes_that_it_can_have(monkeypatch):
    asked = []
    monkeypatch.setattr(linear, "choose", lambda *sizes: asked.append(sizes[2:5]) or Chosen(Config("lanes"), ""))
    refusal(m=0, n=0, k=0)
    assert set(asked) == {(1, 1, 1)}


def test_the_same_tensors_on_another_device_get_that_devices_kernel(on):
    x, w = few()
    for name, kernel in (
        ("gfx1100", "skinny"),
        ("gfx942:sramecc+:xnack-", "skinny"),
        ("gfx1201", "skinny"),
        ("gfx1300:sramecc+", "blas"),
        ("cpu", "blas"),
        ("gfx906", "blas"),
        (SM, "skinny"),
        ("sm_999", "blas"),
        ("xpu", "blas"),
        ("gfx1100", "skinny"),
    ):
        on(name)
        assert ran(x, w) == {kernel: 1}, name


def test_each_call_has_the_choice_of_its_own_device(on, monkeypatch):
    seen = []
    monkeypatch.setattr(linear, "choose", lambda row, dtype, m, n, k, card: seen.append((str(row), card)) or Chosen(Config("lanes"), ""))
    for name, card in (("gfx1100", "one"), ("gfx1201", "two"), (SM, None), ("gfx1100", "one")):
        on(name, card)
        ran(*few())
    assert list(dict.fromkeys(seen)) == [("gfx1100", "one"), ("gfx1201", "two"), (SM, None)]
    assert seen[-1] == ("gfx1100", "one")


def test_a_compiled_graph_chooses_when_it_runs(on):
    x, w = few()
    layer = torch.compile(lambda x: ops.linear(x, w), fullgraph=True, backend="aot_eager")
    for name, kernel in (("gfx1100", "skinny"), ("gfx1300", "blas"), (SM, "skinny")):
        on(name)
        with dispatch.witness() as counter:
            layer(x)
        assert dict(counter) == {kernel: 1}


def test_tensors_that_the_kernel_cannot_take_go_to_blas(on):
    on("gfx1100")
    x, w = few(4)
    assert ran(x, w, norm=torch.ones(64), residual=torch.zeros(4, 32)) == {"skinny": 1}
    assert ran(x, few(64, 32)[0].T) == {"blas": 1}
    assert ran(x[:, ::2], w[:, :32]) == {"blas": 1}
    assert ran(x[:1, :1].expand(4, 64), w) == {"blas": 1}
    assert ran(x[:1].expand(4, 64), w) == {"skinny": 1}
    assert ran(x[:, :1], w[:, :1]) == {"skinny": 1}
    assert ran(*few(17)) == {"blas": 1}
    assert ran(*few(16)) == {"skinny": 1}
    assert ran(*few(dtype=torch.float32)) == {"blas": 1}
    with dispatch.witness() as counter:
        ops.linear(x, w.clone().requires_grad_())
    assert dict(counter) == {"blas": 1}


def test_the_switch_takes_the_kernel_out(on, monkeypatch):
    on("gfx1100")
    x, w = few()
    monkeypatch.setenv("LANEWISE_SKINNY", "0")
    assert ran(x, w) == {"blas": 1}
    assert refusal() == "skinny refuses (switch): LANEWISE_SKINNY has switched it off"
    monkeypatch.setenv("LANEWISE_SKINNY", "1")
    assert ran(x, w) == {"skinny": 1}


def test_numpy_callers_keep_their_kernels():
    assert dispatch.select(Problem("linear", arch.host())).kernel.body in ("cpu", "reference")
    assert dispatch.select(Problem("linear", arch.host(), torch=True)).kernel.name == "blas"
    assert (
        refusal("cpu", "reference_linear", dtype="f32")
        == "reference_linear refuses (numpy): operands are torch tensors; this kernel takes numpy arrays"
    )


@pytest.mark.parametrize("imports", ["lanewise.backends, lanewise.kernels.gpu.linear", "lanewise.kernels.gpu.linear, lanewise.backends"])
def test_the_order_of_kernels_is_not_that_of_imports(imports):
    code = f"import sys, {imports}\nfrom lanewise import dispatch\n"
    code += "print(*(k.name for k in dispatch.kernels('linear')), *{'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["skinny", "blas", "cpu_linear", "reference_linear"]


def test_the_driver_is_asked_for_the_name_of_the_devices_target(monkeypatch):
    found = namedtuple("Properties", "gcnArchName major minor name")("gfx942:sramecc+:xnack-", 9, 0, "a card")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda given: found)
    monkeypatch.setattr(torch.version, "hip", None)
    assert device.named(torch.device("cuda:1")) == (SM, "a card")
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert device.named(torch.device("cuda:1")) == ("gfx942:sramecc+:xnack-", "a card")
    assert device.named(torch.device("cpu")) == ("cpu", None)
    assert device.row("gfx942:sramecc+:xnack-").features == ("sramecc+", "xnack-")


def test_the_kernel_itself_runs_where_dispatch_says_so():
    """Under Triton's interpreter, which has to be asked for before Triton is imported: in a process of its own."""
    code = """
import torch
from lanewise import dispatch, ops
from lanewise.kernels.gpu import device
device.named = lambda given: ("gfx1100", None)
whole = lambda *shape: torch.randint(1, 3, shape).to(torch.bfloat16)
x, w, bias, residual = whole(2, 2, 40), whole(10, 40), whole(2, 2, 10), whole(2, 2, 5)
layer = torch.compile(lambda x: ops.linear(x, w, bias, residual=residual, gated=True, norm=torch.ones(40)), fullgraph=True, backend="aot_eager")
with dispatch.witness() as ran:
    got = ops.linear(x, w[:5], residual=residual), ops.linear(x[0, 0], w), layer(x).shape
want = (x.float() @ w[:5].float().T).bfloat16() + residual, x[0, 0].float() @ w.float().T
print(dict(ran), all(map(torch.equal, got, want)), *got[2])
"""
    more = {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **more})
    assert done.stdout.split("\n")[0] == "{'skinny': 3} True 2 2 5", done.stderr
