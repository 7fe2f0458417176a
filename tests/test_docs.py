"""The documents tell the truth: doctests run, commands and targets exist, links resolve, lists match the code.

The rules are those of `lanewise.gates.docs`; here are the doctests, and planted violations of what the rules look for.
"""

import doctest
import importlib
import pkgutil
import re
import subprocess

import pytest
from support.repo import REPO, ROOT, tree, words

import lanewise
from lanewise.gates import citations, commands, docs

MODULES = sorted(m.name for m in pkgutil.walk_packages(lanewise.__path__, "lanewise."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_module_do_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_the_main_public_functions_have_examples():
    finder = doctest.DocTestFinder()
    for name in ("arch", "contract", "settings", "formats", "files.metadata"):
        assert any(t.examples for t in finder.find(importlib.import_module(f"lanewise.{name}")))


@pytest.mark.parametrize("rule", docs.RULES, ids=lambda rule: rule.name)
def test_a_rule_about_documents_holds(rule):
    complaints = list(rule.check(REPO))
    assert [c.words for c in complaints if not any(row.covers(c) for row in rule.excepted)] == []


def test_the_makefile_explains_its_targets():
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True, timeout=60)
    assert {"demo", "test", "lint", "clean"} <= set(re.findall(r"^make (\w+)", done.stdout, re.MULTILINE))


def test_a_planted_broken_link_is_found(tmp_path):
    page = "# A heading\n[a](gone.md) [b](page.md) [c](https://example.com/x) [d](#a-heading) [e](#gone) [f](page.md#gone)"
    found = words(citations.broken_links, tree(tmp_path, {"docs/page.md": page}))
    assert found == [f"docs/page.md: the link {link} leads nowhere" for link in ("gone.md", "#gone", "page.md#gone")]


def test_a_planted_command_option_or_target_that_is_not_there_is_found(tmp_path):
    shell = "```sh\nlanewise chat m.gguf --wings\nlanewise generate m -p x --seed 1\n```\n```\nlanewise bench model m --tg 1 --wings\n```\n"
    repo = tree(tmp_path, {"page.md": f"{shell}`lanewise fly MODEL`\nLanewise, or lanewise as it is\n`make coffee`\n`lanewise bench kernels`\n"})
    repo.inventory = REPO.inventory
    found = [complaint.what for complaint in commands.unknown(repo)]
    assert found == ["option --wings", "option --wings", "command fly", "coffee", "command kernels"]
