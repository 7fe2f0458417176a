"""Violations planted in a copy of the repository, one or more for every rule: what is changed, and words of the failure that must follow.

Several leave a comment, a string or dead code where a search through text would be content.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from support.repo import Edit


@dataclass(frozen=True)
class Plant:
    gate: str
    rule: str
    words: str
    edits: Mapping[str, Edit]

    def __str__(self) -> str:
        return f"{self.gate}.{self.rule}: {self.words}"


_LLM, _USER, _AUTHOR, _REVIEW = "lanewise/engine/llm.py", "docs/user.md", "docs/kernel-author.md", "docs/reviewer.md"
_GHOST = {
    "lanewise/settings.py": ('        Setting("PIN"', '        Setting("GHOST", str, None, "a name", "nothing"),\n        Setting("PIN"'),
    _USER: ("| `LANEWISE_PIN`", "| `LANEWISE_GHOST` | none | nothing |\n| `LANEWISE_PIN`"),
}


def _page(text: str) -> dict[str, Edit]:
    return {_USER: ("# For users\n", f"# For users\n\n{text}\n")}


def _code(path: str, first: str, text: str) -> dict[str, Edit]:
    """Some code in front of a line of a file."""
    return {path: (first, f"{text}\n\n\n{first}")}


_EXTRA = """\"\"\"A kernel that nothing runs.\"\"\"

from lanewise.kernels.cpu.kernel import CpuKernel

