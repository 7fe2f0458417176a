"""The layout holds: imports only go down, files stay short, one file reads the environment, a CPU user loads no torch.

The rules are those of `lanewise.gates.layout`: nothing to complain of in this repository, and something in a planted violation.
"""

import pytest
from support.repo import REPO, tree, words

from lanewise.gates import layout
from lanewise.gates.layout import MOST_LINES, PROVERS, ROOMS, RUNTIME

FRONT = '__all__ = ["LLM", "__version__"]'


def planted(tmp_path, name, text):
    """A package of one file, and the front door."""
    return tree(tmp_path, {"lanewise/__init__.py": FRONT, f"lanewise/{name}": text})


def test_imports_only_go_down():
    assert words(layout.imports_that_go_up, REPO) == []


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
    assert len(words(layout.imports_that_go_up, planted(tmp_path, name, text))) == 1


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
    assert words(layout.imports_that_go_up, planted(tmp_path, name, text)) == []


def test_the_runtime_cannot_reach_what_proves_it_wherever_that_stands():
    assert {"engine", "backends", "serve", "integrations", "models", "kernels"} <= RUNTIME
    assert set(ROOMS) >= PROVERS


def test_no_file_is_over_its_limit():
    assert words(layout.long_files, REPO) == []


def test_a_planted_long_file_is_found(tmp_path):
    lines = "x = 1\n" * MOST_LINES
    repo = tree(tmp_path, {"lanewise/a.py": lines, "lanewise/b.py": f"{lines}x = 1\n", "tests/c.py": f"{lines}x = 1\n"})
    assert words(layout.long_files, repo) == [f"{path}: {MOST_LINES + 1} lines; {MOST_LINES} are allowed" for path in ("lanewise/b.py", "tests/c.py")]


def test_only_settings_reads_the_environment():
    (rule,) = (rule for rule in layout.RULES if rule.name == "environment")
    excepted = {row.where for row in rule.excepted}
    assert [c.words for c in rule.check(REPO) if c.where not in excepted] == []
    assert excepted == {"lanewise/gates/repo.py", "lanewise/gates/names.py"}


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['X']",
        "import os\nx = os.getenv('X')",
        "import os as o\no.environ.get('X')",
        "from os import environ",
        "from os import getenv as g",
        "from os import *",
        "import os\nos.putenv('X', 'y')",
        "x = 'LANEWISE_CONTEXT'",
    ],
)
def test_a_planted_read_of_the_environment_is_found(tmp_path, text):
    assert len(words(layout.environment_reads, tree(tmp_path, {"lanewise/arch.py": text, "lanewise/settings.py": text}))) == 1


def test_a_cpu_user_loads_no_torch():
    assert words(layout.heavy_imports, REPO) == []
