"""Every LANEWISE_* variable, once: name, type, default, help. No other file reads the environment.

>>> get("CONTEXT")
4096
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lanewise.errors import SettingError

__all__ = ["SETTINGS", "Setting", "enabled", "get", "switched"]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _commit(text: str) -> str:
    if len(text) != 40 or set(text) - set("0123456789abcdef"):
        raise ValueError
    return text


def _flag(text: str) -> bool:
    return {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}[text.lower()]


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: `LANEWISE_<name>` in the environment. `parse` raises ValueError or KeyError for what it refuses."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    accepts: str
    help: str

    @property
    def variable(self) -> str:
        return f"LANEWISE_{self.name}"


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("DEVICE", str, "cpu", "reference or cpu", "the device that models run on when none is named"),
        Setting("CONTEXT", _positive, 4096, "a positive number of tokens", "the most context a model is given when none is asked for"),
        Setting("MAX_BATCH", _positive, 16, "a positive number", "how many sequences decode together"),
        Setting("PREFILL_CHUNK", _positive, 512, "a positive number of tokens", "how many prompt tokens one step takes"),
        Setting("THREADS", _positive, None, "a positive number", "worker threads of the cpu device; the physical cores when unset"),
        Setting("PIN", _flag, False, "0 or 1", "1 ties each worker thread of the cpu device to a core"),
        Setting("CPU_ISA", str, None, "a CPU row of `lanewise targets`", "emit CPU kernels for a lower instruction set than the processor has"),
        Setting("CACHE_DIR", str, None, "a folder", "where compiled kernels are kept; ~/.cache/lanewise when unset"),
        Setting("COMMIT", _commit, None, "40 hexadecimal digits", "the commit that these sources are a copy of, where no git is there to say so"),
        Setting(
            "WITNESS",
            str,
            None,
            "a file",
            "add a line of JSON to this file for each model that ran, and for a process of torch ops: kernels, steps, hashes",
        ),
        Setting("CPU_KERNELS", _flag, True, "0 or 1", "0 takes the compiled CPU kernels out of dispatch"),
        Setting("SKINNY", _flag, True, "0 or 1", "0 takes the skinny GPU kernel out of dispatch, and linear runs on BLAS"),
        Setting("QUANT_GEMV", _flag, True, "0 or 1", "0 takes the GPU kernel that multiplies packed weights out of dispatch"),
        Setting("QUANT_GEMM", _flag, True, "0 or 1", "0 takes the GPU kernel that unpacks weights in front of BLAS out of dispatch"),
        Setting("REFERENCE", _flag, True, "0 or 1", "0 takes the reference kernels out of dispatch"),
    )
}


def get(name: str) -> Any:
    """The setting's value: parsed from the environment, or its default. Raises SettingError for a value it cannot take."""
    setting = SETTINGS[name]
    text = os.environ.get(setting.variable)
    if text is None or text == "":
        return setting.default
    try:
        return setting.parse(text)
    except (ValueError, KeyError):
        raise SettingError(f"{setting.variable} is {text!r}; it takes {setting.accepts}") from None


def enabled(switch: str | None) -> bool:
    """Whether a kernel's switch leaves it on; a kernel without a switch always is."""
    return switch is None or bool(get(switch))


@contextmanager
def switched(name: str, text: str) -> Iterator[None]:
    """The setting as if the environment said so, inside the block: the other arm of an A/B run."""
    variable = SETTINGS[name].variable
    before = os.environ.get(variable)
    os.environ[variable] = text
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
