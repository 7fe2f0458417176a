"""The gate of kernels, and the names that it follows: what reaches what, and what only looks as if it did."""

import ast

import pytest
from support.repo import REPO

from lanewise.gates import kernels
from lanewise.gates.names import Names


def names(**files):
    """Modules of a package by their names, `a_b` for a/b."""
    return Names({f"lanewise/{name.replace('_', '/')}.py": ast.parse(text) for name, text in files.items()})


def reaches(user, made="def make():\n    pass\n", **more):
    """Whether lanewise.user.main comes to lanewise.made.make."""
    return ("lanewise.made", "make") in names(user=user, made=made, **more).reached([("lanewise.user", "main")])


@pytest.mark.parametrize(
    "user",
    [
        "from lanewise.made import make\ndef main():\n    make()",
        "from lanewise.made import make as m\ndef main():\n    return [m]",
        "import lanewise.made\ndef main():\n    lanewise.made.make()",
        "import lanewise.made as x\ndef main():\n    x.make()",
        "from . import made\ndef main():\n    made.make()",
        "def main():\n    from lanewise.made import make\n    make()",
        "from lanewise.made import make\nTABLE = {1: make}\ndef main():\n    TABLE[1]()",
        "from lanewise.made import make\nclass main:\n    def f(self):\n        make()",
        "from lanewise.made import make\nfor x in ():\n    make()\ndef main():\n    pass",
    ],
)
def test_a_use_is_followed_through_any_import(user):
    assert reaches(user)


@pytest.mark.parametrize(
    "user",
    [
        "from lanewise.made import make\ndef main():\n    pass",
        "from lanewise.made import make\ndef main():\n    # make()\n    return 'make'",
        "from lanewise.made import make\ndef other():\n    make()\ndef main():\n    pass",
        "def make():\n    pass\ndef main():\n    make()",
        "def main(x):\n    x.make()",
    ],
)
def test_an_import_a_comment_or_another_function_is_no_use(user):
    assert not reaches(user)


def test_a_use_is_followed_through_a_reexport():
    more = {"room": "from lanewise.made import make"}
    assert reaches("from lanewise.room import make\ndef main():\n    make()", **more)


def test_names_that_import_each_other_in_a_circle_end():
    assert names(a="from lanewise.b import x", b="from lanewise.a import x").resolve("lanewise.a.x") == set()


def test_the_oracle_is_not_reached_from_commands_and_every_kernel_file_is():
    modules = {module for module, _ in REPO.reached}
    assert not {"lanewise.oracle.cases", "lanewise.oracle.chain", "lanewise.oracle.mistakes"} & modules
    assert {"lanewise.kernels.cpu.matmul", "lanewise.kernels.cpu.sample", "lanewise.kernels.cpu.probes"} <= modules


@pytest.mark.parametrize(
    ("code", "makes"),
    [
        ("from lanewise.kernels.cpu.kernel import CpuKernel as K\nX = K('x', (), f)", True),
        ("from llvmlite import ir\ndef f():\n    ir.Function(m, t, 'x')", True),
        ("import triton\n@triton.jit\ndef f():\n    pass", True),
        ("from triton import jit\n@jit(do_not_specialize=['n'])\ndef f():\n    pass", True),
        ("# CpuKernel('x', (), f)\ndef f(k):\n    return 'CpuKernel'", False),
        ("def CpuKernel():\n    pass\nX = CpuKernel()", False),
    ],
)
def test_what_makes_a_kernel_is_known_by_what_it_calls(code, makes):
    found = names(kernels_x=code, kernels_cpu_kernel="class CpuKernel:\n    pass")
    assert any(kernels._makes(found, "lanewise.kernels.x", name) for name in found.symbols["lanewise.kernels.x"]) == makes
