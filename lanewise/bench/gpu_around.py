"""What a GPU did while a round ran, as its driver says (nvidia-ml-py or amdsmi, where one can be imported): None is what nobody says."""

import os
from collections.abc import Callable
from typing import Any, Protocol

from lanewise.bench.around import SLOWED

__all__ = ["Watch", "watch"]

# Bits of NVML's clock event reasons (nvml.h) and their names here.
_REASONS = {
    0x1: "idle", 0x2: "applications clocks", 0x4: SLOWED[0], 0x8: SLOWED[1], 0x10: "sync boost", 0x20: SLOWED[2], 0x40: SLOWED[3],
    0x80: SLOWED[4], 0x100: "display clocks",
}  # fmt: skip
_HELD = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # the new name of it, and the old
_UNKNOWN = 1 << 63  # bytes from which a driver means that it cannot say
_SM, _MEMORY, _CORE_TEMPERATURE = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU


class Watch(Protocol):
    """Where readings come from. driver: its version; None where nobody says."""

    driver: str | None

    def read(self) -> dict[str, Any]:
        """clock_mhz, memory_clock_mhz, temperature (degrees Celsius), power (W), throttle (names) and processes beside this one."""
        ...


def watch(properties: Any, *, computes: bool = True) -> Watch:
    """The readings of the GPU that torch describes so. What is not installed, or does not know the GPU, is a watch that sees nothing.

    computes: whether this process itself computes on the GPU, and so is one of those that the driver lists.
    """
    for make in (_Nvml, _AmdSmi):
        try:
            return make(properties, computes)
        except Exception:  # noqa: BLE001 - libraries of drivers raise what they like; a reading less is no reason to fail
            continue
    return _Nobody()


class _Nobody:
    driver: str | None = None

    def read(self) -> dict[str, Any]:
        return dict.fromkeys(("clock_mhz", "memory_clock_mhz", "temperature", "power", "throttle", "processes"))


class _Nvml:
    def __init__(self, properties: Any, computes: bool) -> None:
        import pynvml

        self._nvml, self._computes = pynvml, computes
        pynvml.nvmlInit()
        self._handle = _said(lambda: pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}"))
        if self._handle is None:
            place = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(place)
        said = _said(pynvml.nvmlSystemGetDriverVersion)
        self.driver: str | None = said.decode() if isinstance(said, bytes) else said

    def read(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        power = _said(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        ask = next((getattr(nvml, name) for name in _HELD if hasattr(nvml, name)), None)
        bits = _said(lambda: ask(handle)) if ask else None
        processes = _said(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return {
            "clock_mhz": _said(lambda: nvml.nvmlDeviceGetClockInfo(handle, _SM)),
            "memory_clock_mhz": _said(lambda: nvml.nvmlDeviceGetClockInfo(handle, _MEMORY)),
            "temperature": _said(lambda: nvml.nvmlDeviceGetTemperature(handle, _CORE_TEMPERATURE)),
            "power": None if power is None else power / 1e3,
            "throttle": None if bits is None else [name for bit, name in _REASONS.items() if bits & bit],
            "processes": None if processes is None else _others([(one.pid, one.usedGpuMemory) for one in processes], self._computes),
        }


class _AmdSmi:
    def __init__(self, properties: Any, computes: bool) -> None:
        import amdsmi

        self._smi, self._computes = amdsmi, computes
        amdsmi.amdsmi_init()
        wanted = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
        self._handle = next(one for one in amdsmi.amdsmi_get_processor_handles() if _place(amdsmi.amdsmi_get_gpu_device_bdf(one)) == wanted)
        said = _said(lambda: amdsmi.amdsmi_get_gpu_driver_info(self._handle)["driver_version"])
        self.driver: str | None = None if said is None else str(said)

    def read(self) -> dict[str, Any]:
        smi, handle = self._smi, self._handle
        kinds = smi.AmdSmiClkType
        processes = _said(lambda: smi.amdsmi_get_gpu_process_list(handle))
        return {
            "clock_mhz": _number(_said(lambda: smi.amdsmi_get_clock_info(handle, kinds.GFX)["clk"])),
            "memory_clock_mhz": _number(_said(lambda: smi.amdsmi_get_clock_info(handle, kinds.MEM)["clk"])),
            "temperature": _number(
                _said(lambda: smi.amdsmi_get_temp_metric(handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT))
            ),
            "power": _number(_said(lambda: smi.amdsmi_get_power_info(handle)["current_socket_power"])),
            "throttle": None,
            "processes": None if processes is None else _others([(one["pid"], one["mem"]) for one in processes], self._computes),
        }


def _others(processes: list[tuple[int, int | None]], computes: bool = True) -> list[dict[str, int | None]]:
    """The processes beside this one. A driver may count processes otherwise than this one's container: then, where this one `computes`, one
    of them is this one, and nobody can tell which."""
    found = sorted(processes, key=lambda one: one[0])
    others = [one for one in found if one[0] != os.getpid()]
    if computes and len(others) == len(found):
        others = others[1:]
    return [{"pid": pid, "memory": memory if memory is not None and memory < _UNKNOWN else None} for pid, memory in others]


def _place(bdf: str) -> tuple[int, int, int]:
    """0000:c1:00.0 as numbers."""
    domain, bus, device = bdf.split(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)


def _said(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - as above: not supported, no permission, lost
        return None


def _number(value: Any) -> float | None:
    """amdsmi says "N/A" for what it does not know."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
