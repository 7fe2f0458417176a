"""Layout: imports only go down, files stay short, one file reads the environment, a CPU user loads nothing heavy, literals stay at home."""

import ast
from collections.abc import Iterator
from itertools import chain

from lanewise.gates import literals
from lanewise.gates.finding import Complaint, Excepted, Finding, Rule, judge
from lanewise.gates.markdown import rows_of
from lanewise.gates.names import PACKAGE, PREFIX, imported
from lanewise.gates.repo import Repo

__all__ = ["MOST_LINES", "PROVERS", "ROOMS", "RULES", "RUNTIME", "gate"]

# Lowest first. A room imports itself and what stands before it.
ROOMS = (
    *(
        "errors",
        "settings",
        "arch",
        "contract",
        "dispatch",
        "launched",
        "witness",
        "formats",
        "files",
        "oracle",
        "kernels",
        "ops",
        "models",
        "backends",
        "engine",
    ),
    *("serve", "integrations", "nn", "isa", "emulator", "prove", "bench", "evidence", "gates", "cli", "__main__"),
)
# What proves the runtime is not part of it, though some of it stands lower than the command line, which may use both.
PROVERS = frozenset(("isa", "emulator", "prove", "bench", "evidence", "gates"))
RUNTIME = frozenset(ROOMS) - PROVERS - {"cli", "__main__"}
MOST_LINES = 400
_SETTINGS, _ARCH, _PAGE = f"{PACKAGE}/settings.py", f"{PACKAGE}/arch.py", "docs/design.md"
_ENVIRONMENT = ("environ", "environb", "getenv", "getenvb", "putenv")


def gate(repo: Repo) -> list[Finding]:
    """Ask every rule about the layout."""
    return judge("layout", RULES, repo)


def room_of(path: str) -> str | None:
    """The room of a source: its folder or, at the top, its own name. The package's front door stands above them all."""
    first = path.split("/")[1].removesuffix(".py")
    return None if first == "__init__" else first


def imports_that_go_up(repo: Repo) -> Iterator[Complaint]:
    """Imports of a room that stands higher, or by the runtime of what proves it."""
    front = _front_door(repo)
    for path, tree in repo.sources.items():
        room = room_of(path)
        if room is None:
            continue
        if room not in ROOMS:
            yield Complaint(path, room, f"{path}: room {room!r} has no place in the layout")
            continue
        for line, _, name in imported(path, tree):
            parts = name.split(".")
            # what `from lanewise import ...` gives, and is no room itself, comes from the engine or an integration
            target = "engine" if parts[-1] in front - set(ROOMS) and len(parts) == 2 else parts[1] if len(parts) > 1 else ""
            if parts[0] != PACKAGE or target not in ROOMS:
                continue
            up = ROOMS.index(target) > ROOMS.index(room)
            if up or (room in RUNTIME and target in PROVERS):
                yield Complaint(path, name, f"{path}:{line}: {room} imports {name}")


def long_files(repo: Repo) -> Iterator[Complaint]:
    """Files of the package and the tests that are over the limit."""
    for path in chain(repo.sources, repo.tests):
        lines = len(repo.text(path).splitlines())
        if lines > MOST_LINES:
            yield Complaint(path, "lines", f"{path}: {lines} lines; {MOST_LINES} are allowed")


def undocumented_rooms(repo: Repo) -> Iterator[Complaint]:
    """Rooms that the table of the design does not have, and rows of it without a room or out of order."""
    there = {room_of(path) for path in repo.sources} - {None, "__main__"}
    rows = [cells[0].strip("`") for cells in rows_of(repo.text(_PAGE), "room")]
    for room in (room for room in ROOMS if room in there and room not in rows):
        yield Complaint(_PAGE, room, f"{_PAGE} has no row for the room {room}")
    for room in rows:
        if room not in there:
            yield Complaint(_PAGE, room, f"{_PAGE} has a row for {room}, which is not there")
    known = [room for room in rows if room in ROOMS]
    if known != sorted(known, key=ROOMS.index):
        yield Complaint(_PAGE, "order", f"{_PAGE}: the rooms are not in the order of the layout")


