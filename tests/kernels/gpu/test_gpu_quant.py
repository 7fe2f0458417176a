"""Dispatch of quant_linear on torch tensors: guards refuse in words, a model asks for its formats by name, and each call asks its own device."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from support.quant import FORMATS, weight

from lanewise import arch, dispatch, ops
from lanewise.contract import Problem
from lanewise.errors import DeviceError
from lanewise.kernels.gpu import device, quant
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_table import QuantChoice

SM, BLOCKS = "sm_90", "k=100 is not a whole number of blocks of 256 weights, as Q4_K has them"
pytestmark = pytest.mark.filterwarnings("ignore:quant_linear expands")


def refusal(target="gfx1100", kernel="quant_gemv", **more):
    given = {"m": 1, "n": 64, "k": 256, "dtype": "bf16", "format": "Q4_K", "torch": True, **more}
    verdicts = dispatch.explain(Problem("quant_linear", arch.of_gpu(target), **given))
    return next(str(v.refusal) if v.refusal else None for v in verdicts if v.kernel.name == kernel)


@pytest.fixture
def on(monkeypatch):
    """Names the device of every tensor from now on; the kernels' bodies are the path that expands, as nothing here has that device."""

    def be(name, card=None):
        monkeypatch.setattr(device, "named", lambda given: (name, card))

    expands = next(k.run for k in dispatch.kernels("quant_linear") if k.name == "quant_blas")
    row = [replace(k, run=expands) if k.body == "gpu" else k for k in dispatch.kernels("quant_linear")]
    monkeypatch.setitem(dispatch._REGISTRY, "quant_linear", row)
    return be


def ran(m=1, w=None, x=None, **more):
    w = w or weight("Q4_K", 5, 256)
    with dispatch.witness() as counter:
        ops.quant_linear(torch.zeros(m, w.k) if x is None else x, w, **more)
    return dict(counter)


@pytest.mark.parametrize("kernel", ["quant_gemv", "quant_gemm"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "cpu"}, "(gpu): cpu is no GPU of AMD or NVIDIA; the kernel is written for theirs"),
        ({"target": "gfx906:xnack-"}, "(triton): Triton does not compile for gfx906:xnack-, as far as is known"),
        ({"format": "BF16"}, f"(format): BF16 is no block format, and linear multiplies it; the kernel takes {', '.join(FORMATS)}"),
        ({"format": "IQ2_XS"}, f"(format): IQ2_XS has no packed layout; the kernel takes {', '.join(FORMATS)}"),
        ({"format": None}, "(format): the problem names no format of the weights"),
        ({"k": 100}, f"(blocks): {BLOCKS}"),
        ({"out": "f16"}, "(out): y is f16; the kernel stores bf16 or f32"),
        ({"n": 2**29}, "(extent): n=536870912, k=256; the kernel takes n below 536870912 and k up to 8388608"),
        ({"k": 2**23 + 256}, "(extent): n=64, k=8388864; the kernel takes n below 536870912 and k up to 8388608"),
        ({"grad": True}, "(gradient): a gradient is wanted; the kernel has no backward"),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_guard_of_both_kernels_refuses_in_words(kernel, change, words):
    assert refusal(kernel=kernel, **change) == f"{kernel} refuses {words}"


def test_what_rounds_x_to_int8_needs_neighbours_side_by_side_and_some_of_them():
    assert refusal(x_inner=2) == "quant_gemv refuses (x_inner): neighbours in a row of x lie 2 elements apart; the kernel needs 1"
    assert refusal(k=0) == "quant_gemv refuses (reduction): k=0; the kernel adds up at least one block"
    assert refusal(kernel="quant_gemm", x_inner=2) is refusal(kernel="quant_gemm", k=0) is None


