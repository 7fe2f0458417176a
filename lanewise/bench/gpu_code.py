"""The machine code of a GPU arm: which Triton kernels ran, cut how, and a hash of their code that is the same in any checkout.

What ran is described well enough to be compiled again where no GPU is. A vendor's library has no code to look at: it is known by versions.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lanewise.arch import Arch
from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError
from lanewise.launched import HOME, OPTIONS, artifact

__all__ = ["ARMS", "EXPANDER", "LIBRARIES", "GpuArm", "blas_artifact", "compiled_again", "constants_of"]


@dataclass(frozen=True, slots=True)
class GpuArm:
    """What an arm's label means. op, body: of the kernel that dispatch has to choose; switch: what `switches` are set to for it.

    expands: whether w is expanded at every call by torch's own functions
    """

    op: str
    body: str
    switches: tuple[str, ...]
    switch: str
    expands: bool = False


_QUANT = ("QUANT_GEMV", "QUANT_GEMM")
# By op and label. `quantized` is the kernel of `quant` on an x that was quantized before, and `blas` beside it the product of weights that were
# expanded before: what somebody without these kernels would run. Of experts `grouped` knows that the ids lie there, as
# those do that a kernel of torch wrote in front of the one that quantizes x; `late` does not.
ARMS: dict[str, dict[str, GpuArm]] = {
    "linear": {"skinny": GpuArm("linear", "gpu", ("SKINNY",), "1"), "blas": GpuArm("linear", "blas", ("SKINNY",), "0")},
    "quant_linear": {
        "quant": GpuArm("quant_linear", "gpu", _QUANT, "1"),
        "blas": GpuArm("linear", "blas", ("SKINNY",), "0"),
        "quantized": GpuArm("quant_linear", "gpu", _QUANT, "1"),
        "expand": GpuArm("quant_linear", "blas", _QUANT, "0", expands=True),
    },
    "grouped_linear": {
        "grouped": GpuArm("grouped_linear", "gpu", ("QUANT_GEMV",), "1"),
        "blas": GpuArm("linear", "blas", ("SKINNY",), "0"),
        "late": GpuArm("grouped_linear", "gpu", ("QUANT_GEMV",), "1"),
    },
}
EXPANDER = "lanewise/kernels/gpu/quant_expand.py"  # the source of what an arm that expands runs beside the vendor's library
LIBRARIES = ("torch", "cuda", "cublas", "hip")  # the versions that the vendor's product is known by


def constants_of(one: Any) -> dict[str, Any]:
    """The constants of a described kernel by name. Raises ValueError for what is no description."""
    try:
        names = list(one["signature"])
        return {names[path[0]]: value for path, value in one["constants"]}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"no description of a kernel: {type(error).__name__}") from None


def compiled_again(spec: Sequence[Mapping[str, Any]], row: Arch) -> str:
    """The artifact of kernels that are described so, compiled here for a target that need not be.

    Raises EvidenceError where a description names nothing that can be compiled, and ImportError where Triton is missing.
    """
    import triton
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    from lanewise.isa.launches import target

    made = []
    for one in spec:
        try:
            function = _function(one["function"])
            if not isinstance(function, JITFunction):
                raise EvidenceError(f"{one['function'][:100]} is no compiled kernel here")
            attributes = {tuple(path): [list(pair) for pair in pairs] for path, pairs in one["attributes"]}
            constants = {tuple(path): _again(value) for path, value in one["constants"]}
            source = ASTSource(function, dict(one["signature"]), constants, attributes)
            options = {name: value for name, value in one["options"].items() if name in OPTIONS}
            made.append(triton.compile(source, target=target(row), options=options))
        except EvidenceError:
            raise
        except Exception as error:  # noqa: BLE001 - what a forged description does inside a compiler, it may do
            words = " ".join(str(error).split())[:100]
            raise EvidenceError(f"{str(one)[:40]}: {type(error).__name__}: {words}") from None
    return artifact(made)


def blas_artifact(versions: Mapping[str, str], expander: str | None = None) -> str:
    """What stands for the code of the vendor's library: the hash of the versions that it is known by, and of what expands weights for it."""
    lines = [f"{name} {versions[name]}\n" for name in LIBRARIES if name in versions] + ([f"{EXPANDER} {expander}\n"] if expander else [])
    return digest("".join(lines).encode())


def _function(name: str) -> Any:
    module, _, attribute = str(name).partition(":")
    if not module.startswith(HOME) or not re.fullmatch(r"[\w.]+", module) or not attribute.isidentifier():
        raise EvidenceError(f"{name[:100]!r} is no kernel of {HOME.rstrip('.')}")
    return getattr(importlib.import_module(module), attribute, None)


def _again(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    import triton.language as tl

    kinds = {str(kind): kind for kind in (tl.bfloat16, tl.float16, tl.float32, tl.float64, tl.int8, tl.int32, tl.int64, tl.uint8)}
    if value.get("type") not in kinds:
        raise EvidenceError(f"a constant is {str(value)[:64]}, which is nothing that a kernel is compiled with")
    return kinds[value["type"]]
