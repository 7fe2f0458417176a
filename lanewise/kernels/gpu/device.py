"""What a torch device is, asked of its driver at every call: two tensors of one process may lie on different cards."""

from typing import TYPE_CHECKING

from lanewise.arch import Arch, host, nvidia, of_gpu

if TYPE_CHECKING:
    import torch

__all__ = ["named", "row"]


def named(device: "torch.device") -> tuple[str, str | None]:
    """The driver's name of a device's target, with its features, or the device's kind where it is no GPU; and what it calls the card."""
    import torch

    if device.type != "cuda":  # ROCm's devices are called cuda too
        return device.type, None
    found = torch.cuda.get_device_properties(device)
    return str(found.gcnArchName) if torch.version.hip else nvidia(found.major, found.minor), str(found.name)


def row(name: str) -> Arch:
    """The row of what `named` calls a target."""
    return host() if name == "cpu" else of_gpu(name)
