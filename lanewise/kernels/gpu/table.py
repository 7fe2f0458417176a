"""Which configuration runs a shape: measured tables, the user's before the shipped, and reasoned defaults where nothing near was measured.

A table belongs to a device, its driver and a Triton version. The user's (`lanewise tune` writes it) is ignored, with words, when one of these
is another; a shipped one holds for its device, and stands in for devices of the same target. Neither decides what is right, only what is fast.

>>> from lanewise import arch
>>> print(choose(arch.parse("gfx1100"), "bf16", m=1, n=4096, k=4096).config)
lanes 4x256 warps=4 ahead=4
"""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from math import inf, log2
from pathlib import Path
from typing import Any

from lanewise import settings
from lanewise.arch import Arch
from lanewise.contract import dtype
from lanewise.errors import SettingError, ShapeError
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.defaults import default, fits

__all__ = ["SCHEMA", "SHIPPED", "VERSION", "Choice", "Row", "Table", "choose", "forget", "here", "read", "user_path"]

SCHEMA, VERSION = "lanewise.table", 1
SHIPPED = Path(__file__).parent / "tables"
_MOST_BYTES = 4 << 20  # of a table: some 20 000 rows
_MOST_NAME = 100  # letters of a device in a file's name
_MOST_SIZE = 2**31  # of n and k
_NEAR = 2.0  # doublings of n and k together up to which a measured row speaks for a shape
_DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


@dataclass(frozen=True, slots=True)
class Row:
    """What won at one shape. seconds: of the configuration; blas_seconds: of the vendor's library in the same run."""

    dtype: str
    m: int
    n: int
    k: int
    config: Config
    seconds: float
    blas_seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and whom they hold for: key has `device`, `target`, `driver` and `triton`."""

    key: dict[str, str]
    rows: tuple[Row, ...]

    def nearest(self, dtype: str, m: int, n: int, k: int) -> Row | None:
        """The row of the next larger measured m whose n and k are nearest, or None where all are too far away."""
        found = [r for r in self.rows if r.dtype == dtype and r.m >= m and n and k and _distance(r, n, k) <= _NEAR]
        return min(found, key=lambda r: (r.m, _distance(r, n, k)), default=None)

    def text(self) -> str:
        """The table as `read` takes it."""
        head = {"schema": SCHEMA, "version": VERSION, "key": self.key}
        rows = ",\n  ".join(json.dumps(asdict(row)) for row in self.rows)
        return f'{json.dumps(head)[:-1]}, "rows": [\n  {rows}\n]}}\n'


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration and where it comes from, in words."""

    config: Config
    source: str


def choose(arch: Arch, dtype: str, m: int, n: int, k: int, device: str | None = None) -> Choice:
    """The configuration for a problem on a target; `device` is the name that its driver gives it, where it is known."""
    return _chosen(arch, dtype, m, n, k, device, settings.get("CACHE_DIR"))


