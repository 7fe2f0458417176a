"""One measurement at a time on a device: two that overlap would measure each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lanewise import settings
from lanewise.bench.around import ancestors
from lanewise.errors import EvidenceError

__all__ = ["held"]


@contextmanager
def held(device: str) -> Iterator[None]:
    """Hold the device's lock inside the block. Raises EvidenceError, naming the process that has it, while another does.

    What the holder itself started, such as the command of an A/B run, is part of that measurement and goes ahead. The lock is a
    user's: it lies in the cache directory. The system drops it when its holder dies.
    """
    path = _folder() / f"{device.replace(':', '-')}.lock"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EvidenceError(f"the lock of device {device} cannot be made: {path}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 32).decode(errors="replace").strip()
        os.close(handle)
        if not (holder.isdecimal() and int(holder) in ancestors(os.getpid())):
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise EvidenceError(f"{who} is measuring on device {device}; two measurements at a time would disturb each other") from None
        yield
        return
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _folder() -> Path:
    return Path(settings.get("CACHE_DIR") or Path.home() / ".cache" / "lanewise") / "locks"
