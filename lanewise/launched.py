"""What Triton launched: each kernel described well enough to be compiled again where no GPU is, and a hash of its code.

Triton is imported by whoever asks, and by nobody else.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lanewise.arch import nvidia

__all__ = ["HOME", "OPTIONS", "artifact", "described", "description", "plain", "recorded", "target"]

HOME = "lanewise.kernels.gpu."  # the only place that kernels are imported from when a bundle names one
OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "launch_pdl", "launch_cooperative_grid", "enable_fp_fusion", "waves_per_eu")
# Where the source lies, and what only a debugger reads.
_ELSEWHERE = re.compile(r"\s*(\.file|\.loc|\.version|\.ident|\.cfi_\w+|//|;|(\$L__|\.L)(tmp|func_|info_)\w*:)")
_DEBUG = re.compile(r"\s*\.section\s+\"?\.(debug|note|AMDGPU\.csdata)")


@contextmanager
def recorded() -> Iterator[list[Any]]:
    """The compiled kernels that Triton launches inside the block, each once, in the order in which they first ran."""
    from triton.runtime.jit import JITFunction

    found: list[Any] = []
    plain_run = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = plain_run(self, *args, **kwargs)
        if kernel is not None and all(kernel is not one for one in found):
            found.append(kernel)
        return kernel

    JITFunction.run = run
    try:
        yield found
    finally:
        JITFunction.run = plain_run


def described(kernel: Any) -> dict[str, Any]:
    """What a compiled kernel was made of."""
    return description(kernel.src.fn, kernel.src.signature, kernel.src.constants, kernel.src.attrs, kernel.metadata)


def description(function: Any, signature: Any, constants: Any, attributes: Any, options: Any) -> dict[str, Any]:
    """Function, types, constants, what is known of the arguments, and options, as JSON."""
    return {
        "function": f"{function.__module__}:{function.__name__}",
        "signature": {name: str(kind) for name, kind in signature.items()},
        "constants": [[list(path), _value(value)] for path, value in constants.items()],
        "attributes": [[list(path), [list(one) for one in pairs]] for path, pairs in attributes.items()],
        "options": {name: getattr(options, name) for name in OPTIONS if getattr(options, name, None) is not None},
    }


def target(kernel: Any) -> str:
    """What compilers call the target that a kernel was compiled for."""
    made_for = kernel.metadata.target
    return nvidia(*divmod(made_for.arch, 10)) if made_for.backend == "cuda" else str(made_for.arch)


def artifact(kernels: Sequence[Any]) -> str:
    """The hash of the code of compiled kernels, one behind the other."""
    return hashlib.sha256("".join(plain(_code(kernel)) for kernel in kernels).encode()).hexdigest()


def plain(code: str) -> str:
    """Assembly without paths, line numbers, versions of the assembler, and what is there for debuggers.

    >>> plain('.version 8.7\\n.target x\\n\\t.loc 1 2 3 // a.py:2\\n\\tret;\\n.section .debug_str\\n{\\n.b8 47\\n}\\n')
    '.target x\\n\\tret;\\n'
    """
    kept: list[str] = []
    for line in code.splitlines():
        if _DEBUG.match(line):
            break
        if line.strip() and not _ELSEWHERE.match(line):
            kept.append(line.split("//")[0].rstrip())
    return "".join(f"{line}\n" for line in kept)


def _code(kernel: Any) -> str:
    """What is assembled: PTX, or GCN."""
    return str(next(kernel.asm[name] for name in kernel.asm if name.endswith(("ptx", "gcn"))))


def _value(value: Any) -> Any:
    """A constant as JSON. Types of Triton are objects with their name; what cannot be written cannot be compiled again."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"type": str(value)}
