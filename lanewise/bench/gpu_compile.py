"""Compile many Triton kernels at once, before anybody waits for one: processes beside this one fill Triton's cache on disk.

python -m lanewise.bench.gpu_compile TARGET   (started here; reads descriptions, a line of JSON each)
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from lanewise import arch
from lanewise.bench.gpu_code import compiled_again, constants_of
from lanewise.errors import EvidenceError
from lanewise.launched import description

__all__ = ["compile_all", "wanted"]

_UNROLLED = ("AHEAD", "TILES", "TOKENS", "M", "GROUPS")


@contextmanager
def wanted() -> Iterator[list[dict[str, Any]]]:
    """Descriptions of the kernels that Triton would compile inside the block. Nothing is compiled there, and nothing launched."""
    from triton.runtime.jit import JITFunction

    found: dict[str, dict[str, Any]] = {}
    real = JITFunction._do_compile

    def note(self: Any, key: str, signature: Any, device: int, constants: Any, options: Any, attributes: Any, warmup: bool) -> None:
        one = description(self, signature, constants, attributes, options)
        found[json.dumps(one, sort_keys=True)] = one

    made: list[dict[str, Any]] = []
    JITFunction._do_compile = note
    try:
        yield made
    finally:
        JITFunction._do_compile = real
        made.extend(found.values())


def compile_all(kernels: Sequence[dict[str, Any]], row: arch.Arch, processes: int, progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Compile them, in so many processes, into Triton's cache; what went wrong, in words, comes back."""
    count = min(processes, len(kernels))
    kernels = sorted(kernels, key=_unrolled, reverse=True)  # the longest first, so that no process is left with several of them
    workers: list[subprocess.Popen[str]] = []
    wrong, done = [], 0
    try:
        for number in range(count):
            with tempfile.TemporaryFile("w+", encoding="utf-8") as jobs:  # a pipe would be full long before its reader is ready
                jobs.write("".join(f"{json.dumps(one)}\n" for one in kernels[number::count]))
                jobs.seek(0)
                command = [sys.executable, "-m", "lanewise.bench.gpu_compile", row.name]
                workers.append(subprocess.Popen(command, stdin=jobs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        for worker in workers:
            for line in worker.stdout or ():
                done += 1
                wrong += [line.strip()] if line.strip() else []
                if progress:
                    progress(min(done, len(kernels)), len(kernels))
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()  # closes the pipe as well
    return wrong if done >= len(kernels) else [*wrong, f"{len(kernels) - done} kernels were not compiled: a compiling process ended early"]


def _unrolled(one: dict[str, Any]) -> int:
    """How much of it the compiler writes out."""
    try:
        constants = constants_of(one)
    except ValueError:
        return 0
    return prod(value for name in _UNROLLED if type(value := constants.get(name)) is int and value > 0)


def _work(row: arch.Arch) -> None:
    for line in sys.stdin:
        try:
            compiled_again([json.loads(line)], row)
            print(flush=True)  # noqa: T201 - what the other side of the pipe counts
        except EvidenceError as error:
            print(str(error), flush=True)  # noqa: T201


if __name__ == "__main__":
    _work(arch.parse(sys.argv[1]))
