"""Cases of the catalogue, compiled for any target: in processes beside each other, and each once, by the content of Triton's cache.

Triton's cache on disk is keyed by the kernel's source, what is known of its arguments, options, target and compiler.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from lanewise.arch import Arch
from lanewise.errors import CompilerError
from lanewise.isa.catalogue import Case
from lanewise.isa.code_object import CodeObject, code_object
from lanewise.isa.cubin import Cubin, cubin

__all__ = ["Body", "compile_for"]


@dataclass(frozen=True)
class Body:
    """One kernel that a case launches. text: GCN or PTX; binary: code object or cubin; code: what both say."""

    name: str
    text: str
    binary: bytes
    shared: int
    warps: int
    code: CodeObject | Cubin


def compile_for(case: Case, row: Arch) -> tuple[Body, ...]:
    """What a case launches on a target, in order, each kernel once.

    Raises CompilerError with the compiler's reason for what it does not compile, and AssemblyError where a text is not its object's.
    """
    from triton.errors import TritonError

    from lanewise.isa.launches import taken

    with _said() as said:
        try:
            with taken(row) as launches:
                case.launch(row)
        except (RuntimeError, TritonError) as error:
            said.seek(0)
            errors = [line.partition("error: ")[2].strip() for line in said if "error: " in line]
            raise CompilerError(
                f"Triton on {case} for {row}: {errors[0][:200] if errors else f'{type(error).__name__}: {str(error)[:200]}'}"
            ) from None
    made = {}
    for one in launches:
        read: Callable[..., CodeObject | Cubin] = code_object if row.vendor == "amd" else cubin
        code = read(one.text, one.binary, row, shared=one.shared, warps=one.warps)
        made[one.compiled.hash] = Body(one.name, one.text, one.binary, one.shared, one.warps, code)
    return tuple(made.values())


@contextmanager
def _said() -> Iterator[IO[str]]:
    """What the compiler prints, which goes past Python to the process's own stderr, and has its reasons beside pages of intermediate code."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile("w+") as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
