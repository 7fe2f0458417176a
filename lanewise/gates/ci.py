"""What CI runs, read from its script, the Makefile and pytest's configuration, as a shell and make read them: a comment runs nothing."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise

from lanewise.gates.commands import makefile
from lanewise.gates.finding import Complaint
from lanewise.gates.repo import Repo

__all__ = ["isa_not_called", "not_called", "not_collected"]

_SCRIPT, _MAKE, _PROJECT = ".ci/run", "Makefile", "pyproject.toml"
_GATES, _PYTEST = ["$(BIN)/python", "-m", "lanewise.gates"], ["$(BIN)/python", "-m", "pytest"]
_ISA = ["$(BIN)/lanewise", "isa", "--gate"]
_OPENS, _CLOSES = ("if", "for", "while", "until", "case", "{", "(", "function"), ("fi", "done", "esac", "}", ")")
# What makes pytest run less than everything.
_FEWER = ("--ignore", "--ignore-glob", "--deselect", "-k", "-m", "--collect-only", "--co", "--lf", "--last-failed", "--sw", "--maxfail", "-x")
_KEYS = ("norecursedirs", "python_files", "python_functions", "python_classes", "collect_imported_tests")
_HOOKS = ("collect_ignore", "collect_ignore_glob", "pytest_ignore_collect", "pytest_collection_modifyitems", "pytest_collect_file")


def not_called(repo: Repo) -> Iterator[Complaint]:
    """Calls that CI needs and does not make, or whose failure it would not notice."""
    yield from _script(repo)
    text = repo.text(_MAKE)
    recipes = makefile(text)
    lines = [shlex.split(line.lstrip("@"), comments=True) for line in recipes.get("lint", ())]
    if _GATES not in lines:
        yield Complaint(_MAKE, "lint", f"{_MAKE}: lint does not run `{' '.join(_GATES)}`, whole and alone on its line")
    runs = [words[at + 3 :] for words in map(_words, recipes.get("test", ())) for at in range(len(words)) if words[at : at + 3] == _PYTEST]
    if len(runs) != 1:
        yield Complaint(_MAKE, "test", f"{_MAKE}: test does not run pytest, once")
    for before, word in (pair for words in runs for pair in pairwise(["", *words])):
        if word.split("=")[0] in _FEWER or (not word.startswith("-") and before != "-n"):
            yield Complaint(_MAKE, word, f"{_MAKE}: test does not run every test: {word}")
    for name in ("lint", "test"):
        heads = re.findall(rf"^(?:[^\s#:=]+ )*{name}(?: [^:=#]*)?::?(?!=)", text, re.MULTILINE)
        if len(heads) != 1:
            yield Complaint(_MAKE, f"{name} twice", f"{_MAKE}: {name} has {len(heads)} rules")
        if any(line.lstrip("@").startswith("-") for line in recipes.get(name, ())):
            yield Complaint(_MAKE, f"{name} ignores", f"{_MAKE}: a line of {name} may fail unnoticed")
    if {".IGNORE", ".ONESHELL"} & set(recipes) or re.search(r"^\s*(export )?(MAKEFLAGS|SHELL)\s*[:+?]?=", text, re.MULTILINE):
        yield Complaint(_MAKE, "flags", f"{_MAKE}: .IGNORE, .ONESHELL, MAKEFLAGS or SHELL change what a failure means")


def isa_not_called(repo: Repo) -> Iterator[Complaint]:
    """That `make isa` looks at the machine code of every kernel for every target, which takes too long for the tests."""
    recipe = makefile(repo.text(_MAKE)).get("isa", ())
    if [_words(line.lstrip("@")) for line in recipe] != [_ISA]:
        yield Complaint(_MAKE, "isa", f"{_MAKE}: isa does not run `{' '.join(_ISA)}`, whole and alone")


def not_collected(repo: Repo) -> Iterator[Complaint]:
    """Configuration and hooks by which pytest would run less than every test."""
    options = tomllib.loads(repo.text(_PROJECT)).get("tool", {}).get("pytest", {}).get("ini_options", {})
    if options.get("testpaths") != ["tests"]:
        yield Complaint(_PROJECT, "testpaths", f"{_PROJECT}: pytest's testpaths are not tests alone")
    given = options.get("addopts", "")
    for word in given if isinstance(given, list) else shlex.split(given):
        if word.split("=")[0] in _FEWER:
            yield Complaint(_PROJECT, word, f"{_PROJECT}: addopts leave tests out: {word}")
    for key in (key for key in _KEYS if key in options):
        yield Complaint(_PROJECT, key, f"{_PROJECT}: {key} changes which tests are found")
    for path, tree in repo.tests.items():
        named = {n.id if isinstance(n, ast.Name) else n.name for n in ast.walk(tree) if isinstance(n, ast.Name | ast.FunctionDef)}
        for hook in sorted(named & set(_HOOKS)):
            yield Complaint(path, hook, f"{path}: {hook} leaves tests out")


def _script(repo: Repo) -> Iterator[Complaint]:
    """The script stops at the first failure, and nothing can end it before `make lint` and `make test`."""
    text = repo.text(_SCRIPT)
    if "<<" in text:
        yield Complaint(_SCRIPT, "here-document", f"{_SCRIPT}: a here-document hides what is run")
    plain = [words for depth, words in _commands(text) if not depth]
    if not any(words[0] == "set" and words[1].startswith("-") and "e" in words[1] for words in plain if len(words) > 1):
        yield Complaint(_SCRIPT, "set -e", f"{_SCRIPT}: it goes on after a failure")
    for depth, words in _commands(text):
        changed = words[0].startswith("make()") or words[:2] in (["function", "make"], ["set", "+e"]) or words[0] == "alias"
        if changed or (words[0] == "set" and "+e" in words) or (not depth and {"exit", "exec", "return"} & {word.strip(";") for word in words}):
            yield Complaint(_SCRIPT, " ".join(words), f"{_SCRIPT}: `{' '.join(words)}` changes what runs or what a failure means")
    for target in ("lint", "test"):
        if ["make", target] not in plain:
            yield Complaint(_SCRIPT, target, f"{_SCRIPT} does not run `make {target}`, alone on its line")


def _commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """(depth of blocks round it, words) of each line of a shell script."""
    depth = 0
    for line in re.sub(r"(&&|\|\|?)[ \t]*\n", r"\1 ", text.replace("\\\n", " ")).splitlines():
        words = _words(line)
        if not words:
            continue
        if words[0] in _CLOSES:
            depth -= 1
        yield depth, words
        if words[0] in _OPENS or re.fullmatch(r"\w+\(\)", words[0]):
            depth += words[-1] not in _CLOSES


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # quotes that go on in the next line
        return line.split()
