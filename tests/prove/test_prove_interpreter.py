"""What is mended in Triton's interpreter is what torch does, and a kernel there computes with it."""

import os
import subprocess
import sys

import numpy as np
import torch

from lanewise.prove.interpreter import narrow, widen

KERNEL = """
import torch, triton, triton.language as tl
from lanewise.prove.interpreter import mend, on

@triton.jit
def convert(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at).to(y.dtype.element_ty))

@triton.jit
def dot(a, b, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(y + at, tl.dot(tl.load(a + at), tl.load(b + at)))

assert on()
mend()
mend()
x = torch.cat([torch.randn(1022) * torch.logspace(-40, 38, 1022), torch.zeros(2)])
y, back = torch.empty(1024, dtype=torch.bfloat16), torch.empty(1024)
convert[(1,)](x, y, SIZE=1024)
convert[(1,)](y, back, SIZE=1024)
assert torch.equal(y, x.to(torch.bfloat16)) and torch.equal(back, y.float())
a, b = (torch.randint(-8, 9, (16, 16)).to(torch.bfloat16) for _ in range(2))
product = torch.empty(16, 16)
dot[(1,)](a, b, product, SIZE=16)
assert torch.equal(product, a.float() @ b.float())
"""


def test_conversions_are_torchs():
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = widen(bits)
    np.testing.assert_array_equal(values, torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy())
    finite = values[np.isfinite(values)]
    between = np.concatenate([finite, finite * np.float32(1.001), finite * np.float32(1.00390625), np.float32([np.inf, -np.inf])])
    want = torch.from_numpy(between).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(narrow(between), want)
    assert np.isnan(widen(narrow(np.float32([np.nan])))[0])


def test_kernels_in_a_mended_interpreter_round_and_multiply_as_hardware_does(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "kernel.py")],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
