"""Commands that documents show: lines of shell blocks, and code spans that begin with a program.

Each of them runs: `tests/test_docs_commands.py` takes its list from `runnable`, make's as dry runs. What it cannot run is a row of NOT_RUN with
the reason.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lanewise.gates.finding import Complaint, Excepted
from lanewise.gates.markdown import pieces, spans
from lanewise.gates.names import PACKAGE
from lanewise.gates.repo import Repo

__all__ = ["NOT_RUN", "Command", "commands", "makefile", "not_run", "runnable", "unknown"]

_PROGRAMS = ("lanewise", "make", "python", "python3", "pip", "pytest", "apt-get", "sudo", "source", "bash")
_GPU_KERNEL = "lanewise bench kernel linear --m 1 --n 4096 --k 4096 --dtype bf16"
_GPU_QUANT = "lanewise bench kernel quant_linear --format Q4_K --m 1 --n 4096 --k 14336 --dtype bf16"
_GPU_EXPERTS = "lanewise bench kernel grouped_linear --format Q4_K --m 1 --n 768 --k 2048 --experts 128 --top 8 --dtype bf16"
NOT_RUN = (
    Excepted("docs/kernel-author.md", "lanewise ab --a-commit main --b-commit HEAD", "makes a worktree and an environment for each commit"),
    Excepted("docs/user.md", "pip install lanewise[plots]", "installs a package"),
    Excepted(
        "docs/user.md",
        "lanewise ab --a ./tool.sh --b ./tool.sh --a-commit v1 --b-commit HEAD --metric took (\\S+) s --plot run.svg",
        "makes a worktree and an environment for each commit; tests/bench/test_bench_ab.py does so for commits of its own",
    ),
    *(
        Excepted("docs/user.md", command, f"measures a GPU, which CI has not; tests/bench/{test}.py runs it on a stand-in")
        for command, test in (
            (f"{_GPU_KERNEL} --device cuda --ab skinny,blas --record run", "test_bench_cuda"),
            ("lanewise ab --a ./layer.sh --b ./layer.sh --b-env LANEWISE_SKINNY=0 --device cuda --metric took (\\S+) ms", "test_bench_ab_gpu"),
            ("lanewise bench sweep DIR", "test_bench_tune"),
            ("lanewise bench sweep bundles --dtype bf16 --m 1,2,4", "test_bench_tune"),
            ("lanewise tune", "test_bench_tune"),
            ("lanewise tune --shapes 4096x4096,1024x2048 --dtype bf16 --write", "test_bench_tune"),
            (f"{_GPU_QUANT} --device cuda --ab quant,blas --record run", "test_bench_quant"),
            ("lanewise bench sweep bundles --format all", "test_bench_quant"),
            (f"{_GPU_EXPERTS} --device cuda --ab grouped,blas --record run", "test_bench_grouped"),
            ("lanewise tune --format Q4_K,Q6_K --shapes 4096x4096 --m 1,4,8 --write", "test_bench_tune_quant"),
            ("lanewise tune --format Q4_K --experts 128 --top 8 --shapes 768x2048,2048x768 --m 1,4 --write", "test_bench_tune_grouped"),
        )
    ),
    Excepted("README.md", "sudo apt-get install git make python3-venv", "installs packages of the system; CI's script does the same"),
    Excepted("README.md", "source .venv/bin/activate", "changes the shell that it is typed into"),
    Excepted("CONTRIBUTING.md", ".venv/bin/pre-commit install", "writes a hook into the checkout"),
    Excepted("CONTRIBUTING.md", ".venv/bin/pytest tests/formats", "is the test run itself"),
    Excepted("docs/kernel-author.md", "apt-get install qemu-user binutils-aarch64-linux-gnu", "installs packages of the system; CI's script does it"),
    Excepted("docs/kernel-author.md", "pytest tests/kernels/cpu/test_cpu_aarch64_run.py", "is the test run itself"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the page, its line there, and its words; `given` is with the brackets of what may be left out taken away."""

    page: str
    line: int
    words: tuple[str, ...]

    @property
    def given(self) -> tuple[str, ...]:
        if not any(word.startswith("[-") for word in self.words):
            return self.words
        return tuple(re.sub(r"^\[(?=-)", "", re.sub(r"^([^\[]+)\]$", r"\1", word)) for word in self.words)

    def __str__(self) -> str:
        return " ".join(self.words)


