"""A kernel of Triton, so that tests compile one for a GPU that is not here."""

import triton
import triton.language as tl


@triton.jit
def scaled(x, y, n, SIZE: tl.constexpr, TWICE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, mask=at < n, other=0.0)
    if TWICE:
        value = value * 2
    tl.store(y + at, value, mask=at < n)