def test_arrays_and_formats_without_a_layout_are_not_expanded_either():
    assert refusal(kernel="quant_blas", torch=False) == "quant_blas refuses (torch): operands are numpy arrays; this kernel takes torch tensors"
    assert refusal(kernel="quant_blas", format="F16").startswith("quant_blas refuses (format): F16 is no block format")
    assert refusal(kernel="quant_blas", k=100) == f"quant_blas refuses (blocks): {BLOCKS}"
    for kernel in ("cpu_quant_linear", "reference_quant_linear"):
        words = f"{kernel} refuses (numpy): operands are torch tensors; this kernel takes numpy arrays"
        assert refusal(arch.host().name, kernel, dtype="f32") == words


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_has_its_kernels_on_every_target_that_triton_has(fmt):
    for target in (row for row in arch.TARGETS.values() if row.triton):
        for change in ({}, {"m": 0}, {"dtype": "f32"}, {"out": "f32"}, {"fused": ("norm", "bias", "gated", "residual")}, {"n": 0}):
            assert refusal(target.name, format=fmt, **change) is None
        assert refusal(target.name, "quant_gemm", format=fmt, m=4096) is None
        quant.require_format(target, fmt, 4096, 14336)


def test_the_table_can_say_that_blas_wins_and_says_why(monkeypatch):
    asked = []
    said = QuantChoice(QuantConfig("blas"), "some table")
    monkeypatch.setattr(quant, "choose_quant", lambda *sizes: asked.append(sizes[1:]) or said)
    assert refusal(m=0, n=0, k=256) == "quant_gemv refuses (table): BLAS is the faster one here (some table)"
    assert set(asked) == {("Q4_K", 1, 1, 256, None)}


def test_a_format_without_a_kernel_is_refused_by_name_when_a_model_loads():
    there = f"formats with a kernel there: {', '.join(FORMATS)}"
    for fmt, k, words in (
        ("IQ2_XS", 256, "IQ2_XS has no packed layout"),
        ("F16", 64, "F16 is no block format, and linear multiplies it"),
        ("Q4_K", 100, BLOCKS),
    ):
        with pytest.raises(DeviceError) as caught:
            quant.require_format(arch.parse(SM), fmt, 8, k)
        said = str(caught.value)
        assert said.startswith(f"no kernel on {SM} takes weights [8, {k}] in {fmt}: {words}")
        assert said.endswith(there)
        assert said.count(words) == 1
    for target, words in (("gfx906", "Triton does not compile for gfx906"), ("x86-64-v3", "x86-64-v3 is no GPU"), ("gfx1300", "Triton does not")):
        with pytest.raises(DeviceError, match=f"{words}.*; formats with a kernel there: none"):
            quant.require_format(arch.of_gpu(target), "Q4_K", 8, 256)


def test_kernels_that_are_switched_off_are_there_when_a_model_loads(monkeypatch):
    for name in ("LANEWISE_QUANT_GEMV", "LANEWISE_QUANT_GEMM"):
        monkeypatch.setenv(name, "0")
    quant.require_format(arch.parse(SM), "Q4_K", 8, 256)


def test_the_same_tensors_on_another_device_get_that_devices_kernel(on):
    for name, kernel in (
        ("gfx1100", "quant_gemv"),
        ("gfx942:sramecc+:xnack-", "quant_gemv"),
        ("gfx1300:sramecc+", "quant_blas"),
        ("cpu", "quant_blas"),
        ("gfx906", "quant_blas"),
        (SM, "quant_gemv"),
        ("xpu", "quant_blas"),
        ("gfx1201", "quant_gemv"),
    ):
        on(name)
        assert ran() == {kernel: 1}, name


def test_the_call_decides_between_the_kernels(on):
    on(SM)
    for m, kernel in ((1, "quant_gemv"), (8, "quant_gemv"), (4096, "quant_gemm"), (0, "quant_gemv")):
        assert ran(m) == {kernel: 1}
    assert ran(x=torch.zeros(2, 512)[:, ::2]) == {"quant_gemm": 1}
    assert ran(x=torch.zeros(1, 512)[:, 3:259]) == {"quant_gemv": 1}
    assert ran(x=torch.zeros(1, 256, requires_grad=True)) == {"quant_blas": 1}
    with torch.no_grad():
        assert ran(x=torch.zeros(1, 256, requires_grad=True)) == {"quant_gemv": 1}


