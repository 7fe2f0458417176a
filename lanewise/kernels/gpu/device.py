"""What a torch device is, asked of its driver at every call: two tensors of one process may lie on different cards."""

from typing import TYPE_CHECKING

from lanewise.arch import Arch, host, nvidia, of_gpu

if TYPE_CHECKING:
    import torch

__all__ = ["card", "name", "target"]


def name(device: "torch.device") -> str:
    """The driver's name of a device's target, with its features; "cpu" for the processor."""
    import torch

    if device.type != "cuda":  # ROCm's devices are called cuda too
        return device.type
    found = torch.cuda.get_device_properties(device)
    return str(found.gcnArchName) if torch.version.hip else nvidia(found.major, found.minor)


def card(device: "torch.device") -> str | None:
    """What the driver calls the card, such as NVIDIA H200; None where there is none."""
    import torch

    return str(torch.cuda.get_device_properties(device).name) if device.type == "cuda" else None


def target(device: "torch.device") -> Arch:
    """The row of a device's target."""
    called = name(device)
    return host() if called == "cpu" else of_gpu(called)
