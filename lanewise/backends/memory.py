"""How much memory the host can still give, and a refusal with both numbers when that is too little."""

from pathlib import Path

from lanewise.errors import DeviceError

__all__ = ["available", "require"]


def available() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def require(nbytes: int, what: str) -> None:
    """Raise DeviceError, naming `what`, when `nbytes` are not available."""
    free = available()
    if free is not None and nbytes > free:
        raise DeviceError(f"{what} need {nbytes / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are available")