def commands(repo: Repo) -> Iterator[Command]:
    """Every command of every document, in order."""
    for page, text in repo.documents.items():
        for piece in pieces(text):
            if piece.kind in ("```", "```sh", "```bash", "```console"):
                for number, line in enumerate(piece.text.splitlines(), piece.line):
                    words = tuple(shlex.split(line.removeprefix("$ "), comments=True))
                    if words and (piece.kind != "```" or _program(words[0])):
                        yield Command(page, number, words)
        for line_number, span in spans(text):
            words = tuple(_split(span))
            if len(words) > 1 and _program(words[0]):
                yield Command(page, line_number, words)


def runnable(repo: Repo) -> list[Command]:
    """The commands that the test runs, each once: lanewise's own, its modules', and make's."""
    found = {c.words: c for c in commands(repo) if c.words[0] in ("lanewise", "make") or (c.words[:2] == ("python", "-m") and _ours(c))}
    excepted = {(row.where, row.what) for row in NOT_RUN}
    return [c for c in found.values() if (c.page, str(c)) not in excepted]


def not_run(repo: Repo) -> Iterator[Complaint]:
    """Commands that the test does not run."""
    run = {c.words for c in runnable(repo)}
    for command in commands(repo):
        if command.words not in run:
            yield Complaint(command.page, str(command), f"{command.page}:{command.line}: nothing runs `{command}`")


def unknown(repo: Repo) -> Iterator[Complaint]:
    """Commands, options and make's targets that the program and the Makefile do not have."""
    targets = makefile(repo.text("Makefile"))
    for command in commands(repo):
        where = f"{command.page}:{command.line}"
        if command.words[0] == "make":
            for word in (w for w in command.words[1:] if "=" not in w and w not in targets):
                yield Complaint(command.page, word, f"{where}: the Makefile has no target {word}")
        if _ours(command) and f"{command.words[2]}.__main__" not in repo.names.modules:
            yield Complaint(command.page, command.words[2], f"{where}: {command.words[2]} is no program of the package")
        if command.words[0] == "lanewise":
            for word in _unknown_words(repo.inventory["commands"], command.given[1:]):
                yield Complaint(command.page, word, f"{where}: `{command}`: the command line has no {word}")


def makefile(text: str) -> dict[str, list[str]]:
    """Each target and the lines of its recipe, without the leading tab; comments and variables are no targets."""
    targets: dict[str, list[str]] = {}
    now: list[str] = []
    for line in text.replace("\\\n\t", " ").replace("\\\n", " ").splitlines():
        head = re.match(r"([^\s#:=][^:=#]*):(?!=)", line)
        if line.startswith("\t"):
            for target in now:
                targets[target].append(line[1:])
        elif head:
            now = head[1].split()
            for target in now:
                targets.setdefault(target, [])
        elif line.strip() and not line.startswith("#"):
            now = []
    return targets


def _unknown_words(known: dict[str, Any], words: tuple[str, ...]) -> list[str]:
    if words[0] in ("--help", "--version"):
        return []
    if words[0] not in known:
        return [f"command {words[0]}"]
    command, rest = known[words[0]], words[1:]
    while rest and command["commands"] and rest[0] in command["commands"]:
        command, rest = command["commands"][rest[0]], rest[1:]
    if command["commands"] and rest and not rest[0].startswith("-"):
        return [f"command {rest[0]}"]
    takes = {*command["options"], "--help"}
    return [f"option {word}" for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in takes]


def _ours(command: Command) -> bool:
    return len(command.words) > 2 and command.words[1] == "-m" and command.words[2].split(".")[0] == PACKAGE


def _program(word: str) -> bool:
    return word in _PROGRAMS or word.startswith(".venv/bin/")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end: no command
        return []
