"""What a manifest says of a GPU: the card, and the versions beside it.

python -m lanewise.bench.gpu_card DEVICE   (started by `gpu_beside`; says it in a line of JSON)
"""

import json
import sys
from importlib import metadata
from typing import Any

import torch

from lanewise.arch import Arch
from lanewise.bench.replay import gpu_index
from lanewise.errors import DeviceError
from lanewise.kernels.gpu import device as devices

__all__ = ["answer", "card_facts", "gpu_versions"]

_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12")


_PLACE = ("uuid", "pci_domain_id", "pci_bus_id", "pci_device_id")  # what a driver's library finds a GPU by


def answer(device: str) -> dict[str, Any]:
    """Index, place, facts and versions of a GPU, as JSON. Raises DeviceError for one that is not there."""
    index = gpu_index(device)
    properties: Any = torch.cuda.get_device_properties(index)
    row = devices.row(devices.named(torch.device("cuda", index))[0])
    place = {name: value if isinstance(value := getattr(properties, name, None), int) else str(value) for name in _PLACE}
    cache = int(getattr(properties, "L2_cache_size", 0)) or None
    return {"index": index, "place": place, "gpu": card_facts(properties, row, cache, None), "versions": gpu_versions()}


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


if __name__ == "__main__":
    try:
        said = answer(sys.argv[1])
    except DeviceError as error:
        said = {"error": str(error)}
    print(json.dumps(said))  # noqa: T201 - what the process that asks reads