def read(path: Path) -> Table:
    """A table from a file. Raises ShapeError, saying what is wrong, for anything else."""
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"it has {size} bytes; at most {_MOST_BYTES} are read")
        found = json.loads(path.read_text("utf-8"))
        if (found["schema"], found["version"]) != (SCHEMA, VERSION):
            raise ValueError(f"it is {found['schema']} {found['version']}, not {SCHEMA} {VERSION}")
        key = {str(name): str(value) for name, value in found["key"].items()}
        missing = {"device", "target", "driver", "triton"} - key.keys()
        if missing:
            raise ValueError(f"its key has no {', '.join(sorted(missing))}")
        return Table(key, tuple(_row(one) for one in found["rows"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, ShapeError) as error:
        raise ShapeError(f"{path.name} is no table of configurations: {type(error).__name__} {' '.join(str(error).split())[:200]}") from None


def here(device: str) -> dict[str, str]:
    """The key of a device of this machine, its target apart."""
    return {"device": device, "driver": _driver(), "triton": _triton()}


def user_path(device: str) -> Path:
    """Where `lanewise tune` keeps what it measured on a device. Raises SettingError where no folder is named and nobody has a home."""
    try:
        folder = Path(settings.get("CACHE_DIR") or Path("~/.cache/lanewise").expanduser())
    except RuntimeError as error:
        raise SettingError(f"LANEWISE_CACHE_DIR names no folder, and without it: {error}") from None
    return folder / f"gpu-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')[:_MOST_NAME]}.json"


def forget() -> None:
    """Read tables again at the next choice."""
    _chosen.cache_clear()
    _user.cache_clear()


@functools.lru_cache(maxsize=4096)
def _chosen(arch: Arch, dtype: str, m: int, n: int, k: int, device: str | None, _cache: str | None) -> Choice:
    notes = ""
    for table, words in _tables(arch, device):
        if table is None:
            notes = f"; {words}"
            continue
        row = table.nearest(dtype, m, n, k)
        if row is not None and (row.config.body == "blas" or fits(row.config, arch, m)):
            return Choice(row.config, f"{words}, measured at m={row.m} n={row.n} k={row.k}{notes}")
    return Choice(default(arch, dtype, m, n, k), f"default for wave{arch.wave}{notes}")


def _tables(arch: Arch, device: str | None) -> Iterator[tuple[Table | None, str]]:
    """Tables in the order in which they are asked, each with its name; of one that is not used only why."""
    if device is not None:
        yield from _user(device, settings.get("CACHE_DIR"))
    shipped = sorted(_shipped(), key=lambda t: t.key["device"] != device)
    for table in shipped:
        if table.key["device"] == device or table.key["target"] == arch.name:
            other = "" if device in (None, table.key["device"]) else ", another device of the same target"
            yield table, f"shipped table of {table.key['device']}{other}"


@functools.cache
def _shipped() -> tuple[Table, ...]:
    return tuple(read(path) for path in sorted(SHIPPED.glob("*.json")))


@functools.cache
def _user(device: str, _cache: str | None) -> tuple[tuple[Table | None, str], ...]:
    try:
        path = user_path(device)
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, SettingError):
        return ()
    except (OSError, ValueError) as error:
        return ((None, f"the user table is ignored: {error}"),)
    try:
        table = read(path)
    except ShapeError as error:
        return ((None, f"the user table is ignored: {error}"),)
    stale = [f"{name} {table.key[name]} there and {now} here" for name, now in here(device).items() if table.key[name] != now]
    if stale:
        return ((None, f"the user table {path.name} is stale and ignored: {', '.join(stale)}; `lanewise tune` measures again"),)
    return ((table, "user table"),)


def _row(one: dict[str, Any]) -> Row:
    names = {field.name for field in fields(Config)}
    if set(one["config"]) - names:
        raise ValueError(f"a configuration has {', '.join(sorted(set(one['config']) - names))}")
    for name in ("m", "n", "k"):
        if type(one[name]) is not int or not 1 <= one[name] < _MOST_SIZE:
            raise ValueError(f"a row has {name}={str(one[name])[:40]}; it is a whole number from 1")
    for name in ("seconds", "blas_seconds"):
        if not 0 < float(one[name]) < inf:
            raise ValueError(f"a row has {name}={one[name]}; it is a time")
    if dtype(one["dtype"]).name != one["dtype"]:
        raise ValueError(f"a row has dtype {one['dtype']}; it is called {dtype(one['dtype']).name}")
    return Row(one["dtype"], one["m"], one["n"], one["k"], Config(**one["config"]), float(one["seconds"]), float(one["blas_seconds"]))


def _distance(row: Row, n: int, k: int) -> float:
    return abs(log2(row.n / n)) + abs(log2(row.k / k))


@functools.cache
def _driver() -> str:
    """The version of the driver, as it says in its own file; `unknown` where there is none."""
    for path in _DRIVERS:
        try:
            found = re.search(r"\d+(\.\d+)+", path.read_text())
        except OSError:
            continue
        if found:
            return found[0]
    return "unknown"


@functools.cache
def _triton() -> str:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return "none"
