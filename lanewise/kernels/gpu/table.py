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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from math import inf, log2
from pathlib import Path
from typing import Any, ClassVar, Protocol

from lanewise import settings
from lanewise.arch import Arch
from lanewise.contract import dtype
from lanewise.errors import SettingError, ShapeError
from lanewise.kernels.gpu.config import Config
from lanewise.kernels.gpu.defaults import default, fits

__all__ = [
    "CACHES", "LINEAR", "SCHEMA", "SHIPPED", "VERSION", "Choice", "Kind", "Measured", "Row", "Table", "choose", "configuration", "forget", "here",
    "nearest", "read", "sizes", "user_path",
]  # fmt: skip

SCHEMA, VERSION = "lanewise.table", 1
SHIPPED = Path(__file__).parent / "tables"
_MOST_BYTES = 4 << 20  # of a table: some 20 000 rows
_MOST_NAME = 100  # letters of a device in a file's name
_MOST_SIZE = 2**31  # of n and k
_NEAR = 2.0  # doublings of n and k together up to which a measured row speaks for a shape
_DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))
CACHES: list[Callable[[], None]] = []  # what `forget` clears


class Measured(Protocol):
    """A row of some table, a dataclass. name: the dtype or format that it is of; blas_seconds: of the vendor's library in the same run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str: ...
    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def config(self) -> Any: ...
    @property
    def seconds(self) -> float: ...
    @property
    def blas_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table. schema: what its files say that they are; prefix: of their names.

    row: one of JSON, or any error; fits: whether a row's configuration can run so many tokens on a target
    """

    schema: str
    prefix: str
    row: Callable[[dict[str, Any]], Measured]
    fits: Callable[[Any, Arch, int], bool]


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

    @property
    def name(self) -> str:
        return self.dtype


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and whom they hold for: key has `device`, `target`, `driver` and `triton`."""

    key: dict[str, str]
    rows: tuple[Measured, ...]
    kind: Kind = field(default_factory=lambda: LINEAR)

    def nearest(self, name: str, m: int, n: int, k: int) -> Measured | None:
        """The row of the next larger measured m whose n and k are nearest, or None where all are too far away."""
        found = [r for r in self.rows if r.name == name and r.m >= m and n and k and _distance(r, n, k) <= _NEAR]
        return min(found, key=lambda r: (r.m, _distance(r, n, k)), default=None)

    def text(self) -> str:
        """The table as `read` takes it."""
        head = {"schema": self.kind.schema, "version": VERSION, "key": self.key}
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


def read(path: Path, kind: Kind | None = None) -> Table:
    """A table from a file. Raises ShapeError, saying what is wrong, for anything else."""
    kind = kind or LINEAR
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"it has {size} bytes; at most {_MOST_BYTES} are read")
        found = json.loads(path.read_text("utf-8"))
        if (found["schema"], found["version"]) != (kind.schema, VERSION):
            raise ValueError(f"it is {found['schema']} {found['version']}, not {kind.schema} {VERSION}")
        key = {str(name): str(value) for name, value in found["key"].items()}
        missing = {"device", "target", "driver", "triton"} - key.keys()
        if missing:
            raise ValueError(f"its key has no {', '.join(sorted(missing))}")
        return Table(key, tuple(kind.row(one) for one in found["rows"]), kind)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, ShapeError) as error:
        raise ShapeError(f"{path.name} is no table of configurations: {type(error).__name__} {' '.join(str(error).split())[:200]}") from None


def here(device: str) -> dict[str, str]:
    """The key of a device of this machine, its target apart."""
    return {"device": device, "driver": _driver(), "triton": _triton()}


def user_path(device: str, kind: Kind | None = None) -> Path:
    """Where `lanewise tune` keeps what it measured on a device. Raises SettingError where no folder is named and nobody has a home."""
    try:
        folder = Path(settings.get("CACHE_DIR") or Path("~/.cache/lanewise").expanduser())
    except RuntimeError as error:
        raise SettingError(f"LANEWISE_CACHE_DIR names no folder, and without it: {error}") from None
    return folder / f"{(kind or LINEAR).prefix}-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')[:_MOST_NAME]}.json"


def forget() -> None:
    """Read tables again at the next choice."""
    for clear in CACHES:
        clear()


def nearest(kind: Kind, arch: Arch, name: str, m: int, n: int, k: int, device: str | None) -> tuple[Measured | None, str]:
    """(the row that speaks for a problem, None where no table has one, and where that is known from)."""
    notes = ""
    for table, words in _tables(kind, arch, device):
        if table is None:
            notes = f"; {words}"
            continue
        row = table.nearest(name, m, n, k)
        if row is not None and kind.fits(row.config, arch, m):
            return row, f"{words}, measured at m={row.m} n={row.n} k={row.k}{notes}"
    return None, f"default for wave{arch.wave}{notes}"


@functools.lru_cache(maxsize=4096)
def _chosen(arch: Arch, dtype: str, m: int, n: int, k: int, device: str | None, _cache: str | None) -> Choice:
    row, source = nearest(LINEAR, arch, dtype, m, n, k, device)
    return Choice(row.config if row else default(arch, dtype, m, n, k), source)


def _tables(kind: Kind, arch: Arch, device: str | None) -> Iterator[tuple[Table | None, str]]:
    """Tables in the order in which they are asked, each with its name; of one that is not used only why."""
    if device is not None:
        yield from _user(kind, device, settings.get("CACHE_DIR"))
    shipped = sorted(_shipped(kind), key=lambda t: t.key["device"] != device)
    for table in shipped:
        if table.key["device"] == device or table.key["target"] == arch.name:
            other = "" if device in (None, table.key["device"]) else ", another device of the same target"
            yield table, f"shipped table of {table.key['device']}{other}"


@functools.cache
def _shipped(kind: Kind) -> tuple[Table, ...]:
    return tuple(read(path, kind) for path in sorted(SHIPPED.glob(f"{kind.prefix}-*.json")))


@functools.cache
def _user(kind: Kind, device: str, _cache: str | None) -> tuple[tuple[Table | None, str], ...]:
    try:
        path = user_path(device, kind)
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, SettingError):
        return ()
    except (OSError, ValueError) as error:
        return ((None, f"the user table is ignored: {error}"),)
    try:
        table = read(path, kind)
    except ShapeError as error:
        return ((None, f"the user table is ignored: {error}"),)
    stale = [f"{name} {table.key[name]} there and {now} here" for name, now in here(device).items() if table.key[name] != now]
    if stale:
        return ((None, f"the user table {path.name} is stale and ignored: {', '.join(stale)}; `lanewise tune` measures again"),)
    return ((table, "user table"),)


CACHES += [_chosen.cache_clear, _user.cache_clear]


def configuration(one: dict[str, Any], kind: Any) -> Any:
    """The configuration of a row of JSON, a dataclass `kind`. Raises ValueError for what it has no field for."""
    names = {part.name for part in fields(kind)}
    if set(one["config"]) - names:
        raise ValueError(f"a configuration has {', '.join(sorted(set(one['config']) - names))}")
    return kind(**one["config"])


def sizes(one: dict[str, Any]) -> tuple[int, int, int]:
    """(m, n, k) of a row of JSON. Raises ValueError for what are none, and for times that are none."""
    for name in ("m", "n", "k"):
        if type(one[name]) is not int or not 1 <= one[name] < _MOST_SIZE:
            raise ValueError(f"a row has {name}={str(one[name])[:40]}; it is a whole number from 1")
    for name in ("seconds", "blas_seconds"):
        if not 0 < float(one[name]) < inf:
            raise ValueError(f"a row has {name}={one[name]}; it is a time")
    return one["m"], one["n"], one["k"]


def _row(one: dict[str, Any]) -> Row:
    m, n, k = sizes(one)
    if dtype(one["dtype"]).name != one["dtype"]:
        raise ValueError(f"a row has dtype {one['dtype']}; it is called {dtype(one['dtype']).name}")
    return Row(one["dtype"], m, n, k, configuration(one, Config), float(one["seconds"]), float(one["blas_seconds"]))


def _fits(config: Config, arch: Arch, m: int) -> bool:
    return config.body == "blas" or fits(config, arch, m)


LINEAR: Kind = Kind(SCHEMA, "gpu", _row, _fits)


def _distance(row: Measured, n: int, k: int) -> float:
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
