"""Where and with what a measurement was made: processor, caches, versions, commit, and what else went on."""

import os
import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import lanewise
from lanewise import arch, settings

__all__ = ["commit", "last_level_cache", "machine", "peak_memory", "settings_now", "surroundings", "versions"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPU_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # proc(5), /proc/stat
_PACKAGES = ("numpy", "llvmlite")
_GIT_SECONDS = 20


def machine() -> dict[str, Any]:
    """The processor's name, its flags and the row of `lanewise targets` that follows from them, cores, caches and memory in bytes."""
    info = _cpuinfo()
    return {
        "cpu": info.get("model name") or info.get("CPU part") or platform.processor() or "unknown",
        "flags": info.get("flags") or info.get("Features") or "",
        "row": arch.host().name,
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "last_level_cache": last_level_cache(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of Lanewise, Python, and the packages that the measured code is made with."""
    from llvmlite.binding import llvm_version_info

    found = {"lanewise": lanewise.__version__, "python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}
    return {**found, "llvm": ".".join(map(str, llvm_version_info))}


def settings_now() -> dict[str, Any]:
    """Every LANEWISE_* setting's value."""
    return {setting.variable: settings.get(name) for name, setting in settings.SETTINGS.items()}


def commit(package: Path | None = None) -> dict[str, Any] | None:
    """{"id", "dirty"} of the checkout that the code runs from; None for an installed copy, or without git.

    Only files that git tracks, or would, make it dirty. Where git says nothing the setting does: every source's hash beside it shows
    whether that was true.
    """
    package = package or Path(lanewise.__file__).parent
    top = _git(package, "rev-parse", "--show-toplevel")
    head = _git(package, "rev-parse", "HEAD")
    # A copy installed into an environment inside some other project's checkout is not of that project's commit.
    if top is None or head is None or Path(top).resolve() != package.parent.resolve():
        return {"id": named, "dirty": False} if (named := settings.get("COMMIT")) else None
    return {"id": head, "dirty": _git(package, "status", "--porcelain") != ""}


def last_level_cache(folder: Path = _CACHES) -> int | None:
    """Bytes of the largest-numbered cache level that holds data; None where the system does not say."""
    found: dict[int, int] = {}
    for index in folder.glob("index*"):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                found[int(level)] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found[max(found)] if found else None


def peak_memory() -> int:
    """The most bytes of memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def surroundings() -> dict[str, Any]:
    """What the machine is doing: load averages, and ticks of all processors since it started, by what they went into."""
    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        ticks = []
    return {"load": list(os.getloadavg()), "ticks": dict(zip(_CPU_TIMES, map(int, ticks), strict=False))}


def _cpuinfo() -> dict[str, str]:
    """The fields of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
