"""`python -m lanewise.gates`: this repository passes, and only what was asked and holds is green."""

import functools
import json

import pytest
from click.testing import CliRunner
from support.repo import REPO, ROOT

from lanewise import gates
from lanewise.gates import GATES, Complaint, Excepted, Finding, Repo, Rule, Skip
from lanewise.gates.__main__ import main
from lanewise.gates.finding import judge


def _skips(repo):
    raise Skip("no compiler is here")


def _complains(repo):
    return [Complaint("a.py", "x", "a.py: x")]


HOLDS, BROKEN, SKIPPED = Rule("holds", "it holds", lambda repo: []), Rule("broken", "it holds", _complains), Rule("skipped", "it holds", _skips)


@functools.cache
def findings(name):
    return GATES[name](REPO)


@pytest.mark.parametrize("name", GATES)
def test_the_repo_passes_every_gate(name):
    assert [str(finding) for finding in findings(name) if finding.state != "ok"] == []


@pytest.mark.parametrize("name", GATES)
def test_a_gate_asks_all_of_its_rules(name):
    module = getattr(gates, name)
    asked = [finding.rule for finding in findings(name)]
    assert list(dict.fromkeys(asked)) == [rule.name for rule in module.RULES]
    assert len(set(asked)) == len(module.RULES)


def test_a_rule_says_ok_or_fail_or_skip_with_its_reason():
    said = [str(finding) for finding in judge("gate", [HOLDS, BROKEN, SKIPPED], Repo(ROOT))]
    assert said == ["ok   gate.holds: it holds", "FAIL gate.broken: a.py: x", "SKIP gate.skipped: no compiler is here"]


def test_a_skip_or_a_failure_is_not_green():
    def green(*rules):
        return gates.green(judge("gate", rules, Repo(ROOT)))

    assert green(HOLDS)
    assert not green(HOLDS, BROKEN)
    assert not green(HOLDS, SKIPPED)
    assert not gates.green([])


def test_an_exception_covers_its_complaint_and_expires_with_it():
    row, stale, unreasoned = Excepted("a.py", "x", "it must"), Excepted("b.py", "x", "it must"), Excepted("a.py", "*", " ")
    for rows, failures in (((row,), []), ((row, stale), ["b.py: x is excepted (it must), and nothing is left to except"])):
        found = judge("gate", [Rule("broken", "it holds", _complains, rows)], Repo(ROOT))
        assert [f.words for f in found if f.state == "FAIL"] == failures
    assert "without a reason" in judge("gate", [Rule("broken", "it holds", _complains, (unreasoned,))], Repo(ROOT))[0].words


@pytest.mark.parametrize(("state", "code", "last"), [("ok", 0, "green: 1 ok"), ("FAIL", 1, "NOT green: 0 ok, 1 FAIL"), ("SKIP", 1, "0 FAIL, 1 SKIP")])
def test_the_program_says_what_was_found_and_exits_with_it(monkeypatch, state, code, last):
    monkeypatch.setitem(GATES, "docs", lambda repo: [Finding("docs", "rule", state, "why")])
    done = CliRunner().invoke(main, ["--only", "docs"])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (code, f"{state:4} docs.rule: why")
    assert last in done.stdout.splitlines()[-1]
    found = CliRunner().invoke(main, ["--only", "docs", "--json"])
    assert found.exit_code == code
    assert json.loads(found.stdout) == {"green": not code, "findings": [{"gate": "docs", "rule": "rule", "state": state, "words": "why"}]}


def test_without_only_every_gate_is_asked(monkeypatch):
    for name in GATES:
        monkeypatch.setitem(GATES, name, lambda repo, name=name: [Finding(name, "rule", "ok", "why")])
    assert [line.split()[1] for line in CliRunner().invoke(main, []).stdout.splitlines()[:-1]] == [f"{name}.rule:" for name in GATES]


def test_a_gate_that_is_not_there_and_a_folder_that_is_no_checkout_are_refused(tmp_path):
    assert CliRunner().invoke(main, ["--only", "coffee"]).exit_code == 2
    done = CliRunner().invoke(main, ["--root", str(tmp_path)])
    assert done.exit_code == 2
    assert "is no checkout" in done.stderr
