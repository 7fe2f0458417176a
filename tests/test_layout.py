"""The layout holds: imports only go down, files stay short, one file reads the environment, a CPU user loads no torch.

Every rule is a function from a folder to a list of complaints: empty for lanewise/, and not empty for a planted violation.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanewise import __all__ as front_door
from lanewise import settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lanewise"
# Lowest first. A room imports itself and what stands before it.
ROOMS = (
    *("errors", "settings", "arch", "contract", "dispatch", "formats", "files", "oracle", "kernels", "ops", "models", "backends", "engine"),
    *("serve", "integrations", "isa", "emulator", "prove", "bench", "evidence", "gates", "cli", "__main__"),
)
# What proves the runtime is not part of it, though some of it stands lower than the command line, which may use both.
PROVERS = frozenset(("isa", "emulator", "prove", "bench", "evidence", "gates"))
RUNTIME = frozenset(ROOMS) - PROVERS - {"cli", "__main__"}
MOST_LINES = 400
# What `from lanewise import ...` gives comes from the engine.
FRONT_DOOR = frozenset(front_door) - {"__version__"}


def sources(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(path: Path, tree: ast.Module, package: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported anywhere in a file, relative imports resolved, `from a import b` as a.b."""
    here = [package.name, *path.relative_to(package).with_suffix("").parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def room_of(path: Path, package: Path) -> str | None:
    """The room of a file: its folder or, at the top, its own name. The package's front door stands above them all."""
    first = path.relative_to(package).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def imports_that_go_up(package: Path) -> list[str]:
    found = []
    for path, tree in sources(package):
        room = room_of(path, package)
        if room is None:
            continue
        if room not in ROOMS:
            found.append(f"{path.name}: room {room!r} has no place in the layout")
            continue
        for line, name in imported(path, tree, package):
            parts = name.split(".")
            target = "engine" if parts[-1] in FRONT_DOOR and len(parts) == 2 else parts[1] if len(parts) > 1 else ""
            if parts[0] != package.name or target not in ROOMS:
                continue
            up = ROOMS.index(target) > ROOMS.index(room)
            if up or (room in RUNTIME and target in PROVERS):
                found.append(f"{path.relative_to(package)}:{line}: {room} imports {name}")
    return found


def long_files(package: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")}
    return [f"{path.name}: {length} lines" for path, length in lengths.items() if length > MOST_LINES]


def environment_reads(package: Path) -> list[str]:
    """Uses of os.environ and os.getenv outside settings.py, under whatever name `os` was imported."""
    names = ("environ", "environb", "getenv", "getenvb")
    found = []
    for path, tree in sources(package):
        if path == package / "settings.py":
            continue
        for node in ast.walk(tree):
            attribute = isinstance(node, ast.Attribute) and node.attr in names
            direct = isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in names for a in node.names)
            if attribute or direct:
                found.append(f"{path.relative_to(package)}:{node.lineno}: reads the environment")
    return found


def heavy_imports(code: str, cwd: Path = ROOT) -> list[str]:
    """Which of the packages that a CPU user does not have are loaded by running `code` in a fresh interpreter."""
    heavy = ("torch", "triton", "transformers", "xllamacpp")
    script = f"{code}\nimport sys\nprint([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=cwd, timeout=60)
    return list(ast.literal_eval(done.stdout.splitlines()[-1]))


def undocumented(declared: set[str], document: str) -> list[str]:
    written = set(re.findall(r"LANEWISE_[A-Z0-9_]+", document))
    return [f"{name} is not documented" for name in declared - written] + [f"{name} does not exist" for name in written - declared]


def plant(tmp_path: Path, files: dict[str, str]) -> Path:
    package = tmp_path / "lanewise"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def test_imports_only_go_down():
    assert imports_that_go_up(PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("formats/q.py", "from lanewise.files import open_model"),
        ("formats/q.py", "from lanewise import files"),
        ("formats/q.py", "import lanewise.engine.llm"),
        ("formats/q.py", "from .. import engine"),
        ("formats/q.py", "from ..models.spec import ModelSpec"),
        ("formats/q.py", "def f():\n    from lanewise.cli import app"),
        ("settings.py", "from . import arch"),
        ("models/spec.py", "from lanewise import LLM"),
        ("engine/llm.py", "import lanewise.isa"),
        ("serve/http.py", "from lanewise.prove import report"),
        ("surprise/x.py", ""),
    ],
)
def test_a_planted_import_that_goes_up_is_found(tmp_path, name, text):
    assert len(imports_that_go_up(plant(tmp_path, {name: text}))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("engine/llm.py", "from lanewise.formats import get"),
        ("engine/llm.py", "from lanewise.engine.pages import Pages"),
        ("cli/prove.py", "from lanewise.prove import report"),
        ("prove/report.py", "from lanewise.emulator import run"),
        ("formats/q.py", "import numpy, os"),
        ("__init__.py", "from lanewise import engine"),
    ],
)
def test_an_import_that_goes_down_is_not_complained_of(tmp_path, name, text):
    assert imports_that_go_up(plant(tmp_path, {name: text})) == []


def test_the_runtime_cannot_reach_what_proves_it_wherever_that_stands():
    assert {"engine", "backends", "serve", "integrations", "models", "kernels"} <= RUNTIME
    assert set(ROOMS) >= PROVERS


def test_no_file_is_over_its_limit():
    assert long_files(PACKAGE) == []
    assert long_files(ROOT / "tests") == []


def test_a_planted_long_file_is_found(tmp_path):
    package = plant(tmp_path, {"a.py": "x = 1\n" * MOST_LINES, "b.py": "x = 1\n" * (MOST_LINES + 1)})
    assert long_files(package) == [f"b.py: {MOST_LINES + 1} lines"]


def test_only_settings_reads_the_environment():
    assert environment_reads(PACKAGE) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['X']",
        "import os\nx = os.getenv('X')",
        "import os as o\no.environ.get('X')",
        "from os import environ",
        "from os import getenv as g",
    ],
)
def test_a_planted_read_of_the_environment_is_found(tmp_path, text):
    package = plant(tmp_path, {"arch.py": text, "settings.py": text})
    assert len(environment_reads(package)) == 1


def test_a_cpu_user_loads_no_torch():
    rooms = [room for room in ("cli", "engine", "backends", "models", "files", "formats", "oracle") if (PACKAGE / room).exists()]
    assert heavy_imports("\n".join(f"import lanewise.{room}" for room in rooms)) == []


def test_a_planted_import_of_torch_is_found(tmp_path):
    (tmp_path / "torch.py").write_text("")
    plant(tmp_path, {"__init__.py": "", "ops.py": "import torch"})
    assert heavy_imports("import lanewise.ops", cwd=tmp_path) == ["torch"]


def test_every_setting_is_documented_and_every_documented_one_exists():
    declared = {s.variable for s in settings.SETTINGS.values()}
    assert undocumented(declared, (ROOT / "docs" / "user.md").read_text()) == []


def test_a_planted_setting_that_is_missing_or_left_over_is_found():
    assert undocumented({"LANEWISE_A"}, "") == ["LANEWISE_A is not documented"]
    assert undocumented({"LANEWISE_A"}, "`LANEWISE_A`, `LANEWISE_B`") == ["LANEWISE_B does not exist"]
