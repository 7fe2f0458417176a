"""What else the machine did while a round ran, and which rounds that leaves out.

`look` reads; everything else is a pure function, so that a verifier can ask again whether a round should have been kept.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from lanewise.backends.memory import available
from lanewise.bench.machine import peak_memory, surroundings

__all__ = ["GPU_RULE", "RULE", "SLOWED", "ancestors", "left_out", "look", "trimmed"]

RULE: dict[str, Any] = {"busy": 0.1, "throttled": True, "clock": None}
"""busy: most of one core that other processes may use; throttled: leave out a round in which a processor was slowed down for its heat or
power; clock: most that the clock may fall, as a share. None does not look. On a CPU that rests between rounds the clock says little."""

GPU_RULE: dict[str, Any] = {"busy": None, "throttled": True, "clock": None, "alone": True}
"""Of a run on a GPU. A busy host does not slow down a graph that is replayed, so `busy` is not asked; alone: leave out a round in which
another process computed on the GPU. Its clock is no reason, as it rests between rounds; that it was held down (SLOWED) is one."""
SLOWED = ("power cap", "slowdown", "heat", "hardware heat", "power brake")

_PROC = Path("/proc")
_CPUS = Path("/sys/devices/system/cpu")
_ZONES = Path("/sys/class/thermal")
_TICKS = 100  # a second: USER_HZ of Linux on x86 and Arm (proc(5))
_KERNEL = 2  # kthreadd, the parent of the kernel's threads
_NAME = 64  # characters of a process's name that are kept


def look(proc: Path = _PROC, cpus: Path = _CPUS, zones: Path = _ZONES) -> dict[str, Any]:
    """The moment's load, ticks, clock (MHz), temperature (degrees Celsius), counts of throttling, processes and memory; None where the
    machine does not say. Power is what a GPU's driver gives; there is none here."""
    now = surroundings()
    return {
        "time": time.monotonic(),
        "load": now["load"],
        "ticks": now["ticks"] or None,
        "clock_mhz": _average(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), 1e3),
        "temperature": _largest(zones.glob("thermal_zone*/temp"), 1e3),
        "power": None,
        "throttle": _throttle(cpus),
        "neighbours": _neighbours(proc),
        "memory_available": available(),
        "peak_memory": peak_memory(),
    }


def trimmed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without the processes that used no time between them, which say nothing and are hundreds."""
    if before["neighbours"] is None or after["neighbours"] is None:
        return {**before}, {**after}
    same = {_key(p) for p in before["neighbours"]} & {_key(p) for p in after["neighbours"]}
    one, other = ([p for p in side["neighbours"] if _key(p) not in same] for side in (before, after))
    return {**before, "neighbours": one}, {**after, "neighbours": other}


def left_out(rule: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Why a round does not count, or None where it does: a function of the rule and of what was around, never of a sample.

    >>> quiet = {"time": 0.0, "ticks": None, "clock_mhz": None, "throttle": {"core": 3}, "neighbours": []}
    >>> left_out(RULE, quiet, {**quiet, "time": 1.0})
    >>> left_out(RULE, quiet, {**quiet, "time": 1.0, "throttle": {"core": 4}})
    'throttled: core'
    """
    if rule["busy"] is not None:
        busy = _busy(before, after)
        if busy is not None and busy > rule["busy"]:
            return f"others used {busy:.2f} of a core"
    if rule["throttled"] and before["throttle"] is not None and after["throttle"] is not None:
        grown = [name for name, count in after["throttle"].items() if count > before["throttle"].get(name, 0)]
        if grown:
            return f"throttled: {', '.join(grown)}"
    for side in (before, after):
        gpu = side.get("gpu") or {}
        held = [name for name in gpu.get("throttle") or () if name in SLOWED]
        if rule["throttled"] and held:
            return f"the GPU was slowed down: {', '.join(held)}"
        if rule.get("alone") and gpu.get("processes"):
            return "another process computed on the GPU"
    if rule["clock"] is not None and before["clock_mhz"] and after["clock_mhz"] is not None:
        fall = 1 - after["clock_mhz"] / before["clock_mhz"]
        if fall > rule["clock"]:
            return f"the clock fell by {100 * fall:.0f} %"
    return None


def ancestors(pid: int, proc: Path = _PROC) -> tuple[int, ...]:
    """The process that started this one, the one that started that, and so on."""
    found: list[int] = []
    while pid > 1 and (stat := _stat(proc / str(pid))) is not None:
        pid = int(stat[1][1])
        found.append(pid)
    return tuple(found)


def _busy(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Cores that others used: processes that are there afterwards, and what the hypervisor took for other machines.

    What ended in between left all of its time to its parent, of which only what is new counts.
    """
    seconds = after["time"] - before["time"]
    if after["neighbours"] is None or before["neighbours"] is None or seconds <= 0:
        return None
    had, now = ({p["pid"]: p for p in side["neighbours"]} for side in (before, after))
    gained = {pid: p["cpu_seconds"] - (had[pid]["cpu_seconds"] if pid in had else 0.0) for pid, p in now.items()}
    for gone in had.keys() - now.keys():
        heir, passed = had[gone]["parent"], {gone}
        while heir in had and heir not in now and heir not in passed:
            passed.add(heir)
            heir = had[heir]["parent"]
        if heir in gained:
            gained[heir] -= had[gone]["cpu_seconds"]
    used = sum(max(0.0, more) for more in gained.values())
    stolen = (after["ticks"] or {}).get("steal", 0) - (before["ticks"] or {}).get("steal", 0)
    return float((used + max(0, stolen) / _TICKS) / seconds)


def _key(process: Mapping[str, Any]) -> tuple[Any, ...]:
    return process["pid"], process["name"], process["cpu_seconds"]


def _neighbours(proc: Path) -> list[dict[str, Any]] | None:
    """Every process but this one that has used time, with that of its children that have ended."""
    found = []
    if not (proc / "stat").exists():
        return None
    for folder in proc.glob("[0-9]*"):
        stat = _stat(folder)
        if stat is None or int(folder.name) == os.getpid():
            continue
        name, fields = stat
        ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime: proc(5), counted from the state on
        if ticks:
            parent = int(fields[1])
            # A bundle is shown around: of a neighbour it says whether it is one of the kernel's threads, whose names tell nothing of its owner.
            known = name[:_NAME] if _KERNEL in (parent, int(folder.name)) else "a process"
            found.append({"pid": int(folder.name), "parent": parent, "name": known, "cpu_seconds": ticks / _TICKS})
    return sorted(found, key=lambda p: p["pid"])


def _stat(folder: Path) -> tuple[str, list[str]] | None:
    """(name, fields from the state on); a name may hold blanks and parentheses. None for a process that has gone."""
    try:
        head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    return head.partition("(")[2], rest.split()


def _throttle(cpus: Path) -> dict[str, int] | None:
    """How often cores and packages were slowed down since the machine started, summed over the processors."""
    found: dict[str, int] = {}
    for path in cpus.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        name, count = path.name.removesuffix("_throttle_count"), _number(path)
        if count is not None:
            found[name] = found.get(name, 0) + int(count)
    return found or None


def _average(paths: Any, unit: float) -> float | None:
    values = [value for value in map(_number, paths) if value is not None]
    return mean(values) / unit if values else None


def _largest(paths: Any, unit: float) -> float | None:
    return max((value / unit for value in map(_number, paths) if value is not None), default=None)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