def environment_reads(repo: Repo) -> Iterator[Complaint]:
    """Uses of os.environ and its like outside settings.py, under whatever name `os` was imported, and names of variables as literals."""
    for path, tree in repo.sources.items():
        if path == _SETTINGS:
            continue
        for node in ast.walk(tree):
            attribute = isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT
            direct = isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in (*_ENVIRONMENT, "*") for a in node.names)
            if isinstance(node, ast.Attribute | ast.ImportFrom) and (attribute or direct):
                yield Complaint(path, "environment", f"{path}:{node.lineno}: reads the environment")
        for line, name in literals.variables(tree):
            yield Complaint(path, name, f"{path}:{line}: {name} is named outside settings.py; ask settings.SETTINGS for its variable")


def target_names(repo: Repo) -> Iterator[Complaint]:
    """Names of targets, whole or cut short, outside arch.py: code asks a target for a property."""
    for path, tree in repo.sources.items():
        for line, name in literals.targets(tree) if path != _ARCH else ():
            yield Complaint(path, name, f"{path}:{line}: {name!r} is the name of a target; ask its row for a property")


def bare_tolerances(repo: Repo) -> Iterator[Complaint]:
    """Tolerances that are a number, or the default of a library, and not derived."""
    for path, tree in chain(repo.sources.items(), repo.tests.items()):
        for line, text in literals.tolerances(tree) if path != f"{PACKAGE}/contract.py" else ():
            yield Complaint(path, text, f"{path}:{line}: {text} is a bare tolerance; derive it (contract.Tolerance)")


def heavy_imports(repo: Repo) -> Iterator[Complaint]:
    """Packages that a CPU user does not have and that are loaded with the rooms and the command line."""
    for name in repo.inventory["heavy"]:
        yield Complaint(PACKAGE, name, f"the command line and the engine load {name}")


def _front_door(repo: Repo) -> set[str]:
    """What the package's `__all__` names."""
    tree = repo.sources.get(f"{PACKAGE}/__init__.py", ast.Module([], []))
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in n.targets)]
    return {item for value in values for item in ast.literal_eval(value)} - {"__version__"}


RULES = (
    Rule("imports", "imports only go down, and the runtime imports nothing that proves it", imports_that_go_up),
    Rule("sizes", f"no file has more than {MOST_LINES} lines", long_files),
    Rule("rooms", f"{_PAGE} has every room, in order", undocumented_rooms),
    Rule(
        "environment",
        "only settings.py reads the environment and names its variables",
        environment_reads,
        (
            Excepted(f"{PACKAGE}/gates/repo.py", "environment", "a checked tree answers without this process's settings"),
            Excepted(f"{PACKAGE}/gates/names.py", PREFIX, "the gates look for variables in text"),
        ),
    ),
    Rule(
        "targets",
        "only arch.py names targets",
        target_names,
        (
            Excepted(f"{PACKAGE}/kernels/cpu/isa.py", "*", "the table of how LLVM is told of each CPU row"),
            Excepted(f"{PACKAGE}/kernels/cpu/dots.py", "*", "the table of each instruction set's dot products"),
            Excepted(f"{PACKAGE}/kernels/cpu/threads.py", "*", "the kernel's number of a system call, and the hint of a waiting thread"),
        ),
    ),
    Rule(
        "tolerances",
        "no tolerance is a bare number",
        bare_tolerances,
        (
            Excepted("tests/formats/test_formats_encode.py", "np.abs(y).max() <= 128 * 2.0 ** (-24)", "the largest code times the smallest step"),
            Excepted("tests/oracle/test_oracle_elementwise.py", "np.abs(want) < 2.0 ** (-24)", "says that the angle is where the cosine vanishes"),
            Excepted("tests/oracle/test_oracle_sample.py", "np.testing.assert_allclose(counts[order[:len(p)]], p * steps, atol=1)", "counts"),
        ),
    ),
    Rule("light", "a CPU user loads none of torch, triton, transformers, matplotlib", heavy_imports),
)
