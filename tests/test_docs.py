"""The documents tell the truth: doctests run, commands and targets exist, links resolve, lists match the code."""

import doctest
import importlib
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import lanewise
from lanewise.cli import app
from lanewise.files.recipes import names as quantize_types
from lanewise.formats import FORMATS
from lanewise.models import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MODULES = sorted(m.name for m in pkgutil.walk_packages(lanewise.__path__, "lanewise."))
COMMANDS = app.commands
READERS = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}


def broken_links(document: Path) -> list[str]:
    """Relative links to a file that is not there, or to a heading that its page does not have."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, heading = link.partition("#")
        target = (document.parent / name) if name else document
        headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if target.is_file() and heading else []
        if not target.exists() or (heading and heading not in {h.lower().replace(" ", "-") for h in headings}):
            broken.append(link)
    return broken


def unknown_commands(text: str) -> list[str]:
    """`lanewise X` of a document, and the options behind it in the same line, that the command line does not have."""
    unknown = []
    for line in re.findall(r"\blanewise ((?:[a-z]+|--)[^\n`#]*)", text):
        name, *rest = line.split()
        if name not in COMMANDS:
            unknown += [name] if name.isalpha() and f"lanewise {name}" in line_starts(text) else []
            continue
        command = COMMANDS[name]
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest[0]]
            name, rest = f"{name} {rest[0]}", rest[1:]
        takes = {option for p in command.params for option in p.opts} | {"--help"}
        unknown += [f"{name} {word}" for word in rest if re.match(r"--?[a-z]", word) and word not in takes]
    return unknown


def line_starts(text: str) -> set[str]:
    """The first two words of shell lines and of code spans that begin with `lanewise`: elsewhere it is the project's name."""
    return {" ".join(words.split()[:2]) for words in re.findall(r"(?:^|`)(lanewise [a-z]+)", text, re.MULTILINE)}


def unknown_targets(text: str) -> list[str]:
    defined = set(re.findall(r"^([a-z]+)\b[^=\n]*:(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {target for line in re.findall(r"(?:^|`)make ([a-z ]+)", text, re.MULTILINE) for target in line.split()}
    return sorted(used - defined)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_module_do_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_the_main_public_functions_have_examples():
    finder = doctest.DocTestFinder()
    for name in ("arch", "contract", "settings", "formats", "files.metadata"):
        assert any(t.examples for t in finder.find(importlib.import_module(f"lanewise.{name}")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_inside_the_project_resolve(document):
    assert broken_links(document) == []


@pytest.mark.parametrize("name", READERS)
def test_commands_and_targets_that_a_document_names_exist(name):
    assert unknown_commands(READERS[name]) == []
    assert unknown_targets(READERS[name]) == []


@pytest.mark.parametrize("name", READERS)
def test_source_files_that_a_document_names_exist(name):
    paths = re.findall(r"`((?:lanewise|tests|docs|tools)/[\w./-]*)`", READERS[name])
    assert [p for p in paths if not (ROOT / p).exists()] == []


def test_the_readme_lists_every_format_and_family_and_no_other():
    (formats,) = re.findall(r"^\| Formats \| ([^|]+) \|", READERS["README.md"], re.MULTILINE)
    assert formats.split(", ") == list(FORMATS)
    (families,) = re.findall(r"^\| Models \| ([^|]+) \|", READERS["README.md"], re.MULTILINE)
    assert re.findall(r"`(\w+)`", families) == list(FAMILIES)


def test_the_types_in_examples_of_quantize_exist():
    types = {t for text in READERS.values() for t in re.findall(r"lanewise quantize [^\n`]*--type ([A-Z]\w+)", text)}
    assert types <= {*quantize_types(), "T"}


def test_every_command_is_documented_for_users():
    assert [name for name in COMMANDS if f"lanewise {name}" not in READERS["user.md"]] == []


def test_the_makefile_explains_its_targets():
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True, timeout=60)
    assert {"demo", "test", "lint", "clean"} <= set(re.findall(r"^make (\w+)", done.stdout, re.MULTILINE))


def test_a_planted_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](gone.md) [b](page.md) [c](https://example.com/x) [d](#a-heading) [e](#gone) [f](page.md#gone)")
    assert broken_links(page) == ["gone.md", "#gone", "page.md#gone"]


def test_a_planted_command_option_or_target_that_is_not_there_is_found():
    text = "`lanewise fly MODEL`\nlanewise chat m.gguf --wings\nlanewise generate m -p x --seed 1\nLanewise, or lanewise as it is\n`make coffee`\n"
    assert unknown_commands(text) == ["fly", "chat --wings"]
    assert unknown_commands("lanewise bench model m --tg 1 --wings\n") == ["bench model --wings"]
    assert unknown_targets(text) == ["coffee"]
