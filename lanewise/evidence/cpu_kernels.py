"""CPU kernels by their names, which say all about them: what a witness lists can so be compiled again."""

import functools
import re

from lanewise.backends.cpu.weights import kernels_for
from lanewise.kernels.cpu.attention import attend_kernel, combine_kernel
from lanewise.kernels.cpu.blocks import BLOCKS
from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.embed import embed_kernel
from lanewise.kernels.cpu.emit import LANES
from lanewise.kernels.cpu.kernel import CpuKernel
from lanewise.kernels.cpu.quantize import SOURCES, prepare
from lanewise.kernels.cpu.records import BRAIN, FLOAT, RECORDS
from lanewise.kernels.cpu.rotate import rotate_kernel
from lanewise.kernels.cpu.sample import SAMPLE_KERNELS

__all__ = ["MOST_HEAD", "kernel_named"]

MOST_HEAD = 1024  # a kernel of attention is unrolled over the head
_ATTENTION = re.compile(r"(?P<kind>attend|combine)_(?P<dim>[1-9]\d{0,3})")
_ROTATION = re.compile(r"rotate_(?P<dim>[1-9]\d{0,3})_(?P<pairs>0|[1-9]\d{0,3})_(?P<way>interleaved|half)")


def kernel_named(name: str) -> CpuKernel | None:
    """The kernel of that name; None where none is called so, or where it would be larger than any model's.

    >>> kernel_named("matmul_Q4_K").name, kernel_named("attend_128").name, kernel_named("matmul_Q9")
    ('matmul_Q4_K', 'attend_128', None)
    """
    if (known := _unsized().get(name)) is not None:
        return known
    found = _ATTENTION.fullmatch(name) or _ROTATION.fullmatch(name)
    if found is None or (dim := int(found["dim"])) % LANES or dim > MOST_HEAD:
        return None
    if found.re is _ATTENTION:
        return (attend_kernel if found["kind"] == "attend" else combine_kernel)(dim)
    pairs = int(found["pairs"])
    return rotate_kernel(dim, pairs, found["way"] == "interleaved") if 2 * pairs <= dim else None


@functools.cache
def _unsized() -> dict[str, CpuKernel]:
    """Those that a format, and no size, decides."""
    formats = (*DENSE, *BLOCKS)
    found = [*SAMPLE_KERNELS, *(prepare(source, kind) for source in SOURCES for kind in (*RECORDS, FLOAT, BRAIN))]
    found += [kernel for fmt in formats for kernel in (embed_kernel(fmt), *kernels_for(fmt))]
    return {kernel.name: kernel for kernel in found}