EXTRA = CpuKernel("extra", (), lambda e, a, chunk, worker: None)
"""

PLANTS = (
    # settings
    Plant("settings", "declared_are_read", "GHOST is declared and nothing reads it", _GHOST),
    Plant(
        "settings",
        "declared_are_read",
        "GHOST is",
        {**_GHOST, **_code(_LLM, "_POOL_TOKENS =", '# settings.get("GHOST")\n_TEXT = "settings.get(\'GHOST\')"')},
    ),
    Plant("settings", "declared_are_read", "GHOST is", {**_GHOST, **_code(_LLM, "class LLM", 'def _never():\n    return settings.get("GHOST")')}),
    Plant(
        "settings",
        "reads_are_declared",
        "the setting DEVICES is read and not declared",
        {_LLM: ('settings.get("DEVICE")', 'settings.get("DEVICES")')},
    ),
    Plant(
        "settings",
        "reads_have_names",
        "a setting is read by a name that is computed",
        _code(_LLM, "class LLM", "def f(n):\n    return settings.get(n)"),
    ),
    Plant("settings", "reads_have_names", "nothing is left to except", {"lanewise/contract.py": ("settings.enabled(self.switch)", "True")}),
    Plant("settings", "declared_are_documented", "LANEWISE_PIN has no row", {_USER: ("| `LANEWISE_PIN` |", "| `LANEWISE_PINS` |")}),
    Plant(
        "settings",
        "declared_are_documented",
        "LANEWISE_PIN has no row",
        {_USER: ("| `LANEWISE_PIN` |", "<!--\n| `LANEWISE_PIN` | 0 |\n-->\n| `LANEWISE_PINS` |")},
    ),
    Plant(
        "settings",
        "declared_are_documented",
        "the default of LANEWISE_CONTEXT is 4096",
        {_USER: ("`LANEWISE_CONTEXT` | 4096", "`LANEWISE_CONTEXT` | 2048")},
    ),
    Plant("settings", "declared_are_explained", "the setting PIN does not say", {"lanewise/settings.py": ('"0 or 1", "1 ties', '"", "1 ties')}),
    Plant("settings", "names_exist", "LANEWISE_SPEED does not exist", _page("Set LANEWISE_SPEED.")),
    Plant("settings", "names_exist", "LANEWISE_SPEED does not exist", _code(_LLM, "class LLM", '_WORDS = "set LANEWISE_SPEED"')),
    Plant(
        "settings",
        "names_exist",
        "LANEWISE_SPED does not exist",
        {"tests/test_x.py": 'def test_x(monkeypatch):\n    monkeypatch.setenv("LANEWISE_SPED", "1")\n'},
    ),
    # kernels
    Plant(
        "kernels",
        "contract",
        "conv is in contract.OPS and no kernel",
        {"lanewise/contract.py": ('    "rope": "y', '    "conv": "y = x",\n    "rope": "y')},
    ),
    Plant(
        "kernels",
        "contract",
        "conv has a case and no row",
        {"lanewise/oracle/cases.py": ('    "rope": _ROPE,', '    "rope": _ROPE,\n    "conv": (),')},
    ),
    Plant("kernels", "contract", "the package does not import", {"lanewise/contract.py": ('    "rope": "y', '    # "rope": "y')}),
    Plant(
        "kernels",
        "oracle",
        "rope has no row in oracle.ORACLES",
        {"lanewise/oracle/__init__.py": ('        Oracle("rope"', '        # Oracle("rope"')},
    ),
    Plant("kernels", "cases", "rope has no case", {"lanewise/oracle/cases.py": ('    "rope": _ROPE,', '    "rope": (),')}),
    Plant(
        "kernels",
        "machine_code",
        "quant_gemv is registered and has no row in _LAUNCHERS",
        {"lanewise/isa/catalogue.py": ('    "quant_gemv": _quant_gemv,', '    # "quant_gemv": _quant_gemv,')},
    ),
    Plant(
        "kernels",
        "machine_code",
        "quant_gemv has a row in _LAUNCHERS and is not registered",
        {"lanewise/kernels/gpu/quant.py": ('Kernel("quant_gemv", "quant_linear"', 'Kernel("quant_dots", "quant_linear"')},
    ),
    Plant("kernels", "documented", "no row for the kernel cpu_sample", {_AUTHOR: ("| `cpu_sample` | sample | cpu | `LANEWISE_CPU_KERNELS` |\n", "")}),
    Plant(
        "kernels",
        "documented",
        "not in the order",
        {
            "lanewise/backends/cpu/kernels.py": (
                '_linear, (_CPU, NUMPY, _F32), "CPU_KERNELS", "cpu"), before="reference_linear")',
                '_linear, (_CPU, NUMPY, _F32), "CPU_KERNELS", "cpu"))',
            )
        },
    ),
    Plant("kernels", "documented", "its row says rope, cpu", {_AUTHOR: ("| `cpu_sample` | sample |", "| `cpu_sample` | rope |")}),
    Plant(
        "kernels",
        "documented",
        "a row for cpu_rope, which is not registered",
        {_AUTHOR: ("| `cpu_sample` |", "| `cpu_rope` | rope | cpu | none |\n| `cpu_sample` |")},
    ),
    Plant(
        "kernels",
        "registered",
        "the kernel 'cpu_sample' is made and not registered",
        {"lanewise/backends/cpu/kernels.py": ('register(Kernel("cpu_sample"', '# register(\nprint(Kernel("cpu_sample"')},
    ),
    Plant("kernels", "reached", "kernels/cpu/extra.py: no registered kernel", {"lanewise/kernels/cpu/extra.py": _EXTRA}),
    Plant(
        "kernels",
        "reached",
        "kernels/cpu/extra.py: no registered kernel",
        {
            "lanewise/kernels/cpu/extra.py": _EXTRA,
            **_code("lanewise/backends/cpu/program.py", "class _Builder", "from lanewise.kernels.cpu.extra import EXTRA  # EXTRA runs"),
        },
    ),
    Plant(
        "kernels",
        "reached",
        "other makes a kernel",
        _code("lanewise/kernels/cpu/matmul.py", "def block_matmul", 'def other():\n    return CpuKernel("other", (), _body)'),
    ),
    # docs
    Plant("docs", "links", "the link gone.md leads nowhere", _page("[a](gone.md)")),
    Plant("docs", "links", "the link #gone leads nowhere", _page("[a](#settings) [b](#gone) [c](https://example.com/x)")),
    Plant("docs", "commands", "no command fly", _page("`lanewise fly MODEL`")),
    Plant("docs", "commands", "no option --wings", _page("```sh\nlanewise bench model m.gguf --tg 1 --wings\n```")),
    Plant(
        "docs",
        "commands",
        "no option --wings",
        {"lanewise/cli/chat.py": ("@options.quiet", "# --wings\n@options.quiet"), **_page("`lanewise chat MODEL --wings`")},
    ),
    Plant("docs", "commands", "no option --wings", _page("`lanewise inspect MODEL [--tensors] [--wings x]`")),
    Plant("docs", "commands", "the Makefile has no target coffee", {**_page("`make coffee`"), "Makefile": ("clean:", "# coffee:\nclean:")}),
    Plant("docs", "commands", "lanewise.arch is no program", _page("`python -m lanewise.arch`")),
    Plant("docs", "commands_run", "nothing runs `python tools/fetch_model.py`", _page("```sh\npython tools/fetch_model.py\n```")),
    Plant("docs", "commands_run", "nothing runs `curl", _page("```sh\ncurl example.com\n```")),
    Plant("docs", "commands_run", "nothing is left to except", {"README.md": ("source .venv/bin/activate\n", "")}),
    Plant("docs", "citations", "`emits.py`: there is no such file", _page("`emits.py`")),
    Plant(
        "docs",
        "citations",
        "`lanewise/arch.py:parses`: lanewise/arch.py has no parses",
        _page("`lanewise/arch.py:parse` and `lanewise/arch.py:parses`"),
    ),
    Plant("docs", "citations", "`arch.py:12`: a line number moves", _page("`arch.py:12`")),
    Plant("docs", "citations", "no module lanewise.contract has OPERATIONS", _page("`contract.OPERATIONS`")),
    Plant("docs", "citations", "no module lanewise.dispatch has elect", _page("`dispatch.elect(problem)`")),
    Plant("docs", "citations", "no class Format has activations", _page("`Format.activations`")),
    Plant("docs", "citations", "`contract.OPS`", {"lanewise/contract.py": ("OPS: dict[str, str] = {", "# OPS\nOPERATIONS: dict[str, str] = {")}),
    Plant("docs", "examples", "lanewise.LLMs is not there", _page("```python\nfrom lanewise import LLMs\n```")),
    Plant("docs", "examples", "does not parse", _page("```python\nwith LLM(:\n```")),
    Plant("docs", "lists", "the formats are", {"README.md": ("F32, F16, BF16", "F32, BF16")}),
    Plant("docs", "lists", "the families are", {"README.md": ("`qwen2`, `qwen3`", "`qwen2`, `qwen4`")}),
    Plant("docs", "types", "there is no type Q9_9", _page("`lanewise quantize IN OUT --type Q9_9`")),
    Plant("docs", "guide", "no row for `lanewise targets`", {_USER: ("| `lanewise targets` |", "| `lanewise target` |")}),
    Plant("docs", "make", "does not explain clean", {"Makefile": ('\t@echo "make clean', '\t@# echo "make clean')}),
    Plant(
        "docs",
        "gates",
        "a row for the gate meta, which is not in the list",
        {"lanewise/gates/__init__.py": ('    "meta": meta.gate,', '    # "meta": meta.gate,')},
    ),
    Plant("docs", "gates", "no row for the gate meta", {_REVIEW: ("| `meta` |", "| `mete` |")}),
    Plant("docs", "figures", "the figure '12 tok/s' has no evidence", _page("It decodes 12 tok/s.")),
    Plant("docs", "figures", "the figure '2x' has no evidence", _page("It is 2x faster.")),
    Plant("docs", "figures", "the figure 'a tenth of the time' has no evidence", _page("It takes a tenth of the time.")),
    Plant("docs", "figures", "the figure '7 GB/s' has no evidence", _page("```\nread 7 GB/s\n```")),
    Plant("docs", "figures", "the figure '13 ms' has no evidence", _page("It takes 12 ms<!-- evidence: cpu-qwen3-0.6b-q8_0.decode --> and 13 ms.")),
    Plant("docs", "figures", "no record for the evidence nothing.decode", _page("It takes 12 ms<!-- evidence: nothing.decode -->.")),
    Plant("docs", "figures", "the figure '12 ms' has no evidence", _page("It takes 12 ms `<!-- evidence: cpu-qwen3-0.6b-q8_0.decode -->`.")),
    Plant("docs", "figures", "the figure '12 ms' has no evidence", _page("It takes 12 ms <!-- bench/records/cpu-qwen3-0.6b-q8_0.json -->.")),
    Plant("docs", "figures", "the figure '12 ms' has no evidence", _page("It takes 12 ms (bench/records/nothing.json).")),
    Plant("docs", "figures", "nothing is left to except", {"README.md": (", 2 GB of free memory", "")}),
    # layout
    Plant("layout", "imports", "formats imports lanewise.engine", _code("lanewise/formats/bits.py", "def split(", "from lanewise.engine import LLM")),
    Plant("layout", "sizes", "lanewise/long.py: 401 lines", {"lanewise/long.py": "x = 1\n" * 401}),
    Plant("layout", "sizes", "tests/test_long.py: 401 lines", {"tests/test_long.py": "x = 1\n" * 401}),
    Plant("layout", "rooms", "no row for the room bench", {"docs/design.md": ("| `bench` |", "| `bank` |")}),
    Plant("layout", "rooms", "not in the order", {"docs/design.md": ("| `errors` |", "| `oracle` | |\n| `errors` |")}),
    Plant("layout", "environment", "reads the environment", _code(_LLM, "class LLM", "import os\nX = os.environ")),
    Plant("layout", "environment", "LANEWISE_PIN is named outside settings.py", _code(_LLM, "class LLM", 'X = "LANEWISE_PIN"')),
    Plant("layout", "targets", "'gfx942' is the name of a target", _code(_LLM, "class LLM", 'def f(a):\n    return a.name == "gfx942"')),
    Plant("layout", "targets", "'gfx9' is the name of a target", _code(_LLM, "class LLM", 'def f(a):\n    return a.name.startswith("gfx9")')),
    Plant(
        "layout",
        "tolerances",
        "is a bare tolerance",
        {"tests/test_x.py": "import numpy as np\n\n\ndef test_x():\n    assert np.allclose(1, 2, atol=1e-3)\n"},
    ),
    Plant("layout", "light", "load torch", {"torch.py": "", **_code(_LLM, "class LLM", "import torch")}),
    # meta
    Plant("meta", "listed", "the gate meta is not in GATES", {"lanewise/gates/__init__.py": ('    "meta": meta.gate,', '    # "meta": meta.gate,')}),
    Plant("meta", "listed", "docs is layout.gate in GATES", {"lanewise/gates/__init__.py": ('"docs": docs.gate', '"docs": layout.gate')}),
    Plant("meta", "listed", "the gate more is not in GATES", {"lanewise/gates/more.py": "RULES = ()\n\n\ndef gate(repo):\n    return []\n"}),
    Plant(
        "meta",
        "planted",
        "docs.extra has no planted violation",
        {"lanewise/gates/docs.py": ('    Rule("links"', '    Rule("extra", "", wrong_lists),\n    Rule("links"')},
    ),
    Plant(
        "meta",
        "planted",
        "layout.light, which is no rule",
        {"lanewise/gates/layout.py": ('    Rule("light"', '    # Rule("light"\n    Rule("heavy"')},
    ),
    Plant(
        "meta",
        "planted",
        "settings.reads_are_declared has no planted violation",
        {"tests/gates/planted.py": '# Plant("settings", "reads_are_declared")\nPLANTS = ()\n'},
    ),
    Plant("meta", "tested", "tests/gates/test_gates_docs.py has no test", {"tests/gates/test_gates_docs.py": None}),
    Plant("meta", "tested", "has no test_the_repo_passes_every_gate", {"tests/gates/test_gates_run.py": "# def test_the_repo_passes_every_gate\n"}),
    Plant(
        "meta",
        "tested",
        "skip could keep a needed test from running",
        {"tests/gates/test_gates_planted.py": ("@pytest.mark.parametrize", "@pytest.mark.skip\n@pytest.mark.parametrize")},
    ),
    Plant("meta", "tested", "is not parametrized by PLANTS", {"tests/gates/test_gates_planted.py": ('"plant", PLANTS', '"plant", PLANTS[:1]')}),
    Plant(
        "meta", "tested", "is not parametrized by runnable(REPO)", {"tests/test_docs_commands.py": ("runnable(REPO), ids", "runnable(REPO)[:1], ids")}
    ),
    Plant(
        "meta",
        "tested",
        "has no test_every_kernel_is_what_was_declared",
        {"tests/isa/test_isa_gate.py": ("def test_every_kernel_is_what_was", "def every_kernel_is_what_was")},
    ),
    Plant("meta", "tested", "is not parametrized by KINDS", {"tests/isa/test_isa_gate.py": ('"row", KINDS,', '"row", KINDS[:1],')}),
    Plant("meta", "tested", "is not parametrized by MUTANTS", {"tests/isa/test_isa_mutants.py": ('"name", MUTANTS)', '"name", [*MUTANTS][:1])')}),
    Plant("meta", "isa", "isa does not run `$(BIN)/lanewise isa --gate`", {"Makefile": ("lanewise isa --gate\n", "lanewise isa --gate || true\n")}),
    Plant("meta", "isa", "isa does not run `$(BIN)/lanewise isa --gate`", {"Makefile": ("\t$(BIN)/lanewise isa --gate\n", "\t@echo fine\n")}),
    Plant("meta", "collected", "addopts leave tests out: -k", {"pyproject.toml": ('addopts = "-q', "addopts = \"-k 'not gates' -q")}),
    Plant("meta", "collected", "testpaths are not tests", {"pyproject.toml": ('testpaths = ["tests"]', 'testpaths = ["tests/engine"]')}),
    Plant("meta", "collected", "tests/gates/conftest.py: collect_ignore", {"tests/gates/conftest.py": 'collect_ignore = ["test_gates_meta.py"]\n'}),
    Plant("meta", "called", "lint does not run", {"Makefile": ("\t$(BIN)/python -m lanewise.gates\n", "\t# $(BIN)/python -m lanewise.gates\n")}),
    Plant("meta", "called", "lint does not run", {"Makefile": ("-m lanewise.gates\n", "-m lanewise.gates || true\n")}),
    Plant("meta", "called", "lint does not run", {"Makefile": ("-m lanewise.gates\n", "-m lanewise.gates --only layout\n")}),
    Plant("meta", "called", "may fail unnoticed", {"Makefile": ("\t$(BIN)/mypy\n", "\t-$(BIN)/mypy\n")}),
    Plant("meta", "called", "lint has 2 rules", {"Makefile": ("clean:", "lint:\n\ttrue\n\nclean:")}),
    Plant("meta", "called", "does not run every test: --ignore", {"Makefile": ("-m pytest -n 2", "-m pytest --ignore=tests/gates -n 2")}),
    Plant("meta", "called", "does not run every test: tests/engine", {"Makefile": ("-m pytest -n 2", "-m pytest tests/engine -n 2")}),
    Plant("meta", "called", "does not run `make lint`", {".ci/run": ("\nmake lint\n", "\n# make lint\n")}),
    Plant("meta", "called", "does not run `make lint`", {".ci/run": ("\nmake lint\n", "\nmake lint || true\n")}),
    Plant("meta", "called", "does not run `make lint`", {".ci/run": ("\nmake lint\n", "\nif false; then\n    make lint\nfi\n")}),
    Plant("meta", "called", "goes on after a failure", {".ci/run": ("set -euo pipefail", "set -uo pipefail")}),
    Plant("meta", "called", "`exit 0` changes what runs", {".ci/run": ("\nmake lint\n", "\nexit 0\nmake lint\n")}),
)
