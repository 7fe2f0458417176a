"""Launches of GPU kernels for a target that is not here: Triton binds, specializes and compiles as for a card, and a driver of ours takes the launch.

Whatever calls a Triton kernel can stand inside, our own launchers or anybody's, with tensors on the CPU. What becomes of a launch says whoever takes
it; without anybody nothing runs, and what a kernel would have written was not computed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from lanewise.arch import Arch
from lanewise.errors import DeviceError

__all__ = ["Launch", "standing_in", "taken", "target"]

_MOST_THREADS = 1024  # of a workgroup, on every GPU of both vendors


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    compiled:  Triton's CompiledKernel: `asm` has every form from TTIR to machine code, `metadata` what it was compiled with
    grid:      workgroups in x, y and z
    arguments: of the kernel those that are passed when it runs, by name and in order: a tensor, an int or a float. What Triton
               compiled in, because it is a constant, None or a 1, is not among them, nor is what it adds itself
    shared:    bytes of LDS / shared memory of a workgroup
    warps:     waves of a workgroup
    """

    compiled: Any
    row: Arch
    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    shared: int
    warps: int

    @property
    def name(self) -> str:
        return str(self.compiled.src.fn.__name__)

    @property
    def text(self) -> str:
        """GCN or PTX."""
        return next(str(text) for form, text in self.compiled.asm.items() if form.endswith(("gcn", "ptx")))

    @property
    def binary(self) -> bytes:
        """The code object."""
        return bytes(self.compiled.asm["hsaco" if self.row.vendor == "amd" else "cubin"])


def target(row: Arch) -> GPUTarget:
    """What Triton calls a GPU of the table. Raises DeviceError for what is no GPU."""
    if not row.is_gpu:
        raise DeviceError(f"{row} is no GPU; kernels are compiled for those of AMD and NVIDIA")
    nvidia = row.vendor == "nvidia"
    return GPUTarget("cuda" if nvidia else "hip", int(row.name.rpartition("_")[2]) if nvidia else row.name, row.wave)


class _Driver:
    """As much of a driver as a launch asks. The number of a device is a key of Triton's for what it has compiled, and here `device`."""

    def __init__(self, row: Arch, device: Any) -> None:
        self.row, self.device = row, device
        self.launched: list[tuple[tuple[int, int, int], tuple[Any, ...]]] = []
        self.utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": row.lds}, load_binary=self._load)

    def get_current_target(self) -> GPUTarget:
        return target(self.row)

    def get_current_device(self) -> Any:
        return self.device

    def get_current_stream(self, device: Any) -> int:
        return 0

    @staticmethod
    def launcher_cls(src: Any, metadata: Any) -> Callable[..., None]:
        # a compiled kernel outlives the driver that it was first launched on, so what takes a launch is looked up when it happens
        return lambda *given: triton.runtime.driver.active.note(*given)

    @staticmethod
    def _load(name: str, binary: bytes, shared: int, device: Any) -> tuple[None, None, int, int, int]:
        return None, None, 0, 0, _MOST_THREADS

    def note(self, x: int, y: int, z: int, stream: int, function: None, packed: Any, metadata: Any, enter: Any, leave: Any, *bound: Any) -> None:
        self.launched.append(((x, y, z), bound))


@contextmanager
def standing_in(row: Arch) -> Iterator[None]:
    """Launches ask a driver of ours, which names the target; whoever is inside says what becomes of what they would compile."""
    with _driver(row, object()):  # nothing is compiled for it yet
        yield


@contextmanager
def taken(row: Arch, run: Callable[[Launch], None] | None = None) -> Iterator[list[Launch]]:
    """Every launch inside the block, in order, compiled for a target; `run` is called with each when it happens, and may compute it.

    Raises DeviceError where kernels are interpreted, and lets out what Triton raises for a kernel that it cannot compile or that asks for more
    shared memory than the target has.
    """
    if triton.knobs.runtime.interpret:
        raise DeviceError("TRITON_INTERPRET is set, so kernels are interpreted; without it they are compiled")
    found: list[Launch] = []
    plain_run = JITFunction.run
    with _driver(row, row) as driver:

        def take(self: Any, *args: Any, **kwargs: Any) -> Any:
            if triton.runtime.driver._active is not driver:
                return plain_run(self, *args, **kwargs)
            compiled = plain_run(self, *args, **kwargs)
            while driver.launched:
                grid, bound = driver.launched.pop(0)
                names, signature = self.arg_names, compiled.src.signature
                arguments = {name: value for name, value in zip(names, bound, strict=True) if signature[name] != "constexpr"}
                found.append(Launch(compiled, row, grid, arguments, compiled.metadata.shared, compiled.metadata.num_warps))
                if run is not None:
                    run(found[-1])
            return compiled

        JITFunction.run = take
        try:
            yield found
        finally:
            JITFunction.run = plain_run


@contextmanager
def _driver(row: Arch, device: Any) -> Iterator[_Driver]:
    driver, before = _Driver(row, device), triton.runtime.driver._active
    triton.runtime.driver._active = driver
    try:
        yield driver
    finally:
        triton.runtime.driver._active = before
