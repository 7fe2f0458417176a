"""What a manifest says of a GPU: the card, the versions beside it, and what it did around a round of commands."""

from importlib import metadata
from typing import Any

import torch

from lanewise.arch import Arch
from lanewise.bench.gpu_around import watch
from lanewise.bench.machine import machine, versions
from lanewise.bench.replay import gpu_index
from lanewise.kernels.gpu import device as devices

__all__ = ["Beside", "card_facts", "gpu_versions"]

_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12")


class Beside:
    """A GPU that other processes compute on while this one looks.

    torch is asked what the GPU is and nothing else: a tensor, or a stream, would make this process one of those that compute there.
    """

    def __init__(self, device: str) -> None:
        self.index = gpu_index(device)
        self._properties: Any = torch.cuda.get_device_properties(self.index)
        self._row = devices.row(devices.named(torch.device("cuda", self.index))[0])
        self._watch = watch(self._properties, computes=False)

    def read(self) -> dict[str, Any]:
        """The readings of a moment."""
        return self._watch.read()

    def facts(self) -> dict[str, Any]:
        """The manifest's `machine` and `versions`."""
        cache = int(getattr(self._properties, "L2_cache_size", 0)) or None
        gpu = card_facts(self._properties, self._row, cache, self._watch.driver)
        return {"machine": {**machine(), "last_level_cache": cache, "gpu": gpu}, "versions": {**versions(), **gpu_versions()}}


def card_facts(properties: Any, row: Arch, cache: int | None, driver: str | None) -> dict[str, Any]:
    """The manifest's `machine.gpu`, of what torch says of a GPU."""
    return {
        "name": properties.name,
        "row": row.name,
        "capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "memory": properties.total_memory,
        "l2": cache,
        "driver": driver,
    }


def gpu_versions() -> dict[str, str]:
    """Of what the arms of a GPU are made with."""
    found = {"torch": torch.__version__, "triton": _triton(), "cuda": torch.version.cuda, "hip": torch.version.hip}
    found["cublas"] = next((one for one in map(_version, _PACKAGES) if one), None)
    return {name: str(version) for name, version in found.items() if version}


def _triton() -> str | None:
    """Commands may do without it."""
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
