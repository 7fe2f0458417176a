"""A GPU that other processes compute on while this one looks, and does nothing there itself.

PyTorch knows the GPUs, and is asked in a process of its own that ends before anything is measured: so this one is none of those that the driver
lists, and stays small, since the memory of a command is only known where it has more than whoever started it.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lanewise
from lanewise.bench.around import SLOWED
from lanewise.bench.gpu_around import watch
from lanewise.bench.machine import machine, versions
from lanewise.errors import DeviceError

__all__ = ["Beside", "asked"]

_ASKING = 300.0  # seconds in which PyTorch has to answer
_LET_GO = 0.5  # seconds for which a driver may list a process that has ended
_AGAIN = 0.02
_BETWEEN = 0.25  # seconds from look to look while commands run


class Beside:
    """Readings of a GPU, and what a manifest says of it. Raises DeviceError for one that is not there, and where nobody knows.

    Commands are over when a round is, and the GPU rests again: inside a `with` block it is also looked at while they run, and what held its
    clock down then is in the next reading.
    """

    def __init__(self, device: str) -> None:
        said = asked(device)
        self.index = int(said["index"])
        self._watch = watch(SimpleNamespace(**said["place"]), computes=False)
        self._gpu = {**said["gpu"], "driver": self._watch.driver}
        self._versions: dict[str, str] = said["versions"]
        self._over, self._slowed = threading.Event(), set[str]()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Beside":
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._over.wait(_BETWEEN):
            self._slowed.update(name for name in self._watch.read().get("throttle") or () if name in SLOWED)

    def read(self) -> dict[str, Any]:
        """The readings of a moment, and what held the clock down since the last one.

        A process that is no longer listed a moment later is one that has ended, as the commands have.
        """
        found = self._watch.read()
        if found.get("throttle") is not None:
            before, self._slowed = self._slowed, set()
            found["throttle"] = [*found["throttle"], *(name for name in SLOWED if name in before - {*found["throttle"]})]
        until = time.monotonic() + _LET_GO
        while found.get("processes") and time.monotonic() < until:
            time.sleep(_AGAIN)
            still = {one["pid"] for one in self._watch.read()["processes"] or ()}
            found["processes"] = [one for one in found["processes"] if one["pid"] in still]
        return found

    def facts(self) -> dict[str, Any]:
        """The manifest's `machine` and `versions`."""
        return {"machine": {**machine(), "last_level_cache": self._gpu["l2"], "gpu": self._gpu}, "versions": {**versions(), **self._versions}}


def asked(device: str) -> dict[str, Any]:
    """What `gpu_card.answer` says of a device. Raises DeviceError where there is none, or no PyTorch."""
    path = os.pathsep.join([str(Path(lanewise.__file__).parents[1]), *filter(None, sys.path)])
    argv = ["env", f"PYTHONPATH={path}", sys.executable, "-m", "lanewise.bench.gpu_card", device]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_ASKING)
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise DeviceError(f"PyTorch did not say in {_ASKING:.0f} seconds what {device} is") from None
    except (IndexError, ValueError):
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
        raise DeviceError(f"to watch {device} takes PyTorch, which knows the GPUs: {words}; pip install 'lanewise[gpu]' brings it") from None
    if "error" in said:
        raise DeviceError(str(said["error"]))
    return said
