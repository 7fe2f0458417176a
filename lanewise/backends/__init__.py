"""What runs a model. `backend_for` turns a device name into a backend; a new backend is one room here and one row below."""

from collections.abc import Callable

from lanewise.backends.base import Backend, Batch, Distribution, Progress, Runner

from lanewise.backends.reference import ReferenceBackend  # isort: skip (its kernels come before those that go in front of them)
from lanewise.backends.cpu import kernels as _cpu_kernels  # noqa: F401  (importing it fills the registry)
from lanewise.errors import DeviceError
from lanewise.kernels.gpu import experts as _gpu_experts  # noqa: F401
from lanewise.kernels.gpu import linear as _gpu_linear  # noqa: F401  (the same, for torch tensors)
from lanewise.kernels.gpu import quant as _gpu_quant  # noqa: F401

__all__ = ["DEVICES", "Backend", "Batch", "Distribution", "Progress", "Runner", "backend_for"]


def _cpu() -> Backend:
    from lanewise.backends.cpu.runner import CpuBackend  # LLVM is loaded only where it is used

    return CpuBackend()


DEVICES: dict[str, Callable[[], Backend]] = {"reference": ReferenceBackend, "cpu": _cpu}


def backend_for(device: str) -> Backend:
    """The backend of a device name. Raises DeviceError, naming the devices that exist, for any other."""
    if not isinstance(device, str) or device not in DEVICES:
        is_gpu = str(device).split(":")[0] in ("cuda", "gpu", "hip", "rocm")
        gpu = "; models do not run on GPUs yet, `linear`, `quant_linear` and `grouped_linear` from PyTorch do" if is_gpu else ""
        raise DeviceError(f"device {device!r} is not available; available: {', '.join(DEVICES)}{gpu}")
    return DEVICES[device]()
