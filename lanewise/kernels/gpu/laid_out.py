"""Whether the compiler laid tiles out as the assembly in the kernels relies on: which lane holds what is its choice, and not in the source."""

import re
from typing import Any

from lanewise.errors import DeviceError

__all__ = ["checked", "laid_out"]

_CHECKED: set[str] = set()


def laid_out(ttgir: str, layout: str) -> bool:
    """Whether every mma in a kernel's TTGIR works on tiles of a layout, which is given as there, with patterns for numbers."""
    pattern = re.compile(re.sub(r"([\[\]])", r"\\\1", layout))
    layouts = dict(re.findall(r"^(#\w+) = (#ttg\.blocked<.*>)", ttgir, re.MULTILINE))
    results = re.findall(r"tt\.elementwise_inline_asm .*mma\.sync.*-> (tensor<.*>) loc", ttgir)
    used = [name for result in results for name in re.findall(r"tensor<[0-9x]+x[fi]32, (#\w+)>", result)]
    return bool(used) and all(pattern.search(layouts.get(name, "")) for name in used)


def checked(kernel: Any, layout: str) -> None:
    """Raise DeviceError for a compiled kernel that is laid out in another way: its results would be wrong. Looked at once for each kernel."""
    if kernel is None or kernel.hash in _CHECKED:  # None where somebody only asks what would be compiled
        return
    if not laid_out(kernel.asm["ttgir"], layout):
        raise DeviceError("Triton laid tiles of the skinny kernel out in a way that its assembly does not expect; LANEWISE_SKINNY=0 leaves it out")
    _CHECKED.add(kernel.hash)