def test_the_switches_roll_back_to_expanding_which_then_says_so(on, monkeypatch):
    on(SM)
    monkeypatch.setattr(quant, "_EXPANDED", set())
    monkeypatch.setenv("LANEWISE_QUANT_GEMV", "0")
    assert ran() == {"quant_gemm": 1}
    assert refusal() == "quant_gemv refuses (switch): LANEWISE_QUANT_GEMV has switched it off"
    monkeypatch.setattr(quant, "_EXPANDED", set())
    monkeypatch.setenv("LANEWISE_QUANT_GEMM", "0")
    words = "expands Q4_K weights to f32 at every call on sm_90: LANEWISE_QUANT_GEMV has switched it off; LANEWISE_QUANT_GEMM has switched it off"
    with pytest.warns(UserWarning, match=words):
        assert ran() == {"quant_blas": 1}
    monkeypatch.setenv("LANEWISE_QUANT_GEMV", "1")
    assert ran() == {"quant_gemv": 1}
    assert ran(4096) == {"quant_blas": 1}


def test_numpy_callers_keep_their_kernels():
    sizes = {"k": 256, "format": "Q4_K"}
    assert dispatch.select(Problem("quant_linear", arch.host(), **sizes)).kernel.body in ("cpu", "reference")
    assert dispatch.select(Problem("quant_linear", arch.host(), torch=True, **sizes)).kernel.name == "quant_blas"


@pytest.mark.parametrize("imports", ["lanewise.backends, lanewise.kernels.gpu.quant", "lanewise.kernels.gpu.quant, lanewise.backends"])
def test_the_order_of_kernels_is_not_that_of_imports_and_nothing_heavy_is_loaded(imports):
    code = f"import sys, {imports}\nfrom lanewise import dispatch\n"
    code += "print(*(k.name for k in dispatch.kernels('quant_linear')), *{'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["quant_gemv", "quant_gemm", "quant_blas", "cpu_quant_linear", "reference_quant_linear"]


def test_the_kernels_themselves_run_where_dispatch_says_so():
    """Under Triton's interpreter, in a process of its own, on numbers that int8 holds exactly: the kernels give the bits of torch's functions."""
    code = """
import warnings; warnings.simplefilter("ignore")
import torch
from lanewise.prove.interpreter import mend
mend()
from lanewise import dispatch, nn, ops
from lanewise.settings import switched
from lanewise.kernels.gpu import device
device.named = lambda given: ("gfx1100", None)
whole = lambda least, most, *shape: torch.randint(least, most, shape, generator=torch.Generator().manual_seed(len(shape)))
codes, one = whole(1, 9, 20, 64), torch.tensor([0, 0x3C], dtype=torch.uint8)  # Q8_0 with d = 1
raw = torch.cat([one.expand(20, 2, 2), codes.to(torch.uint8).view(20, 2, 32)], 2).view(20, 68)
x, norm = torch.ones(2, 1, 64), whole(1, 128, 64)
x[..., 3::5], norm[::32] = -1, 127
given = {"residual": whole(0, 9, 2, 1, 20).float(), "norm": norm.float(), "out": torch.float32}
plain = nn.QuantLinear(raw, "Q8_0", whole(0, 9, 20).float())
gated = nn.QuantLinear(raw, "Q8_0", torch.full((20,), 2.0**14), gated=True)  # so large that SiLU is the gate itself
layer = torch.compile(lambda x: gated(x), fullgraph=True, backend="aot_eager")
def all_of(x):
    with dispatch.witness() as ran:
        y = (ops.quant_linear(x.bfloat16(), plain.weight, plain.bias, **given), ops.quant_linear(norm.half(), plain.weight, out=torch.float32),
             layer(norm.float().expand(2, 3, 64)), ops.quant_linear(norm.float()[None], gated.weight, gated.bias, residual=torch.ones(1, 10)))
    return y, dict(ran)
got, ran = all_of(x)
print(ran, *(tuple(t.shape) for t in got))
with switched("QUANT_GEMV", "0"):
    for unpacks in ("1", "0"):
        with switched("QUANT_GEMM", unpacks):
            want, ran = all_of(x)
        print(ran, *map(torch.equal, got, want))
"""
    more = {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **more})
    assert done.stdout.splitlines() == [
        "{'quant_gemv': 4} (2, 1, 20) (20,) (2, 3, 10) (1, 10)",
        "{'quant_gemm': 4} True True True True",
        "{'quant_blas': 4} True True True True",
    ], done.stderr
